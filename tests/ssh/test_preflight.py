"""What is found out about hosts before the first task starts, and what is said of it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.waiting import wait_until

PORTS = "21000-21999"
OLD = """\
#!{python} -u
import runpy, sys
sys.version_info = (3, 8, 1, "final", 0)
if sys.argv[1] == "-c":
    code, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
    exec(code)
else:
    runpy.run_path(sys.argv[1])
"""
WRONG_CLOCK = """\
#!/bin/sh
[ "$1" = -I ] || exec /usr/bin/env -u PATH {python} "$@"
exec {python} "$1" "$2" "$3" "import time; now = time.time; time.time = lambda: now() - 90
$4"
"""
HANGING = """\
#!/bin/sh
echo "$PPID" >> {marks}
exec sleep 1000
"""


@pytest.fixture
def script(distrun: Distrun) -> Path:
    """A script that tells when it has run, in a folder of its own."""
    path = distrun.cwd / "program" / "train.py"
    path.parent.mkdir()
    path.write_text("print('I RAN')\n")
    return path


@pytest.fixture
def hanging(distrun: Distrun) -> tuple[Path, Path]:
    """An interpreter that does not answer, and the file in which each start of it is a line."""
    marks = distrun.cwd / "marks"
    return program(distrun.cwd / "hanging", HANGING.format(marks=marks)), marks


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def running(script: Path, **keys: Any) -> dict[str, Any]:
    return {"script": str(script), "sync": "off", "python": "python3", **keys}


def site(tmp_path: Path, version: str) -> str:
    """A folder for PYTHONPATH in which TensorFlow seems to be installed."""
    folder = tmp_path / f"site-{version}"
    info = folder / f"tensorflow-{version}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Name: tensorflow\nVersion: {version}\n")
    return str(folder)


def assert_nothing_left(ssh: Ssh, hosts: list[Host]) -> None:
    # Longer than the lease of an agent that was too slow to be waited for.
    wait_until(lambda: not any(map(ssh.processes, hosts)), 90, "every host is clean")
    for host in hosts:
        assert [path for path in host.home.rglob("*") if not path.is_dir()] == []


def test_firewalls_are_named_with_hosts_and_ports_before_any_task_starts(
    ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2, h3 = ssh.hosts(3)
    h2.block("reject", PORTS, h1.address)
    h3.block("drop", PORTS, h1.address, h2.address)
    spec = ssh.spec("echo I RAN", [h1, h2, h3], ports={"range": PORTS})
    done = distrun("launch", spec)
    assert done.returncode == 69
    assert f"h1 cannot reach h2 at {h2.address}:21" in done.stderr
    assert f"h1, h2 cannot reach h3 at {h3.address}:21" in done.stderr
    assert "refused: a firewall" in done.stderr
    assert "no answer within 5 s" in done.stderr
    assert "h3 cannot reach" not in done.stderr
    assert done.stderr.count("let the hosts reach each other") == 1, "the same advice once"
    assert "Traceback" not in done.stderr
    assert "I RAN" not in done.stdout
    told = distrun("events").stdout
    assert "h1 cannot reach h2" in told
    assert "started" not in told
    assert_nothing_left(ssh, [h1, h2, h3])

    skipped = distrun.checked("launch", "--no-preflight", spec)
    assert skipped.stdout.count("I RAN") == 3
    told = distrun("events").stdout
    assert "preflight was skipped" in told
    assert "preflight:" not in told


def test_all_that_is_wrong_on_any_host_is_said_at_once(
    script: Path, ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2, h3, h4 = ssh.hosts(4)
    old = program(distrun.cwd / "python3.8", OLD.format(python=sys.executable))
    site_of = [site(distrun.cwd, version) for version in ("2.21.0", "2.15.1")]
    clock = program(distrun.cwd / "bin" / "python3", WRONG_CLOCK.format(python=sys.executable))
    h4.change(sshd=f"SetEnv PATH={clock.parent}:/usr/bin:/bin\n")
    proxied = {"grpc_proxy": "http://proxy:3128", "no_grpc_proxy": "localhost"}
    on = [
        {"name": "h1", "env": {"PYTHONPATH": site_of[0]}, "python": sys.executable},
        {"name": "h2", "env": {"PYTHONPATH": site_of[0]}, "python": str(old)},
        {"name": "h3", "env": {"PYTHONPATH": site_of[1]}, "python": sys.executable},
        {"name": "h4", "env": {"PYTHONPATH": site_of[0], **proxied}, "python": sys.executable},
    ]
    spec = ssh.spec("", [h1, h2, h3, h4], hosts=on, program=running(script, workdir="/"))
    other = distrun.cwd / "other.py"
    other.write_text("print('I AM OLD')\n")
    empty = distrun.cwd / "empty"
    empty.mkdir()
    h2.cover(script, other)
    h3.cover(script.parent, empty)
    usual = f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"
    began = time.monotonic()
    done = distrun("launch", spec)
    took = time.monotonic() - began
    assert done.returncode == 69
    for said in (
        f"failed: h2: {script} is not the same as on this machine",
        f"failed: h2: {old} has Python 3.8.1; that of h1, h3, h4 has {usual}",
        f"failed: h3: {script} cannot be read: No such file",
        f"failed: h3: {sys.executable} has TensorFlow 2.15.1; that of h1, h2, h4 has 2.21.0",
        "failed: h4: grpc_proxy is set and no_proxy leaves hosts of the cluster out",
    ):
        assert said in done.stderr
    late = re.search(r"warning: h4: its clock is ([\d.]+) s behind", done.stderr)
    assert late, done.stderr
    # An answer that is long on its way tells no better what the time was there.
    assert abs(float(late[1]) - 90) <= took
    assert "h1: " not in done.stderr
    assert "RAN" not in done.stdout
    assert "OLD" not in done.stdout

    found = distrun("doctor", "--json", spec)
    assert found.returncode == 69
    said = json.loads(found.stdout)
    assert said["version"] == 2
    assert said["doctor"]["complete"]
    checks = said["doctor"]["checks"]
    assert [
        (each["host"], each["subject"], each["grade"])
        for each in sorted(checks, key=lambda each: (each["host"], each["subject"]))
        if each["grade"] in ("failed", "warning")
    ] == [
        *(("h2", "python", "failed"), ("h2", "script", "failed")),
        *(("h3", "script", "failed"), ("h3", "tensorflow", "failed")),
        *(("h4", "clock", "warning"), ("h4", "proxies", "failed")),
    ]


def test_doctor_looks_at_hosts_and_leaves_nothing_there(
    script: Path, ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2, h3 = ssh.hosts(3)
    spec = ssh.spec("", [h1, h2, h3], program=running(script))
    well = distrun.checked("doctor", spec)
    rows = [line.split() for line in well.stdout.splitlines()]
    assert ["network", "ok", "all", "3"] in [row[:4] for row in rows]
    told = {row[0] for row in rows if "ok" in row}
    assert {"reached", "network", "clock", "script", "python", "disk", "workdir"} <= told
    assert "failed" not in well.stdout
    assert "all passed" in well.stderr
    assert distrun("ps", "-a").stdout.count("\n") <= 1, "it made a job"

    h2.block("reject", "1024-65535", h1.address)
    h3.block("reject", "22", ssh.network.gateway)
    ill = distrun("doctor", spec)
    assert ill.returncode == 69
    rows = [line.split() for line in ill.stdout.splitlines()]
    assert ["reached", "failed", "h3"] in [row[:3] for row in rows]
    assert f"h1 cannot reach h2 at {h2.address}:" in ill.stdout
    assert "what to do:" in ill.stdout
    assert "hosts that cannot be used were left out of the other checks" in ill.stderr
    assert_nothing_left(ssh, [h1, h2])


def test_doctor_measures_how_fast_hosts_receive_from_each_other(ssh: Ssh, distrun: Distrun) -> None:
    these = ssh.hosts(3)
    these[2].slow_down("8mbit")
    # Two rounds of a second each: what they take is not part of the time for a start.
    spec = ssh.spec("true", these, timeouts={"start": "2s"})
    done = distrun.checked("doctor", "--bandwidth", "--json", spec)
    checks = json.loads(done.stdout)["doctor"]["checks"]
    found = [each for each in checks if each["subject"] == "bandwidth"]
    assert [each["grade"] for each in found] == ["ok", "ok", "warning"]
    slow = found[2]["cause_code"]
    assert slow["code"] == "bandwidth_low"
    assert 0.5e6 < slow["total"] < 1.5e6 < slow["count"]  # sent, received: bytes a second


def test_doctor_names_what_it_did_not_look_at(script: Path, ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    there = {"name": "h1", "python": sys.executable}
    program(distrun.cwd / "run.sh", "#!/bin/sh\necho I RAN\n")
    for keys, subject, name in (
        ({"script": str(script)}, "script", str(script)),
        ({"command": ["./run.sh"]}, "program", "./run.sh"),
    ):
        doctor = distrun.checked(
            "doctor", "--json", ssh.spec("", [h1], hosts=[there], program=keys)
        )
        checks = json.loads(doctor.stdout)["doctor"]["checks"]
        (note,) = (each for each in checks if each["subject"] == subject)
        assert note["grade"] == "note"
        assert note["text"] == f"{name} was not inspected: a launch sends it first"


@pytest.mark.parametrize("told", [("launch", "INT"), ("doctor", "TERM")])
def test_a_signal_ends_a_preflight_though_hosts_hang(
    told: tuple[str, str], hanging: tuple[Path, Path], script: Path, ssh: Ssh, distrun: Distrun
) -> None:
    command, number = told[0], signal.Signals[f"SIG{told[1]}"]
    h1, h2, h3 = ssh.hosts(3)
    python, marks = hanging
    spec = ssh.spec("", [h1, h2, h3], program=running(script, python=str(python)))
    temporary = spec.parent / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = distrun.start(command, spec, stdout=-3, stderr=-3, env=environment)
    wait_until(lambda: marks.exists() and marks.read_text().count("\n") == 3)
    if command == "launch":
        h3.cut()
    process.send_signal(number)
    # The hanging programs themselves would be waited for for 20 s from their start on.
    assert process.wait(15) == 128 + number
    assert not list(temporary.iterdir())
    assert_nothing_left(ssh, [h1, h2])


def test_a_preflight_counts_as_time_in_which_a_job_has_not_started(
    hanging: tuple[Path, Path], script: Path, ssh: Ssh, distrun: Distrun
) -> None:
    two = ssh.hosts(2)
    program = running(script, python=str(hanging[0]))
    done = distrun("launch", ssh.spec("", two, program=program, timeouts={"start": "1500ms"}))
    assert done.returncode == 75
    assert "Traceback" not in done.stderr
    assert_nothing_left(ssh, two)


def test_a_folder_that_hosts_must_share_is_checked_with_a_file(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, h3 = ssh.hosts(3)
    shared, own = distrun.cwd / "shared folder", distrun.cwd / "own"
    shared.mkdir()
    own.mkdir()
    h3.cover(own, h3.home)  # h1 and h2 share it

    def launch(*folders: str, **keys: Any) -> Any:
        program = {"command": ["sh", "-c", "echo I RAN"], "shared": list(folders)}
        done = distrun("launch", ssh.spec("", [h1, h2, h3], program=program, **keys))
        for folder in (shared, own, h1.home, h2.home, h3.home):
            assert not list(folder.rglob(".distrun-shared-*")), "all files are removed"
        assert "Traceback" not in done.stderr
        return done

    left = shared / ".distrun-shared-0123456789abcdef"  # by an agent that was killed
    left.touch()
    os.utime(left, (1, 1))
    done = launch(str(shared), f"{shared}/not/yet")
    assert done.returncode == 0, done.stderr
    done = launch(str(shared), str(own), f"{own}/run/1")
    assert done.returncode == 69
    assert f"{own} on h3 is not the folder that h1 has" in done.stderr
    assert f"{own}/run/1 on h3 is not" in done.stderr
    assert f"{own} on h2" not in done.stderr
    assert "`program.shared`" in done.stderr
    assert "I RAN" not in done.stdout
    homes = [{"name": host.name, "workdir": str(host.home)} for host in (h1, h2, h3)]
    done = launch("checkpoints", hosts=homes)
    assert done.returncode == 69
    assert "checkpoints on h2 is not the folder that h1 has" in done.stderr
    told = json.loads(distrun("doctor", distrun.cwd / "job.yaml", "--json").stdout)["doctor"]
    grades = {each["host"]: each["grade"] for each in told["checks"] if each["subject"] == "shared"}
    assert grades == {"h1": "ok", "h2": "failed", "h3": "failed"}
    for host in (h1, h2, h3):
        (host.home / "read only").mkdir()
    h2.is_changed = True
    h2.run("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(h2.home / "read only"))
    done = launch("read only", hosts=[homes[1], homes[0]])
    assert done.returncode == 69
    assert (
        "h2: a file in read only cannot be written and read: Read-only file system" in done.stderr
    )


def test_a_killed_launch_leaves_no_file_in_a_shared_folder(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    h2.block("drop", PORTS, h1.address)  # so that h1 dials for seconds
    shared = distrun.cwd / "shared"
    shared.mkdir()
    program = {"command": ["true"], "shared": [str(shared)]}
    spec = ssh.spec("", [h1, h2], program=program, ports={"range": PORTS})
    launch = distrun.start("launch", spec, stdout=-3, stderr=-3)
    wait_until(lambda: len(list(shared.iterdir())) == 2, 30, "each has written a file")
    launch.kill()
    launch.wait()
    wait_until(lambda: not list(shared.iterdir()), 30, "the agents have removed them")


RESUMES = """
import os, time
first = 41 if os.environ["DISTRUN_TASK"] == "worker:0" else 1
if os.environ["DISTRUN_ATTEMPT"] == "0":
    raise FileNotFoundError(2, "No such file or directory", "{folder}/ckpt-40.index")
for step in range(first, first + 20):
    print(f"step {{step}}: loss 0.5", flush=True)
    time.sleep(0.05)
"""


def test_verdicts_know_that_the_folder_of_the_checkpoints_is_not_shared(
    ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    where = [{"name": host.name, "workdir": "~"} for host in (h1, h2)]  # each has its own
    code = RESUMES.format(folder="run")
    program = {"command": ["python3", "-c", code], "args": ["--checkpoint-dir=run"]}
    restart = {"max": 1, "backoff": "10ms"}
    spec = ssh.spec("", [h1, h2], program=program, hosts=where, restart=restart)
    done = distrun.checked("launch", spec)
    assert "--checkpoint-dir 'run': each host may have such a folder of its own" in done.stderr
    unshared = "run on h2 is not the folder that h1 has"
    assert f"distrun: warning: {unshared}" in done.stderr
    told = distrun("events").stdout
    assert re.search(rf"run/ckpt-40.index is not on h[12]; {unshared}", told), told
    assert re.search(rf"worker:0 at step 41; worker:1 at step 1; {unshared}", done.stderr)
    assert "`program.shared`" in done.stderr

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


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


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
    told = distrun.asked("events")
    assert "h1 cannot reach h2" in told
    assert "started" not in told
    assert_nothing_left(ssh, [h1, h2, h3])


def test_all_that_is_wrong_on_any_host_is_said_at_once_and_nothing_is_left(
    ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2, h3, h4, h5 = ssh.hosts(5)
    script = program(distrun.cwd / "program" / "train.py", "print('I RAN')\n")
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
        {"name": "h5", "python": sys.executable},
    ]
    keys = {"script": str(script), "sync": "off", "python": "python3", "workdir": "/"}
    spec = ssh.spec("", [h1, h2, h3, h4, h5], hosts=on, program=keys)
    other = program(distrun.cwd / "other.py", "print('I AM OLD')\n")
    empty = distrun.cwd / "empty"
    empty.mkdir()
    h2.cover(script, other)
    h3.cover(script.parent, empty)
    h5.block("reject", "22", ssh.network.gateway)
    began = time.monotonic()
    found = distrun("doctor", "--json", spec)
    took = time.monotonic() - began
    assert found.returncode == 69
    doctor = json.loads(found.stdout)["doctor"]
    assert not doctor["complete"], "a host that cannot be used is left out of the other checks"
    told = {
        (each["host"], each["subject"], each["grade"]): each["text"]
        for each in doctor["checks"]
        if each["grade"] in ("failed", "warning")
    }
    usual = f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"
    assert told.pop(("h2", "script", "failed")) == f"{script} is not the same as on this machine"
    assert f"Python 3.8.1; that of h1, h3, h4 has {usual}" in told.pop(("h2", "python", "failed"))
    assert "cannot be read: No such file" in told.pop(("h3", "script", "failed"))
    assert "2.15.1; that of h1, h2, h4 has 2.21.0" in told.pop(("h3", "tensorflow", "failed"))
    assert "no_proxy leaves hosts of the cluster out" in told.pop(("h4", "proxies", "failed"))
    late = re.search(r"its clock is ([\d.]+) s behind", told.pop(("h4", "clock", "warning")))
    # An answer that is long on its way tells no better what the time was there.
    assert late is not None
    assert abs(float(late[1]) - 90) <= took
    assert [*told] == [("h5", "reached", "failed")]
    assert distrun.asked("ps", "-a").count("\n") <= 1, "it made a job"
    assert_nothing_left(ssh, [h1, h2, h3, h4])


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


def test_a_signal_ends_a_preflight_though_hosts_hang(ssh: Ssh, distrun: Distrun) -> None:
    three = ssh.hosts(3)
    marks = distrun.cwd / "marks"
    python = program(distrun.cwd / "hanging", HANGING.format(marks=marks))
    script = program(distrun.cwd / "train.py", "")
    temporary, shared = distrun.cwd / "temporary", distrun.cwd / "shared"
    for each in (temporary, shared):
        each.mkdir()
    keys = {"script": str(script), "sync": "off", "python": str(python), "shared": [str(shared)]}
    environment = {**os.environ, "TMPDIR": str(temporary)}
    spec = ssh.spec("", three, program=keys)
    process = distrun.start("launch", spec, stdout=-3, stderr=-3, env=environment)
    wait_until(lambda: marks.exists() and marks.read_text().count("\n") == 3)
    three[2].cut()
    process.send_signal(signal.SIGINT)
    # The hanging programs themselves would be waited for for 20 s from their start on.
    assert process.wait(15) == 130
    assert not list(temporary.iterdir())
    assert_nothing_left(ssh, three[:2])
    wait_until(lambda: not list(shared.iterdir()), 90, "their files are removed")


def test_a_folder_that_hosts_must_share_is_checked_with_a_file(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, h3 = ssh.hosts(3)
    shared, own = distrun.cwd / "shared folder", distrun.cwd / "own"
    shared.mkdir()
    own.mkdir()
    h3.cover(own, h3.home)  # h1 and h2 share it

    def launch(*folders: str) -> Any:
        program = {"command": ["sh", "-c", "echo I RAN"], "shared": list(folders)}
        done = distrun("launch", ssh.spec("", [h1, h2, h3], program=program))
        for folder in (shared, own, h1.home, h2.home, h3.home):
            assert not list(folder.rglob(".distrun-shared-*")), "all files are removed"
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
    assert "I RAN" not in done.stdout


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
    told = distrun.asked("events")
    assert re.search(rf"run/ckpt-40.index is not on h[12]; {unshared}", told), told
    assert re.search(rf"worker:0 at step 41; worker:1 at step 1; {unshared}", done.stderr)
    assert "`program.shared`" in done.stderr

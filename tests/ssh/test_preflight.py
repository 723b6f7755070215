"""What is found out about hosts before the first task starts: which cannot be used, and why."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun, recorded_events, write_program
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.processes import captured
from harness.requirements import missing
from harness.values import not_none
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


def test_firewalls_are_named_with_hosts_and_ports_first(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, h3 = ssh.hosts(3)
    h2.block("reject", PORTS, h1.address)
    h3.block("drop", PORTS, h1.address, h2.address)
    spec = ssh.spec("echo I RAN", [h1, h2, h3], ports={"range": PORTS})
    distrun.told(69, "launch", spec)
    events = recorded_events(distrun)
    assert "TaskStarted" not in [each["event"] for each in events]
    failed = [each for each in events if each.get("grade") == "failed"]
    assert [(each["host"], each["dialled_from"]) for each in failed] == [
        ("h2", ["h1"]), ("h3", ["h1", "h2"]),
    ]  # fmt: skip
    why = [each["code"] for one in failed for each in one["cause_code"]["within"]]
    assert why == ["connection_refused", "connection_timed_out"]
    assert failed[0]["addresses"][0].startswith(f"{h2.address}:21")
    assert_nothing_left(ssh, [h1, h2, h3])


def test_all_that_is_wrong_is_said_at_once(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, h3, h4, h5 = ssh.hosts(5)
    script = write_program(distrun.cwd / "program" / "train.py", "import only\n")
    old = write_program(distrun.cwd / "python3.8", OLD.format(python=sys.executable))
    site_of = [site(distrun.cwd, version) for version in ("2.21.0", "2.15.1")]
    for each in site_of:
        Path(each, "only.py").touch()
    text = WRONG_CLOCK.format(python=sys.executable)
    clock = write_program(distrun.cwd / "bin" / "python3", text)
    h4.change(sshd=f"SetEnv PATH={clock.parent}:/usr/bin:/bin\n")
    on = [
        {"name": "h1", "env": {"PYTHONPATH": site_of[0]}, "python": sys.executable},
        {"name": "h2", "env": {"PYTHONPATH": site_of[0]}, "python": str(old)},
        {"name": "h3", "env": {"PYTHONPATH": site_of[1]}, "python": sys.executable},
        {"name": "h4", "env": {"PYTHONPATH": site_of[0]}, "python": sys.executable},
        {"name": "h5", "python": sys.executable},
    ]
    keys = {"script": str(script), "sync": "off", "python": "python3", "workdir": "/"}
    other = write_program(distrun.cwd / "other.py", "print('I AM OLD')\n")
    lacking = {"PYTHONPATH": site(distrun.cwd / "others", "2.21.0")}
    roles = {  # what the program that trains needs is no need of theirs
        "shell": {"command": ["python3", "-c", "0"], "env": {"PYTHONPATH": ""}},
        "reader": {"script": str(other), "env": lacking},
    }
    cluster = {"worker": 5, **roles}
    spec = ssh.spec("", [h1, h2, h3, h4, h5], hosts=on, program=keys, cluster=cluster)
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
        (each["host"], each["subject"], each["grade"]): each["cause_code"]
        for each in doctor["checks"]
        if each["grade"] in ("failed", "warning")
    }
    usual = f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"
    differs = told.pop(("h2", "script", "failed"))
    assert (differs["code"], differs["path"]) == ("script_differs", str(script))
    (unread,) = told.pop(("h3", "script", "failed"))["within"]
    assert (unread["code"], unread["errno"]) == ("script_not_read", errno.ENOENT)
    for host, subject, versions, others in (
        ("h2", "python", ("3.8.1", usual), {"h1", "h3", "h4"}),
        ("h3", "tensorflow", ("2.15.1", "2.21.0"), {"h1", "h2", "h4"}),
    ):
        version = told.pop((host, subject, "failed"))
        assert ((version["version"], version["expected"]), {*version["hosts"]}) == (
            versions,
            others,
        )
    # An answer that is long on its way tells no better what the time was there.
    assert abs(told.pop(("h4", "clock", "warning"))["seconds"] + 90) <= took
    assert [*told] == [("h5", "reached", "failed")]
    shown = distrun("doctor", spec)
    assert "\n  clock (h4): logs are merged" in shown.stdout
    assert "the job cannot run" in shown.stderr
    alone = distrun("doctor", spec, "--set", "cluster={worker: 1}")
    assert "the job can run: these hosts get no task" in alone.stderr
    told_of_h2 = {line.split()[0] for line in alone.stdout.split("\n") if " h2 " in line}
    assert {"script", "python"} <= told_of_h2, "a host without a task is checked, too"
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
    assert 0.5e6 < slow["total"] < 1.5e6  # bytes a second


def test_a_spare_out_of_reach_is_left_out_of_a_plan(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, h3 = ssh.hosts(3)
    h3.cut()
    login = {"config_file": str(ssh.network.ssh_config), "connect_timeout": "1s"}
    spec = ssh.spec("true", [h1, h2, h3], cluster={"worker": 1}, spares=2, ssh=login)
    plan = json.loads(distrun.checked("plan", "--json", spec).stdout)["plan"]
    assert [each["name"] for each in plan["spares"]] == [h2.name]
    assert [*plan["spares_left_out"]] == [h3.name]


def test_a_signal_ends_a_preflight_though_hosts_hang(ssh: Ssh, distrun: Distrun) -> None:
    three = ssh.hosts(3)
    marks = distrun.cwd / "marks"
    python = write_program(distrun.cwd / "hanging", HANGING.format(marks=marks))
    script = write_program(distrun.cwd / "train.py", "")
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


def test_verdicts_know_that_checkpoints_are_not_shared(ssh: Ssh, distrun: Distrun) -> None:
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


# Disks without room at $2, /var/tmp and /tmp; what the network's folder $1 holds stays.
FULL = """\
set -e
mkdir /run/kept && mount --rbind "$1" /run/kept
for place in /tmp /var/tmp "$2"; do
    mount -t tmpfs -o size=64k none "$place"
    if [ "$place" = /tmp ]; then mkdir -p "$1" && mount --rbind /run/kept "$1"; fi
    head -c 1000000 /dev/zero > "$place/full" 2>/dev/null || :
done
"""


def refused(distrun: Distrun, spec: Path) -> str:
    """What a launch says that ends for a host's sake."""
    return distrun.told(69, "launch", spec)


OLD_PYTHON = """\
#!/bin/sh
shift 3
exec /usr/bin/python3 -I -S -c "import sys; sys.version_info = (3, 6, 9)
$1"
"""
PROFILE = "does a shell profile there read standard input"
PROFILES = ("read line", "exec bash", "exec </dev/null")
"""What takes the bytes that distrun sends."""


def test_each_unusable_host_is_told_with_its_own_cause(ssh: Ssh, distrun: Distrun) -> None:
    on = ssh.hosts(7 + len(PROFILES))
    forged, unknown, asks, closed, bare, old, leaves, *takers = on
    known = ssh.network.folder / "known_hosts"
    keys = known.read_text()
    changed = (forged.address, unknown.address)
    others = [line for line in keys.splitlines() if line.split()[0] not in changed]
    known.write_text("\n".join(others) + f"\n{forged.address} {others[0].partition(' ')[2]}\n")
    asks.change(sshd="PasswordAuthentication yes\nPubkeyAuthentication no\n")
    closed.change(shell="/usr/sbin/nologin")
    (distrun.cwd / "bin").mkdir()
    bare.change(sshd=f"SetEnv PATH={distrun.cwd}/bin\n")
    old.provide("python3", OLD_PYTHON)
    scripts = ("echo asking for the way; exit 3", *PROFILES)
    for host, profile in zip((leaves, *takers), scripts, strict=True):
        host.change(shell="/bin/bash")
        host.home.joinpath(".bashrc").write_text(f"{profile}\n")
    try:
        said = " ".join(refused(distrun, ssh.spec("true", on)).split())
    finally:
        known.write_text(keys)
    # Were a password waited for, the login would not come to an end, and that would be said.
    told: dict[Host, list[str]] = {
        forged: [
            "its host key is not the one in known_hosts",
            f"{forged.name}` shows the file and line",
        ],
        unknown: ["its host key is not known"],
        asks: ["the login is refused", "Permission denied", "ssh-copy-id"],
        closed: ["its account runs no commands", "This account is currently not available"],
        bare: ["there is no python3 on it", "install Python 3.8 or newer"],
        old: ["python3 is 3.6, too old"],
        leaves: ["the login exited 3 before the agent could", "printed last: asking for the way"],
    }
    told |= {each: ["its Python does not receive what distrun sends", PROFILE] for each in takers}
    for host, (cause, *words) in told.items():
        assert f" {host.name}: {cause}" in said, said
        assert [each for each in words if each not in said] == [], said


def test_unreachable_hosts(monkeypatch: pytest.MonkeyPatch, ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    # Where there is no name server, that is known before ssh is given up.
    monkeypatch.setenv("RES_OPTIONS", "timeout:2 attempts:1")
    others = [f"{ssh.network.prefix}.200", "no-such-host.invalid"]
    config = distrun.cwd / "config"
    config.write_text(
        f"Host h1\n  Port 2222\nHost h2\n  ProxyJump h1\n{ssh.network.ssh_config.read_text()}"
    )
    keys = {"config_file": str(config), "connect_timeout": "2s"}
    names = [h1.name, h2.name, *others]
    spec = ssh.spec("true", [h1], hosts=names, cluster={"worker": 4}, ssh=keys)
    said = refused(distrun, spec)
    assert "hosts cannot be used\n" in said
    assert "\n  h1: nothing listens at its ssh port" in said
    assert f"\n  h2: its jump host {h1.address}: nothing listens" in said
    assert f"\n  {others[0]}: " in said
    assert "\n  no-such-host.invalid: its name cannot be resolved" in said
    assert said.count("its name cannot be resolved") == 1


def test_a_shared_connection_that_hangs_is_named(ssh: Ssh, distrun: Distrun) -> None:
    """A link over such a connection: tests/unit/test_ssh.py."""
    _, h2 = ssh.hosts(2)
    config, shared = distrun.cwd / "config", distrun.cwd / "shared"
    config.write_text(
        "Host h2\n  ProxyJump h1\nHost h1\n  ControlMaster auto\n  ControlPersist 300\n"
        f"  ControlPath {shared}\n{ssh.network.ssh_config.read_text()}"
    )
    keys = {"config_file": str(config), "connect_timeout": "1s"}
    spec = ssh.spec("true", [h2], ssh=keys)
    distrun.checked("launch", spec)
    ask = ["ssh", "-F", str(config), "-O", "check", "h1"]
    said = captured(ask).stderr
    master = psutil.Process(int(not_none(re.search(r"pid=(\d+)", said))[1]))
    master.suspend()  # it has outlived the job
    try:
        said = refused(distrun, spec)
    finally:
        master.kill()
    assert f"ssh shares the connection to h1 among logins, which may hang ({shared})" in said
    assert f"ssh -O exit -o ControlPath={shared} h1" in said


def test_an_sshd_with_too_many_at_its_door_is_asked_again(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    spec = ssh.spec("echo fine", [h1])
    for _ in range(5):
        h1.change(sshd="PerSourceMaxStartups 1\n")
        with socket.create_connection((h1.address, 22)) as other:
            assert other.recv(4) == b"SSH-"
            process = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)
            wait_until(lambda: "drop connection" in h1.sshd_log)
        out, said = process.communicate(timeout=60)
        if h1.sshd_log.count("drop connection") < 4:
            break  # else its door was not free again before the last of four tries
    assert process.returncode == 0, said
    assert out == "worker:0 | fine\n"


def test_hosts_without_a_disk_and_without_proc_are_told(ssh: Ssh, distrun: Distrun) -> None:
    full, hidden = on = ssh.hosts(2)
    full.is_changed = True
    full.run("sh", "-c", FULL, "-", str(ssh.network.folder), str(full.home))
    hidden.hide(Path("/proc"))
    said = " ".join(refused(distrun, ssh.spec("true", on)).split())
    assert " h1: there is no place for logs on it" in said
    assert "No space left on device" in said
    assert " h2: /proc is not mounted" in said


def test_printing_profiles_and_a_read_only_home_do_no_harm(ssh: Ssh, distrun: Distrun) -> None:
    profiles = {"bash": ".bashrc", "tcsh": ".cshrc", "zsh": ".zshenv"}
    profiles["fish"] = ".config/fish/config.fish"
    installed = {shell: path for shell in profiles if (path := shutil.which(shell))}
    *on, read_only = ssh.hosts(len(installed) + 1)
    for host, (shell, path) in zip(on, installed.items(), strict=True):
        host.change(shell=path)
        profile = host.home / profiles[shell]
        profile.parent.mkdir(parents=True, exist_ok=True)
        profile.write_text(
            'echo "Welcome"\nprintf "\\\\000\\\\000\\\\000\\\\020no frame"\necho oops >&2\n'
        )
    read_only.is_changed = True
    read_only.run("mount", "-o", "remount,bind,ro", str(read_only.home))
    script = '(: > "$HOME/x") && echo fine || echo read-only'
    done = distrun.checked("launch", ssh.spec(script, [*on, read_only]))
    words = [*("fine" for _ in on), "read-only"]
    printed = [f"worker:{index} | {word}" for index, word in enumerate(words)]
    assert {*printed} <= {*done.stdout.splitlines()}
    if lacking := missing(profiles):
        pytest.skip(f"the others passed; {lacking}")


def test_what_a_login_leaves_printing_disturbs_nothing(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    h1.change(shell="/bin/bash")
    # Beside a task that prints more than the link takes at once, some of it comes amid messages.
    # Then it goes on in silence, and holds ssh's output.
    h1.home.joinpath(".bashrc").write_text(
        "(for i in $(seq 200); do echo late $i; printf '\\0\\0\\0\\2{}'; sleep 0.005; done\n"
        "exec sleep 1000) &\n"
    )
    # Without a lease nothing else would end it.
    spec = ssh.spec("seq 300000; echo fine", [h1], timeouts={"link": "off"})
    done = distrun.checked("launch", spec)
    lines = [f"worker:0 | {number}" for number in [*range(1, 300001), "fine"]]
    assert done.stdout.splitlines() == lines
    assert "lost" not in distrun.asked("events")
    # Far sooner than an agent would go that takes its link for lost: after a minute.
    wait_until(lambda: not ssh.processes(h1, "python3"), 30)


def test_a_dead_agent_is_noticed_where_something_holds_ssh(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    h1.change(shell="/bin/bash")
    h1.home.joinpath(".bashrc").write_text("sleep 1000 &\n")
    fifo = distrun.cwd / "fifo"
    os.mkfifo(fifo)
    # Its silence is noticed well before the end of the lease, which would be told otherwise.
    spec = ssh.spec(f"exec cat {fifo}", [h1], timeouts={"link": "24s"})
    launch = distrun.start("launch", spec, stdout=-3, stderr=-1, text=True)
    (task,) = wait_until(lambda: ssh.processes(h1, "cat"))
    not_none(task.parent()).kill()
    _, said = launch.communicate(timeout=60)
    assert launch.returncode == 69
    assert "its agent is gone" in said
    assert not task.is_running()
    assert ssh.processes(h1, "sleep"), "what the profile has started is not the job's"

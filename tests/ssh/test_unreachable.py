"""Hosts that cannot be used: which, why in ssh's own words, and what to try, all at once."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.requirements import missing
from harness.values import not_none
from harness.waiting import wait_until

# So often an sshd is asked that has too many at its door.
TRIES = 4
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
    done = distrun("launch", spec)
    assert done.returncode == 69, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return str(done.stderr)


OLD_PYTHON = """\
#!/bin/sh
shift 3
exec /usr/bin/python3 -I -S -c "import sys; sys.version_info = (3, 6, 9)
$1"
"""
PROFILE = "does a shell profile there read standard input"
PROFILES = ("read line", "exec bash", "exec </dev/null")
"""What takes the bytes that distrun sends."""


def test_each_host_that_cannot_be_used_is_told_with_its_own_cause(
    ssh: Ssh, distrun: Distrun
) -> None:
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
            f'`ssh-keygen -f "{known}" -R "{forged.address}"` and',
        ],
        unknown: ["its host key is not known"],
        asks: ["the login is refused", "Permission denied", "ssh-copy-id"],
        closed: ["its account runs no commands", "This account is currently not available"],
        bare: ["there is no python3 on it", "install Python 3.8 or newer"],
        old: ["python3 is 3.6, too old"],
        leaves: ["the agent could not start there (ssh: asking for the way, exit code 3)"],
    }
    told |= {each: ["its Python does not receive what distrun sends", PROFILE] for each in takers}
    for host, (cause, *words) in told.items():
        assert f" {host.name}: {cause}" in said, said
        assert [each for each in words if each not in said] == [], said


def test_all_hosts_that_cannot_be_reached_are_named_at_once(
    monkeypatch: pytest.MonkeyPatch, ssh: Ssh, distrun: Distrun
) -> None:
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


def test_a_connection_that_ssh_shares_among_logins_and_that_hangs_is_named(
    ssh: Ssh, distrun: Distrun
) -> None:
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
    said = subprocess.run(ask, capture_output=True, text=True, check=False).stderr
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
        if h1.sshd_log.count("drop connection") < TRIES:
            break  # else its door was not free again before the last try
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


def test_profiles_that_print_and_a_home_that_is_read_only_disturb_nothing(
    ssh: Ssh, distrun: Distrun
) -> None:
    profiles = {"bash": ".bashrc", "fish": ".config/fish/config.fish", "tcsh": ".cshrc"}
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


def test_a_dead_agent_is_noticed_where_a_profile_leaves_a_process_that_holds_ssh(
    ssh: Ssh, distrun: Distrun
) -> None:
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

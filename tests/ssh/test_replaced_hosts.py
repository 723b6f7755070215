"""Hosts that are lost for good: their tasks restart on spares, never twice."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.waiting import wait_until

SOON = {"max": 5, "backoff": "50ms"}
# Runs until a file says so; the lock fails if another attempt of the task lives. The hosts share
# the file system.
LOCKED = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
echo "began on $(hostname), attempt $DISTRUN_ATTEMPT"
until [ -e {folder}/fail-$DISTRUN_TASK-$DISTRUN_ATTEMPT ] || [ -e {folder}/end ]; do
sleep 0.05; done
[ -e {folder}/end ]
"""
# An agent whose clock is wrong. Namespaces share the kernel's clock.
SHIFTED = """\
#!/bin/sh
[ "$3" = -c ] || exec /usr/bin/env -u PATH {python} "$@"
exec {python} "$1" "$2" "$3" "import time
real_time = time.time
time.time = lambda: real_time() + {seconds}
$4"
"""


def began(distrun: Distrun, task: str) -> list[str]:
    """Where and how each attempt of a task has begun, by its log."""
    log = distrun("logs", "--raw", "-t", task).stdout
    assert "TWO AT ONCE" not in log
    return re.findall(r"^began on (.*)$", log, re.MULTILINE)


def launch(distrun: Distrun, spec: Path) -> None:
    distrun.checked("launch", "-d", spec)
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in (0, 1)))


def end(ssh: Ssh, distrun: Distrun, on: list[Host]) -> None:
    """Let the job end, and see that it succeeds and leaves nothing."""
    (distrun.cwd / "end").touch()
    distrun.checked("wait")
    wait_until(lambda: not any(map(ssh.processes, on)))


def test_a_spare_that_cannot_be_used_is_a_warning(ssh: Ssh, distrun: Distrun) -> None:
    on = ssh.hosts(3)
    on[2].power_off()
    planned = distrun.checked("plan", ssh.spec("true", on, cluster={"worker": 2}, spares=1))
    assert "warning: the spare h3 cannot be used: " in planned.stdout


def test_a_host_whose_disk_is_gone_is_replaced(ssh: Ssh, distrun: Distrun) -> None:
    on = ssh.hosts(3)
    on[1].is_changed = True
    disk = on[1].home / ".local"
    disk.mkdir(exist_ok=True)
    on[1].run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk))
    script = LOCKED.format(folder=distrun.cwd)
    launch(distrun, ssh.spec(script, on, cluster={"worker": 2}, spares=1, restart=SOON))
    on[1].run("umount", "-l", str(disk))
    (distrun.cwd / "fail-worker:0-0").touch()
    wait_until(lambda: any(each.startswith("h3,") for each in began(distrun, "worker:1")))
    end(ssh, distrun, on)
    said = distrun("status").stdout  # the hosts are shown after the end as well
    why = "cannot be opened: No such file or directory"
    assert re.search(rf"^h2 is (lost|left out): .*{why}", said, re.MULTILINE), said
    assert "hosts in use: " in said
    assert "DISTRUN_HOME alone" not in said


def test_clocks_that_are_an_hour_off_change_nothing(ssh: Ssh, distrun: Distrun) -> None:
    on = ssh.hosts(3)
    for host, seconds in ((on[1], 3600), (on[2], -3600)):
        host.provide("python3", SHIFTED.format(python=sys.executable, seconds=seconds))
    spec = ssh.spec(
        LOCKED.format(folder=distrun.cwd), on, cluster={"worker": 2}, spares=1,
        timeouts={"link": "6s"}, restart=SOON,
    )  # fmt: skip
    launch(distrun, spec)
    behind = {each["name"]: each["clock_behind_seconds"] for each in distrun.status()["hosts"]}
    assert abs(behind["h2"] + 3600) < 60
    assert abs(behind["h3"] - 3600) < 60
    assert abs(behind["h1"]) < 60
    on[1].cut()
    wait_until(lambda: len(began(distrun, "worker:1")) == 2)
    assert began(distrun, "worker:1")[1] == "h3, attempt 1"
    end(ssh, distrun, on)

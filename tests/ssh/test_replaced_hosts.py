"""Hosts that are lost for good: their tasks restart on spares or on fewer hosts, never twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.network import Host, Hosts, ProcessesOf, RemoteSpec
from harness.waiting import wait_until

LEASE = "6s"
SOON = {"max": 5, "backoff": "50ms"}
# Runs until a file says so; the lock fails if another attempt of the task lives. The hosts share
# the file system.
LOCKED = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
echo "$TF_CONFIG" > {folder}/config-$DISTRUN_TASK-$DISTRUN_ATTEMPT
echo "began on $(hostname) as $DISTRUN_RANK of $DISTRUN_WORLD_SIZE, attempt $DISTRUN_ATTEMPT"
until [ -e {folder}/end ]; do sleep 0.05; done
echo done
"""


def began(distrun: Distrun, task: str) -> list[str]:
    """Where and how each attempt of a task has begun, by its log."""
    log = distrun("logs", "--raw", "-t", task).stdout
    assert "TWO AT ONCE" not in log
    return re.findall(r"^began on (.*)$", log, re.MULTILINE)


def test_a_spare_that_cannot_be_used_is_a_warning(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun
) -> None:
    on = hosts(3)
    on[2].power_off()
    planned = distrun("plan", remote_spec("true", on, cluster={"worker": 2}, spares=1))
    assert planned.returncode == 0, planned.stderr
    assert "warning: the spare h3 cannot be used: " in planned.stdout


def fill(host: Host, folder: str) -> None:
    host.run("sh", "-c", f"dd if=/dev/zero of={folder}/fill bs=1k || true")


def unmount(host: Host, folder: str) -> None:
    host.run("umount", "-l", folder)


@pytest.mark.parametrize("lose_disk", [fill, unmount])
def test_a_host_whose_disk_is_full_or_gone_is_replaced(
    lose_disk: Any,
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(3)
    on[1].is_changed = True
    disk = on[1].home / ".local"
    disk.mkdir(exist_ok=True)
    on[1].run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk))
    spec = remote_spec(
        LOCKED.replace("until [", "until [ -e {folder}/fail-$DISTRUN_TASK-$DISTRUN_ATTEMPT ] || [")
        .replace("echo done", "[ -e {folder}/end ]").format(folder=tmp_path),
        on, cluster={"worker": 2}, spares=1, restart=SOON,
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in (0, 1)))
    lose_disk(on[1], str(disk))
    (tmp_path / "fail-worker:0-0").touch()
    wait_until(lambda: any(each.startswith("h3 ") for each in began(distrun, "worker:1")))
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr
    said = distrun("status").stdout  # the hosts are shown after the end as well
    why = "is full" if lose_disk is fill else "cannot be opened: No such file or directory"
    assert re.search(rf"^h2 is (lost|left out): .*{why}", said, re.MULTILINE), said
    assert "hosts in use: " in said
    assert "DISTRUN_HOME alone" not in said
    wait_until(lambda: not any(map(processes_of, on)))

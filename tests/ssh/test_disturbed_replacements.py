"""Faults in the middle of a replacement: nothing is left, and no attempt lives twice."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.command import Distrun, Status, recorded_events
from harness.network import Host, Hosts, ProcessesOf, RemoteSpec
from harness.waiting import wait_until

LEASE = "6s"
SOON = {"max": 5, "backoff": "50ms"}
# The hosts share the file system, and the clock of their kernel.
BEATING = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
echo "began on $(hostname), attempt $DISTRUN_ATTEMPT"
date +%s.%N > {folder}/first-$DISTRUN_TASK-$DISTRUN_ATTEMPT
until [ -e {folder}/end ]; do
i=$((i+1)); echo "line $i of attempt $DISTRUN_ATTEMPT"
date +%s.%N > {folder}/now-$DISTRUN_TASK
mv {folder}/now-$DISTRUN_TASK {folder}/last-$DISTRUN_TASK-$DISTRUN_ATTEMPT
sleep 0.05
done
"""
TRAIN = """\
import fcntl, os, pathlib, sys, time
folder = pathlib.Path({folder!r})
lock = open(folder / ("lock-" + os.environ["DISTRUN_TASK"]), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit("TWO AT ONCE")
attempt = os.environ["DISTRUN_ATTEMPT"]
print("began on " + os.uname().nodename + ", attempt " + attempt, flush=True)
while not (folder / "end").exists():
    time.sleep(0.05)
"""
# An agent that receives files slowly, while a file is there. It still sends heartbeats.
SLOW = """\
#!/bin/sh
[ "$3" = -c ] || exec /usr/bin/env -u PATH {python} "$@"
exec {python} "$1" "$2" "$3" "import os, time
read, left = os.read, 1_000_000
def slow(descriptor, size):
    global left
    block = read(descriptor, size)
    left -= len(block)
    if left <= 0 and os.path.exists('{gate}'):
        open('{gate}-reached', 'w').close()
        time.sleep(0.04)
    return block
os.read = slow
$4"
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
    log = distrun("logs", "--raw", "-t", task).stdout
    assert "TWO AT ONCE" not in log
    return re.findall(r"^began on (.*)$", log, re.MULTILINE)


def has_happened(distrun: Distrun, kind: str, **fields: Any) -> bool:
    found = (each for each in recorded_events(distrun) if each["event"] == kind)
    return any(all(each[name] == value for name, value in fields.items()) for each in found)


def launch(distrun: Distrun, spec: Path, workers: int = 2) -> None:
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in range(workers)))


def write_job(folder: Path, size: int) -> None:
    (folder / "job").mkdir()
    (folder / "job" / "train.py").write_text(TRAIN.format(folder=str(folder)))
    (folder / "job" / "weights").write_bytes(os.urandom(size))


def hide_job(hosts: list[Host], folder: Path) -> None:
    for host in hosts:
        host.is_changed = True
        host.run("mount", "-t", "tmpfs", "none", str(folder / "job"))


def slow_down(host: Host) -> Callable[[], bool]:
    """Have a host receive files slowly. Returns what says whether it has received some."""
    gate, reached = host.folder / "gate", host.folder / "gate-reached"
    gate.touch()
    reached.unlink(missing_ok=True)
    host.provide("python3", SLOW.format(python=sys.executable, gate=gate))
    return reached.exists


def test_a_spare_dies_while_files_are_sent_to_it_at_the_launch(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(3)
    write_job(tmp_path, 40_000_000)
    receives = slow_down(on[2])
    hide_job(on, tmp_path)
    spec = remote_spec(
        "", on, cluster={"worker": 2}, spares=1, program={"script": "job/train.py"},
        timeouts={"link": LEASE}, restart=SOON,
    )  # fmt: skip
    launched = distrun.start("launch", spec, stdout=-3, stderr=-1, text=True)
    wait_until(receives, what="the spare receives files")
    on[2].power_off()
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in (0, 1)))
    (tmp_path / "end").touch()
    _, said = launched.communicate(timeout=60)
    assert launched.returncode == 0, said
    assert "h3 is left out" in said
    wait_until(lambda: not any(map(processes_of, on)))


def test_a_spare_whose_disk_is_full_is_left_out(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(4)
    write_job(tmp_path, 3_000_000)
    (on[2].home / ".local").mkdir(exist_ok=True)
    on[2].run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(on[2].home / ".local"))
    hide_job(on, tmp_path)
    spec = remote_spec(
        "", on, cluster={"worker": 2}, spares=2, program={"script": "job/train.py"},
        timeouts={"link": LEASE}, restart=SOON,
    )  # fmt: skip
    launch(distrun, spec)
    said = distrun("status").stdout
    assert "h3 is left out: " in said
    assert "No space left on device" in said
    on[1].power_off()
    wait_until(lambda: len(began(distrun, "worker:1")) == 2, 60)
    assert began(distrun, "worker:1")[1] == "h4, attempt 1"
    (tmp_path / "end").touch()
    assert distrun("wait").returncode == 0
    wait_until(lambda: not any(map(processes_of, on)))
    left = on[2].run("find", str(on[2].home / ".local"), "-type", "f").split()
    assert all("weights" not in path for path in left)


def test_clocks_that_are_an_hour_off_change_nothing(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(3)
    for host, seconds in ((on[1], 3600), (on[2], -3600)):
        host.provide("python3", SHIFTED.format(python=sys.executable, seconds=seconds))
    spec = remote_spec(
        BEATING.format(folder=tmp_path), on, cluster={"worker": 2}, spares=1,
        timeouts={"link": LEASE}, restart=SOON,
    )  # fmt: skip
    launch(distrun, spec)
    behind = {each["name"]: each["clock_behind_seconds"] for each in status()["hosts"]}
    assert abs(behind["h2"] + 3600) < 60
    assert abs(behind["h3"] - 3600) < 60
    assert abs(behind["h1"]) < 60
    on[1].cut()
    wait_until(lambda: len(began(distrun, "worker:1")) == 2, 60)
    assert began(distrun, "worker:1")[1] == "h3, attempt 1"
    check_order(tmp_path, "worker:1")
    check_lines(distrun, "worker:0")
    (tmp_path / "end").touch()
    assert distrun("wait").returncode == 0
    wait_until(lambda: not any(map(processes_of, on)))


def check_order(folder: Path, task: str) -> None:
    """The last sign of an attempt is from before the first one of the next."""
    last = float((folder / f"last-{task}-0").read_text())
    assert last < float((folder / f"first-{task}-1").read_text())


def check_lines(distrun: Distrun, task: str) -> None:
    """No line of a host that is still there is missing or doubled."""
    log = distrun("logs", "--raw", "-t", task).stdout
    numbers = [int(each) for each in re.findall(r"^line (\d+) of attempt 0$", log, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))

"""Who ran out of memory, by the two witnesses that the kernel has for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrun.agent.linux import oom
from distrun.words.causes import cause_text

RECORD = (
    b"6,1203,88123,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
    b"oom_memcg=/job,task_memcg=/job,task=python3,pid=%d,uid=0\n SUBSYSTEM=memory\n"
)


def at_one_time() -> float:
    """A clock that stands still, however slow the machine is."""
    return 0.0


class Kernel:
    """A kernel's log to write to, and a cgroup /job in which all processes are."""

    def __init__(self, folder: Path) -> None:
        self._proc, self._log = folder / "proc", folder / "kmsg"
        group = folder / "cgroups" / "job"
        group.mkdir(parents=True)
        self.counts = group / "memory.events"
        self.counts.write_text("oom 0\noom_kill 4\noom_group_kill 0\n")
        for pid in ("self", os.getpid(), *range(70, 90)):
            self._proc.joinpath(str(pid)).mkdir(parents=True)
            self._proc.joinpath(str(pid), "cgroup").write_text("0::/job\n")
        mount = f"36 35 0:31 / {group.parent} rw,relatime - cgroup2 cgroup2 rw\n"
        self._proc.joinpath("self", "mountinfo").write_text(mount)
        os.mkfifo(self._log)
        # Also for reading: a pipe that nobody writes to would be at its end.
        self.log = os.open(self._log, os.O_RDWR | os.O_NONBLOCK)

    def watch(self, clock: Callable[[], float] = at_one_time) -> oom.OomWatch:
        return oom.OomWatch(clock, proc=str(self._proc), kernel_log=str(self._log))


def found(watch: oom.OomWatch, pid: int, *, of_child: bool) -> str:
    """The words for what shows that the kernel killed a process; empty if nothing does."""
    cause = watch.find_kill(pid, of_child)
    return "" if cause is None else cause_text(cause)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path)
    yield made
    os.close(made.log)


def test_the_kernels_log_names_the_process(kernel: Kernel) -> None:
    log = kernel.log
    watch = kernel.watch()
    os.write(log, RECORD % 77)
    assert found(watch, 78, of_child=False) == ""
    assert "pid=77," in found(watch, 77, of_child=False)
    assert found(watch, 77, of_child=False) == "", "told once"


def test_a_shell_that_exits_as_its_killed_child_did(kernel: Kernel) -> None:
    log = kernel.log
    watch = kernel.watch()
    assert found(watch, 70, of_child=True) == ""
    os.write(log, RECORD % 77)
    assert "pid=77," in found(watch, 70, of_child=True)
    assert found(watch, 71, of_child=True) == ""


def test_the_cgroups_count_accounts_for_one_task_each(kernel: Kernel) -> None:
    counter = kernel.counts
    watch = kernel.watch()
    assert found(watch, 77, of_child=False) == "", "what it had counted before is nobody's"
    counter.write_text("oom 2\noom_kill 6\n")
    assert "oom_kill rose from 4 to 6" in found(watch, 77, of_child=False)
    assert found(watch, 78, of_child=False) != ""
    assert found(watch, 79, of_child=False) == ""


def test_a_kill_that_no_task_died_of_soon_is_none_of_its_later_deaths(kernel: Kernel) -> None:
    log, counter = kernel.log, kernel.counts
    now = [0.0]
    watch = kernel.watch(lambda: now[0])
    os.write(log, RECORD % 77)
    counter.write_text("oom 1\noom_kill 5\n")
    watch.update()
    now[0] = 1.0
    assert "pid=77," in found(watch, 70, of_child=True)
    os.write(log, RECORD % 78)
    counter.write_text("oom 2\noom_kill 6\n")
    watch.update()
    now[0] = 4.0
    watch.update()
    assert found(watch, 79, of_child=False) == "", "somebody's kill -9"
    assert found(watch, 70, of_child=True) == ""
    counter.write_text("oom 3\noom_kill 7\n")
    assert "oom_kill rose from 6 to 7" in found(watch, 80, of_child=False)

"""Who ran out of memory, by the two witnesses that the kernel has for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from distrun.agent.linux import oom

RECORD = (
    b"6,1203,88123,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
    b"oom_memcg=/job,task_memcg=/job,task=python3,pid=%d,uid=0\n SUBSYSTEM=memory\n"
)


def at_one_time() -> float:
    """A clock that stands still, however slow the machine is."""
    return 0.0


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel's log to write to, and a cgroup /job in which all processes are."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    read = oom._lines
    group = tmp_path / "job"
    group.mkdir()
    (group / "memory.events").write_text("oom 0\noom_kill 4\noom_group_kill 0\n")
    monkeypatch.setattr(oom, "_open_kernel_log", lambda: reader)
    monkeypatch.setattr(oom, "_mounts", lambda: [oom._Mount("/", str(tmp_path), is_v2=True)])
    monkeypatch.setattr(
        oom, "_lines", lambda path: ["0::/job"] if path.startswith("/proc/") else read(path)
    )
    yield writer, group / "memory.events"
    os.close(reader)
    os.close(writer)


def test_the_kernels_log_names_the_process(kernel: Any) -> None:
    log, _ = kernel
    watch = oom.OomWatch(at_one_time)
    os.write(log, RECORD % 77)
    assert watch.evidence(78, of_child=False) == ""
    assert "pid=77," in watch.evidence(77, of_child=False)
    assert watch.evidence(77, of_child=False) == "", "told once"


def test_a_shell_that_exits_as_its_killed_child_did(kernel: Any) -> None:
    log, _ = kernel
    watch = oom.OomWatch(at_one_time)
    assert watch.evidence(70, of_child=True) == ""
    os.write(log, RECORD % 77)
    assert "pid=77," in watch.evidence(70, of_child=True)
    assert watch.evidence(71, of_child=True) == ""


def test_the_cgroups_count_accounts_for_one_task_each(kernel: Any) -> None:
    _, counter = kernel
    watch = oom.OomWatch(at_one_time)
    assert watch.evidence(77, of_child=False) == "", "what it had counted before is nobody's"
    counter.write_text("oom 2\noom_kill 6\n")
    assert "oom_kill rose from 4 to 6" in watch.evidence(77, of_child=False)
    assert watch.evidence(78, of_child=False) != ""
    assert watch.evidence(79, of_child=False) == ""


def test_a_kill_that_no_task_died_of_soon_is_none_of_its_later_deaths(kernel: Any) -> None:
    log, counter = kernel
    now = [0.0]
    watch = oom.OomWatch(lambda: now[0])
    os.write(log, RECORD % 77)
    counter.write_text("oom 1\noom_kill 5\n")
    watch.update()
    now[0] = 1.0
    assert "pid=77," in watch.evidence(70, of_child=True)
    os.write(log, RECORD % 78)
    counter.write_text("oom 2\noom_kill 6\n")
    watch.update()
    now[0] = 4.0
    watch.update()
    assert watch.evidence(79, of_child=False) == "", "somebody's kill -9"
    assert watch.evidence(70, of_child=True) == ""
    counter.write_text("oom 3\noom_kill 7\n")
    assert "oom_kill rose from 6 to 7" in watch.evidence(80, of_child=False)

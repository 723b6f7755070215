"""What the kernel tells of processes: their limits, and who ran out of memory."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from harness.parts.agent import Listener, owner_of, receive_descriptors
from harness.parts.linux import limits, oom, processes
from harness.parts.protocol import Code
from harness.parts.words import cause_text
from harness.values import not_none

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              9                    9                    seconds   
Max address space         unlimited            unlimited            bytes     
Max processes             {}                  9000                 processes 
Max open files            64                   4096                 files     
"""  # noqa: W291 - as the kernel writes it
THREADS = b"RuntimeError: can't start new thread"
RECORD = (
    b"6,1203,88123,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
    b"oom_memcg=/job,task_memcg=/job,task=python3,pid=%d,uid=0\n SUBSYSTEM=memory\n"
)


def test_what_an_agent_runs_for_itself_is_no_tasks() -> None:
    task: Any = SimpleNamespace(pid=1, log="/none", start=SimpleNamespace(label=1))
    own = not_none(processes.find(os.getpid()))._replace(session=os.getsid(0))
    assert owner_of(own, {"worker:0": task}, "job") is None
    assert owner_of(own._replace(session=1), {"worker:0": task}, "job") is task


@pytest.mark.parametrize("count", [1, 2])
def test_only_two_descriptors_are_a_link(count: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, open(os.devnull) as file:
        socket.send_fds(theirs, [b"x"], [file.fileno()] * count)
        before = os.listdir("/proc/self/fd")
        passed = receive_descriptors(ours) or ()
        list(map(os.close, passed))
        assert (len(passed), os.listdir("/proc/self/fd")) == (2 if count == 2 else 0, before)


def test_a_port_on_which_nothing_can_listen_is_told() -> None:
    ports: Any = SimpleNamespace(held=[7], listen=mock.Mock(side_effect=OSError(98, "in use")))
    (cause,) = Listener(mock.Mock()).open(ports, "greeting", "password")
    assert (cause.code, cause.port, cause.errno) == (Code.PORT_NOT_LISTENING, 7, 98)


class Host:
    """A /proc with some processes, which are in the cgroup /a/b, and the kernel's log to write to.

    Of process 7, there are limits.
    """

    def __init__(self, folder: Path, version: int) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        self._group = self.groups / "a" / "b"
        self._group.mkdir(parents=True)
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,pids,memory"
        number = "0:" if version == 2 else "4:memory,pids"
        for pid in ("7", "self", os.getpid(), *range(70, 90)):
            (self.proc / str(pid)).mkdir(parents=True)
            (self.proc / str(pid) / "cgroup").write_text(f"{number}:/a/b\n1:name=systemd:/x\n")
        if version == 1:  # a process that has exited is in the root
            (self.proc / "7" / "cgroup").write_text(f"{number}:/\n")
        mounts = f"3 2 0:1 / {self.groups} rw - {kind}\n4 2 0:2 / /x rw - tmpfs tmpfs rw\n"
        (self.proc / "self" / "mountinfo").write_text(mounts)
        (self.proc / "meminfo").write_text("MemTotal: 8000 kB\nMemAvailable: 3000 kB\n")
        self.of_process(9000)
        self.count_kills(4)
        os.mkfifo(folder / "kmsg")
        self._log_path = str(folder / "kmsg")
        # Also for reading: a pipe that nobody writes to would be at its end.
        self.log = os.open(self._log_path, os.O_RDWR | os.O_NONBLOCK)

    def of_process(self, most: int, rights: int = 0) -> None:
        uid = os.getuid() or 5
        process = self.proc / "7"
        (process / "limits").write_text(LIMITS.format(most))
        status = f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{rights:016x}\n"
        (process / "status").write_text(status)

    def of_group(self, group: str, **files: str) -> None:
        for name, text in files.items():
            (self.groups / group / name.replace("_", ".", 1)).write_text(text + "\n")

    def limits(self, log: bytes, signal: int | None = None) -> dict[str, int]:
        causes = limits.read(7, log, 0, signal or 0, {str(self._group): 3}, str(self.proc))
        return {each.name: each.total for each in causes}

    def count_kills(self, count: int) -> None:
        counts = f"oom {count}\noom_kill {count}\noom_group_kill 0\n"
        (self._group / "memory.events").write_text(counts)

    def watch(self, clock: Callable[[], float] = lambda: 0.0) -> oom.OomWatch:
        """With a clock that stands still, however slow the machine is."""
        return oom.OomWatch(clock, proc=str(self.proc), kernel_log=self._log_path)


@pytest.fixture(params=[1, 2])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, request.param)
    yield made
    os.close(made.log)


OF_NEWER_CGROUPS = pytest.mark.parametrize("host", [2], indirect=True)


def test_a_cgroup_that_has_refused_a_fork_since_the_start(host: Host) -> None:
    host.of_group("a", pids_max="40")
    host.of_group("a/b", pids_max="max", pids_events="max 3")
    assert "pids.max" not in host.limits(THREADS), "not since"
    host.of_group("a/b", pids_events="max 5")
    assert host.limits(THREADS) == {"pids.max": 40}
    assert host.limits(b"ValueError: 3") == {}


def test_of_a_limit_of_the_user_only_one_that_is_nearly_used_up(host: Host) -> None:
    assert "RLIMIT_NPROC" not in host.limits(THREADS)
    host.of_process(200)
    assert host.limits(THREADS)["RLIMIT_NPROC"] == 200
    host.of_process(200, rights=1 << 24)
    assert "RLIMIT_NPROC" not in host.limits(THREADS), "CAP_SYS_RESOURCE"


def test_each_limit_is_read_where_the_log_speaks_of_it(host: Host) -> None:
    assert host.limits(b"OSError: [Errno 24] Too many open files") == {"RLIMIT_NOFILE": 64}
    host.of_group("", memory_max="1000")  # of a container
    host.of_group("a/b", memory_max="max")
    assert host.limits(b"MemoryError") == {"memory.max": 1000, "MemTotal": 8000 << 10}
    assert host.limits(b"", 9) == {"memory.max": 1000, "MemTotal": 8000 << 10}
    ticks = 9 * os.sysconf("SC_CLK_TCK")
    (host.proc / "7" / "stat").write_text(f"7 (a b) Z {'1 ' * 10}{ticks - 5} 5 0")
    assert host.limits(b"", 9)["RLIMIT_CPU"] == 9
    for path in (b"/dev/shm/a", b"/psm_8c0b4f21"):
        assert [*host.limits(b"[Errno 28] No space left on device: '%s'" % path)] == ["/dev/shm"]


@OF_NEWER_CGROUPS
def test_of_a_limit_of_the_host_one_that_is_nearly_used_up(host: Host) -> None:
    (host.proc / "sys/kernel").mkdir(parents=True)
    (host.proc / "sys/kernel/threads-max").write_text("32000\n")
    for count, found in ((5000, {}), (30000, {"kernel.threads-max": 32000})):
        (host.proc / "loadavg").write_text(f"0.5 0.5 0.5 3/{count} 77\n")
        assert host.limits(THREADS) == found


def test_nothing_is_said_of_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    log = THREADS + b" memory, too many open files in system"
    assert limits.read(7, log, 0, 0, {}, str(tmp_path)) == []


def found(watch: oom.OomWatch, pid: int, *, of_child: bool) -> str:
    """The words for what shows that the kernel killed a process; empty if nothing does."""
    cause = watch.find_kill(pid, of_child)
    return "" if cause is None else cause_text(cause)


@OF_NEWER_CGROUPS
def test_a_record_of_the_kernel_and_a_count_account_for_one_task_each(host: Host) -> None:
    watch = host.watch()
    assert found(watch, 77, of_child=False) == "", "what it had counted before is nobody's"
    os.write(host.log, RECORD % 77)
    assert found(watch, 78, of_child=False) == ""
    assert "pid=77," in found(watch, 77, of_child=False)
    assert found(watch, 77, of_child=False) == "", "told once"
    host.count_kills(6)
    assert "oom_kill rose from 4 to 6" in found(watch, 77, of_child=False)
    assert found(watch, 78, of_child=False) != ""
    assert found(watch, 79, of_child=False) == ""
    (host.groups / "a/b/c").mkdir()
    (host.proc / "80/cgroup").write_text("0::/a/b/c\n")
    host.of_group("a/b/c", memory_events="oom_kill 3")
    host.count_kills(7)
    assert [bool(found(watch, 80, of_child=False)) for _ in "ab"] == [True, False], "one kill"


@OF_NEWER_CGROUPS
def test_a_kill_that_no_task_died_of_soon_is_none_of_its_later_deaths(host: Host) -> None:
    now = [0.0]
    watch = host.watch(lambda: now[0])
    os.write(host.log, RECORD % 77)
    host.count_kills(5)
    watch.update()
    now[0] = 1.0
    assert "pid=77," in found(watch, 70, of_child=True)
    os.write(host.log, RECORD % 78)
    host.count_kills(6)
    watch.update()
    now[0] = 4.0
    watch.update()
    assert found(watch, 79, of_child=False) == "", "somebody's kill -9"
    assert found(watch, 70, of_child=True) == ""
    host.count_kills(7)
    assert "oom_kill rose from 6 to 7" in found(watch, 80, of_child=False)


def test_what_a_child_leaves_while_reaping_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives its children to this process after they could be listed."""
    lists = [[1], [2]]
    monkeypatch.setattr(processes, "children", lambda _pid: lists.pop(0))
    monkeypatch.setattr(os, "waitpid", lambda pid, _options: (1 if pid == 1 else 0, 0))
    assert processes.reap()

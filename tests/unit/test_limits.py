"""The limits of a process, from files as the kernel has them: of both versions of cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distrun.agent.linux import limits

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max address space         unlimited            unlimited            bytes     
Max processes             {}                  9000                 processes 
Max open files            64                   4096                 files     
"""  # noqa: W291 - as the kernel writes it
THREADS = b"RuntimeError: can't start new thread"


class Host:
    """A /proc with one process, 7, in the cgroup /a/b."""

    def __init__(self, folder: Path, version: int) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        (self.groups / "a" / "b").mkdir(parents=True)
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,pids,memory"
        number = "0:" if version == 2 else "4:memory,pids"
        for pid in ("7", "self"):
            (self.proc / pid).mkdir(parents=True)
            (self.proc / pid / "cgroup").write_text(f"{number}:/a/b\n1:name=systemd:/x\n")
        if version == 1:  # a process that has exited is in the root
            (self.proc / "7" / "cgroup").write_text(f"{number}:/\n")
        mounts = f"3 2 0:1 / {self.groups} rw - {kind}\n4 2 0:2 / /x rw - tmpfs tmpfs rw\n"
        (self.proc / "self" / "mountinfo").write_text(mounts)
        (self.proc / "meminfo").write_text("MemTotal: 8000 kB\nMemAvailable: 3000 kB\n")
        self.of_process(9000)

    def of_process(self, most: int, rights: int = 0) -> None:
        uid = os.getuid() or 5
        process = self.proc / "7"
        (process / "limits").write_text(LIMITS.format(most))
        status = f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{rights:016x}\n"
        (process / "status").write_text(status)

    def of_group(self, group: str, **files: str) -> None:
        for name, text in files.items():
            (self.groups / group / name.replace("_", ".", 1)).write_text(text + "\n")

    def found(self, log: bytes, signal: int | None = None) -> dict[str, int]:
        before = {str(self.groups / "a" / "b"): 3}
        causes = limits.read(7, log, signal, before, str(self.proc))
        return {each.name: each.total for each in causes}


@pytest.fixture(params=[1, 2])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, request.param)


def test_a_cgroup_that_has_refused_a_fork_since_the_start(host: Host) -> None:
    host.of_group("a", pids_max="40")
    host.of_group("a/b", pids_max="max", pids_events="max 3")
    assert "pids.max" not in host.found(THREADS), "not since"
    host.of_group("a/b", pids_events="max 5")
    assert host.found(THREADS) == {"pids.max": 40}
    assert host.found(b"ValueError: 3") == {}


def test_of_a_limit_of_the_user_only_one_that_is_nearly_used_up(host: Host) -> None:
    assert "RLIMIT_NPROC" not in host.found(THREADS)
    host.of_process(200)
    assert host.found(THREADS)["RLIMIT_NPROC"] == 200
    host.of_process(200, rights=1 << 24)
    assert "RLIMIT_NPROC" not in host.found(THREADS), "CAP_SYS_RESOURCE"


def test_each_limit_is_read_where_the_log_speaks_of_it(host: Host) -> None:
    assert host.found(b"OSError: [Errno 24] Too many open files") == {"RLIMIT_NOFILE": 64}
    host.of_group("a", memory_max="1000")
    host.of_group("a/b", memory_max="max")
    assert host.found(b"MemoryError") == {"memory.max": 1000, "MemTotal": 8000 << 10}
    assert host.found(b"", 9) == {"memory.max": 1000, "MemTotal": 8000 << 10}


def test_nothing_is_said_of_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    assert limits.read(7, THREADS + b" memory", None, {}, str(tmp_path)) == []

"""The limits that bind a process which has failed, as the host has them when it exits.

The kernel counts what pids.max of a cgroup refuses, so that limit is known to be hit. It does not
count what RLIMIT_NPROC, kernel.pid_max and kernel.threads-max refuse: these are reported only where
little is left of them.
"""

from __future__ import annotations

import os
import re
import time
from typing import Dict, Iterator, List

from distrun.agent.linux import cgroups
from distrun.agent.linux.regular import content, numbers
from distrun.agent.protocol import Cause, Code

_THREADS = rb"thread|fork|temporarily unavailable|errno 11\b|error #34"
_MEMORY = rb"alloc|memory|errno 12\b|mmap"
_OF_PROCESS = {
    b"Max processes": ("RLIMIT_NPROC", _THREADS),
    b"Max open files": ("RLIMIT_NOFILE", rb"too many open|errno 24\b|ancdata"),
    b"Max address space": ("RLIMIT_AS", _THREADS + b"|" + _MEMORY),
    b"Max data size": ("RLIMIT_DATA", _MEMORY),
    b"Max file size": ("RLIMIT_FSIZE", rb"too large"),
    b"Max cpu time": ("RLIMIT_CPU", rb"cpu time"),
}
"""By their names in proc_pid_limits(5): those in getrlimit(2), and what a log says, in small
letters, if they were hit."""
_OF_HOST = ("kernel.pid_max", "kernel.threads-max")
"""Each thread of a host has an id of its own, also within other containers."""
_FILES_OF_HOST = rb"too many open files in system|errno 23\b"
_OF_SIGNALS = {9: b"memory, cpu time", 24: b"cpu time", 25: b"too large"}
"""SIGKILL, SIGXCPU, SIGXFSZ: the limits that they show without a word in the log."""
_WORDS = (
    *(b"thread", b"fork", b"unavailable", b"errno", b"error #34", b"alloc", b"memory", b"mmap"),
    *(b"too many open", b"ancdata", b"too large", b"cpu time"),
)
"""Each log that speaks of a limit has one of these. To search for them is faster."""
_PRIVILEGED = 1 << 24 | 1 << 21
"""CAP_SYS_RESOURCE and CAP_SYS_ADMIN: RLIMIT_NPROC does not bind a process that has one."""
_MOST_ROOM = 5000
"""One task creates fewer threads. If more were left of a limit, another one was hit."""
_SPENT = 0.8
"""The part of a limit on processor time by which it is spent: the kernel counts in ticks for it."""
_COUNT_SECONDS = 0.03
"""Of this processor; a host may have very many processes."""


def refusals(pid: int, proc: str = "/proc") -> Dict[str, int]:
    """How many forks each cgroup of a process has refused, by its folder."""
    found = {}
    for folder in _folders(pid, "pids", proc):
        found[folder] = numbers(os.path.join(folder, "pids.events")).get("max", 0)
    return found


def read(
    pid: int, log: bytes, size: int, signum: int, before: Dict[str, int], proc: str = "/proc"
) -> List[Cause]:
    """The limits of a process that is not reaped yet, of one resource the nearest first.

    Only limits that the end of its `log` may speak of are read, and one on the log's own size.
    `before`: what :func:`refusals` found when the task began.
    """
    log = log.lower() + _OF_SIGNALS.get(signum, b"")
    found: List[Cause] = []
    if not any(word in log for word in _WORDS):
        return list(_of_process(pid, log, size, proc))
    now = refusals(pid, proc) if re.search(_THREADS, log) else {}
    refused = max([count - before.get(folder, 0) for folder, count in now.items()], default=0)
    if refused > 0:  # until Linux 6.11, a cgroup counts what those above it refuse
        found += [each._replace(count=refused) for each in _smallest([*now], "pids.max")]
    for each in _of_process(pid, log, size, proc):
        # SIGKILL may have other reasons.
        if signum != 9 or each.name != "RLIMIT_CPU" or _is_spent(pid, each.total, proc):
            found.append(each)
    found += _of_host(log, proc)
    if re.search(_MEMORY, log):
        folders = _folders(pid, "memory", proc)
        found += _smallest(folders, "memory.max") + _smallest(folders, "memory.limit_in_bytes")
        sizes = numbers(proc + "/meminfo")  # in KB
        total = sizes.get("MemTotal", 0)
        used = total - sizes.get("MemAvailable", total)
        found.append(_limit("MemTotal", total << 10, used << 10))
    if re.search(rb"shared memory|no space left[^\n]{0,200}/(?:dev/shm/|psm_|wnsm_|sem\.)", log):
        found.append(_limit("/dev/shm", _size("/dev/shm")))  # noqa: S108 - it is only measured
    return [each for each in found if each.total]


def _size(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def _folders(pid: int, controller: str, proc: str) -> List[str]:
    """Those of a process and of this one: v1 has a process that has exited in the root."""
    return [each for who in (pid, "self") for each in cgroups.folders(who, controller, proc)]


def _smallest(folders: List[str], name: str) -> List[Cause]:
    limits = ((_number(content(os.path.join(each, name))), each) for each in folders)
    finite = sorted(each for each in limits if each[0])
    return [_limit(name, total)._replace(path=folder) for total, folder in finite[:1]]


def _of_process(pid: int, log: bytes, size: int, proc: str) -> Iterator[Cause]:
    for line in content("{}/{}/limits".format(proc, pid)).splitlines():
        name, sign = _OF_PROCESS.get(line[:26].strip(), ("", b""))
        soft, hard = [*line[26:].split(), b"", b""][:2]
        is_full = name == "RLIMIT_FSIZE" and _number(soft) <= size  # the log cannot say so
        if not name or not _number(soft) or not (is_full or re.search(sign, log)):
            continue
        cause = _limit(name, _number(soft))._replace(expected=hard.decode())
        if name == "RLIMIT_NPROC":
            cause = cause._replace(count=_threads_besides(pid, proc))
            if cause.total > cause.count + _MOST_ROOM:
                continue
        yield cause


def _of_host(log: bytes, proc: str) -> Iterator[Cause]:
    if re.search(_THREADS, log):
        running = content(proc + "/loadavg").partition(b"/")[2].split()
        count = _number(running[0]) if running else 0
        for name in _OF_HOST:
            total = _number(content("{}/sys/{}".format(proc, name.replace(".", "/"))))
            if total <= count + _MOST_ROOM:
                yield _limit(name, total, count)
    if re.search(_FILES_OF_HOST, log):
        count, _, total = [*map(_number, content(proc + "/sys/fs/file-nr").split()), 0, 0, 0][:3]
        yield _limit("fs.file-max", total, count)


def _is_spent(pid: int, seconds: int, proc: str) -> bool:
    words = content("{}/{}/stat".format(proc, pid)).rpartition(b")")[2].split()
    return sum(map(_number, words[11:13])) >= _SPENT * seconds * os.sysconf("SC_CLK_TCK")


def _threads_besides(pid: int, proc: str) -> int:
    """How many threads the user of a process has, at least; far below 0 if no limit binds it."""
    status = content("{}/{}/status".format(proc, pid))
    found = re.search(rb"(?s)\nUid:\t(\d+).*\nCapEff:\t(\w+)", status)
    uid = int(found.group(1)) if found else 0
    if not found or uid == 0 or int(found.group(2), 16) & _PRIVILEGED:
        return -(1 << 60)
    count, deadline = 0, time.thread_time() + _COUNT_SECONDS
    for name in filter(str.isdigit, os.listdir(proc)):
        if time.thread_time() > deadline:
            break
        try:
            is_own = os.stat(os.path.join(proc, name)).st_uid == uid
        except OSError:
            continue
        words = content(os.path.join(proc, name, "stat")).rpartition(b")")[2].split()
        count += int(words[17]) if is_own and len(words) > 17 else 0
    return count


def _limit(name: str, total: int, count: int = 0) -> Cause:
    return Cause(Code.RESOURCE_LIMIT, name=name, total=total, count=count)


def _number(text: bytes) -> int:
    """The number that the kernel gives for a limit; 0: none, for which v1 writes nearly 2**63."""
    number = int(text) if text.strip().isdigit() else 0
    return number if number < 1 << 60 else 0

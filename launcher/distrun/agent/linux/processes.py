"""Process trees: the descendants of this process, and how to end them and no other process.

Every orphaned descendant of a subreaper (:func:`.syscalls.become_subreaper`) becomes its child,
even one that called setsid or cleared its environment. So the tree below a subreaper contains
everything that it has started.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import time
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from distrun.agent.linux.regular import content, numbers
from distrun.agent.structs import Struct

_EXITING = 0x4
"""PF_EXITING in include/linux/sched.h."""
_LONGEST_COMMAND = 120
_MOST_PASSES = 10
KILL_INTERVAL = 0.02
"""Seconds between two rounds of signals to processes that are being ended."""
DEATH_SECONDS = 10.0
"""Seconds after SIGKILL, after which a process counts as one that does not die."""
_OWN_DEATH_SECONDS = 1.0
"""The same of a process that runs no task."""


class Process(Struct):
    """A process as /proc showed it.

    `started` (clock ticks since boot) distinguishes it from a later process with the same id.
    `ticks` is the processor time that it and its reaped children have used. `terminal` is the
    number of its controlling terminal; 0: it has none. `is_exiting`: its first thread is ending, or
    has ended: its memory, and with that its environment, may be gone. `pages`: of resident memory.
    `status`: of a zombie, as waitpid(2) has it.
    """

    pid: int
    parent: int
    group: int
    session: int
    started: int
    state: str
    ticks: int
    terminal: int
    threads: int = 1
    is_exiting: bool = False
    pages: int = 0
    status: int = 0

    @property
    def is_zombie(self) -> bool:
        """Whether all of it has ended. Other threads can live on after the first one."""
        return self.state in ("Z", "X") and self.threads <= 1

    @property
    def is_suspended(self) -> bool:
        return self.state in ("T", "t")


def find(pid: int) -> Optional[Process]:
    """Read a process from /proc; None if it does not exist. See proc_pid_stat(5)."""
    try:
        raw = read_short("/proc/{}/stat".format(pid))
    except OSError:
        return None
    # The name is in parentheses and may contain spaces and parentheses itself.
    rest = raw[raw.rindex(b")") + 2 :].split()
    parent, group, session, terminal = map(int, rest[1:5])
    state, ticks = rest[0].decode("ascii"), sum(map(int, rest[11:15]))
    is_exiting = bool(int(rest[6]) & _EXITING)
    return Process(
        *(pid, parent, group, session, int(rest[19]), state, ticks, terminal),
        *(int(rest[17]), is_exiting, int(rest[21]), int(rest[49])),
    )


def every_pid() -> List[int]:
    """The ids of all processes that this user sees."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_short(path: str) -> bytes:
    """Read a short file with one call, which takes half the time of a file object."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def core_seconds() -> Tuple[float, float]:
    """Return how long all cores of this host together were busy, and idle. Raises OSError."""
    counts = [int(word) for word in read_short("/proc/stat").split(b"\n")[0].split()[1:9]]
    idle = counts[3] + counts[4]
    ticks = os.sysconf("SC_CLK_TCK")
    return (sum(counts) - idle) / ticks, idle / ticks


def command(pid: int) -> str:
    """The beginning of a process's command line, or its name; empty if it has ended."""
    try:
        line = read_short("/proc/{}/cmdline".format(pid)) or read_short("/proc/{}/comm".format(pid))
    except OSError:
        return ""
    text = line.rstrip(b"\0\n").decode("utf-8", "replace")
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST_COMMAND])


def children(pid: int) -> List[int]:
    """The ids of a process's children, zombies included."""
    found: List[int] = []
    try:
        threads = os.listdir("/proc/{}/task".format(pid))
    except OSError:
        return found
    for thread in threads:
        try:
            with open("/proc/{}/task/{}/children".format(pid, thread), "rb") as file:
                found.extend(int(word) for word in file.read().split())
        except FileNotFoundError:
            if not os.path.exists("/proc/thread-self/children"):
                return _children_by_search(pid)
        except OSError:
            continue
    return found


def _children_by_search(pid: int) -> List[int]:
    """The same, on a kernel built without CONFIG_PROC_CHILDREN."""
    found = map(find, every_pid())
    return [process.pid for process in found if process is not None and process.parent == pid]


def tree(pid: int) -> Iterator[Process]:
    """A process and its descendants, parents first, without those that end meanwhile."""
    waiting: List[Tuple[int, Optional[int]]] = [(pid, None)]
    while waiting:
        current, parent = waiting.pop()
        process = find(current)
        # With another parent it has become an orphan, or another process has got the id.
        if process is not None and parent in (None, process.parent):
            yield process
            waiting.extend((child, current) for child in children(current))


def is_hidden(pid: int) -> bool:
    """Whether a process, or a child of it, exists that /proc does not show to this user.

    See `hidepid` in proc(5). Such a process belongs to another user.
    """
    for each in [pid, *children(pid)]:
        if find(each) is None:
            try:
                os.kill(each, 0)
            except PermissionError:
                return True
            except OSError:
                continue
    return False


def environment(pid: int) -> Dict[bytes, bytes]:
    """The environment that a process was executed with; empty if it may not be read."""
    raw = content("/proc/{}/environ".format(pid))
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs}


def identity(path: str) -> Set[Tuple[int, int]]:
    """A set of the file's device and inode, which is empty if the file cannot be seen."""
    try:
        status = os.stat(path)
    except OSError:
        return set()
    return {(status.st_dev, status.st_ino)}


def outputs(pid: int) -> Set[Tuple[int, int]]:
    """Device and inode of a process's standard output and standard error."""
    return identity("/proc/{}/fd/1".format(pid)) | identity("/proc/{}/fd/2".format(pid))


def send(process: Process, signum: int) -> bool:
    """Signal exactly this process. False if it has ended, even if its id is in use again.

    One that has changed its user, as below sudo, lives on without the signal.
    """
    descriptor = None
    with contextlib.suppress(OSError, AttributeError):  # Python 3.8 has none
        descriptor = os.pidfd_open(process.pid)
    try:
        if not exists(process):
            return False
        if descriptor is None:
            os.kill(process.pid, signum)
        else:
            signal.pidfd_send_signal(descriptor, signum)
    except OSError as error:
        return isinstance(error, PermissionError)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def handles(pid: int, signum: int) -> bool:
    """Whether a process catches a signal or ignores it, so that it does not die of it."""
    lines = content("/proc/{}/status".format(pid)).splitlines()
    pairs = [line.split() for line in lines if line.startswith((b"SigIgn", b"SigCgt"))]
    return any(int(mask, 16) >> (signum - 1) & 1 for _, mask in pairs)


def tracer(pid: int) -> Optional[Process]:
    """The process that traces another, as debuggers do; None if there is none."""
    return find(numbers("/proc/{}/status".format(pid)).get("TracerPid", 0))


def resume(pid: int) -> None:
    """Resume a process and its children, in case they were suspended."""
    for each in [pid, *children(pid)]:
        process = find(each)
        if process is not None:
            send(process, signal.SIGCONT)


def exists(process: Process) -> bool:
    """Whether the id is still this process's own; it may be a zombie."""
    now = find(process.pid)
    return now is not None and now.started == process.started


def is_alive(process: Process) -> bool:
    """Whether it still runs: it is no zombie."""
    now = find(process.pid)
    return now is not None and now.started == process.started and not now.is_zombie


def reap(is_excluded: Callable[[int], bool] = lambda _: False) -> bool:
    """Reap children that have ended, except those excluded by id. True while any other is left.

    The children of one that was reaped became this process's, perhaps after they were listed. So
    only a pass that reaps none has seen all.
    """
    for _ in range(_MOST_PASSES):
        left = has_reaped = False
        for pid in children(os.getpid()):
            if is_excluded(pid):
                continue
            try:
                is_reaped = os.waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                continue
            has_reaped, left = has_reaped or is_reaped, left or not is_reaped
        if left or not has_reaped:
            return left
    return True


def descendants(is_excluded: Callable[[int], bool] = lambda _: False) -> List[Process]:
    """The living processes below this one, but for children that live on, with all below them.

    It reaps the others. Use it in a subreaper that has inherited the processes of a dead child.
    """
    if not reap(is_excluded):
        return []
    below = [child for child in children(os.getpid()) if not is_excluded(child)]
    return [process for child in below for process in tree(child)]


def searched(search: Callable[[], List[Process]]) -> Callable[[], List[Process]]:
    """A search that is made again only once all that it has found last have ended."""
    known: List[Process] = []

    def find() -> List[Process]:
        known[:] = [each for each in known if is_alive(each)] or search()
        return known[:]

    return find


class Ending:
    """Ends processes while the loop of this one continues, a round of signals at a time.

    Call :meth:`step` every KILL_INTERVAL: the exit of a grandchild is not reported to this process.

    Args:
        grace: seconds from SIGTERM to SIGKILL.
        find: returns the processes that are left; it is asked again each round.
        patience: seconds from SIGKILL until processes that do not die are given up. In the kernel,
            a process can wait for a disk, and die only afterwards.
        is_own: whether a process runs no task: those are given up sooner, for they do no harm.
    """

    def __init__(
        self,
        grace: float,
        find: Callable[[], List[Process]] = descendants,
        patience: float = math.inf,
        is_own: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._find, self._is_own = find, is_own
        self._kill_at = time.monotonic() + grace
        self._give_up_at = self._kill_at + patience
        self._signalled: Dict[int, int] = {}
        self.left: List[Process] = []

    def step(self) -> bool:
        """Send a round of signals. Returns whether none is left, or all are given up."""
        now, remaining = time.monotonic(), self._find()
        if not remaining:
            return True
        is_late = now >= self._kill_at + _OWN_DEATH_SECONDS
        if now >= self._give_up_at or (is_late and all(self._is_own(p.pid) for p in remaining)):
            self.left = remaining
            return True
        for process in remaining:
            if now >= self._kill_at:
                send(process, signal.SIGKILL)
            elif self._signalled.get(process.pid) != process.started:
                self._signalled[process.pid] = process.started
                send(process, signal.SIGTERM)
                send(process, signal.SIGCONT)
        return False

    def run(self) -> List[Process]:
        """Block until it is over. Returns the processes that were given up."""
        while not self.step():
            time.sleep(KILL_INTERVAL)
        return self.left


class ChildUsage(Struct):
    """What a child that was reaped has used, and those descendants that were waited for.

    `peak`: bytes of resident memory; None: unknown, it was less than this process's own. `read`,
    `written`: bytes by read and write calls; None: unknown.
    """

    seconds: float
    peak: Optional[int]
    read: Optional[int]
    written: Optional[int]


def reap_child(pid: int, options: int = 0) -> Optional[ChildUsage]:
    """Reap a child; None: it has not ended (`os.WNOHANG`). Raises ChildProcessError: no child.

    The kernel adds to this process's counts of bytes those of each child that it reaps
    (wait_task_zombie in kernel/exit.c). The child's own could be read only as root: a process that
    has ended has no memory, by which the kernel decides who may read them.
    """
    before = _own_bytes()
    ended, _, used = os.wait4(pid, options)
    if not ended:
        return None
    after = _own_bytes()
    read = written = None
    if before is not None and after is not None:
        read = after[0] - before[0] - before[2]
        written = after[1] - before[1]
    # The kernel counts the memory of this process, too, from which the child was forked.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = used.ru_maxrss * 1024 if used.ru_maxrss > own else None
    return ChildUsage(used.ru_utime + used.ru_stime, peak, read, written)


def _own_bytes() -> Optional[Tuple[int, int, int]]:
    """The bytes that this process has read and written, and those that this call has read."""
    try:
        raw = read_short("/proc/self/io")
    except OSError:
        return None
    words = raw.split()
    return int(words[1]), int(words[3]), len(raw)

"""Programs that run to their end, which processes still run, and processes that hang.

Those are stopped by a tracer. See ptrace(2).
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psutil


def captured(
    argv: Sequence[Any], *, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without input; what it prints is text. Options of subprocess."""
    stdin = {} if "input" in options else {"stdin": subprocess.DEVNULL}
    given = {"capture_output": True, "text": True, "timeout": 120.0, **stdin, **options}
    return subprocess.run(list(map(str, argv)), check=check, **given)


def alive(process: psutil.Process | int) -> bool:
    """Tell whether a process (or process id) still runs; a zombie without threads does not."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        is_zombie = found.status() == psutil.STATUS_ZOMBIE and found.num_threads() == 1
        return found.is_running() and not is_zombie
    except psutil.NoSuchProcess:
        return False


def descendant_ids(pid: int) -> set[int]:
    """Return what a process and its descendants have started and not reaped: the kernel's lists."""
    found, parents = set(), [pid]
    while parents:
        parent = parents.pop()
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as children:
                    parents += map(int, children.read().split())
        found.add(parent)
    return found - {pid}


def descendants(pid: int) -> set[psutil.Process]:
    return processes_of(descendant_ids(pid))


def processes_of(pids: Iterable[int]) -> set[psutil.Process]:
    """Those of these processes that are still there."""
    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(pid))
    return found


def with_argument(found: Iterable[psutil.Process], word: str) -> list[psutil.Process]:
    """Return those of these processes that run, and have that argument."""
    kept = []
    for each in found:
        with contextlib.suppress(psutil.Error):  # it ends, or is a zombie
            kept += [each] if alive(each) and word in each.cmdline() else []
    return kept


def survivors(job_id: str) -> list[psutil.Process]:
    """List living processes with this job's id in the environment they were started with."""
    wanted = f"DISTRUN_JOB_ID={job_id}".encode()
    found = []
    for pid in psutil.pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if wanted in environ.read().split(b"\0"):
                    found.append(psutil.Process(pid))
        except (OSError, psutil.NoSuchProcess):
            continue
    return [process for process in found if alive(process)]


def is_connected(pid: int) -> bool:
    """Tell whether a process is connected to a Unix socket, such as a supervisor's."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    connected = {f"socket:[{row[6]}]" for row in rows if row[5] == "03"}  # SS_CONNECTED
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # a descriptor closed meanwhile is none
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") in connected:
                return True
    return False


TRACER = """
import ctypes, os, sys
pid = int(sys.argv[1])
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
if ptrace(SEIZE, pid, 0, 0) or ptrace(INTERRUPT, pid, 0, 0):
    sys.exit("this process may not trace others")
os.waitpid(pid, WALL)
print("stopped", flush=True)
while os.WIFSTOPPED(os.waitpid(pid, WALL)[1]):
    pass
"""


@contextlib.contextmanager
def hanging(pid: int) -> Iterator[None]:
    """Stop a process in this context, whatever signals it gets; SIGKILL alone ends it."""
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACER, str(pid)], stdout=subprocess.PIPE, text=True
    )
    assert tracer.stdout is not None
    try:
        assert tracer.stdout.readline() == "stopped\n"
        yield
    finally:
        tracer.kill()
        tracer.wait()
        tracer.stdout.close()

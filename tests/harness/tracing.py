"""Processes that hang: a tracer stops them, so that no SIGCONT resumes them. See ptrace(2)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

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

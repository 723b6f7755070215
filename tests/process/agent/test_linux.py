"""The system calls of distrun's own, in a process of their own where they change one."""

from __future__ import annotations

import signal
import subprocess
import sys

from distrun.agent.linux import processes

BURST = """
import os, signal
from distrun.agent.linux.syscalls import signal_pipe
pipe = signal_pipe([signal.SIGCHLD, signal.SIGTERM])
for _ in range(2000):
    os.kill(os.getpid(), signal.SIGCHLD)
os.kill(os.getpid(), signal.SIGTERM)
seen = b""
while True:
    try:
        seen += os.read(pipe.fileno(), 4096)
    except BlockingIOError:
        break
print(seen.count(signal.SIGCHLD), seen.count(signal.SIGTERM))
"""


def test_a_signal_behind_very_many_others_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", BURST], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2000", "1"]


def test_only_the_process_that_was_seen_is_signalled() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        seen = processes.find(child.pid)
        assert seen is not None
        assert not processes.send(seen._replace(started=seen.started - 1), signal.SIGKILL)
        assert child.poll() is None
        assert processes.send(seen, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert not processes.send(seen, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()

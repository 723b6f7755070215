"""The system calls of distrun's own, in a process of their own where they change one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from distrun.agent.linux import processes
from distrun.agent.linux.syscalls import signal_name

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


def test_a_signal_has_a_name_or_keeps_its_number() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(signal.SIGRTMIN + 2) == f"signal {signal.SIGRTMIN + 2}"
    assert signal_name(999) == "signal 999"


def test_another_process_with_a_childs_id_is_not_listed_as_a_child() -> None:
    me = os.getpid()
    child = subprocess.Popen(["sleep", "60"])
    try:
        # A child has ended after it was listed, and its id is in use again.
        listed = {me: [child.pid, 1]}
        found = processes.tree(me, lambda pid: listed.get(pid, []))
        assert [process.pid for process in found] == [me, child.pid]
    finally:
        child.kill()
        child.wait()


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

"""Runs a command in a child process, so that nothing which it starts outlives it.

The child leads a session of its own, so that no signal to the command's process group ends both. If
the command is killed, the child ends what it has started, and then itself; if the child is killed,
the command does that.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import tempfile
from collections.abc import Callable

from distrun.agent.linux import syscalls
from distrun.cli import console, signals
from distrun.cli.signals import ENDED, ENDING_SIGNALS
from distrun.supervisor import guard


def run_guarded(run: Callable[[], int]) -> int:
    """Run a function in a child process; return its exit code in the child and in this process.

    This process passes the signals that end commands on to the child. Call it while there is one
    thread.

    Raises:
        OSError: no process can be created.
    """
    parent = os.getpid()
    syscalls.become_subreaper()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    pid = os.fork()
    if not pid:
        os.setsid()
        return _run_in_child(run, parent, before)
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, SIGHUP is ignored
            signal.signal(number, lambda number, _frame: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # Until it is reaped, its id is not given to another process, which would get the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    guard.end_processes()  # also where a signal came at the child's last moment
    if code >= 0:
        return code
    # So are the temporary folders of a command named.
    for folder in glob.glob(f"{glob.escape(tempfile.gettempdir())}/distrun-*-{pid}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    console.print_message(f"a process of this command was killed by {syscalls.signal_name(-code)}")
    return 128 - code


def _run_in_child(run: Callable[[], int], parent: int, mask: set[int]) -> int:
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:  # it tells of the parent's end
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signals.install()
    guard.become_guard(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        return run()
    finally:
        with contextlib.suppress(*ENDED):  # one more signal does not keep alive what is left
            guard.end_processes()

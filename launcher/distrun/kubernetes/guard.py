"""Process 1 of each pod: it waits for the agents that `kubectl exec` starts, and reaps for them.

It is part of the pod's manifest as text. It ends with 0, so that the pod is not replaced, once an
agent has ended in order and said so with SIGUSR1, or if nothing has run in the pod for some time:
the launching machine may be gone. It ends with 143, so that the pod is replaced, once a SIGTERM has
ended what runs.
"""

import contextlib
import os
import signal
import sys
import time

INTERVAL = 1.0


def runs_others():
    # type: () -> bool
    """Whether the pod has another process, zombies not counted."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[0] != b"Z":
                        return True
            except OSError:
                continue
    return False


def main(seconds):
    # type: (float) -> int
    """Wait until nothing has run for so many seconds, or until the pod is to end."""
    status = None
    due = time.monotonic() + seconds
    signals = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    while True:
        received = signal.sigtimedwait(signals, INTERVAL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        number = 0 if received is None else received.si_signo
        if number == signal.SIGUSR1 and status is None:
            status = 0
        if number == signal.SIGTERM and not status:
            status = 128 + signal.SIGTERM
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGTERM)
        if runs_others():
            due = time.monotonic() + seconds
        elif status is not None:
            return status
        elif time.monotonic() > due:
            return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

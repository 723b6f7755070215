"""Process 1 of each pod: it reaps for what `kubectl exec` starts.

In the pods of tasks, it waits for their agents. In the pod of a supervisor, it starts that once its
files have come.

It is part of the pod's manifest as text. It ends with 0, so that the pod is not replaced, once an
agent has ended in order and said so with SIGUSR1, or if nothing has run in the pod for some time:
the launching machine may be gone. It ends with 143, so that the pod is replaced, once a SIGTERM has
ended what runs, and with 137, if an agent was ended for want of memory: /dev/shm may be full.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

INTERVAL = 1.0
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1)


def others():
    # type: () -> dict[int, bool]
    """The pod's other processes, zombies not counted: whether each belongs to a task."""
    found = {}  # type: dict[int, bool]
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open("/proc/" + name + "/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] != b"Z":
                    found[int(name)] = label(name) != label("self")
    return found


def label(name):
    # type: (str) -> list[bytes]
    """What an agent gives the processes of its tasks, and no others: see agent/linux/labels.py."""
    with open("/proc/" + name + "/limits", "rb") as file:
        return [line for line in file if line.startswith(b"Max file locks")]


def main(seconds):
    # type: (float) -> int
    """Wait until nothing has run for so many seconds, or until the pod is to end."""
    status, killed = None, killed_for_memory()
    due = time.monotonic() + seconds
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    while True:
        received = signal.sigtimedwait(SIGNALS, INTERVAL)
        reap()
        number = 0 if received is None else received.si_signo
        if number == signal.SIGUSR1 and status is None:
            status = 0
        if number == signal.SIGTERM and not status:
            status = 128 + signal.SIGTERM
            found = others()
            # Agents tell their tasks: once, also where the supervisor has asked for that already.
            for pid in [each for each in found if not found[each]] or found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        if others():
            due = time.monotonic() + seconds
        elif status is not None:
            return status
        elif killed_for_memory() > killed:
            return 128 + signal.SIGKILL
        elif time.monotonic() > due:
            return 0


def killed_for_memory():
    # type: () -> int
    """How many processes of this container the kernel has ended, by either version of cgroups."""
    for name in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError), open("/sys/fs/cgroup/" + name) as file:
            return sum(int(each[9:]) for each in file if each.startswith("oom_kill "))
    return 0


def has(path, text):
    # type: (str, str) -> bool
    try:
        with open(path) as file:
            return file.read() == text
    except OSError:
        return False


def reap():
    # type: () -> list[int]
    found = []  # type: list[int]
    with contextlib.suppress(ChildProcessError):
        while not found or found[-1]:
            found.append(os.waitpid(-1, os.WNOHANG)[0])
    return found


def supervise(seconds, base, kept, *command):
    # type: (float, str, float, *str) -> int
    """Start a supervisor once its files have come; then wait until its record has been read."""
    uid, ended = os.environ["DISTRUN_JOB_UID"], base + "/ended"
    due = time.monotonic() + seconds
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    while not has(base + "/ready", uid):
        received = signal.sigtimedwait(SIGNALS, INTERVAL / 10)
        reap()
        # Without the folder, this pod has replaced one whose files are lost.
        if os.path.isdir(base) and others():
            due = time.monotonic() + seconds
        if time.monotonic() > due or (received and received.si_signo == signal.SIGTERM):
            return 0
    if not has(ended, uid):
        if run(base, command):  # the pod is evicted, and not the job stopped
            return 128 + signal.SIGTERM
        with open(ended, "w") as file:
            file.write(uid)
    due = time.monotonic() + kept
    while time.monotonic() < due:
        received = signal.sigtimedwait(SIGNALS, INTERVAL)
        reap()
        if received and received.si_signo == signal.SIGTERM:
            break
    for each in ("bin", "package"):
        shutil.rmtree(os.path.join(base, each), ignore_errors=True)
    return 0


def run(base, command):
    # type: (str, tuple[str, ...]) -> bool
    """Run a supervisor to its end, which SIGUSR1 asks for. Returns whether SIGTERM did."""
    path = base + "/bin:" + os.environ.get("PATH", os.defpath)  # kubectl came with it
    with open(base + "/home/jobs/" + command[-1] + "/batch.log", "ab") as log:
        process = subprocess.Popen(
            command,
            stderr=log,
            env=dict(os.environ, PATH=path),
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS),  # noqa: PLW1509 - there are no threads
        )
    is_asked = False
    # Without the object that is `process`, subprocess might reap the child, and nobody know of it.
    while process.pid not in reap():
        received = signal.sigtimedwait(SIGNALS, INTERVAL)
        if received and received.si_signo != signal.SIGCHLD:
            is_asked = is_asked or received.si_signo == signal.SIGTERM
            os.kill(process.pid, signal.SIGTERM)
    return is_asked


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(supervise(float(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
    sys.exit(main(float(sys.argv[1])))

"""How the agent stops tasks: each process is told once, and Python prints where it stands."""

import fcntl
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from harness.agents import CATCHER, SLEEP, TIMEOUT, Host, children_of, pids_of, script
from harness.parts.agent import protocol
from harness.processes import alive
from harness.waiting import wait_until


def test_ignored_sigterm_is_sigkill_after_the_grace_or_a_shorter_one(any_host: Host) -> None:
    host = any_host
    host.stop("worker:7")  # stopping what is not there does nothing
    loop = "trap '' TERM; echo it ready $$; while :; do sleep 0.1; done"
    for name in ("worker:0", "worker:1"):
        host.run(name, "sh", "-c", loop)
        pids_of(host, name, 1)
    host.stop("worker:0", grace=3600)
    host.stop("worker:0", signal.SIGKILL, grace=0.0)
    host.expect(protocol.TaskEnded, "worker:0")
    begun = time.monotonic()
    host.stop("worker:1", grace=0.5)
    host.stop("worker:1", grace=3600)
    assert host.expect(protocol.TaskExited, "worker:1").signal == signal.SIGKILL
    assert time.monotonic() - begun >= 0.5
    host.expect(protocol.TaskEnded, "worker:1")


def test_a_suspended_task_handles_the_signal(host: Host) -> None:
    loop = "trap 'exit 3' TERM; echo it ready $$; while :; do sleep 0.1; done"
    task = host.run("worker:0", "sh", "-c", loop)
    pids_of(host, "worker:0", 1)
    os.kill(task.pid, signal.SIGSTOP)
    host.stop("worker:0", grace=TIMEOUT / 2)
    assert host.expect(protocol.TaskExited).code == 3


def test_what_a_stopped_program_leaves_is_ended_and_not_told(any_host: Host) -> None:
    shell = "trap 'exit 0' TERM; (trap '' TERM; echo it ready $$; exec sleep 60) & wait"
    any_host.run("worker:0", "sh", "-c", shell)
    pids_of(any_host, "worker:0", 1)
    any_host.stop("worker:0", grace=1.0)
    assert not any_host.expect(protocol.TaskEnded).left


def test_a_stop_that_comes_with_the_start(host: Host) -> None:
    any_signal = signal.SIGRTMIN + 2
    for attempt, (number, grace) in enumerate([(any_signal, 60.0), (signal.SIGKILL, 0.0)] * 3):
        host.start("worker:0", "sleep", "60", attempt=attempt)
        host.stop("worker:0", number, grace=grace)
        exited = host.expect(protocol.TaskExited)
        assert (exited.attempt, exited.signal) == (attempt, number)
        host.expect(protocol.TaskEnded)


def test_what_is_not_executed_yet_is_ended_by_sigkill(any_host: Host, tmp_path: Path) -> None:
    """The kernel holds up the execution of a file for whoever has a lease of it, here for 45 s."""
    program = tmp_path / "sleep"
    shutil.copy(SLEEP, program)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells that somebody wants the file
    with program.open("rb+") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            any_host.start("worker:0", str(program), "60")
            started = wait_until(lambda: children_of(any_host.pid), timeout=TIMEOUT)
            started[0].suspend()  # no other signal ends it then
            any_host.stop("worker:0", grace=0.3)
            wait_until(lambda: not any(map(alive, started)), timeout=20)
        finally:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            signal.signal(signal.SIGIO, before)
    any_host.expect(protocol.TaskEnded)


def catcher(folder: Path) -> str:
    return " ".join(f"'{word}'" for word in script(folder, "catcher.py", CATCHER))


def test_each_process_gets_sigterm_exactly_once(any_host: Host, tmp_path: Path) -> None:
    """Leader, child, one with a process group of its own, as timeout makes it, and a session."""
    catches = catcher(tmp_path)
    regroup = "import os, sys; os.setpgid(0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    grouped = f"exec {sys.executable} -c '{regroup}' {catches} grouped"
    shell = f"{catches} child & ({grouped}) & setsid {catches} setsid & exec {catches} leader"
    any_host.run("worker:0", "sh", "-c", shell)
    pids = pids_of(any_host, "worker:0", 4)

    def told() -> list[str]:
        return [line for line in any_host.lines("worker:0") if line.endswith("told")]

    any_host.stop("worker:0", grace=3600)
    any_host.stop("worker:0", grace=3600)
    wait_until(lambda: len(told()) >= 4, timeout=TIMEOUT)
    any_host.stop("worker:0", grace=0.3)
    any_host.send(protocol.Shutdown())  # which tells none of them again
    any_host.expect_end()
    assert sorted(told()) == ["child told", "grouped told", "leader told", "setsid told"]
    assert not any(alive(pid) for pid in pids)


HANGS = """
import os, signal, sys, threading

def wait_for_others():
    print("begun", flush=True)
    while True:
        threading.Event().wait()

if "handles" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"saving\\n"))
if "child" in sys.argv and os.fork():
    os.wait()
wait_for_others()
"""


def stop(host: Host, task: str, signum: int = signal.SIGTERM, grace: float = 60.0) -> None:
    host.send(protocol.StopTask(task, signum, grace, with_stacks=signum == signal.SIGTERM))


def test_processes_of_a_task_print_where_they_are_one_after_the_other(any_host: Host) -> None:
    program = (
        "import os, signal, threading\n"
        "for _ in range(4): os.fork()\n"
        "def wait(depth):\n"
        "    wait(depth - 1) if depth else (print('begun', flush=True), threading.Event().wait())\n"
        "wait(50)\n"
    )
    host = any_host
    host.run("worker:0", sys.executable, "-X", "faulthandler", "-c", program)
    wait_until(lambda: host.log("worker:0").count(b"begun") == 16)
    host.send(protocol.StopTask("worker:0", signal.SIGABRT, 60.0, with_stacks=False))
    host.expect(protocol.TaskEnded, "worker:0")
    lines = host.log("worker:0").decode().splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("Current thread")]
    assert len(starts) == 16
    for start in starts:
        shown = lines[start + 1 : start + 54]
        assert sum(line.strip() == 'File "<string>", line 4 in wait' for line in shown) == 51, shown


def test_python_prints_where_it_is_in_place_of_dying_in_silence(any_host: Host) -> None:
    """Processes that it has started, too; not other programs, nor while a handler has its time."""
    host = any_host
    for task, words in (("worker:0", ["child"]), ("worker:1", ["handles"])):
        host.run(task, sys.executable, "-X", "faulthandler", "-c", HANGS, *words)
    host.run("worker:2", "sh", "-c", "echo begun; sleep 600")
    for task in ("worker:0", "worker:1", "worker:2"):
        wait_until(lambda task=task: b"begun" in host.log(task))  # type: ignore[misc]
        stop(host, task)
    assert host.expect(protocol.TaskExited, "worker:0").signal == signal.SIGABRT
    host.expect(protocol.TaskEnded, "worker:0")
    shown = host.log("worker:0").decode()
    assert "in <module>" in shown
    assert "in wait_for_others" in shown
    assert host.expect(protocol.TaskExited, "worker:2").signal == signal.SIGTERM
    host.expect(protocol.TaskEnded, "worker:2")
    wait_until(lambda: b"saving" in host.log("worker:1"))
    assert b"wait_for_others" not in host.log("worker:1")
    stop(host, "worker:1", signal.SIGABRT, 1.0)
    assert host.expect(protocol.TaskExited, "worker:1").signal == signal.SIGABRT
    assert "in wait_for_others" in host.log("worker:1").decode()

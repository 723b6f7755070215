"""Which processes are a job's: not those that a variable in their environment calls so."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrun.agent import former
from distrun.agent.linux import facts, job_processes, labels, processes
from distrun.agent.linux.job_processes import Traces
from harness.command import Distrun, Status
from harness.processes import alive, descendants
from harness.values import not_none
from harness.waiting import wait_until

TOKEN = uuid.uuid4().hex
JOB = f"job-{os.getpid()}"  # other processes of pytest end theirs at the same time
MARKS = f"DISTRUN_JOB_ID={JOB} DISTRUN_TASK=worker:0 DISTRUN_ATTEMPT=0 DISTRUN_TOKEN={TOKEN}"
WITHOUT = "-u DISTRUN_JOB_ID -u DISTRUN_TASK -u DISTRUN_TOKEN"
IGNORES_TERM = 'trap "" TERM; echo ok >>up; while :; do sleep 0.1; done'

Start = Callable[..., None]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run a shell script in a session of its own; it writes the ids of processes to files."""
    (tmp_path / "note").write_text(NOTE)
    started: list[int] = []
    shells: list[subprocess.Popen[bytes]] = []

    def run(script: str, *, in_terminal: bool = False, limit: str = "") -> None:
        words = ["sh", "-c", f"cd {tmp_path}; {script}"]
        if limit:
            words = ["prlimit", f"--locks={limit}", *words]
        if in_terminal:
            pid, master = pty.fork()
            if pid == 0:
                os.execvp(words[0], words)
            os.set_inheritable(master, False)
        else:
            shells.append(subprocess.Popen(words, start_new_session=True))
            pid = shells[-1].pid
        started.append(pid)

    yield run
    for pid in started:
        for each in descendants(pid):
            with contextlib.suppress(Exception):
                each.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for path in tmp_path.glob("pid-*"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), signal.SIGKILL)
    for shell in shells:
        shell.wait()
    for pid in started:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def pid_in(folder: Path, name: str) -> int:
    path = folder / f"pid-{name}"
    return wait_until(lambda: int(path.read_text() or 0) if path.exists() else 0)


def found(traces: Traces) -> dict[int, str]:
    return {each.process.pid: each.task for each in job_processes.find(traces)}


def by_marks() -> dict[int, str]:
    return found(Traces(TOKEN, "", {}, JOB))


NOTE = "echo $$ >pid-$1; exec sleep 600"
"""The script `note`: a process whose id is in a file."""

OWN = {
    "a task": f"exec env {MARKS} sh note it",
    "a child of a task": f"exec env {MARKS} sh -c 'sh note it & wait'",
    "a child with an emptied environment": f"exec env {MARKS} sh -c 'env -i sh note it & wait'",
    "a daemon": f"exec env {MARKS} sh -c 'setsid sh note it & exec sleep 0.1'",
    "a daemon of a task that lives, with an emptied environment": (
        f"exec env {MARKS} sh -c 'setsid env -i sh note it & exec sleep 600'"
    ),
    "an orphan in the session of a process with the token": (
        f"exec env {MARKS} sh -c '(env -i sh note it &); exec sleep 600'"
    ),
    "what runs in a terminal that a task has opened": (
        f"exec env {MARKS} {sys.executable} -c \"import pty; pty.spawn(['sh', 'note', 'it'])\""
    ),
}


LABEL = f"{labels.of_attempt(JOB, 'worker:0', 0)}:"
LOW = "1000:1000"
"""A hard limit that no label fits in."""


@pytest.mark.parametrize("limit", [LABEL, LOW], ids=["label", "token"])
@pytest.mark.parametrize("how", OWN)
def test_a_process_of_the_job_is_found(how: str, limit: str, start: Start, tmp_path: Path) -> None:
    start(OWN[how], limit=limit)
    pid = pid_in(tmp_path, "it")
    wait_until(lambda: by_marks().get(pid) in ("worker:0", job_processes.UNKNOWN), what=how)


@pytest.mark.parametrize(("last", "is_ended"), [(0, True), (-1, False)])
def test_a_hidden_process_of_an_earlier_attempt_is_ended_when_its_host_is_reached_again(
    last: int, is_ended: bool, start: Start, tmp_path: Path
) -> None:
    start("exec env -i sh note it", limit=LABEL)
    pid = pid_in(tmp_path, "it")
    assert not former._end_tasks(Traces(TOKEN, "", {}, JOB), {"worker:0": last})
    assert alive(pid) is not is_ended


FOREIGN = {
    "the job's id and a task's name are exported": (
        f"export DISTRUN_JOB_ID={JOB} DISTRUN_TASK=worker:0; sh note it & wait"
    ),
    "a task's whole environment is exported": f"export {MARKS}; sh note it & wait",
    "an orphan of a shell with a task's environment": (
        f"export {MARKS}; (sh note it &); exec env {WITHOUT} sleep 600"
    ),
    "a child with an emptied environment of such a process": (
        f"export {MARKS}; sh -c 'env -i sh note it & wait' & wait"
    ),
}


COPIED = {
    "a daemon with a session of its own": f"env {MARKS} setsid sh note it & wait",
    "a daemon of a shell that has ended": f"export {MARKS}; setsid sh note it & exit",
    "an orphan of a shell that has ended": f"export {MARKS}; sh note it & exit",
}


@pytest.mark.parametrize(
    ("how", "limit"),
    [*((how, limit) for how in FOREIGN for limit in ("", LOW)), *((how, "") for how in COPIED)],
)
def test_a_copied_environment_makes_no_process_the_jobs(
    how: str, limit: str, start: Start, tmp_path: Path
) -> None:
    start({**FOREIGN, **COPIED}[how], limit=limit)
    pid = pid_in(tmp_path, "it")
    wait_until(lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())
    assert pid not in by_marks()


def test_a_shell_in_a_terminal_is_not_the_jobs_even_if_it_was_executed_with_a_tasks_environment(
    start: Start, tmp_path: Path
) -> None:
    script = f"exec env {MARKS} sh -c 'echo $$ >pid-it; sh note child & wait'"
    start(script, in_terminal=True, limit=LOW)
    shell, child = pid_in(tmp_path, "it"), pid_in(tmp_path, "child")
    assert not {shell, child} & by_marks().keys()


FIND = f"""\
import os, sys
sys.path.insert(0, sys.argv[1])
from distrun.agent.linux.job_processes import Traces, find
pids = [each.process.pid for each in find(Traces("{TOKEN}", "", dict(), "{JOB}"))]
print(os.getppid(), *pids, file=open("pids-tmp", "w"))
os.rename("pids-tmp", "pids")
"""


def test_neither_the_caller_nor_what_it_runs_below_is_the_jobs(
    start: Start, tmp_path: Path
) -> None:
    """As `distrun kill` in a shell of a tmux server that a task has started."""
    (tmp_path / "find.py").write_text(FIND)
    start(
        f"exec env {MARKS} sh -c 'sh note sibling & setsid sh note daemon & "
        "until test -s pid-daemon && test -s pid-sibling; do sleep 0.1; done; "
        f"{sys.executable} find.py {Path(job_processes.__file__).parents[3]}; wait'",
        limit=LABEL,
    )
    path = tmp_path / "pids"
    shell, *pids = map(int, wait_until(lambda: path.read_text() if path.exists() else "").split())
    daemon, sibling = pid_in(tmp_path, "daemon"), pid_in(tmp_path, "sibling")
    assert shell not in pids
    assert sibling not in pids, "another program of the caller's shell"
    assert daemon in pids


@pytest.mark.parametrize(
    ("is_own", "seconds", "namespace"),
    [(True, 0.0, None), (False, -3600.0, None), (False, 3600.0, None), (False, 0.0, "another")],
)
def test_a_tasks_first_process_is_known_by_its_id_and_its_start(
    is_own: bool, seconds: float, namespace: str | None, start: Start, tmp_path: Path
) -> None:
    """Its environment tells nothing; and its id may have been another process's."""
    start("echo $$ >pid-it; exec env -i sleep 600")
    pid = pid_in(tmp_path, "it")
    here = facts.pid_namespace() if namespace is None else namespace
    first = {pid: ("worker:0", 2, time.time() + seconds)}
    assert found(Traces("", here, first, "")) == ({pid: "worker:0"} if is_own else {})


def kill_all_of_distrun(status: Status, job: str) -> int:
    """Kill a job's supervisor, guard and agent at once. Returns the task's process id."""
    shown = status(job)
    supervisor = shown["supervisor_pid"]
    guard = processes.children(supervisor)[0]
    agent = processes.children(guard)[0]
    for pid in (guard, agent, supervisor):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: status(job)["state"] == "lost")
    return int(shown["tasks"][0]["pid"])


THREAD = f"""exec {sys.executable} -c '
import ctypes, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=[600]).start()
open("up", "w").close()
ctypes.CDLL(None).pthread_exit(None)
'"""
"""Its first thread is a zombie, which /proc shows as the process's state."""

ENVIRONMENTS = {
    "of a program whose first thread has ended": THREAD,
    "without the job's variables": f"exec env {WITHOUT} sh -c '{IGNORES_TERM}'",
    "emptied": f"exec env -i sh -c '{IGNORES_TERM}'",
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_tasks_of_a_lost_job_are_found_whatever_their_environment_is(
    environment: str, distrun: Distrun
) -> None:
    job = distrun.detached(ENVIRONMENTS[environment], workers=1)
    wait_until((distrun.cwd / "up").exists)
    if ENVIRONMENTS[environment] == THREAD:
        pid = distrun.status(job)["tasks"][0]["pid"]
        wait_until(lambda: not_none(processes.find(pid)).state == "Z")
    task = kill_all_of_distrun(distrun.status, job)
    cleaned = distrun("clean", "--all")
    assert cleaned.stdout == "", "its task still writes its log"
    assert (distrun.home / "jobs" / job / "logs" / "worker-0.log").exists()
    assert alive(task)
    done = distrun("kill", job)
    assert done.returncode == 0, done.stderr
    assert not alive(task)
    assert distrun("clean", "--all").stdout.split() == [job]


def test_a_daemon_of_a_lost_job_that_hides_is_found_when_all_else_has_been_killed(
    distrun: Distrun,
) -> None:
    """Its session and its environment are its own, and its parents are dead."""
    daemon = f"setsid env -i sh -c 'echo $$ >pid-daemon; {IGNORES_TERM}'"
    job = distrun.detached(f"({daemon} &); exec sleep 600", workers=1)
    pid = pid_in(distrun.cwd, "daemon")
    wait_until((distrun.cwd / "up").exists)
    task = kill_all_of_distrun(distrun.status, job)
    os.kill(task, signal.SIGKILL)
    wait_until(lambda: not alive(task))
    assert alive(pid)
    assert distrun("clean", "--all").stdout == "", "it may still write"
    done = distrun("kill", job)
    assert done.returncode == 0, done.stderr
    assert not alive(pid)


@pytest.mark.parametrize(
    ("command", "copies"), [("resume", "the job's id"), ("kill", "all of a task's variables")]
)
def test_a_shell_that_has_exported_variables_of_the_job_is_left_alone(
    command: str, copies: str, distrun: Distrun
) -> None:
    job = distrun.detached("test -e go && exit; env -0 >all; exec sleep 600", workers=1)
    copied = {"DISTRUN_JOB_ID": job}
    if copies == "all of a task's variables":
        printed = distrun.cwd / "all"
        wait_until(lambda: printed.exists() and b"DISTRUN_TOKEN" in printed.read_bytes())
        pairs = printed.read_text().split("\0")[:-1]
        copied = dict(each.split("=", 1) for each in pairs)
    assert "DISTRUN_TOKEN" in copied or len(copied) == 1
    kill_all_of_distrun(distrun.status, job)
    (distrun.cwd / "go").touch()
    shell = subprocess.Popen(
        ["sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=distrun.cwd,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    try:
        for name, value in copied.items():
            quoted = value.replace("'", "'\\''")
            shell.stdin.write(f"{name}='{quoted}'; export {name}\n")
        shell.stdin.write(f"export DISTRUN_HOME='{distrun.home}'; sleep 600 & echo $!\n")
        shell.stdin.flush()
        other = int(shell.stdout.readline())
        words = f"'{sys.executable}' -m distrun {command} {job} >said 2>&1 </dev/null"
        shell.stdin.write(f"{words}; echo $?\n")
        shell.stdin.flush()
        assert shell.stdout.readline().strip() == "0", (distrun.cwd / "said").read_text()
        assert alive(other)
        assert shell.poll() is None
    finally:
        for each in descendants(shell.pid):
            each.kill()
        shell.kill()
        shell.wait()
        shell.stdin.close()
        shell.stdout.close()


LARGE = """
import os, subprocess, time
memory = bytearray(1 << 29)
memory[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * (len(memory) // os.sysconf("SC_PAGE_SIZE"))
subprocess.Popen(["sh", "note", "it"])
time.sleep(600)
"""
"""A program that takes a while to end, in which it is no zombie and has no environment."""


def test_a_process_is_the_jobs_while_the_leader_of_its_session_is_ending(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    start(f"echo $$ >pid-leader; exec env {MARKS} {sys.executable} large.py", limit=LOW)
    leader, it = pid_in(tmp_path, "leader"), pid_in(tmp_path, "it")
    os.kill(leader, signal.SIGKILL)
    looks = 0
    while (process := processes.find(leader)) is not None and not process.is_zombie:
        assert it in by_marks()
        looks += process.is_exiting
    assert looks

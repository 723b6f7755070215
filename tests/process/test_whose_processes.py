"""Which processes are a job's; `kill` and `wait` verify that they have ended."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun, recorded_events
from harness.parts.channel import LENGTH, channel
from harness.parts.linux import Ending, Traces, facts, job_processes, labels, processes
from harness.parts.records import JobStore
from harness.processes import alive, descendants, survivors
from harness.strangers import Stranger
from harness.values import not_none
from harness.waiting import SOON, wait_until

TOKEN = uuid.uuid4().hex
JOB = f"job-{os.getpid()}"  # other processes of pytest end theirs at the same time
MARKS = f"DISTRUN_JOB_ID={JOB} DISTRUN_TASK=worker:0 DISTRUN_ATTEMPT=0 DISTRUN_TOKEN={TOKEN}"
WITHOUT = "-u DISTRUN_JOB_ID -u DISTRUN_TASK -u DISTRUN_TOKEN"
IGNORES = 'trap "" TERM; echo >>up; while :; do sleep 0.1; done'

OWN_PROCESS = not_none(processes.find(os.getpid()))
Start = Callable[..., None]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run a shell script in a session of its own; it writes the ids of processes to files."""
    (tmp_path / "note").write_text(NOTE)
    shells: list[subprocess.Popen[bytes]] = []

    def run(script: str, limit: str = "", name: str = "it") -> None:
        words = ["sh", "-c", f"cd {tmp_path}; {script.replace('note it', f'note {name}')}"]
        if limit:
            words = ["prlimit", f"--locks={limit}", *words]
        shells.append(subprocess.Popen(words, start_new_session=True))

    before = descendants(os.getpid())

    def end_all() -> bool:
        """This process adopts what shells leave."""
        left = [each for each in descendants(os.getpid()) - before if alive(each)]
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        return not left

    yield run
    wait_until(end_all)
    for shell in shells:
        shell.wait()


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
        f"exec env {MARKS} {sys.executable} -c \"import pty; pty.spawn('sh note it'.split())\""
    ),
}
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
"""What has the environment of a task without being one: only a label tells it apart."""
LABEL = f"{labels.of_attempt(JOB, 'worker:0', 0)}:"
LOW = "1000:1000"
"""A hard limit that no label fits in."""


@pytest.mark.parametrize("limit", [LABEL, LOW], ids=["label", "token"])
def test_the_processes_of_the_job_are_found(limit: str, start: Start, tmp_path: Path) -> None:
    for number, script in enumerate(OWN.values()):
        start(script, limit=limit, name=f"it-{number}")
    for number, how in enumerate(OWN):
        pid = pid_in(tmp_path, f"it-{number}")
        names = ("worker:0", job_processes.UNKNOWN)
        wait_until(lambda: by_marks().get(pid) in names, what=how)  # noqa: B023 - called at once
    of_this = Traces(TOKEN, "", {}, JOB, (facts.pid_namespace(), os.getpid()))
    assert not found(of_this), "a supervisor's own processes are not those of an earlier one"
    assert found(of_this._replace(asker=("another machine", os.getpid())))


@pytest.mark.parametrize("limit", ["", LOW])
def test_a_copied_environment_makes_none_the_jobs(limit: str, start: Start, tmp_path: Path) -> None:
    scripts = FOREIGN if limit else {**FOREIGN, **COPIED}
    for number, script in enumerate(scripts.values()):
        start(script, limit=limit, name=f"it-{number}")
    for number, how in enumerate(scripts):
        pid = pid_in(tmp_path, f"it-{number}")
        arguments = Path(f"/proc/{pid}/cmdline")
        wait_until(lambda: b"sleep" in arguments.read_bytes())  # noqa: B023 - called at once
        assert pid not in by_marks(), how


FIND = f"""\
import os, sys
sys.path.insert(0, sys.argv[1])
from {job_processes.__name__} import Traces, find
pids = [each.process.pid for each in find(Traces("{TOKEN}", "", dict(), "{JOB}"))]
print(os.getppid(), *pids, file=open("pids-tmp", "w"))
os.rename("pids-tmp", "pids")
"""


def test_neither_the_caller_nor_its_parents_are_the_jobs(start: Start, tmp_path: Path) -> None:
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


def test_a_tasks_first_process_is_known_by_id_and_start(start: Start, tmp_path: Path) -> None:
    """Its environment tells nothing; and its id may have been another process's."""
    start("echo $$ >pid-it; exec env -i sleep 600")
    pid = pid_in(tmp_path, "it")
    for seconds in (0.0, -3600.0, 3600.0):
        for namespace in (facts.pid_namespace(), "another"):
            first = {pid: ("worker:0", 2, time.time() + seconds)}
            is_own = seconds == 0.0 and namespace != "another"
            expected = {pid: "worker:0"} if is_own else {}
            assert found(Traces("", namespace, first, "")) == expected, (seconds, namespace)


def test_only_the_process_that_was_seen_is_signalled() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        seen = not_none(processes.find(child.pid))
        assert not processes.send(seen._replace(started=seen.started - 1), signal.SIGKILL)
        assert child.poll() is None
        assert processes.send(seen, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert not processes.send(seen, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()


def test_a_process_of_another_user_is_not_taken_for_one_that_has_ended() -> None:
    with Stranger(
        lambda report: report(f"{Ending(0.1, lambda: [OWN_PROCESS], 0.1).run()}")
    ) as stranger:
        assert stranger.report() == f"{[OWN_PROCESS]}"


THREAD = f"""exec {sys.executable} -c '
import ctypes, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=[600]).start()
open("up", "a").write("up\\n")
ctypes.CDLL(None).pthread_exit(None)
'"""
"""Its first thread is a zombie, which /proc shows as the process's state."""


def test_lost_tasks_are_found_without_environment_or_first_thread(distrun: Distrun) -> None:
    up = distrun.cwd / "up"
    bare = f"exec env -i sh -c '{IGNORES}'"
    job = distrun.detached(f"test $DISTRUN_TASK = worker:0 || {bare}\n{THREAD}")
    wait_until(lambda: up.exists() and up.read_text().count("\n") == 2)
    tasks = [each["pid"] for each in distrun.status(job)["tasks"]]
    wait_until(lambda: not_none(processes.find(tasks[0])).state == "Z")
    assert processes.command(tasks[0])
    distrun.lose(job)
    assert distrun("clean", "--all").stdout == "", "its tasks still write their logs"
    assert (distrun.home / "jobs" / job / "logs" / "worker-0.log").exists()
    assert all(map(alive, tasks))
    distrun.checked("kill", job)
    assert not any(map(alive, tasks))
    assert distrun("clean", "--all").stdout.split() == [job]


def test_a_hidden_daemon_of_a_lost_job_is_found_when_all_else_is_dead(distrun: Distrun) -> None:
    """Its session and its environment are its own, and its parents are dead."""
    daemon = f"setsid env -i sh -c 'echo $$ >pid-daemon; {IGNORES}'"
    job = distrun.detached(f"({daemon} &); exec sleep 600", workers=1)
    pid = pid_in(distrun.cwd, "daemon")
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(job)
    os.kill(task, signal.SIGKILL)
    wait_until(lambda: not alive(task))
    assert alive(pid)
    assert distrun("clean", "--all").stdout == "", "it may still write"
    distrun.checked("kill", job)
    assert not alive(pid)


def test_a_shell_that_has_exported_variables_of_the_job_is_left_alone(distrun: Distrun) -> None:
    job = distrun.detached("test -e go && exit; env -0 >all; exec sleep 600", workers=1)
    printed = distrun.cwd / "all"
    wait_until(lambda: printed.exists() and b"DISTRUN_TOKEN" in printed.read_bytes())
    copied = [shlex.quote(each) for each in printed.read_text().split("\0")[:-1]]
    distrun.lose(job)
    (distrun.cwd / "go").touch()
    home, resume = f"DISTRUN_HOME={distrun.home}", f"{sys.executable} -m distrun resume {job}"
    script = (
        f"export {' '.join(copied)} {home}; sleep 600 & echo $!; "
        f"{resume} >said 2>&1 </dev/null; echo $?; wait"
    )
    shell = subprocess.Popen(
        ["sh", "-c", script],
        stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=distrun.cwd,
    )  # fmt: skip
    try:
        lines = not_none(shell.stdout)
        other = int(lines.readline())
        assert lines.readline().strip() == "0", (distrun.cwd / "said").read_text()
        assert alive(other)
        assert shell.poll() is None
    finally:
        for each in descendants(shell.pid):
            each.kill()
        shell.kill()
        shell.communicate()


@pytest.mark.parametrize("with_agent", [False, True])
def test_kill_ends_what_a_dying_supervisor_leaves(with_agent: bool, distrun: Distrun) -> None:
    job = distrun.detached(IGNORES, workers=1)
    wait_until((distrun.cwd / "up").exists)
    names = ("supervisor", *(("guard", "agent") if with_agent else ()))
    victims = [distrun.victim_of(who, None) for who in names]
    task = psutil.Process(distrun.status(job)["tasks"][0]["pid"])  # its number may be reused
    kill = distrun.start("kill", job, "--grace", "60s", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(e["event"] == "StopRequested" for e in recorded_events(distrun, job)))
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    kill.communicate(timeout=SOON)
    assert kill.returncode == 0
    assert not alive(task)
    assert not survivors(job)
    shown = distrun.status(job)
    assert (shown["state"], shown["tasks"][0]["state"]) == ("stopped", "stopped")
    assert distrun("wait", job).returncode == 137


def test_kill_all_ends_lost_jobs_and_what_ended_ones_have_left(distrun: Distrun) -> None:
    ended = distrun.detached("exit 0", workers=1)
    lost = distrun.detached(IGNORES, workers=1)
    running = distrun.detached("exec sleep 600", workers=1)
    wait_until((distrun.cwd / "up").exists)
    tasks = [distrun.lose(lost), distrun.status(running)["tasks"][0]["pid"]]
    assert f"{ended} succeeded" in distrun.told(70, "wait", lost, ended)
    token = (distrun.home / "jobs" / ended / "token").read_text()
    marks = {"DISTRUN_JOB_ID": ended, "DISTRUN_TASK": "worker:0", "DISTRUN_TOKEN": token}
    label = labels.of_attempt(ended, "worker:0", 0)
    words = ["prlimit", f"--locks={label}:", "sleep", "600"]
    left = subprocess.Popen(words, env={**os.environ, **marks}, start_new_session=True)
    wait_until(lambda: labels.read(left.pid) == label)
    kept = distrun("clean", "--all")
    assert (kept.stdout, f"job {ended} is kept: " in kept.stderr) == ("", True)
    said = distrun.told(0, "kill", "--all")
    assert left.wait(SOON) == -signal.SIGTERM
    assert "had already succeeded; ended 1 process of the job" in said
    assert not any(map(alive, tasks))
    assert [distrun.status(each)["state"] for each in (lost, ended)] == ["stopped", "succeeded"]
    assert distrun.told(0, "kill", "--all") == ""


def test_what_earlier_attempts_have_left_is_found_by_its_label() -> None:
    label = labels.of_attempt(JOB, "worker:0", 1)
    with subprocess.Popen(["prlimit", f"--locks={label}:", "sleep", "600"]) as left:
        wait_until(lambda: labels.read(left.pid) == label)
        assert [each.pid for each in labels.find(JOB, {"worker:0": 2})] == [left.pid]
        assert labels.find(JOB, {"worker:0": 0, "worker:1": 2}) == []
        left.kill()


def answer_to(distrun: Distrun, job: str, request: dict[str, Any]) -> dict[str, Any]:
    connection = not_none(JobStore(distrun.home).find(job).connect())
    connection.settimeout(SOON)
    body = json.dumps(request).encode()
    connection.sendall(LENGTH.pack(len(body)) + body)
    with connection, connection.makefile("rb") as answer:
        return dict(json.loads(answer.read()[LENGTH.size :]))


def test_a_request_that_is_not_understood_is_answered_and_shown(distrun: Distrun) -> None:
    """Other jobs are ended all the same, and the worst exit code counts."""
    lost = distrun.detached(IGNORES, workers=1)
    runs = distrun.detached("exec sleep 600", workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(lost)
    waited = distrun.told(70, "wait", lost)
    assert f"its tasks still run; to end them: distrun kill {lost}" in waited
    odd = {"type": "TakeStacks", "program": 7, "tasks": [], "native": False, "seconds": 0}
    for request in ({"type": "Watch", "version": 999}, {"type": "NoSuchKind"}, odd):
        answer = answer_to(distrun, runs, request)
        assert (answer["type"], answer["exit_code"]) == ("Refused", 69)
        assert ("request_version_differs" in str(answer)) is ("version" in request)
    later = f"import {channel.__name__} as channel; channel.PROTOCOL = 999; "
    code = f"{later}import sys; from distrun.__main__ import main; sys.exit(main())"
    usual, distrun.argv = distrun.argv, (sys.executable, "-c", code)
    for words in (["logs", "-f", runs], ["stacks", runs], ["kill", runs, lost]):
        assert "another version of distrun" in distrun.told(69, *words)
    distrun.argv = usual
    assert not alive(task)
    assert distrun.status(runs)["state"] == "running"
    assert distrun("kill", runs).returncode == 0


def test_two_kills_at_once_of_a_lost_job(distrun: Distrun) -> None:
    job = distrun.detached(IGNORES, workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(job)
    kills = [distrun.start("kill", job, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [each.communicate(timeout=SOON)[1] for each in kills]
    assert [each.returncode for each in kills] == [0, 0], said
    assert not alive(task)
    assert sum(e["event"] == "JobEnded" for e in recorded_events(distrun, job)) == 1


@pytest.mark.parametrize(("kept", "has_hosts"), [(20, False), (0, True)])
def test_what_is_not_recorded_may_still_run(kept: int, has_hosts: bool, distrun: Distrun) -> None:
    job = distrun.detached(IGNORES, workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(job)
    record = distrun.home / "jobs" / job / "events.jsonl"
    record.write_bytes(record.read_bytes()[:kept])
    if has_hosts:
        spec = record.with_name("spec.json")
        spec.write_text(spec.read_text().replace('"name":"localhost"', '"name":"h1"'))
    done = distrun("kill", job)
    assert not alive(task), "the token tells whose it is"
    assert done.returncode == (69 if has_hosts else 0), done.stderr
    assert "Traceback" not in done.stderr

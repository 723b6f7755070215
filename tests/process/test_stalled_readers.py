"""Commands whose output nobody reads, whose streams are closed, or on a full disk."""

import contextlib
import fcntl
import os
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun
from harness.processes import captured, survivors
from harness.values import not_none
from harness.waiting import wait_until

FLOODS = "seq 300000; touch flooded; exec sleep 600"
"""More output than a pipe, a socket or a terminal takes."""
STUBBORN = "trap '' TERM; seq 300000; touch flooded; while :; do sleep 0.1; done"
FILLING = 0.2
"""Seconds in which a stream that takes more would take it."""
Reader = tuple[int, int]
"""The two ends of a stream: for reading, for writing."""
Start = Callable[..., "subprocess.Popen[Any]"]


@pytest.fixture
def pipe() -> Iterator[Reader]:
    ends = os.pipe()
    yield ends
    for each in ends:
        with contextlib.suppress(OSError):
            os.close(each)


@pytest.fixture
def start(distrun: Distrun) -> Start:
    """Start a command that writes to a stream: stdout, unless `streams` says otherwise."""

    def run(reader: Reader, *args: Any, streams: tuple[str, ...] = ("stdout",), **rest: Any) -> Any:
        given = {"env": {**os.environ, "TERM": "xterm"}, **dict.fromkeys(streams, reader[1])}
        process = distrun.start(*args, **{**given, **rest})
        if not os.isatty(reader[1]):
            os.close(reader[1])
        return process

    return run


def is_stalled(process: subprocess.Popen[Any] | psutil.Process) -> bool:
    """Whether a thread of the process waits in a write, which it does until somebody reads.

    plan and doctor run in a child of the command.
    """
    pids = [process.pid, *(each.pid for each in psutil.Process(process.pid).children())]
    for pid in pids:
        for each in Path(f"/proc/{pid}/task").glob("*/syscall"):
            with contextlib.suppress(PermissionError):  # a supervisor's: only root may
                number = each.read_text().split()[0]
                # write and writev, on x86-64 and on ARM
                if number in ("1", "20", "64", "66"):
                    return True
    return False


def read_all(reading: int, process: subprocess.Popen[Any]) -> bytes:
    """What can be read until the process has ended.

    This process holds a terminal open: what is on its way is lost when nobody does.
    """
    blocks = []
    while True:
        has_ended = process.poll() is not None
        if select.select([reading], [], [], FILLING)[0]:
            if not (block := os.read(reading, 1 << 20)):
                break
            blocks.append(block)
        elif has_ended:
            break
    return b"".join(blocks)


def unread(reading: int) -> int:
    found = fcntl.ioctl(reading, termios.FIONREAD, struct.pack("i", 0))
    return int.from_bytes(found, sys.byteorder)


def fill(writing: int) -> int:
    """Write until nothing more fits; how many bytes that were."""
    os.set_blocking(writing, False)
    written = 0
    # A terminal passes on what it has a moment later, and then takes more.
    while select.select([], [writing], [], FILLING)[1]:
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    written += os.write(writing, b"x" * size)
    os.set_blocking(writing, True)
    return written


def test_a_signal_ends_a_launch_whose_terminal_stalls(distrun: Distrun, start: Start) -> None:
    """Both streams are the same: the last words do not arrive either."""
    reading, shared = os.openpty()
    launch = start(
        (reading, shared), "launch", distrun.write_spec(FLOODS), streams=("stdout", "stderr")
    )
    wait_until((distrun.cwd / "flooded").exists)
    wait_until(lambda: is_stalled(launch))
    # O_NONBLOCK belongs to the open file, which the shell and other programs have too.
    assert not fcntl.fcntl(shared, fcntl.F_GETFL) & os.O_NONBLOCK
    launch.send_signal(signal.SIGINT)
    assert launch.wait(30) == 130
    job = distrun.status()
    assert survivors(job["job_id"]) == []
    assert "SIGINT" in job["outcome"]["cause"]
    os.close(shared)
    os.close(reading)


def test_messages_while_the_output_stalls(distrun: Distrun, start: Start, pipe: Reader) -> None:
    spec = distrun.write_spec(STUBBORN, timeouts={"grace": "1h"})
    launch = start(pipe, "launch", spec, stderr=subprocess.PIPE, text=True)
    messages = not_none(launch.stderr)
    job_id = messages.readline().split()[2].rstrip(":")
    wait_until((distrun.cwd / "flooded").exists)
    wait_until(lambda: is_stalled(launch))
    launch.send_signal(signal.SIGTERM)
    assert messages.readline() == f"distrun: SIGTERM: stopping job {job_id}\n"
    launch.send_signal(signal.SIGTERM)
    assert launch.wait(30) == 143
    told = messages.read()
    assert "killing it at once" in told
    unread = "the last lines are not shown, because nothing reads the output: distrun logs"
    assert f"distrun: {unread} {job_id}\n" in told


def test_a_reader_that_reads_on_gets_all(distrun: Distrun, start: Start, pipe: Reader) -> None:
    """Nothing is lost or doubled, and the launch holds only a part of it in memory."""
    lines = 200_000  # of 100 bytes
    spec = distrun.write_spec(f"seq -f '{'line ' * 20}%.0f' {lines}", workers=2)
    # A fork of the preloaded Python would have its memory.
    env = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:"}
    launch = start(pipe, "launch", spec, stderr=subprocess.DEVNULL, env=env)
    first = os.read(pipe[0], 1000)
    wait_until(lambda: is_stalled(launch))
    wait_until(lambda: distrun.status()["tasks"][1]["state"] == "succeeded")
    process, used = psutil.Process(launch.pid), [0.0]

    def is_idle() -> bool:
        used.append(process.cpu_times().user)
        return used[-1] == used[-2]

    wait_until(is_idle, interval=0.5)
    assert launch.poll() is None
    assert process.memory_info().rss < 60_000_000
    shown = (first + read_all(pipe[0], launch)).decode().splitlines()
    assert launch.wait(30) == 0
    for task in ("worker:0", "worker:1"):
        numbers = [line.rpartition(" ")[2] for line in shown if line.startswith(task)]
        assert numbers == [str(number) for number in range(1, lines + 1)]
    assert len(shown) == 2 * lines


def test_a_signal_after_the_end_is_too_late(distrun: Distrun, start: Start, pipe: Reader) -> None:
    """Until then the launch waits for the reader, as `cat` would."""
    spec = distrun.write_spec("seq 300000; exit 3", workers=1)
    launch = start(pipe, "launch", spec, stderr=subprocess.PIPE, text=True)
    job = not_none(launch.stderr).readline().split()[2].rstrip(":")
    wait_until(lambda: distrun.status(job)["state"] == "failed")
    wait_until(lambda: is_stalled(launch))
    assert launch.poll() is None
    launch.send_signal(signal.SIGINT)
    assert launch.wait(30) == 3
    assert "the last lines are not shown" in not_none(launch.stderr).read()


def test_output_is_shown_while_messages_stall(distrun: Distrun, start: Start, pipe: Reader) -> None:
    filled = fill(pipe[1])
    spec = distrun.write_spec("echo text; until test -e go; do sleep 0.02; done; exit 3", workers=1)
    launch = start(pipe, "launch", spec, streams=("stderr",), stdout=subprocess.PIPE, text=True)
    assert not_none(launch.stdout).readline() == "worker:0 | text\n"
    (Path(spec).parent / "go").touch()
    told = read_all(pipe[0], launch)
    assert told.startswith(b"x" * filled + b"distrun: job ")
    assert told.endswith(b"distrun: exit code 3, worker:0's own\n")
    assert launch.wait(30) == 3


OTHERS = [
    ("logs -f", signal.SIGINT, 0), ("status", signal.SIGINT, 130),
    ("plan job.yaml", signal.SIGTERM, 143), ("kill", signal.SIGINT, 130),
]  # fmt: skip
"""Commands, a signal, and the exit code: Ctrl-C is how one stops following. `kill` comes last: it
ends the job."""


def test_a_signal_ends_the_other_commands(start: Start, distrun: Distrun) -> None:
    spec = distrun.write_spec("echo text; exec sleep 600", workers=1)
    assert distrun("launch", "-d", spec).returncode == 0
    for command, number, code in OTHERS:
        ends = os.openpty()
        fill(ends[1])
        process = start(ends, *command.split(), streams=("stdout", "stderr"))
        wait_until(lambda: is_stalled(process))  # noqa: B023 - called at once
        process.send_signal(number)
        assert process.wait(30) == code, command
        os.close(ends[0])
    ends = os.openpty()  # that of no session: nobody gets SIGHUP
    process = start(ends, "launch", distrun.write_spec("while echo x; do sleep 0.1; done"))
    os.close(ends[1])
    os.read(ends[0], 9)
    os.close(ends[0])
    assert process.wait(30) == 128 + signal.SIGHUP


def test_a_stream_that_is_non_blocking_loses_nothing(start: Start, distrun: Distrun) -> None:
    distrun.launch("seq 100000", workers=1)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = start((reading, writing), "logs", "--raw", stderr=subprocess.DEVNULL)
    wait_until(lambda: unread(reading) > 60_000)
    assert read_all(reading, process).decode() == "".join(f"{n}\n" for n in range(1, 100_001))
    assert process.wait(30) == 0
    os.close(reading)


FULL = "distrun: standard output cannot be written: No space left on device\n"
PRINTING = ("--help", "logs")
"""Commands of which the output is all that they are for."""


def run(distrun: Distrun, command: str, redirections: str) -> tuple[int, str, str]:
    """The exit code, and what was printed to those of stdout and stderr that are not redirected."""
    line = f"{shlex.join(distrun.argv)} {command} {redirections}"
    done = captured(["sh", "-c", line], cwd=distrun.cwd)
    return done.returncode, done.stdout, done.stderr


def test_output_that_cannot_be_written_is_an_error_where_it_is_the_answer(distrun: Distrun) -> None:
    assert distrun.launch("echo hello; exit 3", workers=1).returncode == 3
    for command in PRINTING:
        code, shown, told = run(distrun, command, ">/dev/full")
        assert (code, shown, told[-len(FULL) :]) == (69, "", FULL), command
        assert "Traceback" not in told
    assert run(distrun, "ps -a", ">&- 2>&-") == (69, "", "")
    assert run(distrun, "logs", "<&- >&-") == (69, "", "distrun: standard output is closed\n")
    assert run(distrun, "logs", "<&- 2>&-") == (0, "worker:0 | hello\n", "")
    code, shown, told = run(distrun, "wait", ">&-")
    assert (code, shown, "exit code 3, worker:0's" in told) == (3, "", True)
    assert run(distrun, "bogus", "2>/dev/full") == (2, "", "")


@pytest.mark.parametrize("redirections", [">/dev/full", "<&- >&- 2>&-"])
def test_a_job_runs_to_its_end_without_its_output(distrun: Distrun, redirections: str) -> None:
    """Neither the command's own words nor the tasks' output are written into the job's files."""
    distrun.write_spec("seq 100000; sleep 0.3; ls -l /proc/self/fd; exit 3", workers=1)
    code, shown, told = run(distrun, "launch job.yaml", redirections)
    assert (code, shown) == (3, "")
    job = distrun.status()
    assert (job["state"], job["outcome"]["exit_code"]) == ("failed", 3)
    assert distrun.asked("logs").startswith("worker:0 | 1\n")
    folder = distrun.home / "jobs" / job["job_id"]
    assert all(line[0] == "{" for line in (folder / "events.jsonl").read_text().splitlines())
    assert (folder / "supervisor.log").read_text() == ""
    if "2>" in redirections:
        assert told == ""
        return
    line = f"{FULL[:-1]}; the tasks' output is in the logs: distrun logs {job['job_id']}"
    assert told.splitlines().count(line) == 1
    assert told.splitlines()[-1] == "distrun: exit code 3, worker:0's own"


def test_a_detached_job_is_started_although_its_id_is_not_printed(distrun: Distrun) -> None:
    distrun.write_spec("exec sleep 600", workers=1)
    code, _, told = run(distrun, "launch -d job.yaml", ">/dev/full")
    assert code == 0
    job = distrun.status()
    assert job["state"] == "running"
    assert f"job {job['job_id']} was started, but its id was not printed" in told
    assert distrun("kill").returncode == 0

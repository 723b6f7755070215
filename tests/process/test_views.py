"""What `ps`, `status` and `launch` show on wide and narrow terminals and in pipes."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

VALUES = "STEP=120 EPOCH=1 EPOCHS=1 LOSS=0.123456 EXAMPLES_PER_SEC=1800"
LIVE = re.compile("\x1b\\[1m[^\n\x1b]*\x1b\\[0m\r|\r\x1b\\[[JK]")
LONG = "a job with a name that is rather longer than any that one would give it by hand"


def columns_of(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


def test_status_shows_progress_and_fits_80_columns(
    distrun: Distrun, reporting: Callable[..., Path], terminal: OpenTerminal
) -> None:
    distrun("launch", "-d", reporting(VALUES))
    wait_until(lambda: all(task["progress"] for task in distrun.status()["tasks"]))
    windows = {columns: terminal("status", columns=columns) for columns in (80, 160)}
    for columns, window in windows.items():
        wait_until(window.ended)
        lines = window.text().splitlines()
        assert max(map(len, lines)) <= columns
        assert "2 running" in lines[0]
        assert "epoch 1/1 step 120 loss 0.1235 1,800/s" in lines[2]
    assert "CPU" in windows[80].text()
    assert "\x1b[38;5;28mrunning" in windows[80].seen
    titles = columns_of(windows[160].text().splitlines()[1])
    assert " ".join(titles) == "TASK STATE HOST PID ATTEMPT CPU MEM TIME SEEN PROGRESS"
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    assert "last reported epoch 1/1, step 120" in distrun("events").stdout


def test_many_tasks_and_a_long_name(distrun: Distrun, terminal: OpenTerminal) -> None:
    """A name is folded, and never cut."""
    job_id = distrun.detached("exec sleep 600", "--name", LONG, workers=20)
    shown = {}
    for command, columns in (("ps", 80), ("ps", 40), ("status", 80)):
        window = terminal(command, columns=columns)
        wait_until(window.ended)
        assert window.process.returncode == 0
        shown[command, columns] = window.text().splitlines()
        assert max(map(len, shown[command, columns])) <= columns
    assert "20/20" in "".join(shown["ps", 80])
    assert any("worker:19" in line for line in shown["status", 80])
    lines = [line[: len(job_id)] for line in shown["ps", 40][1:] if line.strip()]
    assert "".join(line.split()[0] for line in lines) == job_id
    distrun("kill")


def test_the_status_line_shows_progress_and_damages_no_output(
    reporting: Callable[..., Path], terminal: OpenTerminal, distrun: Distrun
) -> None:
    spec = reporting(VALUES)
    window = terminal("launch", spec, "--all-output", columns=100)
    said = "2/2 tasks up  epoch 1/1  step 120  loss 0.1235  1,800 examples/s  "
    # Below all output: else the line may be gone for a moment when the window shrinks.
    wait_until(lambda: said in window.read().partition("reported")[2].partition("reported")[2])
    window.resize(24, 10)
    wait_until(lambda: "\x1b[1m2/2 tasks up  epoch 1/1\x1b[0m\r" in window.read())
    assert window.seen.count("\x1b[J") == 1, "only of a folded line: tmux keeps each such screen"
    window.resize(200, 10)
    (distrun.cwd / "go").touch()
    wait_until(window.ended)
    assert window.process.returncode == 0
    live = LIVE.findall(window.seen)
    assert live[-1] == "\r\x1b[K", "it is still there at the end"
    left = LIVE.sub("", window.seen).replace("\r\n", "\n")
    lines = re.sub("\x1b\\[[0-9;]*m", "", left).splitlines()
    assert sorted(lines[:-1]) == ["worker:0 | reported", "worker:1 | reported"]
    result = r"(job-\w+) succeeded in \S+ s · epoch 1/1, loss 0\.123 · logs: distrun logs \1"
    assert re.fullmatch(result, lines[-1])
    piped = distrun("launch", spec)
    assert sorted(piped.stdout.splitlines()) == sorted(lines[:-1])
    assert "tasks up" not in piped.stdout + piped.stderr


def test_a_pipe_is_never_coloured_and_its_end_shows_no_traceback(distrun: Distrun) -> None:
    distrun.launch("seq 200000", workers=1)
    forced = {**os.environ, "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}
    for args in (("ps", "-a"), ("status",), ("logs",), ("events",)):
        assert "\x1b" not in distrun(*args, env=forced).stdout
        read, write = os.pipe()  # that nobody reads
        os.close(read)
        done = distrun(*args, stdout=write)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, ""), args


def test_a_dumb_terminal_gets_no_colour_and_no_cursor_movement(
    terminal: OpenTerminal, distrun: Distrun
) -> None:
    terms = itertools.cycle(["dumb", "unknown", ""])
    script = "printf '\\033[31mred\\033[0m text\\n'; until test -e go; do sleep 0.1; done; exit 3"
    spec = distrun.write_spec(script, workers=1)
    launch = terminal("launch", spec, term=next(terms))
    wait_until(lambda: "red text" in launch.read())
    others = [terminal("logs", "-f", term=next(terms))]
    wait_until(lambda: "red text" in others[0].read())
    (distrun.cwd / "go").touch()
    wait_until(launch.ended)
    assert launch.process.returncode == 3
    commands = ("ps -a", "status", "logs", "events", f"plan {spec}", f"doctor {spec}", "--help")
    others += [terminal(*command.split(), term=next(terms)) for command in commands]
    for window in (launch, *others):
        wait_until(window.ended)
        assert window.seen
        assert "\x1b" not in window.seen
        assert "\r" not in window.seen.replace("\r\n", "")

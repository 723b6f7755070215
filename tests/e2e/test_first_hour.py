"""The commands of docs/first-hour.md, in a terminal as a new user has it."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.terminal import Terminal
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "first-hour.md"
MARK = f"<!-- run by: tests/e2e/{Path(__file__).name} -->\n"
COMMANDS = re.findall(rf"{MARK}```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(
    r"worker:[01*] +\| (Epoch \d/\d"
    r"|100/100 \[=+\] - \d+s \d+m?s/step - loss: [\d.]+ - mae: [\d.]+"
    r"|Traceback .*|  File .*|    .*|AttributeError: .*)(?: \(2 tasks\))?"
)
"""What the script prints: its epochs, its finished bars, and Python's words when it fails."""
MOST_OTHER = 10
# TensorFlow's own, when a worker ends seconds before the other on a busy machine.
PEER_IS_GONE = re.compile("StartAbort UNAVAILABLE|Additional GRPC error|grpc_status:14")
# In place of Python: prints what the tasks of the same job printed before. A task that was stopped
# because the other had failed is stopped again.
REPLAY = """\
case "$1" in */lint/*) exec '{python}' "$@" ;; *.py) ;; *) exec '{python}' "$@" ;; esac
if ! grep -q 'parse_args()' "$1"; then job=1; elif [ "$3" = 1 ]; then job=2; else job=0; fi
log="{folder}/printed-$job/worker-$DISTRUN_RANK.log"
'{python}' -I -S -c '{replay}' "$log" || exit
[ $job = 1 ] || exit 0
grep -q AttributeError "$log" || exec sleep 60
exit 1
"""
REPLAY_LINES = """
import os, re, sys, time
for text in re.findall(rb"[^\\r\\n\\b]*[\\r\\n\\b]*", open(sys.argv[1], "rb").read()):
    os.write(1, text)
    time.sleep(0.005)
"""
WITH_PYTHON = """\
if [ "$1" = launch ] || [ "$1" = run ]; then
  command=$1; shift; set -- $command --set program.python={1} "$@"
fi
exec {0} "$@"
"""


def screen(terminal: Terminal) -> list[str]:
    """The lines that stay: without the states of the live line that were drawn over."""
    lines = re.split("\r?\n", re.sub("\x1b\\[[0-9;]*m", "", terminal.text()))
    return [text for line in lines if (text := re.split("\r|\x1b\\[[JK]", line)[-1])]


def count(text: str, lines: list[str]) -> int:
    """How often the two workers printed a text; what both printed is shown once."""
    return sum(2 if line.startswith("worker:*") else 1 for line in lines if text in line)


def follow(distrun: Distrun, tool: Path, columns: int) -> list[list[str]]:
    """Run the page's commands in a terminal: its screen after each."""
    script = re.findall(r"```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    (distrun.cwd / "train.py").write_text(script)
    shown, codes = [], []
    for command in "".join(COMMANDS).splitlines():
        argv = ["bash", "-c", f"PATH={shlex.quote(str(tool.parent))}:$PATH; {command}"]
        terminal = Terminal(argv, str(distrun.cwd), columns, 24)
        wait_until(terminal.ended, 120)
        shown.append(screen(terminal))
        codes.append(terminal.process.returncode)
        terminal.close()
    assert codes == [0, 0, 1, 0, 0, 0, 0], (columns, shown)
    return shown


def check(shown: list[list[str]]) -> None:
    run, _, failed, _, spec, launched, last = shown
    assert count("| Epoch", run) == count("| 100/100", run) == 4
    assert any("no attribute 'parse_arg'" in line for line in failed)
    assert spec == []
    assert count("| 100/100", launched) == 2
    assert "succeeded in" in run[-1]
    assert "succeeded in" in launched[-1]
    assert next(line for line in last if SCRIPT.fullmatch(line)).startswith("worker:1 | 100/100")
    lines = [line for screen in shown for line in screen if not PEER_IS_GONE.search(line)]
    other = [line for line in lines if not SCRIPT.fullmatch(line)]
    assert len(other) <= MOST_OTHER, "\n".join(other)


def write_tool(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def test_the_first_minutes_are_quiet(
    distrun: Distrun, preloaded: PreloadedPython, tmp_path: Path
) -> None:
    launcher = shlex.join(distrun.argv)
    # The first two jobs import TensorFlow, whose lines are left out. That of `launch` is forked.
    tool = write_tool(
        tmp_path / "bin" / "distrun",
        f'[ "$1" = launch ] || exec {launcher} "$@"\n'
        + WITH_PYTHON.format(launcher, preloaded.interpreter),
    )
    check(follow(distrun, tool, 80))
    # In a wider terminal, what the tasks of those three jobs printed is printed again.
    jobs = sorted((distrun.home / "jobs").iterdir(), key=lambda job: job.stat().st_ctime)
    assert len(jobs) == 3
    for number, job in enumerate(jobs):
        (job / "logs").rename(tmp_path / f"printed-{number}")
        shutil.rmtree(job)
    python = write_tool(
        tmp_path / "again" / "python",
        REPLAY.format(python=sys.executable, folder=tmp_path, replay=REPLAY_LINES),
    )
    tool = write_tool(tmp_path / "again" / "distrun", WITH_PYTHON.format(launcher, python))
    check(follow(distrun, tool, 120))

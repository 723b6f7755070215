"""The commands of docs/first-hour.md, in a terminal as a new user has it."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from harness.command import Distrun, write_program
from harness.preloaded import PreloadedPython
from harness.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "first-hour.md"
MARK = f"<!-- run by: tests/e2e/{Path(__file__).name} -->\n"
COMMANDS = re.findall(rf"{MARK}```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(
    r"worker:[01*] +\| (Epoch \d/\d"
    r"|10/10 \[=+\] - \d+s \d+m?s/step - loss: [\d.]+ - mae: [\d.]+"
    r"|Traceback .*|  File .*|    .*|AttributeError: .*)(?: \(2 tasks\))?"
)
"""What the script prints: its epochs, its finished bars, and Python's words when it fails."""
# TensorFlow's own, when a worker ends seconds before the other on a busy machine.
PEER_IS_GONE = re.compile("StartAbort UNAVAILABLE|Additional GRPC error|grpc_status:14")


def screen(terminal: Terminal) -> list[str]:
    """The lines that stay: without the states of the live line that were drawn over."""
    lines = re.split("\r?\n", re.sub("\x1b\\[[0-9;]*m", "", terminal.text()))
    return [text for line in lines if (text := re.split("\r|\x1b\\[[JK]", line)[-1])]


def count(text: str, lines: list[str]) -> int:
    """How often the two workers printed a text; what both printed is shown once."""
    return sum(2 if line.startswith("worker:*") else 1 for line in lines if text in line)


def follow(distrun: Distrun, tool: Path) -> list[list[str]]:
    """Run the page's commands in a terminal: its screen after each."""
    script = re.findall(r"```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    # A tenth of the steps is shown in the same way.
    (distrun.cwd / "train.py").write_text(script.replace("6400", "640"))
    shown, codes = [], []
    for command in "".join(COMMANDS).replace("100/100", "10/10").splitlines():
        argv = ["bash", "-c", f"PATH={shlex.quote(str(tool.parent))}:$PATH; {command}"]
        terminal = Terminal(argv, str(distrun.cwd), 200, 24)
        terminal.finish()
        shown.append(screen(terminal))
        codes.append(terminal.process.returncode)
        terminal.close()
    assert codes == [0, 0, 1, 0, 0, 0, 0], shown
    return shown


def check(shown: list[list[str]]) -> None:
    run, _, failed, _, spec, launched, last = shown
    assert count("| Epoch", run) == count("| 10/10", run) == 4
    assert any("no attribute 'parse_arg'" in line for line in failed)
    assert spec == []
    assert count("| 10/10", launched) == 2
    assert "succeeded in" in run[-1]
    assert "succeeded in" in launched[-1]
    assert next(line for line in last if SCRIPT.fullmatch(line)).startswith("worker:1 | 10/10")
    lines = [line for screen in shown for line in screen if not PEER_IS_GONE.search(line)]
    other = [line for line in lines if not SCRIPT.fullmatch(line)]
    assert len(other) <= 10, "\n".join(other)


def test_the_first_minutes_are_quiet(preloaded: PreloadedPython, distrun: Distrun) -> None:
    """A task of the first job imports TensorFlow, whose lines are left out; others are forked."""
    launcher, forked = shlex.join(distrun.argv), preloaded.interpreter
    first = write_program(
        distrun.cwd / "bin" / "python",
        f"""#!/bin/sh
[ "$DISTRUN_TASK" = worker:1 ] && exec {forked} "$@"
exec {sys.executable} "$@"
""",
    )
    tool = write_program(
        distrun.cwd / "bin" / "distrun",
        f"""#!/bin/sh
case "$1 $2" in
launch* | "run -n") ;;
*) exec {launcher} "$@" ;;
esac
mkdir "$0.ran" 2>/dev/null && python={first}
command=$1; shift
exec {launcher} "$command" --set program.python=${{python:-{forked}}} "$@"
""",
    )
    check(follow(distrun, tool))

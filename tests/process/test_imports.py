"""What imports what, seen in a new process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SLOW = {"distrun.agent", "distrun.events", "distrun.jobstore", "distrun.spec.model", "psutil"}
SLOW |= {"rich", "subprocess", "tensorflow", "yaml"}
COMMANDS = (
    *("run", "launch", "plan", "validate", "doctor", "ps", "status", "logs", "kill", "wait"),
    *("events", "init", "schema", "explain", "clean", "completion", ""),
)


def slow_imports(*args: str, **variables: str) -> list[str]:
    """Run `distrun` and return what it imported that is slow, and that click does not import.

    click imports uuid, which imports subprocess in Python 3.10.
    """
    code = (
        "import atexit, sys, click\n"
        f"slow = {SLOW!r} - set(sys.modules)\n"
        "from distrun.__main__ import main\n"
        "atexit.register(lambda: print(*sorted(slow & set(sys.modules)), file=sys.stderr))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,  # click ends a completion by an exception
    )
    assert done.stdout
    return done.stderr.split()


def test_importing_the_model_or_the_package_imports_nothing_slow() -> None:
    code = (
        "import sys, distrun.spec, distrun.spec.model, distrun.resources\n"
        "print(sorted({'yaml', 'psutil', 'tensorflow'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_slow(command: str) -> None:
    assert slow_imports(*command.split(), "--help") == []


@pytest.mark.parametrize("line", ["distrun ", "distrun launch --"])
def test_shell_completion_imports_nothing_slow(line: str) -> None:
    assert slow_imports(_DISTRUN_COMPLETE="bash_complete", COMP_LINE=line) == []

"""A copy of distrun's package, whose modules a test may change while a job runs."""

import os
import shutil
import sys
from pathlib import Path

import distrun as package

# Raises where a file exists, once or again and again: in agents, or in a supervisor.
DEFECT = """

import os as _os

def _defective(function):
    def call(*args, **kwargs):
        if _os.path.exists({trigger!r}) and ({is_agents} or "DISTRUN_JOB_ID" in _os.environ):
            if {once}:
                _os.unlink({trigger!r})
            raise {error}("planted")
        return function(*args, **kwargs)
    return call

{target} = _defective({target})
"""


class ChangedPackage:
    """The copy, and the command that runs it: for :attr:`.Distrun.argv`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lib" / "distrun"
        source = os.path.dirname(os.path.abspath(package.__file__))
        shutil.copytree(source, self.folder, ignore=shutil.ignore_patterns("*.pyc.*"))
        begin = f"import sys; sys.path.insert(0, {str(self.folder.parent)!r}); "
        self.argv = (sys.executable, "-c", f"{begin}from distrun.__main__ import main; main()")

    def plant(
        self, module: str, target: str, trigger: Path, error: str = "TypeError", *, once: bool
    ) -> None:
        """Have a function of a module raise once the file `trigger` exists."""
        text = DEFECT.format(
            target=target,
            trigger=str(trigger),
            error=error,
            once=once,
            is_agents=module.startswith("agent/"),
        )
        with open(self.folder / f"{module}.py", "a") as file:
            file.write(text)

"""The interpreter that runs the program on this machine: what it has, and what it can parse."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.linux import processes, syscalls
from distrun.codec import from_json
from distrun.frozen import Frozen
from distrun.lint import probe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECONDS = 5.0
"""How long an interpreter may take."""
_END_SECONDS = 2.0
"""How long its processes may take to end after SIGKILL."""
_LONGEST_ANSWER = 1 << 22


class NoAnswerError(Exception):
    """An interpreter did not answer. The message says why, and begins with its name."""

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent
        """Whether there is no such interpreter."""


def own_version() -> str:
    """The version of this interpreter, e.g. `3.12`."""
    return "{}.{}".format(*sys.version_info)


class Answer(Frozen, kw_only=True):
    """What an interpreter says, as the probe prints it.

    Attributes:
        python: its version.
        missing: the modules that it does not have.
        keras: the first number of the version of tf.keras; None if that is not known.
        tensorflow: TensorFlow's version; empty if it has none, `unknown` if it does not say.
        errors: line, column and message of the first syntax error of each file; None if it is the
            interpreter that runs distrun, which was not asked.
    """

    python: str = own_version()
    missing: tuple[str, ...] = ()
    keras: int | None = None
    tensorflow: str = ""
    errors: dict[str, tuple[int, int, str]] | None = None


def short_version(version: str) -> str:
    """The first two numbers of a version; empty if it has none."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else ""


def ask(
    python: str | None,
    names: Sequence[str],
    files: Sequence[str],
    *,
    folder: str,
    workdir: str,
    env: Mapping[str, str],
) -> Answer:
    """Ask an interpreter. Nothing of it is left then, if this process is a subreaper.

    Args:
        python: a name or a path; None: this interpreter. That is not started again if it has
            `site`, and parses no files then.
        names: modules to look for, by their first names.
        files: the files to parse.
        folder: where it looks for modules first.
        workdir: where it runs.
        env: the variables that the spec sets.

    Raises:
        NoAnswerError: it does not answer.
    """
    # Without `site`, as the Python interface starts this one, it lacks packages that programs have.
    is_this = python is None or _is_this_interpreter(python)
    if is_this and not sys.flags.no_site and not any(n.startswith("PYTHON") for n in env):
        return from_json(Answer, probe.answer(names))
    asked = json.dumps({"names": list(names), "files": list(files), "folder": folder})
    program = python or sys.executable
    answered = _run(program, asked.encode(), workdir, {**os.environ, **env})
    try:
        return from_json(Answer, json.loads(answered))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        text = f"{program} was asked for its modules, and its answer cannot be understood"
        raise NoAnswerError(text) from error


def _run(program: str, question: bytes, workdir: str, env: Mapping[str, str]) -> bytes:
    """Run the probe in an interpreter, and return what it prints."""
    others = set(processes.children(os.getpid()))
    # What it starts may keep a pipe open, so that it is given files.
    with open(os.memfd_create("question"), "w+b") as asked, \
            open(os.memfd_create("answer"), "w+b") as answer:  # fmt: skip
        os.pwrite(asked.fileno(), question, 0)
        try:
            process = subprocess.Popen(
                [program, probe.__file__],
                stdin=asked,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                cwd=workdir,
                env=env,
                start_new_session=True,
            )
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_LONGEST_ANSWER, _LONGEST_ANSWER))
            code = process.wait(_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise NoAnswerError(f"{program} did not answer within {_SECONDS:g} s") from error
        except (OSError, ValueError) as error:
            is_absent = isinstance(error, FileNotFoundError)
            why = getattr(error, "strerror", None) or error
            text = f"{program} cannot be started ({why})"
            raise NoAnswerError(text, is_absent=is_absent) from error
        finally:
            processes.end_all(0.0, others, patience=_END_SECONDS)
        if code:
            how = f"was killed by {syscalls.signal_name(-code)}"
            if code > 0:
                how = f"exited with {code} (it must be Python 3.8 or newer)"
            raise NoAnswerError(f"{program} was asked for its modules, and {how}")
        return os.pread(answer.fileno(), _LONGEST_ANSWER, 0)


def _is_this_interpreter(python: str) -> bool:
    """Whether a name or path is that of this interpreter, in the same virtual environment."""
    found = shutil.which(python)
    if found is None or not sys.executable:
        return False
    folders = (os.path.dirname(os.path.abspath(each)) for each in (found, sys.executable))
    return len({os.path.realpath(each) for each in folders}) == 1 and os.path.samefile(
        found, sys.executable
    )


def probe_text() -> str:
    """The program that asks an interpreter, for `python -c` on another host."""
    return Path(probe.__file__).read_text("utf-8")

"""The interpreter that runs the program on this machine: what it has, and what it can parse."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from distrun.agent.linux import processes, syscalls
from distrun.frozen import Frozen, field
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


class Answer(Frozen, kw_only=True):
    """What an interpreter says.

    Attributes:
        version: e.g. `3.12`.
        missing: the modules that it does not have.
        keras: the first number of the version of tf.keras; None if that is not known.
        tensorflow: the first two numbers of TensorFlow's version, e.g. `2.21`; empty if that is
            not known.
        errors: line, column and message of the first syntax error of each file.
    """

    version: str
    missing: frozenset[str] = frozenset()
    keras: int | None = None
    tensorflow: str = ""
    errors: dict[str, tuple[int, int, str]] | None = field(default=None)


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
        python: a name or a path; None: this interpreter. That is not started again, unless
            it runs without `site`: `errors` is None then, and nothing of `files` is read.
        names: modules to look for, by their first names.
        files: the files to parse, if it is another interpreter.
        folder: where it looks for modules first.
        workdir: where it runs.
        env: the variables that the spec sets.

    Raises:
        NoAnswerError: it does not answer.
    """
    changes_path = any(name.startswith("PYTHON") for name in env)
    # Without `site`, as the Python interface starts this one, it lacks packages that programs have.
    if (
        not changes_path
        and not sys.flags.no_site
        and (python is None or _is_this_interpreter(python))
    ):
        found = probe.answer(names)
        return Answer(
            version=own_version(),
            missing=frozenset(found["missing"]),
            keras=found["keras"],
            tensorflow=found["tensorflow"],
        )
    asked = json.dumps({"names": list(names), "files": list(files), "folder": folder})
    program = python or sys.executable
    answered = _run(program, asked.encode(), workdir, {**os.environ, **env})
    try:
        return _read_answer(json.loads(answered))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        text = f"{program} was asked for its modules, and its answer cannot be understood"
        raise NoAnswerError(text) from error


def _run(program: str, question: bytes, workdir: str, env: Mapping[str, str]) -> bytes:
    """Run the probe in an interpreter, and return what it prints."""
    deadline = time.monotonic() + _SECONDS
    others = set(processes.children(os.getpid()))
    asked = os.memfd_create("question")
    try:
        os.pwrite(asked, question, 0)
        process = subprocess.Popen(
            [program, probe.__file__],
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=workdir,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        _end_processes(others)
        is_absent = isinstance(error, FileNotFoundError)
        why = getattr(error, "strerror", None) or error
        raise NoAnswerError(f"{program} cannot be started ({why})", is_absent=is_absent) from error
    finally:
        os.close(asked)
    try:
        assert process.stdout is not None  # noqa: S101
        with process.stdout:
            answer = _read_until(process.stdout.fileno(), deadline)
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{program} did not answer within {_SECONDS:g} s") from error
    finally:
        _end_processes(others)
    if code:
        how = f"was killed by {syscalls.signal_name(-code)}"
        if code > 0:
            how = f"exited with {code} (it must be Python 3.8 or newer)"
        raise NoAnswerError(f"{program} was asked for its modules, and {how}")
    return answer


def _read_until(descriptor: int, deadline: float) -> bytes:
    """Read to the end, or more than the longest answer. Raises TimeoutExpired at the deadline."""
    answer = bytearray()
    while len(answer) <= _LONGEST_ANSWER:
        left = deadline - time.monotonic()
        if left <= 0 or not syscalls.wait_until_ready([descriptor], (), left):
            raise subprocess.TimeoutExpired("the interpreter", _SECONDS)
        block = os.read(descriptor, 1 << 16)
        if not block:
            break
        answer += block
    return bytes(answer)


def _end_processes(others: set[int]) -> None:
    """End the children of this process, except others, and what is below them."""
    deadline = time.monotonic() + _END_SECONDS
    while processes.reap(others) and time.monotonic() < deadline:
        for child in set(processes.children(os.getpid())) - others:
            for process in processes.tree(child):
                processes.send(process, signal.SIGKILL)
        time.sleep(processes.KILL_INTERVAL)


def _read_answer(answer: Any) -> Answer:
    """Raises TypeError, ValueError, LookupError or AttributeError if it is no answer."""
    keras, missing = answer["keras"], answer["missing"]
    if not (keras is None or type(keras) is int) or not isinstance(missing, list):
        raise TypeError
    return Answer(
        version=str(answer["version"]),
        missing=frozenset(map(str, missing)),
        keras=keras,
        tensorflow=str(answer.get("tensorflow", "")),
        errors={str(file): (int(line or 1), int(column or 1), str(text))
                for file, (line, column, text) in answer["errors"].items()},
    )  # fmt: skip


def own_version() -> str:
    """The version of this interpreter, e.g. `3.12`."""
    return "{}.{}".format(*sys.version_info)


def _is_this_interpreter(python: str) -> bool:
    """Whether a name or path is that of this interpreter, in the same virtual environment."""
    found = shutil.which(python)
    if found is None or not sys.executable:
        return False
    folders = (os.path.dirname(os.path.abspath(each)) for each in (found, sys.executable))
    return len({os.path.realpath(each) for each in folders}) == 1 and os.path.samefile(
        found, sys.executable
    )

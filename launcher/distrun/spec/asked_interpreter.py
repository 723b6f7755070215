"""The interpreter that runs the program on this machine: what it has, and what it can parse."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from distrun.agent.linux import processes, syscalls
from distrun.agent.protocol import Cause, Code
from distrun.codec import decode, from_json
from distrun.frozen import Frozen
from distrun.spec import interpreter_probe
from distrun.spec.model import Spec
from distrun.spec.packages import needs_tf_keras
from distrun.spec.target import Target, find_target

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
    """What an interpreter says, as the probe prints it.

    Attributes:
        python: its version.
        missing: the modules that it does not have.
        keras: the first number of the version of tf.keras; None if that is not known.
        tensorflow: TensorFlow's version; empty if it has none, `unknown` if it does not say.
        errors: line, column and message of the first syntax error of each file; None if it is the
            interpreter that runs distrun, which was not asked.
    """

    python: str = sys.version
    missing: tuple[str, ...] = ()
    keras: int | None = None
    tensorflow: str = ""
    errors: dict[str, tuple[int, int, str]] | None = None


def short_version(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else ""


def ask(spec: Spec, target: Target, names: Iterable[str], files: Iterable[str] = ()) -> Answer:
    """Ask a program's interpreter. Nothing of it is left then, if this process is a subreaper.

    It runs with the variables of the tasks, and finds modules in their order. If it is this one and
    has `site`, it is not started again, and parses no files.

    Args:
        spec: if no task runs on this machine, nothing is known.
        target: what it runs.
        names: modules to look for, by their first names.
        files: the files to parse.

    Raises:
        NoAnswerError: it does not answer.
    """
    here, env = spec.local_host, environment(spec)
    if here is None:
        return Answer()
    # Without `site`, as the Python interface starts this one, it lacks packages that programs have.
    is_this = target.python is None or _is_this_interpreter(target.python)
    if is_this and not sys.flags.no_site and not any(n.startswith("PYTHON") for n in env):
        return from_json(Answer, interpreter_probe.answer(names))
    asked = json.dumps({"names": [*names], "files": [*files], "folder": target.folder})
    program = target.python or sys.executable
    workdir = here.workdir or spec.program.workdir
    answered = _run(program, asked.encode(), workdir, {**os.environ, **env})
    text = f"{program} was asked for its modules, and its answer cannot be understood"
    try:
        found = decode(Answer, answered)
    except ValueError as error:
        raise NoAnswerError(text) from error
    if found.errors is None:  # a part is missing
        raise NoAnswerError(text)
    return found


def environment(spec: Spec) -> dict[str, str]:
    here = spec.local_host
    env = {**(here.env if here is not None else {}), **spec.program.env}
    for role in spec.roles:
        if spec.program_of(role) == spec.program:
            env.update(role.env)
    return env


def _run(program: str, question: bytes, workdir: str, env: Mapping[str, str]) -> bytes:
    others = set(processes.children(os.getpid()))
    # What it starts may keep a pipe open, so that it is given files.
    with open(os.memfd_create("question"), "w+b") as asked, \
            open(os.memfd_create("answer"), "w+b") as answer:  # fmt: skip
        os.pwrite(asked.fileno(), question, 0)
        try:
            process = subprocess.Popen(
                [program, interpreter_probe.__file__],
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
            # A folder of PATH that may not be read makes it a PermissionError.
            is_absent = isinstance(error, (FileNotFoundError, PermissionError))
            why = getattr(error, "strerror", None) or error
            text = f"{program} cannot be started ({why})"
            raise NoAnswerError(text, is_absent=is_absent) from error
        finally:
            left = processes.descendants
            processes.Ending(0.0, lambda: left(others.__contains__), _END_SECONDS).run()
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
    is_beside = len({os.path.realpath(each) for each in folders}) == 1
    return is_beside and os.path.samefile(found, sys.executable)


def find_missing_keras_2(spec: Spec) -> Cause | None:
    """Return why `program.keras: 2` cannot work on this machine: its interpreter has no tf_keras.

    None if it can, and if that is not known: nothing runs here, the program is not Python, or its
    interpreter does not answer. TensorFlow is not imported.
    """
    target = find_target(spec) if spec.program.keras == 2 else None
    if target is None or os.path.lexists(os.path.join(target.folder, "tf_keras")):
        return None
    try:
        answer = ask(spec, target, ["tf_keras"])
    except NoAnswerError:
        return None
    if not answer.missing or not needs_tf_keras(answer.tensorflow):
        return None
    version = short_version(answer.tensorflow)
    return Cause(Code.TF_KERAS_MISSING, name=target.python or sys.executable, version=version)


def probe_text() -> str:
    """The program that asks an interpreter, for `python -c` on another host."""
    return Path(interpreter_probe.__file__).read_text("utf-8")

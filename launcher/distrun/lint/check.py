"""Checks the program of a spec: reads it, asks its interpreter, applies the rules."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code
from distrun.frozen import replace
from distrun.lint.interpreter import Answer, NoAnswerError, ask, own_version, short_version
from distrun.lint.program import Program, shown_path
from distrun.lint.rules import (
    PROGRAM_RULES,
    RULES,
    STRATEGIES_BY_CLASS,
    check,
    created_strategy,
    imported_modules,
    independent_use,
    short,
    tf_config_line,
    unchecked_problem,
    why_unchecked,
)
from distrun.lint.target import Target, find_target
from distrun.lint.values import check_executables
from distrun.spec.problems import Mark, Problem
from distrun.spec.tensorflow_versions import LEGACY_KERAS, is_keras_2, needs_tf_keras

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distrun.spec.model import Spec

_BUNDLED_NEEDS = ("numpy", "tensorflow", "tf_keras")
"""The modules that the bundled jobs need. They import them late: see jobs/mnist/main.py."""


def check_program(spec: Spec) -> tuple[Problem, ...]:
    """Return the warnings about the programs of a spec. It never fails, and runs nothing of them.

    A check that could not be made is a warning, too: it says which, and why. There are none about
    programs that are not Python. The program of a custom role has nothing to do with the strategy.
    """
    found: dict[Target, list[Problem]] = {}
    for part in _parts(spec):
        target = find_target(part)
        if target is None or target in found:
            continue
        judge = _judge_module if target.is_bundled or target.is_installed else _judge
        try:
            found[target] = judge(part, target)
        except Exception as error:  # noqa: BLE001 - a defect must not keep a job from starting
            found[target] = [unchecked_problem(shown_path(target.path), why_unchecked(error))]
    return tuple(problem for problems in found.values() for problem in problems)


def _parts(spec: Spec) -> Iterator[Spec]:
    """A spec for each program, with the roles that run it: the spec's, then the custom roles'."""
    custom = [role for role in spec.roles if role.role.is_custom]
    yield replace(spec, roles=tuple(role for role in spec.roles if role not in custom))
    for role in custom:
        yield replace(spec, program=spec.program_of(role), roles=(role,))


def _judge_module(spec: Spec, target: Target) -> list[Problem]:
    """Say what is missing for a bundled job, or for a module that is not in the folder."""
    top = target.module.partition(".")[0]
    answer, unchecked = _ask(spec, target, _BUNDLED_NEEDS if target.is_bundled else [top])
    python = target.python or sys.executable
    lacking = [name for name in _BUNDLED_NEEDS if name in answer.missing]
    if target.is_bundled and lacking:
        message = f"the bundled job needs {', '.join(lacking)}, which {python} does not have"
        install = f"run {shlex.quote(python)} -m pip install {' '.join(lacking)}"
        return [Problem("program.script", None, None, message, install, is_certain=True)]
    # A package of that name in the folder comes before an installed one.
    is_beside = os.path.isfile(os.path.join(target.folder, top, "__init__.py"))
    if top in answer.missing or (top and is_beside and spec.local_host is not None):
        where = f"neither in {target.folder}, nor in {python}"
        message = f"there is no module {target.module!r}: {where}"
        hint = "correct the name, or write the folder that has it in program.workdir"
        return [Problem("program.module", None, None, message, hint, is_certain=True)]
    return unchecked


def _judge(spec: Spec, target: Target) -> list[Problem]:
    program = Program(target.folder, target.path, target.package)
    names = imported_modules(program) if program.modules else ()
    answer, unchecked = _ask(spec, target, names, program.files)
    is_answered = spec.local_host is not None and not unchecked
    certain = program.certain_files if is_answered else ()
    unchecked += [unchecked_problem(file, why) for file, why in program.unread.items()]
    faults = program.faults if answer.errors is None else answer.errors
    found = [
        replace(_syntax_problem(answer, file, *fault), is_certain=file in certain)
        for file, fault in faults.items()
    ]
    for file, (line, column, text) in program.faults.items():
        if file not in faults:
            why = f"the Python {own_version()} that runs distrun cannot parse it: {text}"
            unchecked.append(Problem(shown_path(file), line, column, f"not checked: {why}"))
    if program.modules:
        env = {**(os.environ if spec.local_host else {}), **_environment(spec)}
        uses_keras_2 = is_keras_2(env.get(LEGACY_KERAS))
        if spec.program.keras is not None:
            uses_keras_2 = spec.program.keras == 2
        program.python, program.missing = target.python or sys.executable, frozenset(answer.missing)
        program.keras = None if uses_keras_2 else answer.keras
        trains = any(not role.role.is_custom for role in spec.roles)
        found += check(program, spec, RULES if trains else PROGRAM_RULES)
    return [*found, *unchecked]


def _syntax_problem(answer: Answer, file: str, line: int, column: int, text: str) -> Problem:
    is_python = file.endswith((".py", ".pyw"))
    hint = "" if is_python else "run a program that is not Python with `command`"
    message = f"Python {short_version(answer.python)} cannot parse this: {text}"
    return Problem(shown_path(file), line, column, message, hint)


def _ask(
    spec: Spec, target: Target, names: Iterable[str], files: Iterable[str] = ()
) -> tuple[Answer, list[Problem]]:
    """Ask the program's interpreter, if a task runs on this machine; else nothing is known.

    Also returns the warning that it did not answer, unless another check says why.
    """
    here = spec.local_host
    if here is None:
        return Answer(), []
    try:
        return ask(
            target.python,
            list(names),
            list(files),
            folder=target.folder,
            workdir=here.workdir or spec.program.workdir,
            env=_environment(spec),
        ), []
    except NoAnswerError as error:
        why = f"{error}; whether it has the modules that the program imports is not known"
        is_said = error.is_absent and any(check_executables(spec))
        return Answer(), [] if is_said else [unchecked_problem("program.python", why)]


def _environment(spec: Spec) -> dict[str, str]:
    """The variables that this machine, the program and its roles set in the spec."""
    here = spec.local_host
    env = {**(here.env if here is not None else {}), **spec.program.env}
    for role in spec.roles:
        if spec.program_of(role) == spec.program:
            env.update(role.env)
    return env


# What others ask of a program ----------------------------------------------------------------


def _read_program(spec: Spec) -> Program | None:
    """Return the program's modules; None if they cannot be read, and for the bundled jobs."""
    target = find_target(spec)
    if target is None or target.is_bundled:
        return None
    program = Program(target.folder, target.path, target.package)
    return program if program.modules else None


def find_strategy(spec: Spec) -> tuple[str, str, Mark] | None:
    """Return the strategy that the program plainly creates, its class, and where it does.

    None if that is not plain, and for programs that are not Python, and the bundled jobs.
    """
    try:
        program = _read_program(spec)
        found = None if program is None else created_strategy(program)
    except RecursionError:
        return None
    return None if found is None else (STRATEGIES_BY_CLASS[found[1]], found[1], found[0].mark)


def find_independent_workers(spec: Spec) -> tuple[str, Mark] | None:
    """Return the name in the program that shows that its workers train by themselves, and where.

    None if nothing does.
    """
    try:
        program = _read_program(spec)
        use = None if program is None else independent_use(program)
    except RecursionError:
        return None
    return None if use is None else (short(use), use.mark)


def find_tf_config_line(spec: Spec) -> tuple[str, bool]:
    """Return where the program sets TF_CONFIG, as `train.py:6`, and whether every run does so.

    The place is empty if none is found.
    """
    program = _read_program(spec)
    use, is_certain = (None, False) if program is None else tf_config_line(program)
    if use is None:
        return "", False
    return f"{os.path.basename(use.mark.file)}:{use.mark.line}", is_certain


def needed_modules(spec: Spec) -> tuple[str, ...]:
    """Return the first names of the modules that the program certainly imports.

    Those beside it are left out. It is read on this machine; if it is not here, none is known.
    """
    target = find_target(spec)
    if target is not None and target.is_bundled:
        return _BUNDLED_NEEDS
    try:
        program = _read_program(spec)
        return () if program is None else tuple(imported_modules(program))
    except Exception:  # noqa: BLE001 - a defect in a check must not keep a job from starting
        return ()


def find_missing_keras_2(spec: Spec) -> Cause | None:
    """Return why `program.keras: 2` cannot work on this machine: its interpreter has no tf_keras.

    None if it can, and if that is not known: nothing runs here, the program is not Python, or its
    interpreter does not answer. TensorFlow is not imported.
    """
    target = find_target(spec) if spec.program.keras == 2 else None
    if target is None or os.path.lexists(os.path.join(target.folder, "tf_keras")):
        return None
    answer, _ = _ask(spec, target, ["tf_keras"])
    if not answer.missing or not needs_tf_keras(answer.tensorflow):
        return None
    version = short_version(answer.tensorflow)
    return Cause(Code.TF_KERAS_MISSING, name=target.python or sys.executable, version=version)

"""Checks the program of a spec: reads it, asks its interpreter, applies the rules."""

from __future__ import annotations

import ast
import os
import shlex
import sys
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code
from distrun.frozen import replace
from distrun.lint.interpreter import NoAnswerError, ask, own_version
from distrun.lint.program import Program, shown_path
from distrun.lint.rule import (
    STRATEGIES_BY_CLASS,
    Surroundings,
    short_name,
    unchecked_problem,
    why_unchecked,
)
from distrun.lint.rules import (
    PROGRAM_RULES,
    RULES,
    check,
    created_strategy,
    imported_modules,
    independent_workers,
    tf_config_lines,
)
from distrun.lint.target import Target, find_target
from distrun.lint.values import check_executables
from distrun.spec.problems import Mark, Problem
from distrun.spec.tensorflow_versions import LEGACY_KERAS, is_keras_2, needs_tf_keras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distrun.lint.interpreter import Answer
    from distrun.lint.module import Step
    from distrun.spec.model import Spec

_BUNDLED_NEEDS = ("numpy", "tensorflow", "tf_keras")
"""The modules that the bundled jobs need. They import them late: see jobs/mnist/main.py."""


def check_program(spec: Spec) -> tuple[Problem, ...]:
    """Return the warnings about the programs of a spec. It never fails, and runs nothing of them.

    A check that could not be made is a warning, too: it says which, and why. There are none about
    programs that are not Python, and about the bundled jobs. The program of a custom role has
    nothing to do with the strategy.
    """
    found: list[Problem] = []
    checked: set[Target] = set()
    for part in _parts(spec):
        target = find_target(part)
        if target is None or target in checked:
            continue
        checked.add(target)
        if target.is_bundled:
            found += _lacking_problems(part, target)
            continue
        try:
            found += _judge(part, target)
        except Exception as error:  # noqa: BLE001 - a defect must not keep a job from starting
            found.append(unchecked_problem(shown_path(target.path), why_unchecked(error)))
    return tuple(found)


def _parts(spec: Spec) -> Iterator[Spec]:
    """A spec for each program, with the roles that run it: the spec's, then the custom roles'."""
    custom = [role for role in spec.roles if role.role.is_custom]
    yield replace(spec, roles=tuple(role for role in spec.roles if role not in custom))
    for role in custom:
        yield replace(spec, program=spec.program_of(role), roles=(role,))


def _ask(
    spec: Spec, target: Target, names: Iterable[str], files: Iterable[str] = ()
) -> Answer | None:
    """Ask the program's interpreter; None if no task runs on this machine.

    Raises:
        NoAnswerError: it does not answer.
    """
    here = spec.local_host
    if here is None:
        return None
    return ask(
        target.python,
        list(names),
        list(files),
        folder=target.folder,
        workdir=here.workdir or spec.program.workdir,
        env={**here.env, **_variables(spec)},
    )


def _variables(spec: Spec) -> dict[str, str]:
    """The variables that the program and its roles set."""
    env = dict(spec.program.env)
    for role in spec.roles:
        if spec.program_of(role) == spec.program:
            env.update(role.env)
    return env


def _lacking_problems(spec: Spec, target: Target) -> list[Problem]:
    """Say which of the modules that the bundled jobs need are not on this machine."""
    try:
        answer = _ask(spec, target, _BUNDLED_NEEDS)
    except NoAnswerError as error:
        return _unanswered(spec, error)
    lacking = [name for name in _BUNDLED_NEEDS if answer and name in answer.missing]
    if not lacking:
        return []
    python = target.python or sys.executable
    message = f"the bundled job needs {', '.join(lacking)}, which {python} does not have"
    install = f"run {shlex.quote(python)} -m pip install {' '.join(lacking)}"
    return [Problem("program.script", None, None, message, install)]


def _judge(spec: Spec, target: Target) -> list[Problem]:
    here = spec.local_host
    program = Program(target.folder, target.path, target.package)
    names = list(imported_modules(program)) if program.modules else []
    unread = {} if target.is_installed else program.unread
    unchecked = [unchecked_problem(file, why) for file, why in unread.items()]
    top = target.module.partition(".")[0]
    if target.is_installed:
        names = [top]
        # A package of that name in the folder comes before an installed one.
        if os.path.isfile(os.path.join(target.folder, top, "__init__.py")):
            return [_absent_problem(target)] if here is not None else []
    answer = None
    try:
        answer = _ask(spec, target, names, program.files)
    except NoAnswerError as error:
        unchecked += _unanswered(spec, error)
    faults = program.faults
    if answer is not None and answer.errors is not None:
        faults = answer.errors
        unchecked += [
            _newer_syntax(file, *fault)
            for file, fault in program.faults.items()
            if file not in faults
        ]
    version = own_version() if answer is None else answer.version
    found = [_syntax_problem(version, file, *fault) for file, fault in faults.items()]
    if not program.modules:
        is_absent = answer is not None and top in answer.missing
        return [_absent_problem(target)] if is_absent else [*found, *unchecked]
    env = _variables(spec) if here is None else {**os.environ, **here.env, **_variables(spec)}
    uses_keras_2 = is_keras_2(env.get(LEGACY_KERAS))
    if spec.program.keras is not None:
        uses_keras_2 = spec.program.keras == 2
    around = Surroundings(
        spec=spec,
        python=target.python or sys.executable,
        keras=None if uses_keras_2 or answer is None else answer.keras,
        missing=answer.missing if answer is not None else frozenset(),
    )
    trains = any(not role.role.is_custom for role in spec.roles)
    found += check(program, around, RULES if trains else PROGRAM_RULES)
    return [*found, *unchecked]


def _unanswered(spec: Spec, error: NoAnswerError) -> list[Problem]:
    """The warning that an interpreter was not asked, unless another one says why."""
    if error.is_absent and any(check_executables(spec)):
        return []
    why = f"{error}; whether it has the modules that the program imports is not known"
    return [unchecked_problem("program.python", why)]


def _newer_syntax(file: str, line: int, column: int, text: str) -> Problem:
    why = f"the Python {own_version()} that runs distrun cannot parse it: {text}"
    return Problem(shown_path(file), line, column, f"not checked: {why}")


def _syntax_problem(version: str, file: str, line: int, column: int, text: str) -> Problem:
    is_python = file.endswith((".py", ".pyw"))
    hint = "" if is_python else "run a program that is not Python with `command`"
    message = f"Python {version} cannot parse this: {text}"
    return Problem(shown_path(file), line, column, message, hint)


def _absent_problem(target: Target) -> Problem:
    python = target.python or sys.executable
    message = f"there is no module {target.module!r}: neither in {target.folder}, nor in {python}"
    hint = "correct the name, or write the folder that has it in program.workdir"
    return Problem("program.module", None, None, message, hint)


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
    found = _find(spec, created_strategy)
    return None if found is None else (STRATEGIES_BY_CLASS[found[0]], *found)


def find_independent_workers(spec: Spec) -> tuple[str, Mark] | None:
    """Return the name in the program that shows that its workers train by themselves, and where.

    None if nothing does. No interpreter is started, and nothing of the program is run.
    """
    found = _find(spec, independent_workers)
    return None if found is None else (short_name(found[0]), found[1])


def _find(
    spec: Spec, find: Callable[[Program], tuple[Step, str] | None]
) -> tuple[str, Mark] | None:
    """Return what is found in the spec's program, and where; None if it cannot be read."""
    try:
        program = _read_program(spec)
        found = None if program is None else find(program)
    except RecursionError:
        return None
    if found is None:
        return None
    step, name = found
    assert isinstance(step.node, ast.expr)  # noqa: S101
    return name, Mark(step.module.shown, step.node.lineno, step.module.column(step.node))


def find_tf_config_line(spec: Spec) -> tuple[str, bool]:
    """Return where the program sets TF_CONFIG, as `train.py:6`, and whether every run does so.

    The place is empty if none is found.
    """
    program = _read_program(spec)
    for shown, line, is_certain in tf_config_lines(program) if program is not None else ():
        return f"{os.path.basename(shown)}:{line}", is_certain
    return "", False


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

    None if it can, and if that is not known: nothing runs here, or the program is not Python.
    TensorFlow is not imported.

    Raises:
        NoAnswerError: the interpreter does not answer.
    """
    target = find_target(spec) if spec.program.keras == 2 else None
    if target is None or os.path.lexists(os.path.join(target.folder, "tf_keras")):
        return None
    answer = _ask(spec, target, ["tf_keras"])
    if answer is None or not answer.missing or not needs_tf_keras(answer.tensorflow):
        return None
    name = target.python or sys.executable
    return Cause(Code.TF_KERAS_MISSING, name=name, version=answer.tensorflow)

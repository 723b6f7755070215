"""Checks the program of a spec: reads it, asks its interpreter, applies the rules."""

from __future__ import annotations

import ast
import itertools
import linecache
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code
from distrun.frozen import Frozen, replace
from distrun.spec.model import ProgramKind
from distrun.spec.problems import Mark, Problem
from distrun.spec.tensorflow_versions import LEGACY_KERAS, is_keras_2, needs_tf_keras
from distrun.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distrun.lint.interpreter import Answer, NoAnswerError
    from distrun.lint.module import Step
    from distrun.lint.program import Program, SyntaxFault
    from distrun.spec.model import HostSpec, Spec

_BUNDLED_NEEDS = ("numpy", "tensorflow", "tf_keras")
"""The modules that the bundled jobs need. They import them late: see jobs/mnist/main.py."""
_MOST_IMPORTED = 1000
"""Modules that are looked for. Each takes time."""
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = re.compile(r"-[uOBEIsSvqdb]+")
"""Options of Python without a value."""


class _Target(Frozen, kw_only=True):
    """What Python runs: a script, or (`python -m`) a module of `folder`."""

    path: str
    folder: str
    module: str = ""
    package: str = ""
    python: str | None

    @property
    def is_installed(self) -> bool:
        """Whether it is a module that is not in the folder: not the user's own program."""
        return bool(self.module) and not os.path.lexists(self.path)


def check_program(spec: Spec) -> tuple[Problem, ...]:
    """Return the warnings about the programs of a spec. It never fails, and runs nothing of them.

    A check that could not be made is a warning, too: it says which, and why. There are none about
    programs that are not Python, and about the bundled jobs. The program of a custom role has
    nothing to do with the strategy.
    """
    found: list[Problem] = []
    checked: set[_Target] = set()
    for part in _parts(spec):
        here = part.local_host
        target = _find_target(part, here)
        if target is None or target in checked:
            continue
        if _is_bundled(target.path):
            checked.add(target)
            found += _lacking_problems(part, here, target)
            continue
        from distrun.lint.program import Program, shown_path
        from distrun.lint.rule import unchecked_problem, why_unchecked

        checked.add(target)
        try:
            program = Program(target.folder, target.path, target.package)
            found += _judge(part, here, target, program)
        except Exception as error:  # noqa: BLE001 - a defect must not keep a job from starting
            found.append(unchecked_problem(shown_path(target.path), why_unchecked(error)))
    return tuple(found)


def _lacking_problems(spec: Spec, here: HostSpec | None, target: _Target) -> list[Problem]:
    """Say which of the modules that the bundled jobs need are not on this machine."""
    from distrun.lint.interpreter import NoAnswerError, ask

    if here is None:
        return []
    workdir = here.workdir or spec.program.workdir
    env = {**here.env, **_variables(spec)}
    try:
        answer = ask(
            target.python, _BUNDLED_NEEDS, (), folder=target.folder, workdir=workdir, env=env
        )
    except NoAnswerError as error:
        return _unanswered(spec, error)
    lacking = [name for name in _BUNDLED_NEEDS if name in answer.missing]
    if not lacking:
        return []
    python = target.python or sys.executable
    message = f"the bundled job needs {', '.join(lacking)}, which {python} does not have"
    install = f"run {shlex.quote(python)} -m pip install {' '.join(lacking)}"
    return [Problem("program.script", None, None, message, install)]


def _parts(spec: Spec) -> Iterator[Spec]:
    """A spec for each program, with the roles that run it: the spec's, then the custom roles'."""
    custom = [role for role in spec.roles if role.role.is_custom]
    yield replace(spec, roles=tuple(role for role in spec.roles if role not in custom))
    for role in custom:
        yield replace(spec, program=spec.program_of(role), roles=(role,))


def find_strategy(spec: Spec) -> tuple[str, str, Mark] | None:
    """Return the strategy that the program plainly creates, its class, and where it does.

    None if that is not plain, and for programs that are not Python, and the bundled jobs.
    """
    from distrun.lint.rule import STRATEGIES_BY_CLASS
    from distrun.lint.rules import created_strategy

    found = _find(spec, created_strategy)
    return None if found is None else (STRATEGIES_BY_CLASS[found[0]], *found)


def find_independent_workers(spec: Spec) -> tuple[str, Mark] | None:
    """Return the name in the program that shows that its workers train by themselves, and where.

    None if nothing does. No interpreter is started, and nothing of the program is run.
    """
    from distrun.lint.rule import short_name
    from distrun.lint.rules import independent_workers

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


def _judge(spec: Spec, here: HostSpec | None, target: _Target, program: Program) -> list[Problem]:
    from distrun.lint.interpreter import NoAnswerError, ask
    from distrun.lint.program import shown_path
    from distrun.lint.rule import Surroundings, unchecked_problem
    from distrun.lint.rules import PROGRAM_RULES, RULES, check, imported_modules
    from distrun.lint.values import says_port

    env = _variables(spec)
    imported = imported_modules(program) if program.modules else ()
    names = list(itertools.islice(imported, _MOST_IMPORTED))
    unread = {} if target.is_installed else program.unread
    unchecked = [unchecked_problem(file, why) for file, why in unread.items()]
    if len(imported) > len(names):
        why = f"more than {_MOST_IMPORTED} modules are imported, and the others are not looked for"
        unchecked.append(unchecked_problem(shown_path(target.path), why))
    top = target.module.partition(".")[0]
    if target.is_installed:
        names = [top]
        # A package of that name in the folder comes before an installed one.
        if os.path.isfile(os.path.join(target.folder, top, "__init__.py")):
            return [_absent_problem(target)] if here is not None else []
    answer = None
    if here is not None:
        try:
            answer = ask(
                target.python,
                names,
                program.files,
                folder=target.folder,
                workdir=here.workdir or spec.program.workdir,
                env={**here.env, **env},
            )
        except NoAnswerError as error:
            unchecked += _unanswered(spec, error)
        env = {**os.environ, **here.env, **env}
    faults = _faults(program, answer)
    if answer is not None:
        faulty = {each.file for each in faults}
        unchecked += [_newer_syntax(each) for each in program.faults if each.file not in faulty]
    found = [_syntax_problem(each, answer) for each in faults]
    if not program.modules:
        is_absent = answer is not None and top in answer.missing
        return [_absent_problem(target)] if is_absent else [*found, *unchecked]
    uses_keras_2 = is_keras_2(env.get(LEGACY_KERAS))
    if spec.program.keras is not None:
        uses_keras_2 = spec.program.keras == 2
    around = Surroundings(
        strategy=STRATEGIES[spec.strategy].with_workers(spec.workers),
        tasks={role.role: role.count for role in spec.roles},
        keras=None if uses_keras_2 or answer is None else answer.keras,
        python=target.python or sys.executable,
        missing=answer.missing if answer is not None else frozenset(),
        owns_tf_config=spec.program.owns_tf_config,
        says_workers=spec.workers is not None,
        says_port=says_port(spec),
        package=os.path.basename(target.folder),
        as_module=_as_module(target),
    )
    trains = any(not role.role.is_custom for role in spec.roles)
    found += check(program, around, RULES if trains else PROGRAM_RULES)
    return [*found, *unchecked]


def _as_module(target: _Target) -> str:
    module = f"{os.path.basename(target.folder)}.{os.path.basename(target.path).partition('.')[0]}"
    above = os.path.dirname(target.folder)
    return f"in {above}, run it as a module: `run -m {module}`, or module: {module}"


def _unanswered(spec: Spec, error: NoAnswerError) -> list[Problem]:
    """The warning that an interpreter was not asked, unless another one says why."""
    from distrun.lint.rule import unchecked_problem
    from distrun.lint.values import check_executables

    if error.is_absent and any(check_executables(spec)):
        return []
    why = f"{error}; whether it has the modules that the program imports is not known"
    return [unchecked_problem("program.python", why)]


def _newer_syntax(fault: SyntaxFault) -> Problem:
    from distrun.lint.interpreter import own_version

    why = f"the Python {own_version()} that runs distrun cannot parse it: {fault.message}"
    return Problem(fault.shown, fault.line, fault.column, f"not checked: {why}")


def _read_program(spec: Spec) -> Program | None:
    """Return the program's modules; None if they cannot be read, and for the bundled jobs."""
    target = _find_target(spec, spec.local_host)
    if target is None or _is_bundled(target.path):
        return None
    from distrun.lint.program import Program

    program = Program(target.folder, target.path, target.package)
    return program if program.modules else None


def find_tf_config_line(spec: Spec) -> tuple[str, bool]:
    """Return where the program sets TF_CONFIG, as `train.py:6`, and whether every run does so.

    The place is empty if none is found.
    """
    from distrun.lint.rules import tf_config_lines

    program = _read_program(spec)
    for shown, line, is_certain in tf_config_lines(program) if program is not None else ():
        return f"{os.path.basename(shown)}:{line}", is_certain
    return "", False


def needed_modules(spec: Spec) -> tuple[str, ...]:
    """Return the first names of the modules that the program certainly imports.

    Those beside it are left out. It is read on this machine; if it is not here, none is known.
    """
    target = _find_target(spec, spec.local_host)
    if target is None:
        return ()
    if _is_bundled(target.path):
        return _BUNDLED_NEEDS
    from distrun.lint.rules import imported_modules

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
    here = spec.local_host
    target = _find_target(spec, here) if spec.program.keras == 2 and here is not None else None
    if target is None or here is None or os.path.lexists(os.path.join(target.folder, "tf_keras")):
        return None
    from distrun.lint.interpreter import ask

    answer = ask(
        target.python,
        ["tf_keras"],
        [],
        folder=target.folder,
        workdir=here.workdir or spec.program.workdir,
        env={**here.env, **_variables(spec)},
    )
    if not answer.missing or not needs_tf_keras(answer.tensorflow):
        return None
    name = target.python or sys.executable
    return Cause(Code.TF_KERAS_MISSING, name=name, version=answer.tensorflow)


def _variables(spec: Spec) -> dict[str, str]:
    """The variables that the program and its roles set."""
    env = dict(spec.program.env)
    for role in spec.roles:
        if spec.program_of(role) == spec.program:
            env.update(role.env)
    return env


def _faults(program: Program, answer: Answer | None) -> list[SyntaxFault]:
    """What the program's interpreter cannot parse; if it was not asked, what this one cannot."""
    from distrun.lint.program import SyntaxFault, shown_path

    if answer is None or answer.errors is None:
        return program.faults
    return [SyntaxFault(file, shown_path(file), *each) for file, each in answer.errors.items()]


def _syntax_problem(fault: SyntaxFault, answer: Answer | None) -> Problem:
    from distrun.lint.interpreter import own_version

    version = own_version() if answer is None else answer.version
    is_python = fault.file.endswith((".py", ".pyw"))
    hint = "" if is_python else "run a program that is not Python with `command`"
    if linecache.getline(fault.file, fault.line).lstrip().startswith(("%", "!")):
        hint = "this is a line of IPython: remove it"
    return Problem(
        fault.shown,
        fault.line,
        fault.column,
        f"Python {version} cannot parse this: {fault.message}",
        hint,
    )


def _absent_problem(target: _Target) -> Problem:
    python = target.python or sys.executable
    message = f"there is no module {target.module!r}: neither in {target.folder}, nor in {python}"
    hint = "correct the name, or write the folder that has it in program.workdir"
    return Problem("program.module", None, None, message, hint)


def _find_target(spec: Spec, here: HostSpec | None) -> _Target | None:
    program = spec.program
    asked = here.python if here is not None and here.python else program.python
    python = asked or (program.interpreter.path if program.interpreter else None)
    workdir = here.workdir if here is not None and here.workdir else program.workdir
    if program.kind is ProgramKind.SCRIPT:
        real = os.path.realpath(program.target)  # Python looks for modules beside the target
        return _Target(path=program.target, folder=os.path.dirname(real), python=python)
    if program.kind is ProgramKind.MODULE:
        return _find_module(program.target, workdir, python)
    if not _PYTHON.fullmatch(os.path.basename(program.argv[0])):
        return None
    words = [*program.argv[1:], *program.args]
    while words and _FLAGS.fullmatch(words[0]):
        words.pop(0)
    if len(words) > 1 and words[0] == "-m":
        return _find_module(words[1], workdir, program.argv[0])
    if not words or not words[0].endswith(".py"):
        return None
    path = os.path.join(workdir, words[0])
    return _Target(
        path=path, folder=os.path.dirname(os.path.realpath(path)), python=program.argv[0]
    )


def _find_module(name: str, folder: str, python: str | None) -> _Target | None:
    """A module that `python -m` finds in the working folder."""
    path = os.path.join(folder, *name.split("."))
    package = name.rpartition(".")[0]
    if os.path.isdir(path):
        path, package = os.path.join(path, "__main__"), name
    return _Target(path=f"{path}.py", folder=folder, module=name, package=package, python=python)


def _is_bundled(path: str) -> bool:
    from distrun.spec.resources import bundled_jobs

    return any(str(each) == path for each in bundled_jobs().values())

"""Checks the program of a spec: reads it, asks its interpreter, applies the rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial

from distrun.frozen import replace
from distrun.lint.program import Program
from distrun.lint.rules import PROGRAM_RULES, RULES, check, imported_modules
from distrun.spec.asked_interpreter import environment, short_version
from distrun.spec.model import BY_RUN, Spec, Sync
from distrun.spec.packages import LEGACY_KERAS, VARIABLES, is_keras_2, needs_tf_keras
from distrun.spec.problems import Mark, Problem
from distrun.spec.target import Target, find_target, how_to_run, shown_interpreter, shown_path
from distrun.spec.value_warnings import ask_interpreter, check_module
from distrun.sync.unsent_files import unsent_reads
from distrun.words.formats import install_command


def check_program(spec: Spec) -> tuple[Problem, ...]:
    """Return the warnings about the programs of a spec. It never fails, and runs nothing of them.

    A check that could not be made is a warning, too: it says which, and why. There are none about
    programs that are not Python. The program of a custom role has nothing to do with the strategy.
    """
    found: dict[Target, list[Problem]] = {}
    # Otherwise the program may be only where its tasks run, as in an image.
    is_needed_here = spec.local_host is not None or spec.program.sync is not Sync.OFF
    for part in _parts(spec):
        target = find_target(part)
        if target is None or target in found:
            continue
        if not is_needed_here and not os.path.lexists(target.path):
            continue
        judge = check_module if target.is_bundled or target.is_installed else _judge
        found[target] = Mark(shown_path(target.path)).checked(partial(judge, part, target))
    return tuple(problem for problems in found.values() for problem in problems)


def _parts(spec: Spec) -> Iterator[Spec]:
    """A spec for each program, with the roles that run it: the spec's, then the custom roles'."""
    custom = [role for role in spec.roles if role.role.is_custom]
    yield replace(spec, roles=tuple(role for role in spec.roles if role not in custom))
    for role in custom:
        yield replace(spec, program=spec.program_of(role), roles=(role,))


def _judge(spec: Spec, target: Target) -> list[Problem]:
    program = Program(target)
    answer, unchecked = ask_interpreter(spec, target, imported_modules(program), program.files)
    is_answered = spec.local_host is not None and not unchecked
    certain = program.certain_files if is_answered else ()
    unchecked += [Mark(shown_path(file)).unchecked(why) for file, why in program.unread.items()]
    faults = program.faults if answer.errors is None else answer.errors
    found = []
    by_run = spec.origin is not None and spec.origin.file == BY_RUN
    for file, (line, column, text) in faults.items():
        hint = "run a program that is not Python with `command`"
        if by_run:  # then it takes the file for a program
            hint = f"if it is not Python: {how_to_run(file)}"
        hint = "" if file.endswith((".py", ".pyw")) else hint
        message = f"Python {short_version(answer.python)} cannot parse this: {text}"
        place = Mark(shown_path(file), line, column)
        found.append(place.problem(message, hint, is_certain=file in certain))
    for file, (line, column, text) in program.faults.items():
        if file not in faults:
            why = f"the Python {short_version(sys.version)} that runs distrun cannot parse it"
            unchecked.append(Mark(shown_path(file), line, column).unchecked(f"{why}: {text}"))
    if program.modules:
        env = {**os.environ, **environment(spec), **VARIABLES[spec.program.keras]}
        program.python, program.missing = shown_interpreter(spec, target), frozenset(answer.missing)
        program.missing -= set() if needs_tf_keras(answer.tensorflow) else {"tf_keras"}
        program.install = install_command(target.python or sys.executable)
        program.keras = None if is_keras_2(env.get(LEGACY_KERAS)) else answer.keras
        trains = any(not role.role.is_custom for role in spec.roles)
        found += check(program, spec, (*(RULES if trains else PROGRAM_RULES), unsent_reads))
    return [*found, *unchecked]

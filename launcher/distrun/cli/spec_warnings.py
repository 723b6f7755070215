"""Warnings about a spec's program: printed, or errors with `--strict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.cli import console
from distrun.frozen import replace
from distrun.spec.problems import Mark, Problem, SpecProblemsError
from distrun.strategies import STRATEGIES, Role, Workers
from distrun.words.formats import format_names

if TYPE_CHECKING:
    from distrun.spec.model import Spec


def find_warnings(spec: Spec) -> tuple[Problem, ...]:
    """Check the program that a spec names; nothing of it is run.

    A check that could not be made is a warning, too. If :func:`runs_python`, an interpreter may be
    started: call this in a process that ends what it leaves, see :mod:`distrun.supervisor.guard`.
    """
    from distrun.spec.value_warnings import check_executables, check_values

    return (
        *Mark("program.keras").checked(lambda: _keras_problems(spec)),
        *Mark("program").checked(lambda: check_executables(spec)),
        *Mark("program").checked(lambda: check_values(spec)),
        *Mark("program").checked(lambda: _program_problems(spec)),
    )


def runs_python(spec: Spec) -> bool:
    """Whether tasks run scripts or modules of Python: then checks may ask an interpreter."""
    from distrun.spec.target import find_target

    programs = (spec.program, *map(spec.program_of, spec.roles))
    return any(find_target(replace(spec, program=each)) for each in programs)


def _program_problems(spec: Spec) -> tuple[Problem, ...]:
    if not runs_python(spec):
        return ()  # importing the checks of Python takes longer than a short job
    from distrun.lint.check import check_program

    return check_program(spec)


def print_success(spec: Spec) -> None:
    """Print which tasks decide the success of independent workers without a chief."""
    if spec.workers is Workers.INDEPENDENT and Role.CHIEF not in {r.role for r in spec.roles}:
        console.print_message(f"workers: independent, without a chief: {success_text(spec)}")


def success_text(spec: Spec) -> str:
    """Which tasks decide the success of a job with independent workers."""
    row = STRATEGIES[spec.strategy].with_workers(spec.workers)
    names = [
        f"{each.role.value}:{index}"
        for each in spec.roles
        for index in range(each.count)
        if row.waits_for(spec.success, each.role, index)
    ]
    verb = "exits" if len(names) == 1 else "exit"
    return f"the job succeeds when {format_names(names)} {verb} 0"


def _keras_problems(spec: Spec) -> list[Problem]:
    from distrun.spec.asked_interpreter import find_missing_keras_2
    from distrun.words.causes import cause_advice, cause_text

    missing = find_missing_keras_2(spec)
    if missing is None:  # or its interpreter does not answer, as the checks of the program say
        return []
    advice = cause_advice(missing) or ""
    return [Mark("program.keras").problem(cause_text(missing), advice)]


def refuse_if(
    warnings: tuple[Problem, ...], *, strict: bool, force: bool = True
) -> tuple[Problem, ...]:
    """Return the warnings.

    Raises:
        SpecProblemsError: there are some, and `strict` is set; or the program certainly fails, and
            `force` is not set.
    """
    if warnings and strict:
        raise SpecProblemsError(warnings)
    certain = [each for each in warnings if each.is_certain]
    if certain and not force:
        hint = "nothing was started; to start it anyway: --force"
        raise SpecProblemsError(certain, hint=hint)
    return warnings


def print_warnings(warnings: tuple[Problem, ...]) -> None:
    if warnings:
        console.print_lines(warning_lines(warnings))


def warning_lines(warnings: tuple[Problem, ...]) -> list[str]:
    """Return warnings in the form of errors, each marked as a warning."""
    return [str(each).replace(f"{each.mark}: ", f"{each.mark}: warning: ", 1) for each in warnings]

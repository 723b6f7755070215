"""Warnings about a spec's program: printed, or errors with `--strict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.cli import console
from distrun.cli.text_format import format_task_names
from distrun.errors import HostError
from distrun.frozen import replace
from distrun.strategies import STRATEGIES, Role, Workers

if TYPE_CHECKING:
    from distrun.agent.protocol import Cause
    from distrun.spec.model import Spec
    from distrun.spec.problems import Problem


def find_warnings(spec: Spec, *, strict: bool) -> tuple[Problem, ...]:
    """Check the program that a spec names; nothing of it is run.

    Raises:
        SpecProblemsError: there are warnings, and `strict` makes them errors.
    """
    from distrun.lint.check import check_program, find_missing_keras_2
    from distrun.lint.values import check_executables, check_values

    try:
        missing = find_missing_keras_2(spec)
        found = (
            *([] if missing is None else [_keras_problem(missing)]),
            *check_executables(spec),
            *check_values(spec),
            *check_program(spec),
        )
    except Exception:  # noqa: BLE001 - a defect in a check must not keep a job from starting
        found = ()
    return refuse_if(found, strict=strict)


def with_workers(spec: Spec) -> Spec:
    """Return the spec with `workers` read from its program, if it leaves that open, and say so."""
    if spec.workers is None and STRATEGIES[spec.strategy].independent is not None:
        from distrun.lint.check import find_independent_workers

        try:
            found = find_independent_workers(spec)
        except Exception:  # noqa: BLE001 - a defect in a check must not keep a job from starting
            found = None
        if found is not None:
            name, mark = found
            console.print_message(f"workers: independent, because {mark} uses {name}")
        return replace(spec, workers=Workers.COORDINATED if found is None else Workers.INDEPENDENT)
    if spec.workers is Workers.INDEPENDENT and Role.CHIEF not in {r.role for r in spec.roles}:
        console.print_message(f"workers: independent, without a chief: {success_text(spec)}")
    return spec


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
    return f"the job succeeds when {format_task_names(names)} {verb} 0"


def require_keras_2(spec: Spec) -> None:
    """Check that this machine has tf_keras if `program.keras` is 2.

    Raises:
        HostError: its interpreter has none.
    """
    if spec.program.keras != 2:
        return
    from distrun.lint.check import find_missing_keras_2

    missing = find_missing_keras_2(spec)
    if missing is not None:
        raise HostError(cause=missing)


def _keras_problem(missing: Cause) -> Problem:
    from distrun.cli.cause_text import cause_advice, cause_text
    from distrun.spec.problems import Problem

    return Problem("program.keras", None, None, cause_text(missing), cause_advice(missing) or "")


def refuse_if(warnings: tuple[Problem, ...], *, strict: bool) -> tuple[Problem, ...]:
    """Return the warnings. Raises SpecProblemsError if there are some and `strict` is set."""
    if warnings and strict:
        from distrun.spec.problems import SpecProblemsError

        raise SpecProblemsError(warnings)
    return warnings


def print_warnings(warnings: tuple[Problem, ...]) -> None:
    """Print warnings on stderr in the form of errors, each marked as a warning."""
    lines = [str(each).replace(f"{each.mark}: ", f"{each.mark}: warning: ", 1) for each in warnings]
    if lines:
        console.print_lines(lines)

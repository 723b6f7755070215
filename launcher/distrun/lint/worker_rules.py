"""Whether the workers of a program train by themselves, and rules about that."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.lint.rule import (
    OWN_PORT,
    Surroundings,
    function_of,
    only_name,
    problem,
    runs,
    short_name,
)
from distrun.spec.problems import Problem
from distrun.strategies import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Module
    from distrun.lint.program import Program

_INDEPENDENT = re.compile(
    r"tensorflow(\.compat\.v1)?\.(train\.(MonitoredTrainingSession|Supervisor|"
    r"SyncReplicasOptimizer|(Chief|Worker)SessionCreator|replica_device_setter)|estimator\.train_and_evaluate)"
    r"|tensorflow\.compat\.v1\.distribute\.experimental\.ParameterServerStrategy"
    r"|tensorflow_estimator\.(python\.)?estimator\.train_and_evaluate"
)
"""What only workers use that train by themselves: between-graph replication, Estimators."""
_COORDINATED = re.compile(r"tensorflow\.distribute\.(experimental\.)?ParameterServerStrategy(V2)?")


def independent_workers(program: Program) -> tuple[Module, ast.expr, str] | None:
    """What shows that the workers train by themselves: where it is, and its name.

    None if that is not plain: the program does not say, or can do both.
    """
    if "ClusterCoordinator" in program.words:
        return None
    found = None
    for module in program.modules.values():
        for use in module.uses:
            for name in program.names(module, use):
                if _COORDINATED.fullmatch(name):
                    return None
                if found is None and _INDEPENDENT.fullmatch(name):
                    found = module, use.node, name
    return found


def unsaid_independence(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Without `workers`, the workers of parameter servers are servers that the chief directs."""
    if around.says_workers or around.strategy.independent is None:
        return
    found = independent_workers(program)
    if found is not None:
        module, node, name = found
        yield problem(
            module,
            node,
            f"{short_name(name)} is for workers that train by themselves, and the spec does not "
            "say that these do",
            "write workers: independent; or, if the chief directs them, workers: coordinated",
        )


def own_port(program: Program, around: Surroundings) -> Iterator[Problem]:
    """A program that listens at its address finds the port bound, unless the spec says that."""
    if around.says_port:
        return
    for module in program.modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and node.value == "DISTRUN_ADDRESS":
                yield problem(module, node, *OWN_PORT)
                return


def missing_chief(program: Program, around: Surroundings) -> Iterator[Problem]:
    """A ParameterServerStrategy runs in the chief; without one, all tasks wait for it."""
    if Role.PS not in around.strategy.roles or around.tasks.get(Role.CHIEF):
        return
    for module in program.modules.values():
        for call in module.calls:
            name = only_name(program.names(module, function_of(call)))
            if _COORDINATED.fullmatch(name) and runs(program, call):
                yield problem(
                    module,
                    call.node,
                    "the program creates ParameterServerStrategy, which needs a chief, and the "
                    "cluster has none",
                    "add 'chief: 1' to cluster",
                )
                return

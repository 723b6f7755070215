"""Rules about what the program does with the cluster: TF_CONFIG and servers."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.lint.flow import Step, steps
from distrun.lint.module import UNKNOWN, Context, Use, constants, is_role_test
from distrun.lint.rule import (
    STRATEGY_CLASS,
    Surroundings,
    function_of,
    only_name,
    problem,
)
from distrun.spec.problems import Problem
from distrun.strategies import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Module
    from distrun.lint.program import Program

_VARIABLE = "TF_CONFIG"


def own_cluster(program: Program, around: Surroundings) -> Iterator[Problem]:
    """With a TF_CONFIG of its own, a task is not where the others look for it."""
    if not around.strategy.tf_config or around.owns_tf_config:
        return
    is_its_own = False
    for step in steps(program):
        if step.is_certain and _sets_variable(program, step):
            is_its_own = True
            yield problem(
                step.module,
                step.node,
                f"the program sets or removes {_VARIABLE}, which distrun sets for each task: the "
                "tasks will not find each other",
                "remove this line",
            )
        elif not is_its_own and _mentions_variable(step.node):
            return  # it is read first: what is written may be made of that


def early_connection(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Members of a group start their servers with the strategy: one that connects first waits."""
    if not around.strategy.tf_config or Role.PS in around.strategy.roles:
        return
    for step in steps(program):
        if not step.is_certain or not isinstance(step.node, ast.Call):
            continue
        name = only_name(program.names(step.module, function_of(step.use)))
        if name.endswith(".experimental_connect_to_cluster"):
            yield problem(
                step.module,
                step.node,
                "each task waits here for servers that only the strategy starts",
                "remove this line: the strategy connects to the cluster by itself",
            )


def tf_config_lines(program: Program) -> Iterator[tuple[Module, int, bool]]:
    """Where the program sets TF_CONFIG, and whether every run does so; the certain lines first."""
    for step in steps(program):
        if step.is_certain and _sets_variable(program, step):
            yield step.module, getattr(step.node, "lineno", 0), True
    for module in program.modules.values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
                continue
            if getattr(node.slice, "value", None) == _VARIABLE:
                yield module, node.lineno, False


def _sets_variable(program: Program, step: Step) -> bool:
    node = step.node
    if isinstance(node, ast.Assign | ast.Delete):
        value = getattr(node, "value", None)
        is_made_of_it = value is not None and _mentions_variable(value)
        targets = () if is_made_of_it else node.targets
        return any(_is_variable(program, step, target) for target in targets)
    if not isinstance(node, ast.Call):
        return False
    name = only_name(program.names(step.module, function_of(step.use)))
    if name in ("os.putenv", "os.unsetenv", "os.environ.pop", "os.environ.__setitem__"):
        return bool(node.args) and getattr(node.args[0], "value", None) == _VARIABLE
    if name != "os.environ.update":
        return name == "os.environ.clear"
    given = [key for arg in node.args if isinstance(arg, ast.Dict) for key in arg.keys]
    keys = {getattr(key, "value", None) for key in given} | {each.arg for each in node.keywords}
    return _VARIABLE in keys


def _mentions_variable(node: ast.AST) -> bool:
    return any(each.value == _VARIABLE for each in constants(node))


def _is_variable(program: Program, step: Step, target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == _VARIABLE
        and only_name(program.names(step.module, Use(target.value, step.scope, Context())))
        == "os.environ"
    )


_KNOWN_NAMES = """
PIL __future__ absl argparse collections contextlib dataclasses datetime distutils enum functools
glob gzip io itertools json keras logging math matplotlib multiprocessing numpy os pandas pathlib
pickle pprint queue random re scipy shutil signal six sklearn socket string struct subprocess sys
tarfile tempfile tensorflow tensorflow_datasets tf_keras threading time tqdm traceback types
typing urllib uuid warnings yaml zipfile
"""
_KNOWN = frozenset(_KNOWN_NAMES.split())
"""Modules that start no server of a cluster."""
_WAITS = frozenset({"pause", "sleep", "wait", "target", "serve_forever", "sigwait", "input"})
"""What keeps a process that has a server alive, or uses the server."""
_RUNS_SERVERS = frozenset({"train_and_evaluate", "distribute_coordinator", "GrpcServer"})
"""What starts the server of a task, and waits at it."""
_CONNECTS = frozenset(
    {"ClusterCoordinator", "experimental_connect_to_cluster", "experimental_connect_to_host"}
    | {"target", "Session", "MonitoredTrainingSession", "connect_to_cluster"}
)


def servers(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Workers and parameter servers do what the chief says, in a server of tf.distribute."""
    serving = [role for role, rule in around.strategy.roles.items() if rule.serves]
    imported = {each.name.partition(".")[0] for m in program.modules.values() for each in m.imports}
    if not serving or "tensorflow" not in imported or not program.is_complete:
        return
    if not imported <= _KNOWN | program.beside or "subprocess" in imported:
        return
    names = " and ".join(role.value for role in serving)
    first = next(each.node for m in program.modules.values() for each in m.imports
                 if each.name.partition(".")[0] == "tensorflow")  # fmt: skip
    origin = next(m for m in program.modules.values() if any(i.node is first for i in m.imports))
    if program.words & _RUNS_SERVERS:
        return
    if "Server" not in program.words:
        yield problem(
            origin,
            first,
            f"the program never starts a server, but the tasks of {names} need one",
            "where the task is one of these, run tf.distribute.Server(...).join()",
        )
        return
    joins = [(m, each) for m in program.modules.values() for each in m.calls
             if _is_join(program, m, each)]  # fmt: skip
    if not joins and not program.words & _WAITS and not _loops_forever(program):
        yield problem(
            *(_creation(program) or (origin, first)),
            f"the program starts a server, but never waits at it: the tasks of {names} end at once",
            "call join() of the server",
        )
    if joins and not program.words & _CONNECTS:
        yield from _idle_trainer(program, around, joins, names)


def _creation(program: Program) -> tuple[Module, ast.AST] | None:
    """Where the program creates its server, or may do so."""
    uses = ((m, each.node) for m in program.modules.values() for each in m.uses)
    return next(((m, node) for m, node in uses if "Server" in _identifiers(node)), None)


def _idle_trainer(
    program: Program, around: Surroundings, joins: list[tuple[Module, Use]], names: str
) -> Iterator[Problem]:
    if any(STRATEGY_CLASS.match(name) for m in program.modules.values() for use in m.uses
           for name in program.names(m, use)):  # fmt: skip
        return
    module, join = joins[0]
    has_chief = bool(around.tasks.get(Role.CHIEF))
    yield problem(
        module,
        join.node,
        f"the tasks of {names} wait at their servers, but no {'chief' if has_chief else 'worker'} "
        "connects to these",
        "create tf.distribute.ParameterServerStrategy in the chief"
        if has_chief
        else "open a session at the target of its server in each worker",
    )


def _is_join(program: Program, module: Module, call: Use) -> bool:
    """Whether a call may be `join()` of a server: not that of texts and paths."""
    function = function_of(call).node
    if not isinstance(function, ast.Attribute) or function.attr != "join":
        return False
    names = program.names(module, function_of(call))
    is_text = isinstance(function.value, ast.Constant | ast.JoinedStr)
    return not is_text and any(name == UNKNOWN or "Server()" in name for name in names)


def _loops_forever(program: Program) -> bool:
    return any(isinstance(node, ast.While) for m in program.modules.values()
               for node in ast.walk(m.tree))  # fmt: skip


def joining_chief(program: Program, around: Surroundings) -> Iterator[Problem]:
    """If those that train join a server, they wait for ever, and so does the job."""
    serving = [role.value for role, rule in around.strategy.roles.items() if rule.serves]
    if not serving:
        return
    for step in steps(program):
        if not step.is_certain:
            if is_role_test(step.node) or {"task_type", "job_name"} & _identifiers(step.node):
                return
        elif isinstance(step.node, ast.Call):
            name = only_name(program.names(step.module, function_of(step.use)))
            if re.fullmatch(r"tensorflow\.(distribute|compat\.v1\.train)\.Server\(\)\.join", name):
                yield problem(
                    step.module,
                    step.node,
                    "every task waits at its server here"
                    f"{', the chief, too' if around.tasks.get(Role.CHIEF) else ''}: nobody trains",
                    f"do this only where the task is a {' or '.join(serving)}",
                )
                return


def _identifiers(node: ast.AST) -> set[str]:
    found = (getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node))
    return set(map(str, found))

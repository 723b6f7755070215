"""All rules. Each is silent about what it cannot decide: a false warning is worse than none."""

from __future__ import annotations

import ast
import posixpath
import re
from typing import TYPE_CHECKING, TypeAlias

from distrun.lint.module import UNKNOWN, Context, Step, is_role_test, texts_in
from distrun.lint.old_names import keras_2, tensorflow_1
from distrun.lint.rule import (
    COLLECTIVE,
    OWN_PORT,
    STRATEGIES_BY_CLASS,
    STRATEGY_CLASS,
    Surroundings,
    calls,
    problem,
    says_port,
    short_name,
    unchecked_problem,
    why_unchecked,
)
from distrun.spec.problems import Problem, nearest, quoted
from distrun.strategies import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distrun.lint.program import Program

_MOST_ALIKE = 20
"""Warnings of one rule that are shown; the last says how many more there are."""
_VARIABLE = "TF_CONFIG"
_INDEPENDENT = re.compile(
    r"tensorflow(\.compat\.v1)?\.(train\.(MonitoredTrainingSession|Supervisor|"
    r"SyncReplicasOptimizer|(Chief|Worker)SessionCreator|replica_device_setter)|estimator\.train_and_evaluate)"
    r"|tensorflow\.compat\.v1\.distribute\.experimental\.ParameterServerStrategy"
    r"|tensorflow_estimator\.(python\.)?estimator\.train_and_evaluate"
)
"""What only workers use that train by themselves: between-graph replication, Estimators."""
_COORDINATED = re.compile(r"tensorflow\.distribute\.(experimental\.)?ParameterServerStrategy(V2)?")
_CONNECTS_FIRST = re.compile(r".*\.experimental_connect_to_cluster")
_JOINS = re.compile(r"tensorflow\.(distribute|compat\.v1\.train)\.Server\(\)\.join")
_RESOLVERS = re.compile(
    r"tensorflow\.distribute\.cluster_resolver\.(Slurm|Kubernetes|GCE|SageMaker)ClusterResolver\(\)"
)
"""What does not read TF_CONFIG."""
_OPERATION = re.compile(
    r"tensorflow\.(Variable|abs|add|argmax|cast|concat|constant|convert_to_tensor|device|exp|eye"
    r"|fill|gather|identity|linspace|matmul|meshgrid|one_hot|ones|ones_like|pad|print|range|rank"
    r"|reduce_\w+|reshape|reverse|shape|size|slice|split|square|stack|tile|timestamp|transpose"
    r"|where|zeros|zeros_like|data\.(Dataset\.\w+|\w+Dataset)|(experimental\.)?config\."
    r"(experimental\.)?list_logical_devices|distribute\.(Mirrored|OneDevice)Strategy"
    r"|io\.(decode_\w+|read_file)|keras\.(metrics|optimizers)\.[A-Z]\w*"
    r"|random\.(normal|shuffle|stateless_\w+|truncated_normal|uniform|Generator\.\w+)"
    r"|(bitwise|image|linalg|math|nn|signal|strings)\.[a-z]\w*|summary\.create_file_writer)"
    r"|(tensorflow\.)?keras\.layers\.(Dense|Conv[123]D|LSTM|GRU|Embedding|BatchNormalization)\(\)"
)
"""Calls that start TensorFlow's runtime, as measured in 2.21: then no strategy with collectives
can be made. A layer that is called creates its weights."""


# The strategy ------------------------------------------------------------------------------


def another_strategy(program: Program, around: Surroundings) -> Iterator[Problem]:
    """The spec says what the tasks are told and when they restart, for the strategy it names."""
    found = created_strategy(program)
    if found is not None and STRATEGIES_BY_CLASS[found[1]] != around.strategy.name:
        step, name = found
        yield problem(
            step,
            f"the program creates {name}, but the spec has strategy: {around.strategy.name}",
            f"write strategy: {STRATEGIES_BY_CLASS[name]}, or create another strategy",
        )


def created_strategy(program: Program) -> tuple[Step, str] | None:
    """Where the program creates its strategy, and its class; None if that is not plain."""
    kinds: set[str] = set()
    created: list[tuple[Step, str]] = []
    running = set(program.running)
    for step in program.steps:
        found = STRATEGY_CLASS.match(step.name)
        kinds |= {STRATEGIES_BY_CLASS[found[3]]} if found else set()
        if not isinstance(step.node, ast.Call):
            continue
        if any(re.fullmatch(r"tensorflow\.distribute(\.experimental)?", step.module.name_of(each))
               for each in step.node.args):  # fmt: skip
            return None  # e.g. getattr(tf.distribute, name)
        if found and found[0] == step.name and step in running:
            created.append((step, found[3]))
    return created[0] if len(kinds) == 1 and created else None


def late_strategy(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Collective operations can only be configured before TensorFlow's runtime starts."""
    graphs = {"disable_eager_execution", "disable_v2_behavior", "Graph"}
    if COLLECTIVE not in around.strategy.classes or program.words & graphs:
        return
    first: Step | None = None
    for step in program.run:
        name = step.name
        if not step.context.is_certain:
            if COLLECTIVE in name or program.function(name):
                return
        elif isinstance(step.node, ast.Call) and name.endswith(f".{COLLECTIVE}"):
            if first is not None:
                line = getattr(first.node, "lineno", 0)
                place = "" if first.module is step.module else f"{first.module.shown}:"
                yield problem(
                    step,
                    f"{COLLECTIVE} is created after a TensorFlow operation, "
                    f"{short_name(first.name)} in line {place}{line}; it fails with 'Collective "
                    "ops must be configured at program startup'",
                    "create the strategy first",
                )
            return
        elif isinstance(step.node, ast.Call) and first is None and _OPERATION.fullmatch(name):
            first = step


def another_resolver(program: Program, around: Surroundings) -> Iterator[Problem]:
    """The cluster of distrun's tasks is in TF_CONFIG."""
    for step, node in calls(program.running if around.strategy.tf_config else (), STRATEGY_CLASS):
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            resolver = _RESOLVERS.fullmatch(step.module.name_of(each))
            if resolver is not None:
                name = step.name.rpartition(".")[2]
                yield problem(
                    step,
                    f"{name} takes its cluster from {resolver[1]}ClusterResolver, which does "
                    f"not read {_VARIABLE}: the tasks will not find each other",
                    "leave the resolver out, or use TFConfigClusterResolver",
                )


# The cluster -------------------------------------------------------------------------------


def own_cluster(program: Program, around: Surroundings) -> Iterator[Problem]:
    """With a TF_CONFIG of its own, a task is not where the others look for it."""
    if not around.strategy.tf_config or around.spec.program.owns_tf_config:
        return
    is_its_own = False
    for step in program.run:
        if step.context.is_certain and _sets_variable(step):
            is_its_own = True
            yield problem(
                step,
                f"the program sets or removes {_VARIABLE}, which distrun sets for each task: the "
                "tasks will not find each other",
                "remove this line",
            )
        elif not is_its_own and _VARIABLE in texts_in(step.node):
            return  # it is read first: what is written may be made of that


def early_connection(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Members of a group start their servers with the strategy: one that connects first waits."""
    if around.strategy.tf_config and Role.PS not in around.strategy.roles:
        for step, _ in calls(program.certain, _CONNECTS_FIRST):
            yield problem(
                step,
                "each task waits here for servers that only the strategy starts",
                "remove this line: the strategy connects to the cluster by itself",
            )


def tf_config_lines(program: Program) -> Iterator[tuple[str, int, bool]]:
    """File and line where the program sets TF_CONFIG, and whether every run does so; such first."""
    for step in filter(_sets_variable, program.certain):
        yield step.module.shown, getattr(step.node, "lineno", 0), True
    for module in program.modules.values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
                continue
            if _is_variable(node.slice):
                yield module.shown, node.lineno, False


def _is_variable(node: ast.AST | None) -> bool:
    return getattr(node, "value", None) == _VARIABLE


def _sets_variable(step: Step) -> bool:
    node = step.node
    if isinstance(node, ast.Assign | ast.Delete):
        is_made_of_it = isinstance(node, ast.Assign) and _VARIABLE in texts_in(node.value)
        return not is_made_of_it and any(
            isinstance(target, ast.Subscript)
            and _is_variable(target.slice)
            and step.module.name_of(target.value) == "os.environ"
            for target in node.targets
        )
    if not isinstance(node, ast.Call):
        return False
    if step.name in ("os.putenv", "os.unsetenv", "os.environ.pop", "os.environ.__setitem__"):
        return bool(node.args) and _is_variable(node.args[0])
    if step.name == "os.environ.update":
        given = [key for arg in node.args if isinstance(arg, ast.Dict) for key in arg.keys]
        return any(map(_is_variable, given)) or any(k.arg == _VARIABLE for k in node.keywords)
    return step.name == "os.environ.clear"


_KNOWN_NAMES = """
PIL __future__ absl argparse collections contextlib dataclasses datetime distutils enum functools
glob gzip io itertools json keras logging math matplotlib multiprocessing numpy os pandas pathlib
pickle pprint queue random re scipy shutil signal six sklearn socket string struct sys tarfile
tempfile tensorflow tensorflow_datasets tf_keras threading time tqdm traceback types typing urllib
uuid warnings yaml zipfile
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
    names = " and ".join(around.serving)
    imports = {
        each.top: step for step in reversed(program.steps) for each in step.imported
    }  # the first of each
    if not names or "tensorflow" not in imports or program.faults or program.unread:
        return
    if not imports.keys() <= _KNOWN | program.beside or program.words & _RUNS_SERVERS:
        return
    if "Server" not in program.words:
        yield problem(
            imports["tensorflow"],
            f"the program never starts a server, but the tasks of {names} need one",
            "where the task is one of these, run tf.distribute.Server(...).join()",
        )
        return
    joins = list(filter(_is_join, program.steps))
    loops = any(
        isinstance(n, ast.While) for m in program.modules.values() for n in ast.walk(m.tree)
    )
    if not joins and not program.words & _WAITS and not loops:
        created = (step for step in program.steps if "Server" in _words(step.node))
        yield problem(
            next(created, imports["tensorflow"]),
            f"the program starts a server, but never waits at it: the tasks of {names} end at once",
            "call join() of the server",
        )
    creates = any(STRATEGY_CLASS.match(step.name) for step in program.steps)
    if joins and not program.words & _CONNECTS and not creates:
        yield problem(
            joins[0],
            f"the tasks of {names} wait at their servers, but no "
            f"{'chief' if around.has_chief else 'worker'} connects to these",
            "create tf.distribute.ParameterServerStrategy in the chief"
            if around.has_chief
            else "open a session at the target of its server in each worker",
        )


def _is_join(step: Step) -> bool:
    """Whether a call may be `join()` of a server: not that of texts and paths."""
    function = step.node.func if isinstance(step.node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or function.attr != "join":
        return False
    is_text = isinstance(function.value, ast.Constant | ast.JoinedStr)
    return not is_text and (step.name == UNKNOWN or "Server()" in step.name)


def _words(node: ast.AST) -> set[str]:
    return {str(getattr(each, "id", getattr(each, "attr", ""))) for each in ast.walk(node)}


def joining_chief(program: Program, around: Surroundings) -> Iterator[Problem]:
    """If those that train join a server, they wait for ever, and so does the job."""
    for step in program.run if around.serving else ():
        node, is_certain = step.node, step.context.is_certain
        is_test = isinstance(node, ast.Compare) or not is_certain
        if is_test and (is_role_test(node) or {"task_type", "job_name"} & _words(node)):
            return
        if isinstance(node, ast.Call) and _JOINS.fullmatch(step.name) and is_certain:
            yield problem(
                step,
                "every task waits at its server here"
                f"{', the chief, too' if around.has_chief else ''}: nobody trains",
                f"do this only where the task is a {' or '.join(around.serving)}",
            )
            return


def missing_chief(program: Program, around: Surroundings) -> Iterator[Problem]:
    """A ParameterServerStrategy runs in the chief; without one, all tasks wait for it."""
    needs_chief = Role.PS in around.strategy.roles and not around.has_chief
    for step, _ in calls(program.running if needs_chief else (), _COORDINATED):
        message = (
            "the program creates ParameterServerStrategy, which needs a chief, and the cluster "
            "has none"
        )
        yield problem(step, message, "add 'chief: 1' to cluster")
        return


# Keys of the spec --------------------------------------------------------------------------


def independent_workers(program: Program) -> tuple[Step, str] | None:
    """What shows that the workers train by themselves; None if that is not plain."""
    found = [step for step in program.steps if isinstance(step.node, ast.Name | ast.Attribute)]
    if "ClusterCoordinator" in program.words or any(_COORDINATED.match(s.name) for s in found):
        return None
    shown = ((step, step.name) for step in found if _INDEPENDENT.fullmatch(step.name))
    return next(shown, None)


def unsaid_independence(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Without `workers`, the workers of parameter servers are servers that the chief directs."""
    is_open = around.spec.workers is None and around.strategy.independent is not None
    found = independent_workers(program) if is_open else None
    if found is not None:
        yield problem(
            found[0],
            f"{short_name(found[1])} is for workers that train by themselves, and the spec does "
            "not say that these do",
            "write workers: independent; or, if the chief directs them, workers: coordinated",
        )


def own_port(program: Program, around: Surroundings) -> Iterator[Problem]:
    """A program that listens at its address finds the port bound, unless the spec says that."""
    for module in program.modules.values() if not says_port(around.spec) else ():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and node.value == "DISTRUN_ADDRESS":
                yield problem(Step(module, node, Context()), *OWN_PORT)
                return


# Modules -----------------------------------------------------------------------------------


def imported_modules(program: Program) -> dict[str, Step]:
    """The first names of modules that are not beside the script, each where it is imported first.

    Only imports that certainly run; none if the program changes where modules are found.
    """
    changing = ("sys.path", "sys.meta_path", "sys.modules", "site.", "pkgutil.")
    if any(step.name.startswith(changing) for step in program.steps):
        return {}
    found: dict[str, Step] = {}
    for step in program.certain:
        if not step.context.is_guarded and not getattr(step.node, "level", 0):
            for each in step.imported:
                if each.top not in program.beside:
                    found.setdefault(each.top, step)
    return found


def missing_module(program: Program, around: Surroundings) -> Iterator[Problem]:
    """An import that fails ends every task at once."""
    main = program.modules["__main__"]
    above, package = posixpath.split(program.folder)
    name = f"{package}.{posixpath.basename(main.shown).partition('.')[0]}"
    as_module = f"in {above}, run it as a module: `run -m {name}`, or module: {name}"
    for step in program.certain:
        if step.context.is_guarded:
            continue
        if getattr(step.node, "level", 0) and step.module is main and not main.package:
            message = "a script has no package, so that this relative import fails"
            yield problem(step, message, as_module)
        for each in step.imported:
            if program.lacks(each.name):
                parent, _, last = each.name.rpartition(".")
                message = f"the package {parent} does not have the module {last!r}"
                yield problem(step, message, "correct the name")
    for top, step in imported_modules(program).items():
        if top in around.missing:
            near = nearest(top, program.beside)
            hint = "install it for this interpreter, or correct the name"
            if top == package:
                hint = as_module
            elif near is not None:
                hint = f"did you mean {quoted(near)}?"
            yield problem(
                step,
                f"there is no module {top!r}: neither beside the script, nor in {around.python}",
                hint,
            )


# All rules ---------------------------------------------------------------------------------

Rule: TypeAlias = "Callable[[Program, Surroundings], Iterator[Problem]]"
PROGRAM_RULES: tuple[Rule, ...] = (tensorflow_1, keras_2, missing_module)
"""Rules that hold for every program, whatever its role."""
RULES: tuple[Rule, ...] = (
    *(another_strategy, late_strategy, another_resolver, own_cluster, early_connection, servers),
    *(joining_chief, missing_chief, unsaid_independence, own_port, *PROGRAM_RULES),
)


def check(
    program: Program, around: Surroundings, rules: tuple[Rule, ...] | None = None
) -> list[Problem]:
    """The warnings of the rules, or of all, in the order of files and lines.

    A rule that fails leads to a warning that the program is not checked, or not wholly.
    """
    found: list[Problem] = []
    unchecked: dict[str, None] = {}
    for rule in RULES if rules is None else rules:
        try:
            these = list(dict.fromkeys(rule(program, around)))
        except Exception as error:  # noqa: BLE001 - the other rules go on
            unchecked[why_unchecked(error)] = None
            continue
        more = len(these) - _MOST_ALIKE
        if more > 0:
            last = these[_MOST_ALIKE - 1]
            message = f"{last.message} (and {more} more like this)"
            these[_MOST_ALIKE - 1 :] = [
                Problem(last.file, last.line, last.column, message, last.hint)
            ]
        found += these
    files = {module.shown: number for number, module in enumerate(program.modules.values())}
    found.sort(key=lambda one: (files.get(one.file, 0), one.line or 0, one.column or 0))
    return [*found, *(unchecked_problem(next(iter(files)), why) for why in unchecked)]

"""All rules. Each is silent about what it cannot decide: a false warning is worse than none."""

from __future__ import annotations

import ast
import posixpath
import re
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from distrun.lint.module import ROLES, UNKNOWN, Sure, Use
from distrun.spec.model import OWN_PORT
from distrun.spec.packages import PIP_NAMES
from distrun.spec.problems import Mark, Problem, nearest
from distrun.spec.program_strategy import (
    OF_STRATEGY,
    STRATEGIES_BY_CLASS,
    created_strategy,
    independent_use,
    makes_cluster,
    sets_tf_config,
)
from distrun.spec.tensorflow_versions import (
    FILE_ENDINGS,
    OTHER_RESOLVERS,
    SETS_KERAS_2,
    STARTING_CALLS,
    removed_by_keras_3,
    shown_key,
)
from distrun.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distrun.lint.program import Program
    from distrun.spec.model import Spec

COLLECTIVE = "MultiWorkerMirroredStrategy"
_VARIABLE = "TF_CONFIG"


def another_strategy(program: Program, spec: Spec) -> Iterator[Problem]:
    """The spec says what the tasks are told and when they restart, for the strategy it names."""
    use, name = created_strategy(program) or (None, "")
    is_by_itself = not STRATEGIES[spec.strategy].tf_config and makes_cluster(program)
    if use is not None and STRATEGIES_BY_CLASS[name] != spec.strategy and not is_by_itself:
        message = f"the program creates {name}, but the spec has strategy: {spec.strategy}"
        hint = f"write strategy: {STRATEGIES_BY_CLASS[name]}, or create another strategy"
        yield use.mark.problem(message, hint)


_APART = {"num_replicas_in_sync", "cluster_resolver"}  # read of a strategy without a use of it
_TRAINS = {"apply_gradients", "fit", "minimize", "train_on_batch"}
_READS_NAMES = {"eval", "exec", "globals", "locals", "vars"}


def unused_strategy(program: Program, _: Spec) -> Iterator[Problem]:
    """A strategy acts on what is created in its scope, or given to it."""
    use, name = created_strategy(program) or (None, "")
    is_unclear = program.faults or program.unread or program.words & _READS_NAMES
    if use is None or is_unclear or program.words.isdisjoint(_TRAINS):
        return
    is_alone = [each.name for each in program.uses].count(use.name) == 1
    nodes = [each for module in program.modules.values() for each in ast.walk(module.tree)]
    assigned = next((e for e in nodes if isinstance(e, ast.Assign) and e.value is use.node), None)
    kept = " ".join(map(ast.unparse, assigned.targets if assigned else ())).removeprefix("self.")
    apart = {e.value for e in nodes if isinstance(e, ast.Attribute) and e.attr in _APART}
    named = [e for e in nodes if kept in vars(e).values() and e not in apart]
    if is_alone and kept.isidentifier() and len(named) == 1:  # where it is assigned
        message = f"{name} is created and never used: each task trains by itself"
        hint = "create the model, its layers and the optimizer inside strategy.scope()"
        yield use.mark.problem(message, hint)


_OF_SHAPE = re.compile(r"\b(?:Input(?:Layer)?\(|input_(?:shape|dim)=)")
"""A model that knows its shape creates its variables at once."""


def late_strategy(program: Program, spec: Spec) -> Iterator[Problem]:
    """Collective operations can only be configured before TensorFlow's runtime starts."""
    graphs = {"disable_eager_execution", "disable_v2_behavior", "Graph"}
    created = {use.node for use in program.uses if use.name.endswith(f".{COLLECTIVE}()")}
    is_known = created <= {use.node for use in program.run}  # when it is created
    if not (is_known and COLLECTIVE in STRATEGIES[spec.strategy].classes) or program.words & graphs:
        return
    use = next((use for use in program.run if use.node in created), None)
    before = takewhile(lambda each: each.node not in created, program.run)
    sure = [each for each in before if each.sure is Sure.ALL]
    models = [each.node for each in sure if each.name.endswith("Sequential()")]
    built = [each for each in models if _OF_SHAPE.search(ast.unparse(each))]
    first = next((e for e in sure if e.node in built or STARTING_CALLS.fullmatch(e.name)), None)
    if use is not None and use.sure is Sure.ALL and first is not None:
        place = "" if first.module is use.module else f"{first.module.shown}:"
        operation = f"{short(first)} in line {place}{first.node.lineno}"
        message = f"{COLLECTIVE} is created after a TensorFlow operation, {operation}; it fails "
        message += "with 'Collective ops must be configured at program startup'"
        yield use.mark.problem(message, "create the strategy first")


def another_resolver(program: Program, spec: Spec) -> Iterator[Problem]:
    """The cluster of distrun's tasks is in TF_CONFIG."""
    own = makes_cluster(program)
    for use in program.running if STRATEGIES[spec.strategy].tf_config else ():
        created = OF_STRATEGY.fullmatch(use.name)
        for each in use.arguments.values() if created else ():
            resolver = OTHER_RESOLVERS.fullmatch(use.module.name_of(each))
            if created and resolver and (own or "Simple" not in resolver[1]):
                message = f"{created[1]} takes its cluster from {resolver[1]}, which does not read "
                message += f"{_VARIABLE}: the tasks will not find each other"
                hint = "leave the resolver out, or use TFConfigClusterResolver"
                yield use.mark.problem(message, hint)


def own_cluster(program: Program, spec: Spec) -> Iterator[Problem]:
    """With a TF_CONFIG of its own, a task is not where the others look for it."""
    if not STRATEGIES[spec.strategy].tf_config or spec.program.owns_tf_config:
        return
    sets = {use.node for use in program.uses if sets_tf_config(use)}
    reads = {use.node for use in program.uses if _VARIABLE in use.name or "TFConfig" in use.name}
    reads -= {each for node in sets for each in ast.walk(node)}
    if reads - {use.node for use in program.run}:
        return  # when that is read is not known
    for use in program.run:
        if use.node in reads:
            return  # what is written may be made of that
        if use.sure is Sure.ALL and use.node in sets:
            reads = set()
            message = f"the program sets or removes {_VARIABLE}, which distrun sets for each task"
            hint = "remove this line, or write program.tf_config: mine if it is right for each task"
            yield use.mark.problem(f"{message}: the tasks may not find each other", hint)


_KNOWN_NAMES = """
PIL __future__ absl argparse builtins collections contextlib dataclasses datetime distutils enum
functools glob gzip io itertools json keras logging math matplotlib multiprocessing numpy os pandas
pathlib pickle pprint queue random re scipy shutil signal six sklearn socket string struct sys
tarfile tempfile tensorflow tensorflow_datasets tf_keras threading time tqdm traceback types typing
urllib uuid warnings yaml zipfile
"""
_KNOWN = frozenset(_KNOWN_NAMES.split())
"""Modules that start no server of a cluster."""
_WAITS = {"pause", "sleep", "wait", "target", "serve_forever", "sigwait", "input", "while"}
"""What keeps a process that has a server alive, or uses the server."""
_RUNS_SERVERS = {"train_and_evaluate", "distribute_coordinator", "GrpcServer"}
"""What starts the server of a task, and waits at it."""


def servers(program: Program, spec: Spec) -> Iterator[Problem]:
    """Workers and parameter servers do what the chief says, in a server of tf.distribute.

    If those that train join a server, they wait for ever, and so does the job.
    """
    row = STRATEGIES[spec.strategy].with_workers(spec.workers)
    serving = [role.value for role, rule in row.roles.items() if rule.serves]
    imports = {use.top: use for use in reversed(program.uses) if use.is_import}
    is_unclear = program.faults or program.unread or program.words & _RUNS_SERVERS
    others = imports.keys() - _KNOWN - program.beside
    if is_unclear or others or not serving or "tensorflow" not in imports:
        return
    tasks = " and ".join(serving)
    started = [use for use in program.uses if re.search(r"\.Server\b", use.name)]
    joins = [use for use in program.uses if use.name.endswith(".join()")
             and ("Server()" in use.name or use.top not in _KNOWN)]  # fmt: skip
    all_join = [use for use in program.certain if "Server().join()" in use.name]
    if "Server" not in program.words:
        message = f"the program never starts a server, but the tasks of {tasks} need one"
        hint = "where the task is one of these, run tf.distribute.Server(...).join()"
        yield imports["tensorflow"].mark.problem(message, hint)
    elif not joins and not program.words & _WAITS:
        message = f"the program never waits at its server: the tasks of {tasks} end at once"
        yield (started or [imports["tensorflow"]])[0].mark.problem(message, "call join() of it")
    elif all_join and program.words.isdisjoint(ROLES):
        message = "every task waits at its server here, also those that should train"
        hint = f"do this only where the task is a {' or '.join(serving)}"
        yield all_join[0].mark.problem(message, hint)


def unsaid_independence(program: Program, spec: Spec) -> Iterator[Problem]:
    """Without `workers`, the workers of parameter servers are servers that the chief directs."""
    use = independent_use(program)
    if use and spec.workers is None and STRATEGIES[spec.strategy].independent:
        message = "is for workers that train by themselves, and the spec does not say that these do"
        hint = "write workers: independent; or, if the chief directs them, workers: coordinated"
        yield use.mark.problem(f"{short(use)} {message}", hint)


def own_port(program: Program, spec: Spec) -> Iterator[Problem]:
    """A program that listens at its address finds the port bound, unless the spec says that."""
    use = next((use for use in program.uses if use.name == "'DISTRUN_ADDRESS'"), None)
    if use and not spec.says_port:
        yield use.mark.problem(*OWN_PORT)


def imported_modules(program: Program) -> dict[str, Use]:
    """The first names of modules that are not beside the script, each where it is imported."""
    changing = ("sys.path", "sys.meta_path", "sys.modules", "site.", "pkgutil.")
    if any(use.name.startswith(changing) for use in program.uses):
        return {}
    found: dict[str, Use] = {}
    uses_keras = any(use.name.startswith("tensorflow.keras") for use in program.uses)
    for use in program.certain:
        if use.is_import and use.top not in (UNKNOWN, *program.beside):
            found.setdefault(use.top, use)
        elif uses_keras and SETS_KERAS_2.search(use.module.lines[use.node.lineno - 1]):
            found.setdefault("tf_keras", use)
    return found


_MISSPELT_GUARD = re.compile(r"\s*if __name__ == (['\"])(?!__main__['\"])_*main_*\1")
_MAKES_MODULES = re.compile(r"__import__|importlib|pip|protoc|runpy|subprocess|system|exec[lvpe]*")
"""Words of programs that may install a module before they import it, or change where it is."""


def missing_module(program: Program, _: Spec) -> Iterator[Problem]:
    """An import that fails ends every task at once."""
    main = program.modules["__main__"]
    own = [use for use in program.certain if use.is_import and use.module is main]
    relative = [use for use in own if use.name == UNKNOWN and "__package__" not in program.words]
    depth = max((getattr(use.node, "level", 1) for use in relative), default=1)
    *above, stem = [*program.folder.split("/"), posixpath.basename(main.shown).partition(".")[0]]
    package, name = above[-1], ".".join([*above[-depth:], stem]).removesuffix(".__main__")
    as_module = f"in {'/'.join(above[:-depth])}, run it as a module: `run -m {name}`, or module: "
    as_module += name
    for use in relative:
        message = "a script has no package, so that this relative import fails"
        yield use.mark.problem(message, as_module, is_certain=True)
    is_certain = not any(map(_MAKES_MODULES.fullmatch, program.words))
    for top, use in imported_modules(program).items():
        if top not in program.missing or any(each.endswith(f"{top}.py") for each in program.words):
            continue  # one whose file it names it may write
        near = nearest(top, program.beside - {stem})  # it does not import itself
        hint = f"did you mean {near!r}? Or install it" if near else "install it or correct its name"
        if top != package and (other := program.folder_above(top)):
            hint = f"it is in {other}: set PYTHONPATH={other}"
        packages = " ".join(sorted(PIP_NAMES & program.missing))
        hint = f"run {program.install} {packages}" if top in PIP_NAMES else hint
        if top == package and {"__init__", *use.name.split(".")[1:2]} & program.beside:
            hint = as_module
        message = f"there is no module {top!r}: neither beside the script, nor in {program.python}"
        needs = (each for each in program.run if each.name.startswith("tensorflow.keras"))
        is_sure = is_certain and (use.is_import or any(each.sure for each in needs))
        yield use.mark.problem(message, hint, is_certain=is_sure)


def hidden_package(program: Program, _: Spec) -> Iterator[Problem]:
    """Python looks beside the script first. A folder of that name may be a copy of the package."""
    for top in program.hiding:
        starts = (f"{top}.", f"tensorflow.{top}.")
        if use := next((use for use in program.certain if f"{use.name}.".startswith(starts)), None):
            message = f"{top}.py beside the script hides the package {top}"
            yield use.mark.problem(message, "rename that file")


def no_start(program: Program, _: Spec) -> Iterator[Problem]:
    """A script that only defines functions ends at once, and succeeds."""
    main = program.modules["__main__"]
    outside = main.blocks.get(None, [])
    for use in outside:
        line = main.lines[use.node.lineno - 1].decode("utf-8", "replace")
        if use.name == "builtins.__name__" and _MISSPELT_GUARD.match(line):
            message = "the __name__ of a script is '__main__': nothing of this runs"
            yield use.mark.problem(message, "write if __name__ == '__main__':")
            return
    runs = any(isinstance(use.node, ast.Call) or use.top in program.beside for use in outside)
    functions = [*main.functions.values()]
    if functions and not runs and not any(each.decorator_list for each in functions):
        first = next((each for each in functions if each.name == "main"), functions[-1])
        message = f"the script defines {first.name}() and calls nothing: a run of it does nothing"
        hint = f"end it with: if __name__ == '__main__': {first.name}()"
        yield Use(first.name, first, Sure.ALL, (), main).mark.problem(message, hint)


_KERAS = re.compile(r"(?:tensorflow\.)?keras\.(.+)")
_PATCH = re.compile(r"(?:tensorflow\.)?keras\.[^()]+=")
"""An attribute of Keras that the program sets."""
_HERE = "Keras 3, which tf.keras is here,"
_OLD_KERAS = {
    "tensorflow": ", or use Keras 2: write program.keras: 2 (or --set program.keras=2)",
    "keras": ", or use Keras 2: import tf_keras instead of keras",
}


def keras_2(program: Program, spec: Spec) -> Iterator[Problem]:
    """`tf.keras` is Keras 3 since TensorFlow 2.16, and refuses what Keras 2 took."""
    is_keras_2 = (program.keras or 2) < 3 or "TF_USE_LEGACY_KERAS" in program.words
    if is_keras_2 or any(_PATCH.fullmatch(use.name) for use in program.uses):
        return
    reported = set[str]()
    trains_together = any(use.name.endswith(f".{COLLECTIVE}()") for use in program.running)
    several = sum(role.count for role in spec.roles) > 1
    for use in program.running:
        found = _KERAS.match(use.name)
        if found is None or (use.is_import and use.functions):
            continue
        name = re.sub(r"^(models\.)?(Model|Sequential)\(\)", "Model()", found[1])
        called = name.removesuffix("()") if name.endswith("()") else ""
        key, removed = removed_by_keras_3(name, is_alone=use.top == "keras")
        refused = [each for each in use.arguments if removed and each in removed.keywords]
        if removed and (refused or (not removed.keywords and key not in reported)):
            reported.add(key)
            verb = f"take {refused[0]}= in" if refused else "have"
            shown = shown_key(key, "" if use.top == "keras" else "tf.")
            old = _OLD_KERAS[use.top] if removed.is_in_keras_2 else ""
            yield use.mark.problem(f"{_HERE} does not {verb} {shown}", f"{removed.instead}{old}")
        elif called in FILE_ENDINGS and None not in use.arguments:
            yield from _file_ending(use, called)
        elif called == "Model().fit" and several and trains_together:
            message = f"Model.fit of {_HERE} fails under {COLLECTIVE} with several workers"
            yield use.mark.problem(message, f"write a training loop{_OLD_KERAS[use.top]}")


def _file_ending(use: Use, called: str) -> Iterator[Problem]:
    """Keras 3 takes only file names with certain ends; only those in the code are known."""
    arguments = use.arguments
    only = arguments.get("save_weights_only", ast.Constant(False))
    if not isinstance(only, ast.Constant):
        return
    endings = (".weights.h5",) if only.value else FILE_ENDINGS[called]
    path = use.module.value_of(arguments.get(0, arguments.get("filepath")))
    if isinstance(path, ast.Call) and use.module.name_of(path.func) == "os.path.join":
        path = path.args[-1] if path.args else None
    if isinstance(path, ast.JoinedStr) and path.values:
        path = path.values[-1]
    end = path.value if isinstance(path, ast.Constant) else None
    if isinstance(end, str) and not any(end.endswith(e) or e.endswith(end) for e in endings):
        name, ends = called.rpartition(".")[2], " or ".join(endings)
        message = f"{name} of {_HERE} takes only names that end in {ends}"
        yield use.mark.problem(message, f"name the file so{_OLD_KERAS[use.top]}")


def short(use: Use) -> str:
    """A name as programs write it, with `tf` for tensorflow."""
    return re.sub(r"^tensorflow\b", "tf", use.name).removesuffix("()")


Rule: TypeAlias = "Callable[[Program, Spec], Iterator[Problem]]"
PROGRAM_RULES: tuple[Rule, ...] = (keras_2, missing_module, hidden_package, no_start)
"""Rules that hold for every program, whatever its role."""
RULES: tuple[Rule, ...] = (
    *(another_strategy, unused_strategy, late_strategy, another_resolver, own_cluster),
    *(servers, unsaid_independence, own_port, *PROGRAM_RULES),
)


def check(program: Program, spec: Spec, rules: tuple[Rule, ...]) -> list[Problem]:
    """The warnings of the rules in the order of files and lines: one if a rule fails, too."""
    files = [module.shown for module in program.modules.values()]
    checks = (Mark(files[0]).checked(partial(rule, program, spec)) for rule in rules)
    return sorted(
        dict.fromkeys(problem for found in checks for problem in found),
        key=lambda one: (one.line is None, files.index(one.file), one.line or 0, one.column or 0),
    )

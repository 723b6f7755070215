"""Who may import what, what may stand only in one place, and what Python 3.8 must compile.

Each rule has its reason. A rule is given a parsed module and yields what breaks it. What runs in an
interpreter of a host or of a program runs on Python 3.8: the agent's modules, and the probe of a
program's interpreter. The payload itself runs there in tests/process/agent.
"""

from __future__ import annotations

import ast
import functools
import gc
import graphlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from distrun.strategies import STRATEGIES
from harness.requirements import skip

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "launcher"
PACKAGE = LAUNCHER / "distrun"

AGENT_FOR_THE_LAUNCHER = ("distrun.agent.protocol", "distrun.agent.linux", "distrun.agent.loop")
"""What both ends of a link speak, what both need of Linux, and how both wait."""
FOR_TYPES_ALONE = {"typing_extensions"}
PURE = {
    *("distrun.advice", "distrun.plan", "distrun.preflight", "distrun.lifecycle"),
    *("distrun.job.printed_progress", "distrun.job.progress_lines", "distrun.strategies"),
    "distrun.job.timing",
    *("distrun.report.outliers", "distrun.report.series", "distrun.verdict"),
    *("distrun.lint.module", "distrun.lint.rules"),
}
PURE_STDLIB = {
    *("__future__", "abc", "ast", "base64", "bisect", "collections", "contextlib", "copy"),
    *("dataclasses", "difflib", "enum", "errno", "fnmatch"),
    *("functools", "heapq", "ipaddress", "itertools", "json", "math", "operator"),
    *("posixpath", "re", "shlex", "statistics", "string", "struct", "textwrap", "types", "typing"),
    "zlib",
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
NEWER_THAN_3_8 = {"graphlib", "tomllib", "zoneinfo", "annotationlib", "compression"}
JOBS_FILES = {"batch.json", "events.jsonl", "plan.json", "spec.yaml"}
STRATEGY_NAMES = set(STRATEGIES) - {"default"}  # an everyday word


@dataclass(frozen=True)
class Module:
    name: str
    tree: ast.Module
    is_package: bool = False
    siblings: frozenset[str] = frozenset()
    """Names of all modules, to tell `from package import module` from a name in it."""

    def within(self, *packages: str) -> bool:
        return within(self.name, *packages)

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return [*ast.walk(self.tree)]

    @functools.cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Return (line, dotted name) of every import, wherever it stands in the module."""
        return [found for node in self.nodes for found in self._imported_by(node)]

    @functools.cached_property
    def lines_for_types(self) -> set[int]:
        """Lines that run for type checkers alone."""
        return {
            line
            for node in self.nodes
            if isinstance(node, ast.If) and dotted(node.test) == "TYPE_CHECKING"
            for inside in node.body
            for line in range(inside.lineno, (inside.end_lineno or inside.lineno) + 1)
        }

    def _imported_by(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = self._origin(node)
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                yield node.lineno, inner if inner in self.siblings else origin

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def texts(self) -> Iterator[tuple[int, str]]:
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value


def called(node: ast.Call) -> str:
    return dotted(node.func)


def dotted(node: ast.AST) -> str:
    """Return a name with its attributes; of anything else, only the attributes."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def top(name: str) -> str:
    return name.partition(".")[0]


Violation = tuple[int, str]
Rule = Callable[[Module], Iterator[Violation]]


def within(name: str, *packages: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def is_foreign_to_the_agent(name: str) -> bool:
    is_standard = top(name) in sys.stdlib_module_names and top(name) not in NEWER_THAN_3_8
    return not (within(name, "distrun.agent") or is_standard)


HEAVY = {"tensorflow", "tf_keras", "keras", "numpy", "matplotlib", "launcher"}
BORDERS: tuple[tuple[str, str, tuple[str, ...], Callable[[str], bool]], ...] = (
    ("It is sent to hosts that have only sshd and a python3, perhaps 3.8.",
     "distrun.agent", (), is_foreign_to_the_agent),
    ("The agent is a process, here and elsewhere: it is started, not imported.",
     "distrun", ("distrun.agent",),
     lambda name: within(name, "distrun.agent") and not within(name, *AGENT_FOR_THE_LAUNCHER)),
    ("Any TensorFlow script runs unchanged, so those that come with distrun are such.",
     "jobs", (), lambda name: top(name) == "distrun"),
    ("Commands stand on all else, and nothing on them.",
     "distrun", ("distrun.cli", "distrun.__main__"), lambda name: within(name, "distrun.cli")),
    ("Only commands write in colour.",
     "distrun", ("distrun.cli", "distrun.job.status_view", "distrun.words.table"),
     lambda name: top(name) == "rich"),
    ("One screen needs it.", "distrun", ("distrun.cli.watch_screen",),
     lambda name: top(name) == "textual"),
    ("Only reports have templates.", "distrun", ("distrun.report",),
     lambda name: top(name) == "jinja2"),
    ("Everything but the programs themselves works without it.", "distrun", (),
     lambda name: top(name) in HEAVY),
)  # fmt: skip
"""Why, in which modules but those, and what they do not import."""
ONE_PLACE: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("What a strategy means stands in one table; code elsewhere asks the table.",
     "distrun.strategies", lambda text: text in STRATEGY_NAMES),
    ("Where a job's files are is one module's knowledge.",
     "distrun.job.folder", lambda text: text.rpartition("/")[2] in JOBS_FILES),
)  # fmt: skip
"""Why, the only module, and the texts that stand there."""


def modules_keep_to_their_borders(module: Module) -> Iterator[Violation]:
    """Who may import what."""
    for why, inside, places, is_forbidden in BORDERS:
        if module.within(inside) and not module.within(*places):
            for line, name in module.imports:
                for_types = top(name) in FOR_TYPES_ALONE and line in module.lines_for_types
                if is_forbidden(name) and not for_types:
                    yield line, f"imports {name}. {why}"


def texts_stand_in_one_place(module: Module) -> Iterator[Violation]:
    """Names that only one module knows."""
    for why, place, is_its in ONE_PLACE:
        if module.within("distrun") and not module.within(place):
            yield from ((line, f"names {text}. {why}") for line, text in module.texts()
                        if is_its(text))  # fmt: skip


def only_the_command_line_exits(module: Module) -> Iterator[Violation]:
    """Everything else raises an error of distrun.errors; one place makes it an exit code."""
    if not module.within("distrun") or module.within("distrun.cli", "distrun.__main__"):
        return
    entries = [node for node in module.tree.body if isinstance(node, ast.If)]
    entry = {inner for node in entries if "__main__" in ast.unparse(node.test)
             for inner in ast.walk(node)}  # fmt: skip
    for node in module.nodes:
        calls = isinstance(node, ast.Call) and called(node) in {"sys.exit", "exit", "quit"}
        raises = isinstance(node, ast.Raise) and "SystemExit" in ast.unparse(node)
        if (calls or raises) and node not in entry:
            yield getattr(node, "lineno", 0), f"exits: {ast.unparse(node)}"


RULES: tuple[Rule, ...] = (
    modules_keep_to_their_borders,
    texts_stand_in_one_place,
    only_the_command_line_exits,
)


def named(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> tuple[tuple[Path, Module], ...]:
    paths = [(path, named(path, LAUNCHER)) for path in sorted(PACKAGE.rglob("*.py"))]
    paths += [(path, named(path, ROOT)) for path in sorted(ROOT.joinpath("jobs").rglob("*.py"))]
    siblings = frozenset(name for _, name in paths)
    gc.disable()  # otherwise three quarters of the time would be its search in growing trees
    try:
        return tuple(
            (path, Module(name, ast.parse(path.read_text()), path.stem == "__init__", siblings))
            for path, name in paths
        )
    finally:
        gc.enable()


def all_modules() -> dict[str, Module]:
    return {module.name: module for _, module in modules() if module.within("distrun")}


def imported_at_run_time(name: str, found: dict[str, Module]) -> Iterator[str]:
    """Yield what an import of a module imports: other modules, and the packages around them.

    The imports inside a package's `__getattr__` run only when a name is first used.
    """
    module = found[name]
    body = module.tree.body
    alternatives = [node for each in body if isinstance(each, ast.If) for node in each.orelse]
    lazy = {
        line
        for node in (*body, *alternatives)
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for line, imported in module.imports:
        if line in module.lines_for_types or line in lazy:
            continue
        if imported in found:
            parts = imported.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        else:
            yield imported


def impure_imports(packages: set[str], found: dict[str, Module]) -> list[str]:
    """List the ways by which some packages import what is not pure, at any distance."""
    ways = {name: name for name, module in found.items() if module.within(*packages)}
    left, impure = list(ways), []
    while left:
        name = left.pop()
        calls = (each for each in found[name].nodes if isinstance(each, ast.Call))
        impure += [f"{ways[name]}: {called(e)}()" for e in calls if called(e) in IMPURE_CALLS]
        for imported in imported_at_run_time(name, found):
            if imported in found and imported not in ways:
                ways[imported] = f"{ways[name]} -> {imported}"
                left.append(imported)
            elif imported not in found and top(imported) not in PURE_STDLIB:
                impure.append(f"{ways[name]} -> {imported}")
    return sorted(impure)


def test_pure_packages_import_nothing_impure_at_any_distance() -> None:
    impure = impure_imports({*PURE, "distrun.job.events"}, all_modules())
    assert not impure, "\n".join(impure)


def import_graph(found: dict[str, Module]) -> dict[str, set[str]]:
    """The modules that each module imports, with the packages around those, which run first."""
    graph: dict[str, set[str]] = {}
    for name, module in found.items():
        own = {name, *packages_around(name)}
        direct = {imported for _, imported in module.imports if imported in found}
        around = {each for imported in direct for each in packages_around(imported)}
        graph[name] = (direct - {name}) | ((around & found.keys()) - own)
    return graph


def packages_around(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def test_modules_import_each_other_in_no_circle_also_not_for_types() -> None:
    graphlib.TopologicalSorter(import_graph(all_modules())).prepare()


def test_no_module_breaks_a_rule() -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{line}: {what}: {rule.__doc__}"
        for path, module in modules()
        for rule in RULES
        for line, what in rule(module)
    ]
    assert not broken, "\n".join(broken)


# What is sent -------------------------------------------------------------------------------------


PROBE = PACKAGE / "spec" / "interpreter_probe.py"


@functools.cache
def python_of(version: str) -> str:
    """The path of such a Python, as scripts/pythons.sh finds it; skips where there is none."""
    asked = ["sh", str(ROOT / "scripts" / "pythons.sh"), version]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return found.rstrip("\n").partition(" ")[2] or skip(
        f"there is no Python {version}", f"pyenv install {version}"
    )


def test_python_3_8_compiles_what_hosts_and_interpreters_are_sent() -> None:
    paths = [PROBE, *sorted(PACKAGE.joinpath("agent").rglob("*.py"))]
    code = "import pathlib, sys\nfor path in map(pathlib.Path, sys.argv[1:]):\n"
    code += "    compile(path.read_bytes(), str(path), 'exec', dont_inherit=True)"
    argv = [python_of("3.8"), "-W", "error", "-c", code, *map(str, paths)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_launch_loads_for_its_last_lines_only_what_they_need() -> None:
    code = f"import sys; sys.path.insert(0, {str(LAUNCHER)!r})\n"
    code += "import distrun.job.session, distrun.job.end_report\nprint(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-B", "-c", code], text=True).split())
    assert "distrun.job.job" in loaded, "nothing was measured"
    assert not loaded & {"distrun.redaction", "html", "rich"}

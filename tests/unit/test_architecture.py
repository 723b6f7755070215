"""Who may import what, what may stand only in one place, and what Python 3.8 must compile.

Each rule has its reason. What runs in an interpreter of a host or of a program runs on Python 3.8:
the agent's modules, and the probe of a program's interpreter. The payload itself runs there in
tests/process/agent.
"""

import ast
import functools
import gc
import graphlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.parts.top import STRATEGIES
from harness.processes import captured
from harness.requirements import skip

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "launcher"
PACKAGE = LAUNCHER / "distrun"

AGENT_FOR_THE_LAUNCHER = ("distrun.agent.protocol", "distrun.agent.linux", "distrun.agent.loop")
"""What both ends of a link speak, what both need of Linux, and how both wait."""
PURE = {
    *("distrun.advice", "distrun.plan", "distrun.preflight", "distrun.lifecycle"),
    *("distrun.job.printed_progress", "distrun.job.progress_lines", "distrun.strategies"),
    "distrun.job.timing", *("distrun.report.outliers", "distrun.report.series", "distrun.verdict"),
    *("distrun.lint.module", "distrun.lint.rules"),
}  # fmt: skip
PURE_STDLIB = {
    *("__future__", "abc", "ast", "base64", "bisect", "collections", "contextlib", "copy"),
    *("dataclasses", "difflib", "enum", "errno", "fnmatch"),
    *("functools", "heapq", "ipaddress", "itertools", "json", "math", "operator"),
    *("posixpath", "re", "shlex", "statistics", "string", "struct", "textwrap", "types", "typing"),
    *("unicodedata", "zlib"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
NEWER_THAN_3_8 = {"graphlib", "tomllib", "zoneinfo", "annotationlib", "compression"}
JOBS_FILES = {"batch.json", "events.jsonl", "plan.json", "spec.yaml"}
STRATEGY_NAMES = set(STRATEGIES) - {"default"}  # an everyday word


@dataclass(frozen=True)
class Module:
    path: Path
    name: str
    tree: ast.Module
    siblings: frozenset[str]
    """Names of all modules, to tell `from package import module` from a name in it."""

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return [*ast.walk(self.tree)]

    @functools.cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Return (line, dotted name) of every import, wherever it stands in the module."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{self.path}:{node.lineno} is relative"
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = (each if each in self.siblings else node.module or "" for each in inner)
                found += [(node.lineno, name) for name in names]
        return found

    @functools.cached_property
    def lines_for_types(self) -> set[int]:
        """Lines that run for type checkers alone."""
        blocks = (each for each in self.nodes if isinstance(each, ast.If))
        return lines(
            n for each in blocks if dotted(each.test) == "TYPE_CHECKING" for n in each.body
        )

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


def lines(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for each in nodes for line in range(each.lineno, (each.end_lineno or 0) + 1)}


def dotted(node: ast.AST) -> str:
    """Return a name with its attributes; of anything else, only the attributes."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def top(name: str) -> str:
    return name.partition(".")[0]


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


@functools.cache
def modules() -> tuple[Module, ...]:
    roots = ((PACKAGE, LAUNCHER), (ROOT / "jobs", ROOT))
    paths = {path: path.relative_to(root).with_suffix("").parts
             for folder, root in roots for path in sorted(folder.rglob("*.py"))}  # fmt: skip
    names = {path: ".".join(parts).removesuffix(".__init__") for path, parts in paths.items()}
    siblings = frozenset(names.values())
    gc.disable()  # otherwise three quarters of the time would be its search in growing trees
    try:
        return tuple(
            Module(path, name, ast.parse(path.read_text()), siblings)
            for path, name in names.items()
        )
    finally:
        gc.enable()


def of_distrun(*others: str) -> dict[str, Module]:
    """The modules of distrun but those within others."""
    return {
        each.name: each
        for each in modules()
        if within(each.name, "distrun") and not within(each.name, *others)
    }


def test_modules_keep_to_their_borders() -> None:
    broken = [
        f"{module.at(line)} imports {name}. {why}"
        for why, inside, places, is_forbidden in BORDERS
        for module in modules()
        if within(module.name, inside) and not within(module.name, *places)
        for line, name in module.imports
        if is_forbidden(name)
        and not (top(name) == "typing_extensions" and line in module.lines_for_types)
    ]
    assert not broken, "\n".join(broken)


def test_texts_stand_in_one_place() -> None:
    broken = [
        f"{module.at(node.lineno)} names {node.value}. {why}"
        for why, place, is_its in ONE_PLACE
        for module in of_distrun(place).values()
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_its(node.value)
    ]
    assert not broken, "\n".join(broken)


def test_tests_take_the_launchers_code_from_one_place() -> None:
    """So what is moved or renamed changes `tests/harness/parts`, and no test."""
    tests = (each for each in (ROOT / "tests").rglob("*.py") if "harness" not in each.parts)
    taken = re.compile(r"(?m)^(?:from|import) distrun\.(?!__)")
    assert not [each for each in tests if taken.search(each.read_text())]


def test_only_the_command_line_exits() -> None:
    """Everything else raises an error of distrun.errors; one place makes it an exit code."""
    for module in of_distrun("distrun.cli", "distrun.__main__").values():
        blocks = [each for each in module.tree.body if isinstance(each, ast.If)]
        entry = lines(each for each in blocks if "__main__" in ast.unparse(each.test))
        for node in module.nodes:
            calls = isinstance(node, ast.Call) and dotted(node.func) in {"sys.exit", "exit", "quit"}
            raises = isinstance(node, ast.Raise) and "SystemExit" in ast.unparse(node)
            line = getattr(node, "lineno", 0)
            assert not (calls or raises) or line in entry, module.at(line)


def imported_at_run_time(module: Module) -> Iterator[str]:
    """Yield what an import of a module imports: other modules, and the packages around them.

    The imports inside a package's `__getattr__` run only when a name is first used.
    """
    functions = (each for each in module.nodes if isinstance(each, ast.FunctionDef))
    lazy = lines(each for each in functions if each.name == "__getattr__")
    for line, imported in module.imports:
        if line not in module.lines_for_types | lazy:
            yield imported
            yield from packages_around(imported) if imported in module.siblings else ()


def packages_around(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def test_pure_packages_import_nothing_impure_at_any_distance() -> None:
    found = of_distrun()
    ways = {name: name for name in found if within(name, *PURE, "distrun.job.events")}
    left, impure = list(ways), []
    while left:
        name = left.pop()
        calls = [dotted(each.func) for each in found[name].nodes if isinstance(each, ast.Call)]
        impure += [f"{ways[name]}: {call}()" for call in calls if call in IMPURE_CALLS]
        for imported in imported_at_run_time(found[name]):
            if imported in found and imported not in ways:
                ways[imported] = f"{ways[name]} -> {imported}"
                left.append(imported)
            elif imported not in found and top(imported) not in PURE_STDLIB:
                impure.append(f"{ways[name]} -> {imported}")
    assert not impure, "\n".join(impure)


def test_modules_import_each_other_in_no_circle_also_not_for_types() -> None:
    """With the packages around them, which run first."""
    found = of_distrun()
    graph: dict[str, set[str]] = {}
    for name, module in found.items():
        direct = {imported for _, imported in module.imports if imported in found}
        around = {each for imported in direct for each in packages_around(imported)}
        graph[name] = (direct - {name}) | (around - {name, *packages_around(name)})
    graphlib.TopologicalSorter(graph).prepare()


# What is sent -------------------------------------------------------------------------------------


PROBE = PACKAGE / "spec" / "interpreter_probe.py"


@functools.cache
def python_of(version: str) -> str:
    """The path of such a Python, as scripts/pythons.sh finds it; skips where there is none."""
    asked = ["sh", str(ROOT / "scripts" / "pythons.sh"), version]
    found = captured(asked, check=True).stdout
    return found.rstrip("\n").partition(" ")[2] or skip(
        f"there is no Python {version}", f"pyenv install {version}"
    )


def test_python_3_8_compiles_what_hosts_and_interpreters_are_sent() -> None:
    paths = [PROBE, *sorted(PACKAGE.joinpath("agent").rglob("*.py"))]
    code = "import pathlib, sys\nfor path in map(pathlib.Path, sys.argv[1:]):\n"
    code += "    compile(path.read_bytes(), str(path), 'exec', dont_inherit=True)"
    argv = [python_of("3.8"), "-W", "error", "-c", code, *map(str, paths)]
    done = captured(argv)
    assert done.returncode == 0, done.stderr


def test_a_launch_loads_for_its_last_lines_only_what_they_need() -> None:
    code = f"import sys; sys.path.insert(0, {str(LAUNCHER)!r})\n"
    code += "import distrun.job.session, distrun.job.end_report\nprint(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-B", "-c", code], text=True).split())
    assert "distrun.job.job" in loaded, "nothing was measured"
    assert not loaded & {"distrun.redaction", "html", "rich"}


def test_what_make_mutants_changes_is_there() -> None:
    named = re.findall(r'"(launcher/[^"]+)"', (ROOT / "scripts" / "mutants.py").read_text())
    assert named
    assert [each for each in named if not (ROOT / each).exists()] == []

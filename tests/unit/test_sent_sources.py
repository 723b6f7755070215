"""Everything that runs in an interpreter of a host or of a program runs on Python 3.8.

That is the agent's modules, modules that are run by their file, and texts that are Python
programs. The payload itself runs there in tests/process/agent.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from harness.requirements import skip

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "launcher"
PACKAGE = LAUNCHER / "distrun"
PROBE = PACKAGE / "lint" / "probe.py"


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in PACKAGE.rglob("*.py")]


def run_by_file() -> Iterator[tuple[str, str]]:
    """Modules that another module starts by their file: `[python, probe.__file__]`."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr == "__file__"
                and isinstance(node.value, ast.Name)
                and node.value.id not in {"os", "sys"}
            ):
                [found] = PACKAGE.rglob(f"{path.parent.name}/{node.value.id}.py")
                yield str(found.relative_to(LAUNCHER)), found.read_text()


def programs_in_texts() -> Iterator[tuple[str, str]]:
    """Texts that are whole Python programs, for `python -c` or an interpreter's input."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if re.search(r"(^|[;\n])(import|from) \w", text) and is_python(text):
                    yield f"{path.relative_to(LAUNCHER)}:{node.lineno}", text


def is_python(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(each, (ast.Import, ast.ImportFrom)) for each in tree.body)


def agent_modules() -> Iterator[tuple[str, str]]:
    for path in PACKAGE.joinpath("agent").rglob("*.py"):
        yield str(path.relative_to(LAUNCHER)), path.read_text()


@cache
def sources() -> dict[str, str]:
    """All of them. Not made while tests are collected: every pytest process does that."""
    finders = (run_by_file, programs_in_texts, agent_modules)
    return {name: text for find in finders for name, text in find()}


def python_of(version: str) -> str:
    """The path of such a Python, as scripts/pythons.sh finds it; skips where there is none."""
    asked = ["sh", str(ROOT / "scripts" / "pythons.sh"), version]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return found.rstrip("\n").partition(" ")[2] or skip(
        f"there is no Python {version}", f"pyenv install {version}"
    )


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_a_real_one_compiles_it(version: str) -> None:
    code = (
        "import json, sys\n"
        "for name, text in json.load(sys.stdin).items():\n"
        "    compile(text, name, 'exec', dont_inherit=True)\n"
    )
    python = python_of(version)
    done = subprocess.run(
        [python, "-W", "error", "-c", code],
        input=json.dumps(sources()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", ["3.8", "3.9", "own"])
def test_the_probe_answers(version: str, tmp_path: Path) -> None:
    python = sys.executable if version == "own" else python_of(version)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import json\nprint 'x'\n")
    asked = {"names": ["json", "no_such_module"], "files": [str(wrong)], "folder": str(tmp_path)}
    done = subprocess.run(
        [python, "-W", "error", str(PROBE)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["missing"] == ["no_such_module"]
    assert answer["errors"][str(wrong)][0] == 2
    assert version == "own" or answer["python"].startswith(f"{version}.")

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
from functools import cache
from pathlib import Path

import pytest

from harness.requirements import skip

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "launcher"
PACKAGE = LAUNCHER / "distrun"
PROBE = PACKAGE / "spec" / "interpreter_probe.py"


IMPORTS = re.compile(r"(^|[;\n])(import|from) \w")


def is_program(text: object) -> bool:
    """Whether it is the text of a whole Python program, for `python -c` or an interpreter."""
    if not isinstance(text, str) or IMPORTS.search(text) is None:
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(each, (ast.Import, ast.ImportFrom)) for each in tree.body)


def module_run_by_its_file(node: ast.AST, beside: Path) -> Path | None:
    """Return the module that `[python, probe.__file__]` starts."""
    if not (isinstance(node, ast.Attribute) and node.attr == "__file__"):
        return None
    if not isinstance(node.value, ast.Name) or node.value.id in {"os", "sys"}:
        return None
    [found] = PACKAGE.rglob(f"{beside.name}/{node.value.id}.py")
    return found


@cache
def sources() -> dict[str, str]:
    """All of them. Not made while tests are collected: every pytest process does that."""
    texts = {}
    for path in PACKAGE.rglob("*.py"):
        name, text = str(path.relative_to(LAUNCHER)), path.read_text()
        if PACKAGE / "agent" in path.parents:
            texts[name] = text
        for node in ast.walk(ast.parse(text)):
            module = module_run_by_its_file(node, path.parent)
            if module is not None:
                texts[str(module.relative_to(LAUNCHER))] = module.read_text()
            elif isinstance(node, ast.Constant) and is_program(node.value):
                texts[f"{name}:{node.lineno}"] = str(node.value)
    return texts


def python_of(version: str) -> str:
    """The path of such a Python, as scripts/pythons.sh finds it; skips where there is none."""
    asked = ["sh", str(ROOT / "scripts" / "pythons.sh"), version]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return found.rstrip("\n").partition(" ")[2] or skip(
        f"there is no Python {version}", f"pyenv install {version}"
    )


def run(python: str, argv: list[str], asked: object) -> str:
    done = subprocess.run(
        [python, "-W", "error", *argv],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_a_real_one_compiles_it(version: str) -> None:
    code = (
        "import json, sys\n"
        "for name, text in json.load(sys.stdin).items():\n"
        "    compile(text, name, 'exec', dont_inherit=True)\n"
    )
    run(python_of(version), ["-c", code], sources())


@pytest.mark.parametrize("version", ["3.8", "3.9", "own"])
def test_the_probe_answers(version: str, tmp_path: Path) -> None:
    python = sys.executable if version == "own" else python_of(version)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import json\nprint 'x'\n")
    asked = {"names": ["json", "no_such_module"], "files": [str(wrong)], "folder": str(tmp_path)}
    answer = json.loads(run(python, [str(PROBE)], asked))
    assert answer["missing"] == ["no_such_module"]
    assert answer["errors"][str(wrong)][0] == 2
    assert version == "own" or answer["python"].startswith(f"{version}.")

"""The pages are true: every block of code is run, validated, or marked with a reason why not.

The HTML comment on the line before a fenced block says what is done with it:

- `file: NAME`: written to NAME in one folder, beside the others of its document; a YAML file is
  validated, as by the command and against the schema.
- `run: NAME`: run by bash in that folder; a command that fails fails the test.
- `output: NAME`: each line is shown by the block `run: NAME`, in any order.
- `copy of: PATH`: the text of that file; of a YAML file, without its comments.
- `run by: make`: each line is a target of the Makefile; CI runs those.
- `run by: PATH`: that file of the tests runs it.
- `not run: REASON`.

Before a table, `commands`: it lists every command, as test_help.py checks; `map`: its paths are the
code's.
"""

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
import yaml

import distrun as package
from harness.command import write_program
from harness.parts.settings import json_schema
from harness.preloaded import PreloadedPython
from harness.processes import captured

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".venv", ".git", "node_modules", "build", "dist", ".pytest_cache"}
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")


class Yaml12(yaml.SafeLoader):
    """Reads `on` and `off` as text, as YAML 1.2 does; of YAML 1.1, PyYAML's, they are booleans."""


Yaml12.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class Block:
    path: Path
    line: int
    kind: str
    name: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED and "venv" not in name]
        found += [Path(folder, name) for name in files if name.endswith(".md")]
    return sorted(found)


def blocks_of(path: Path, text: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(text):
        kind, _, name = (match["mark"] or "").partition(": ")
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(path, line, kind, name, match["language"], match["text"]))
    return found


BLOCKS = [block for path in documents() for block in blocks_of(path, path.read_text())]


def those(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]


def section(text: str, mark: str) -> list[list[str]]:
    rows = []
    for line in text.partition(f"<!-- {mark} -->\n")[2].splitlines():
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert len(rows) > 2, f"no table after <!-- {mark} -->"
    return rows[2:]


def write_files(block: Block, folder: Path) -> None:
    for shown in those("file"):
        if shown.path == block.path:
            folder.joinpath(shown.name).write_text(shown.text)


DISTRUN = """\
#!/bin/sh
if [ "$1" = launch ] || [ "$1" = run ]; then
  command=$1; shift; set -- $command --set program.python={tasks} "$@"
fi
exec {python} -m distrun "$@"
"""


def run(block: Block, folder: Path, tasks: str) -> str:
    """Run a block as it is shown; `tasks` is the Python interpreter of scripts and of tasks."""
    tools = folder / ".bin"
    tools.mkdir()
    (tools / "python").symlink_to(tasks)
    tool = tools / "distrun"
    write_program(
        tool, DISTRUN.format(python=shlex.quote(sys.executable), tasks=shlex.quote(tasks))
    )
    done = captured(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        errors="replace",
        timeout=280,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_block_says_what_becomes_of_it() -> None:
    kinds = {"file", "run", "output", "copy of", "run by", "not run"}
    unknown = [str(b) for b in BLOCKS if b.kind not in kinds or not b.name]
    assert not unknown, f"blocks without a known mark: {', '.join(unknown)}"
    assert {"sh", "yaml"} <= {block.language for block in BLOCKS}
    assert all(b.language == "sh" for b in those("run"))
    runs = {b.name for b in those("run")}
    assert {b.name for b in those("output")} <= runs
    fences = sum(path.read_text().count("\n```") for path in documents())
    assert fences == 2 * len(BLOCKS), "a fence that is not read as a block"


def test_a_copy_is_that_of_its_file() -> None:
    for block in those("copy of"):
        text = ROOT.joinpath(block.name).read_text()
        if block.language == "yaml":
            assert yaml.safe_load(block.text) == yaml.safe_load(text), block
        else:
            assert block.text == text, block


def test_yaml_is_valid(tmp_path: Path) -> None:
    schema = json_schema()
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    for number, block in enumerate(those("file")):
        if block.name.endswith(".yaml"):
            folder = tmp_path / str(number)
            folder.mkdir()
            write_files(block, folder)
            package.load(folder / block.name)
            validator(schema).validate(yaml.load(block.text, Yaml12))


@pytest.mark.e2e
@pytest.mark.usefixtures("distrun_home")
@pytest.mark.parametrize("block", those("run"), ids=lambda block: f"{block}-{block.name}")
def test_shown_commands_do_what_is_shown(
    block: Block, tmp_path: Path, preloaded: PreloadedPython
) -> None:
    write_files(block, tmp_path)
    stdout = run(block, tmp_path, preloaded.interpreter)
    for shown in those("output"):
        if shown.name == block.name:
            for line in shown.text.splitlines():
                assert line in stdout.splitlines(), f"{shown}: not shown: {line}\n{stdout}"


def test_the_map_is_the_codes() -> None:
    rows = section(ROOT.joinpath("CONTRIBUTING.md").read_text(), "map")
    listed = {row[0].strip("`") for row in rows}
    gone = [path for path in listed if not ROOT.joinpath(path).exists()]
    assert not gone, f"on the map, but not there: {gone}"
    package = ROOT / "launcher" / "distrun"
    modules = {
        f"launcher/distrun/{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in package.iterdir()
        if entry.suffix == ".py" or entry.joinpath("__init__.py").is_file()
    }
    missing = modules - listed - {"launcher/distrun/__init__.py"}
    assert not missing, f"not on the map: {missing}"


def test_relative_links_lead_somewhere() -> None:
    links = [
        (path, match)
        for path in documents()
        for match in LINK.finditer(BLOCK.sub("", path.read_text()))
    ]
    for path, match in links:
        target, _, fragment = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = path.parent / target if target else path
        assert there.exists(), f"{path.name}: {match['target']}"
        if fragment and there.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert fragment in anchors, f"{path.name}: {match['target']}"

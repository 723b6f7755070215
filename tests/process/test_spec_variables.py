"""`${NAME}` in values of the spec, what nothing expands, and programs that are not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from distrun.spec.loader import load
from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until


def write(folder: Path, **keys: Any) -> Path:
    job = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 1}, **keys}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def test_variables_in_values(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        name="${WHO}-job",
        cluster={"worker": "${COUNT}"},
        program={
            "command": ["echo", "${A}", "x${A}${B}y", "$${A}", "$A", "${A:-b}", "${EMPTY}"],
            "args": ["--dir=${A}/data"],
            "env": {"DIR": "${A}"},
        },
    )
    path.write_text(path.read_text().replace("'${COUNT}'", "${COUNT}"))
    environ = {"WHO": "me", "COUNT": "3", "A": "/a b", "B": "'", "EMPTY": ""}
    spec = load(path, environ=environ)
    assert spec.name == "me-job"
    assert [role.count for role in spec.roles] == [3]
    words = ["echo", "/a b", "x/a b'y", "${A}", "$A", "${A:-b}", ""]
    assert list(spec.program.argv) == words
    assert spec.program.args == ("--dir=/a b/data",)
    assert spec.program.env == {"DIR": "/a b"}
    assert "/a b" not in spec.source


def test_an_unset_variable_is_an_error_at_its_place(distrun: Distrun) -> None:
    path = distrun.cwd / "job.yaml"
    path.write_text(
        "strategy: default\nprogram:\n  command: [echo, '${NO_SUCH_A}']\n"
        "  args: [x, '${NO_SUCH_B}']\n"
    )
    for command in ("validate", "launch"):
        done = distrun(command, "job.yaml")
        assert done.returncode == 65
        first, second = done.stderr.splitlines()
        assert first.startswith("job.yaml:3:19: the variable 'NO_SUCH_A' is not set here; set it")
        assert second.startswith("job.yaml:4:13: the variable 'NO_SUCH_B' is not set here")
    path.write_text(path.read_text() + "vars: off\n")
    assert distrun("launch", "job.yaml").stdout.endswith("| ${NO_SUCH_A} x ${NO_SUCH_B}\n")
    path.write_text(path.read_text().replace("vars: off", "vars: maybe"))
    assert "unknown vars 'maybe'" in distrun("validate", "job.yaml").stderr


UNCHANGED = ("5$", "a~b", "$NO_SUCH_VARIABLE")


def test_what_nothing_expands_is_warned_of(distrun: Distrun, terminal: OpenTerminal) -> None:
    (distrun.cwd / "train.py").write_text("pass\n")
    program = {
        "script": "train.py",
        "args": ["--data", "$HOME/data", "--out=~/out", "~", *UNCHANGED, "--lr 0.1"],
        "env": {"CACHE": "~/cache", "PRICE": "$5"},
    }
    write(distrun.cwd, program=program)
    window = terminal("validate", "job.yaml", columns=200)
    wait_until(window.ended)
    warnings = [line for line in window.text().splitlines() if ": warning: " in line]
    keys = [line.partition(":")[0] for line in warnings]
    assert keys == [*["program.args"] * 4, "program.env.CACHE"]
    assert "'--lr 0.1' is one argument; write --lr, 0.1" in window.text()
    assert "nothing expands the '$HOME' in '$HOME/data'" in window.text()
    assert "${HOME}" in window.text()
    assert distrun("validate", "--strict", "job.yaml").returncode == 65
    assert "nothing expands" in distrun("launch", "job.yaml").stderr
    shell = {"command": ["sh", "-c", "echo $HOME ~", "$HOME"], "args": ["$HOME"]}
    write(distrun.cwd, program=shell)
    assert "nothing expands" not in distrun("validate", "job.yaml").stderr


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ({"command": ["no-such-program"]}, "program.command: there is no program"),
        ({"script": "t.py", "python": "python9.9"}, "program.python: there is no program"),
    ],
)
def test_what_is_not_there_is_known_before_a_launch(
    distrun: Distrun, program: dict[str, Any], words: str
) -> None:
    (distrun.cwd / "t.py").write_text("pass\n")
    path = write(distrun.cwd, program=program)
    strict = distrun("launch", "--strict", path)
    assert strict.returncode == 65
    assert words in strict.stderr
    assert json.loads(distrun("ps", "-a", "--json").stdout)["jobs"] == [], "nothing was launched"
    validated = distrun("validate", path)
    assert validated.returncode == 0
    for done in (validated, distrun("launch", path)):
        assert words in done.stderr.replace(": warning: ", ": ")

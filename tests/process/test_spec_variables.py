"""`${NAME}` in values of the spec, what nothing expands, and programs that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    words = ["echo", "x${A}${B}y", "$${A}", "$A", "${A:-b}", "${EMPTY}"]
    program = {"command": words, "args": ["--dir=${A}/data"], "env": {"DIR": "${A}"}}
    path = write(tmp_path, name="${WHO}-job", cluster={"worker": "${COUNT}"}, program=program)
    path.write_text(path.read_text().replace("'${COUNT}'", "${COUNT}"))
    environ = {"WHO": "me", "COUNT": "3", "A": "/a b", "B": "'", "EMPTY": ""}
    spec = load(path, environ=environ)
    assert (spec.name, [role.count for role in spec.roles]) == ("me-job", [3])
    assert list(spec.program.argv) == ["echo", "x/a b'y", "${A}", "$A", "${A:-b}", ""]
    assert (spec.program.args, spec.program.env) == (("--dir=/a b/data",), {"DIR": "/a b"})
    assert "/a b" not in spec.source


def test_an_unset_variable_is_an_error_at_its_place(distrun: Distrun) -> None:
    path = distrun.cwd / "job.yaml"
    path.write_text("strategy: default\nprogram:\n  command: [echo, '${NO_SUCH_A}']\n")
    for command in ("validate", "launch"):
        done = distrun(command, "job.yaml")
        assert done.returncode == 65
        assert done.stderr.startswith(
            "job.yaml:3:19: the variable 'NO_SUCH_A' is not set here; set"
        )
    path.write_text(path.read_text() + "vars: off\n")
    assert distrun("launch", "job.yaml").stdout.endswith("| ${NO_SUCH_A}\n")
    path.write_text(path.read_text().replace("vars: off", "vars: maybe"))
    assert "unknown vars 'maybe'" in distrun("validate", "job.yaml").stderr


def test_what_nothing_expands_and_what_is_not_there_is_warned_of(
    distrun: Distrun, terminal: OpenTerminal
) -> None:
    (distrun.cwd / "train.py").write_text("pass\n")
    unchanged = ("5$", "a~b", "$NO_SUCH_VARIABLE")
    program = {
        "script": "train.py",
        "args": ["--data", "$HOME/data", "--out=~/out", "~", *unchanged, "--lr 0.1"],
        "env": {"CACHE": "~/cache", "PRICE": "$5"},
        "python": "python9.9",
    }
    path = write(distrun.cwd, program=program)
    window = terminal("validate", path, columns=200)
    wait_until(window.ended)
    assert window.process.returncode == 0
    text = window.text()
    keys = [line.partition(":")[0] for line in text.splitlines() if ": warning: " in line]
    assert sorted(keys) == [*["program.args"] * 4, "program.env.CACHE", "program.python"]
    assert "nothing expands the '$HOME' in '$HOME/data'" in text
    assert "there is no program" in text
    write(distrun.cwd, program={"command": ["sh", "-c", "echo $HOME ~", "$HOME"], "args": ["~"]})
    assert "warning" not in distrun("validate", path).stderr
    write(distrun.cwd, program={"command": ["no-such-program"]})
    strict = distrun("launch", "--strict", path)
    assert strict.returncode == 65
    assert "program.command: there is no program" in strict.stderr
    assert distrun.asked("ps", "-a") == "", "nothing was launched"

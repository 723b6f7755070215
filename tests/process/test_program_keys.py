"""Keys of `program` and variables in values, in real launches."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun, write_program, write_spec
from harness.parts.spec import load
from harness.terminal import OpenTerminal

SHOW = """\
import os
print(os.environ.get("TF_USE_LEGACY_KERAS"), os.environ.get("TF_CONFIG"))
print(os.environ["DISTRUN_TASK"], "TF_GRPC_REUSE_PORT" in os.environ)
"""


def write_job(distrun: Distrun, **program: Any) -> Path:
    (distrun.cwd / "train.py").write_text(SHOW)
    return distrun.write_spec("", 1, program={"script": "train.py", **program})


def test_without_tf_keras_nothing_starts(distrun: Distrun) -> None:
    python = distrun.cwd / "python3"  # it has no packages, whatever this machine has
    write_program(python, f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    packages = distrun.cwd / "packages"
    for name in ("tensorflow", "tensorflow-2.21.0.dist-info"):
        (packages / name).mkdir(parents=True)
    (packages / "tensorflow" / "__init__.py").touch()
    spec = write_job(distrun, python=str(python), keras=2, env={"PYTHONPATH": str(packages)})
    words = f"program.keras is 2, but {python} has no tf_keras"
    advice = f'install it: {python} -m pip install "tf_keras==2.21.*"'
    said = distrun.told(69, "launch", spec)
    assert words in said
    assert advice in said
    assert f"program.keras: warning: {words}; {advice}" in distrun.checked("validate", spec).stderr
    assert distrun("validate", "--strict", spec).returncode == 65
    assert '"jobs": []' in distrun.asked("ps", "-a", "--json")
    (distrun.cwd / "tf_keras.py").touch()
    assert "worker:0 | 1 {" in distrun.checked("launch", spec).stdout


def test_a_tf_config_in_env_is_refused_unless_it_is_meant(distrun: Distrun) -> None:
    spec = write_job(distrun, env={"TF_CONFIG": "{}"})
    said = distrun.told(65, "launch", spec)
    assert "program.env sets TF_CONFIG" in said
    assert "set program.tf_config to `mine`" in said
    done = distrun.checked("launch", spec, "--set", "program.tf_config=mine")
    assert "worker:0 | None {}" in done.stdout
    assert "worker:0 | worker:0 True" in done.stdout


SHOW_MEMORY = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
is_kept = libc.malloc(ctypes.c_size_t(100 << 20)) < libc.sbrk(ctypes.c_long(0))
attempt = os.environ["DISTRUN_ATTEMPT"]
print(attempt, "kept" if is_kept else "mapped", os.environ.get("GLIBC_TUNABLES"))
raise SystemExit(attempt == "0")
"""


def test_tasks_have_what_the_plan_shows(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(**memory: str) -> str:
        program = {"script": "show.py", **memory}
        distrun.write_spec("", program=program, restart={"max": 1, "backoff": "1ms"})
        tasks = json.loads(distrun("plan", "job.yaml", "--json").stdout)["plan"]["tasks"]
        values = [task["env"].get("GLIBC_TUNABLES") for task in tasks]
        assert values[0] == values[1]
        return str(values[0] or "")

    (distrun.cwd / "show.py").write_text(SHOW_MEMORY)
    assert planned(memory="system") == ""
    value = planned()
    assert f"  set    GLIBC_TUNABLES={value}\n" in distrun("plan", "job.yaml").stdout
    done = distrun.checked("launch", "job.yaml")
    for attempt in (0, 1):
        assert f"| {attempt} kept {value}\n" in done.stdout
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert planned() == ""


def test_variables_in_values(tmp_path: Path) -> None:
    words = ["echo", "x${A}${B}y", "$${A}", "$A", "${A:-b}", "${EMPTY}"]
    program = {"command": words, "args": ["--dir=${A}/data"], "env": {"DIR": "${A}"}}
    path = write_spec(
        tmp_path, "", name="${WHO}-job", cluster={"worker": "${COUNT}"}, program=program
    )
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
        assert distrun.told(65, command, "job.yaml").startswith(
            "job.yaml:3:19: the variable 'NO_SUCH_A' is not set here; set"
        )
    path.write_text(path.read_text() + "vars: off\n")
    assert distrun("launch", "job.yaml").stdout.endswith("| ${NO_SUCH_A}\n")
    path.write_text(path.read_text().replace("vars: off", "vars: maybe"))
    assert "unknown vars 'maybe'" in distrun("validate", "job.yaml").stderr


def test_what_is_not_expanded_or_not_there(distrun: Distrun, terminal: OpenTerminal) -> None:
    (distrun.cwd / "train.py").write_text("pass\n")
    unchanged = ("5$", "a~b", "$NO_SUCH_VARIABLE")
    program = {
        "script": "train.py",
        "args": ["--data", "$HOME/data", "--out=~/out", "~", *unchanged, "--lr 0.1"],
        "env": {"CACHE": "~/cache", "PRICE": "$5"},
        "python": "own",
    }
    (distrun.cwd / "own/bin/python").mkdir(parents=True)
    path = distrun.write_spec("", 1, program=program)
    window = terminal("validate", path, columns=200)
    assert window.finish() == 0
    text = window.text()
    keys = [line.partition(":")[0] for line in text.splitlines() if ": warning: " in line]
    assert sorted(keys) == [*["program.args"] * 4, "program.env.CACHE", "program.python"]
    assert "nothing expands the '$HOME' in '$HOME/data'" in text
    assert "there is no program 'own' in PATH; write own/bin/python" in text
    expanded = {"command": ["sh", "-c", "echo $HOME ~", "$HOME"], "args": ["~"]}
    distrun.write_spec("", 1, program=expanded)
    assert "warning" not in distrun("validate", path).stderr
    distrun.write_spec("", 1, program={"command": ["no-such-program"]})
    assert "program.command: there is no program" in distrun.told(65, "launch", "--strict", path)
    assert distrun.asked("ps", "-a") == "", "nothing was launched"

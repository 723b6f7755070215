"""`distrun plan --env TASK`: the lines run the task as a launch does, with any value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

SHOW = """\
import json, os, sys
json.dump([sys.argv[1:], dict(os.environ), os.getcwd()], open(os.environ["OUT"], "w"))
"""
NASTY = {
    "QUOTES": "a'b\"c`d$e\\f!g*h?i~j#k&l;m|n<o>p(q)r{s}t",
    "LINES": "one\ntwo\n\n",
    "CONTROL": "\x1b[31mred\x07\x01\r\t\x7f \u202e\x85\n",
    "FORMAT": "%s %d \\n \\033 %%",
    "EMPTY": "",
    "DASH": "-n",
    "ACCENTS": "Grüße 東京 🎉",
    "BLANKS": "  two  ",
    "odd.name-1": "it's odd",
}


def write_job(folder: Path, **program: Any) -> Path:
    (folder / "show.py").write_text(SHOW)
    (folder / "in here; it's").mkdir(exist_ok=True)
    job = {
        "name": "job",
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 2},
        "program": {
            "script": "show.py",
            "args": [*NASTY.values()],
            "env": {**NASTY, "OUT": str(folder / "out")},
            "workdir": "in here; it's",
            **program,
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def seen(folder: Path) -> tuple[list[str], dict[str, str], str]:
    args, env, cwd = json.loads((folder / "out").read_text())
    (folder / "out").unlink()
    return args, env, cwd


def in_sh(lines: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh"], input=lines, env=env, text=True, capture_output=True, check=False, timeout=60
    )


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_lines_give_the_task_what_a_launch_gives_it(distrun: Distrun, shell: str) -> None:
    addresses = ["localhost:12345", "localhost:23456"]
    spec = write_job(distrun.cwd)
    planned = distrun("plan", spec, "--env", "worker:1")
    assert planned.returncode == 0, planned.stderr
    assert "\x1b" not in planned.stdout
    assert "\x07" not in planned.stdout
    subprocess.run([shell], input=planned.stdout, text=True, check=True, cwd="/", timeout=60)
    args, env, cwd = seen(distrun.cwd)
    assert args == list(NASTY.values())
    assert {name: env[name] for name in NASTY} == NASTY
    assert cwd == str(distrun.cwd / "in here; it's")
    config = json.loads(env["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert len(config["cluster"]["worker"]) == len(addresses)
    launched = distrun("launch", spec, "--no-preflight", "--set", "cluster.worker=1")
    assert launched.returncode == 0, launched.stderr
    _, of_launch, _ = seen(distrun.cwd)
    assert of_launch.keys() - env.keys() <= {"DISTRUN_NOTIFY", "DISTRUN_TOKEN"}


def test_secrets_are_references(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hush1")
    monkeypatch.setenv("PLAIN", "hush2")
    env = {"MY_TOKEN": "hush3", "OUT": str(distrun.cwd / "out")}
    spec = write_job(distrun.cwd, pass_env=["WANDB_API_KEY", "PLAIN"], env=env)
    lines = distrun("plan", spec, "--env", "worker:0").stdout
    assert "hush" not in lines
    bare = {name: value for name, value in os.environ.items() if "hush" not in value}
    failed = in_sh(lines, bare)
    assert failed.returncode != 0
    assert "set it first" in failed.stderr
    assert not (distrun.cwd / "out").exists()
    given = {"WANDB_API_KEY": "mine 1", "PLAIN": "mine 2", "MY_TOKEN": "mine 3"}
    assert in_sh(lines, {**bare, **given}).returncode == 0
    _, seen_env, _ = seen(distrun.cwd)
    assert {name: seen_env[name] for name in given} == given


def test_several_tasks_share_one_cluster_and_pdb_is_shown(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd, args=["--epochs", "3"])
    done = distrun("plan", spec, "--env", "worker:0", "--env", "worker:1")
    configs = [line for line in done.stdout.splitlines() if line.startswith("export TF_CONFIG=")]
    clusters = {json.dumps(json.loads(line.split("'")[1])["cluster"]) for line in configs}
    assert len(configs) == 2
    assert len(clusters) == 1
    [pdb] = {line for line in done.stdout.splitlines() if " -m pdb " in line}
    command = pdb.partition("debugger: ")[2]
    one = distrun("plan", spec, "--env", "worker:0").stdout
    lines = one.splitlines()
    lines[-1] = f"printf 'c\\nq\\n' | {command}"
    ran = in_sh("\n".join(lines))
    assert "(Pdb)" in ran.stdout, ran.stderr
    assert seen(distrun.cwd)[0] == ["--epochs", "3"]


def test_wrong_usage(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd)
    done = distrun("plan", spec, "--env", "worker:2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "worker:0, worker:1" in done.stderr
    assert distrun("plan", spec, "--env", "worker:0", "--json").returncode == 2


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_the_lines_unbroken(
    distrun: Distrun, terminal: OpenTerminal, columns: int
) -> None:
    """A line that the terminal folds is copied as one."""
    spec = write_job(distrun.cwd)
    window = terminal("plan", spec, "--env", "worker:1", columns=columns)
    wait_until(window.ended)
    assert window.process.returncode == 0
    lines = window.text()
    assert "\x1b" not in lines
    assert in_sh(lines).returncode == 0
    assert seen(distrun.cwd)[0] == list(NASTY.values())


def test_a_command_is_no_builtin(distrun: Distrun) -> None:
    spec = distrun.cwd / "job.yaml"
    command = [sys.executable, "-c", "print('ran')"]
    spec.write_text(yaml.safe_dump({"strategy": "default", "program": {"command": command}}))
    lines = distrun("plan", spec, "--env", "worker:0").stdout
    done = in_sh(lines)
    assert done.stdout == "ran\n"
    spec.write_text("{strategy: default, program: {command: [echo, --version]}}")
    lines = distrun("plan", spec, "--env", "worker:0").stdout
    done = in_sh(lines)
    assert "coreutils" in done.stdout


def test_the_command_of_a_role_is_not_debugged(distrun: Distrun) -> None:
    (distrun.cwd / "train.py").write_text("")
    path = distrun.cwd / "job.yaml"
    store = {"count": 1, "command": ["kill", "-l"], "ready": "off"}
    job = {"strategy": "default", "program": {"script": "train.py"}, "cluster": {"store": store}}
    path.write_text(yaml.safe_dump(job))
    done = distrun("plan", "--env", "store:0", path)
    assert done.returncode == 0, done.stderr
    assert "debugger" not in done.stdout
    assert done.stdout.splitlines()[-1] == "env kill -l"

"""`distrun plan --env TASK`: the lines run the task as a launch does, with any value."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.command import Distrun

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


def test_the_lines_give_the_task_what_a_launch_gives_it(distrun: Distrun) -> None:
    addresses = ["localhost:12345", "localhost:23456"]
    spec = write_job(distrun.cwd)
    planned = distrun("plan", spec, "--env", "worker:1")
    assert planned.returncode == 0, planned.stderr
    assert "\x1b" not in planned.stdout
    assert "\x07" not in planned.stdout
    subprocess.run(["bash"], input=planned.stdout, text=True, check=True, cwd="/", timeout=60)
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


def test_wrong_usage(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd)
    done = distrun("plan", spec, "--env", "worker:2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "worker:0, worker:1" in done.stderr
    assert distrun("plan", spec, "--env", "worker:0", "--json").returncode == 2

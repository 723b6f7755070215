"""`distrun plan`: the text for people and the JSON for programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from distrun.plan.variables import RANKS
from harness.command import Distrun, Json

SECRETS = {
    "HF_TOKEN": "hunter2-a",
    "WANDB_API_KEY": "hunter2-b",
    "DB_PASSWORD_2": "hunter2-c",
    "MY_SECRET_THING": "hunter2-d",
}


def plan_of(distrun: Distrun, *args: str | os.PathLike[str], **options: Any) -> Json:
    done = distrun("plan", *args, "--json", **options)
    assert done.returncode == 0, done.stderr
    envelope = json.loads(done.stdout)
    assert envelope["version"] == 2
    plan: Json = envelope["plan"]
    return plan


def write(tmp_path: Path, **keys: Any) -> Path:
    document = {
        "name": "train",
        "strategy": "parameter_server",
        "cluster": {
            "chief": 1,
            "worker": {"count": 3, "args": ["--shard", "it's"]},
            "ps": {"count": 2, "env": {"ONLY_PS": "yes"}},
            "evaluator": 1,
        },
        "program": {"command": ["train", "--long", "x" * 300]},
        **keys,
    }
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def table(text: str) -> dict[str, list[str]]:
    """The cells of the table by task; those of the heading by TASK."""
    lines = text.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    return {line.split()[0]: line.split() for line in lines}


def tf_configs(text: str) -> dict[str, Json]:
    """Each task's TF_CONFIG, reassembled from the text."""
    section = text.partition("\nTF_CONFIG\n")[2].splitlines()
    ends = {}
    cluster = ""
    for line in section:
        found = re.fullmatch(r'\s+("task": .*\}\})\s+for (\S+)', line)
        if found:
            ends[found[2]] = json.loads(f"{cluster} {found[1]}")
        else:
            cluster += line
    return ends


def test_the_text_has_everything_that_the_json_has(distrun: Distrun) -> None:
    spec = write(distrun.cwd, ports={"range": "20000-29999"})
    plan = plan_of(distrun, spec)
    done = distrun("plan", spec)
    assert done.returncode == 0
    rows = table(done.stdout)
    assert [task["task"] for task in plan["tasks"]] == [
        *("chief:0", "worker:0", "worker:1", "worker:2", "ps:0", "ps:1", "evaluator:0"),
    ]
    shown = tf_configs(done.stdout)
    for task in plan["tasks"]:
        name, host, address = rows[task["task"]][:3]
        assert host == task["host"] == "localhost"
        assert (address == "none") == (task["address"] is None) == (name == "evaluator:0")
        config = shown[name]
        assert config["task"] == task["tf_config"]["task"]
        assert config["cluster"].keys() == task["tf_config"]["cluster"].keys()
        if task["address"]:
            role, _, index = name.partition(":")
            assert config["cluster"][role][int(index)] == address.rstrip("*")
        assert json.loads(task["env"]["TF_CONFIG"]) == task["tf_config"]
        assert shlex.join(task["argv"]) in done.stdout
        for variable, value in task["env"].items():
            if variable in RANKS:
                own = re.search(rf"^  (DISTRUN_RANK=.*) +for {name}$", done.stdout, re.MULTILINE)
                assert own is not None
                assert f"{variable}={value}" in own[1].split()
            elif variable == "DISTRUN_ADDRESS":
                assert value == task["address"]
                assert f"  {variable}=(each task's ADDRESS above)\n" in done.stdout
            elif variable == "DISTRUN_ADDRESSES":
                assert json.loads(value) == task["tf_config"]["cluster"]
                assert f"  {variable}=(TF_CONFIG's cluster)\n" in done.stdout
            else:
                told_otherwise = variable in ("TF_CONFIG", "DISTRUN_TASK")
                assert told_otherwise or f"  set    {variable}={value}\n" in done.stdout
    # Said once: what is the same for all; said for those alone: what is theirs.
    assert done.stdout.count("PYTHONUNBUFFERED=1") == 1
    assert "\nps:0, ps:1\n" in done.stdout
    assert "\nworker:0 to worker:2\n" in done.stdout
    long = "  (run|in|set    GLIBC_TUNABLES=)"
    short = [line for line in done.stdout.splitlines() if not re.match(long, line)]
    assert max(map(len, short)) <= 80


def test_a_plan_is_what_a_dry_run_shows_and_starts_nothing(distrun: Distrun) -> None:
    spec = write(distrun.cwd, cluster={"worker": 1}, strategy="mirrored")
    planned, dry = distrun("plan", spec), distrun("launch", "--dry-run", spec)
    assert planned.stdout == dry.stdout != ""
    assert "not set: the strategy runs in one process" in planned.stdout
    assert "unset  TF_CONFIG" in planned.stdout
    assert distrun("ps", "-a", "--json").stdout == distrun("ps", "--json").stdout
    assert plan_of(distrun, spec)["tasks"][0]["tf_config"] is None


def test_secrets_are_masked_in_output_and_real_in_the_task(distrun: Distrun) -> None:
    script = "; ".join(f'printf "%s\\n" "${name}" >> got' for name in SECRETS)
    spec = distrun.write_spec(script, workers=1, program=None)
    document = yaml.safe_load(spec.read_text())
    document["program"] = {"command": ["sh", "-c", script], "env": {**SECRETS, "PLAIN": "seen"}}
    spec.write_text(yaml.safe_dump(document))
    said = [distrun("plan", spec), distrun("plan", spec, "--json"), distrun("launch", spec)]
    said.append(distrun("launch", "--dry-run", spec))
    said += [distrun("status"), distrun("status", "--json"), distrun("ps", "-a", "--json")]
    said += [distrun("events"), distrun("events", "--json")]
    assert all(done.returncode == 0 for done in said)
    assert (distrun.cwd / "got").read_text().split() == list(SECRETS.values())
    text = "".join(done.stdout + done.stderr for done in said)
    assert "hunter2" not in text
    assert "PLAIN=seen" in text
    assert "HF_TOKEN=***" in text
    assert plan_of(distrun, spec)["tasks"][0]["env"]["DB_PASSWORD_2"] == "***"


def test_tasks_run_in_the_active_environment_and_a_failed_import_says_so(
    distrun: Distrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho of the environment\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    (tmp_path / "train.py").write_text("__import__('absent')\n")
    (tmp_path / "job.yaml").write_text("strategy: default\nprogram: {script: train.py}\n")
    why = f"{python}, of the active environment (VIRTUAL_ENV)"
    assert f"interpreter: {why}" in distrun("plan", "job.yaml").stdout
    done = distrun("launch", "job.yaml")
    assert "of the environment" in done.stdout
    assert f"  interpreter   {why}" in done.stderr.splitlines()
    named = distrun("plan", "job.yaml", "--set", f"program.python={sys.executable}")
    assert "interpreter:" not in named.stdout

"""`distrun plan`: the text for people, the JSON for programs, the lines that run a task by hand."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.command import Distrun, Json, write_program, write_spec
from harness.parts.plan import RANKS
from harness.parts.top import UsageError, api
from harness.processes import captured
from harness.values import not_none

SECRET_NAMES = ("HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD_2", "MY_SECRET_THING")
SECRETS = {name: f"hunter2-{number}" for number, name in enumerate(SECRET_NAMES)}
ELSEWHERE = {
    "DISTRUN_ADDRESS": "DISTRUN_ADDRESS=(each task's ADDRESS above)",
    "DISTRUN_ADDRESSES": "DISTRUN_ADDRESSES=(TF_CONFIG's cluster)",
}


def plan_of(distrun: Distrun, spec: Path) -> Json:
    plan: Json = json.loads(distrun.checked("plan", spec, "--json").stdout)["plan"]
    return plan


def write(tmp_path: Path, **keys: Any) -> Path:
    cluster = {
        "chief": 1, "worker": {"count": 3, "args": ["--shard", "it's"]},
        "ps": {"count": 2, "env": {"ONLY_PS": "yes"}}, "evaluator": 1,
    }  # fmt: skip
    program = {"command": ["train", "--long", "x" * 300]}
    given = {"strategy": "parameter_server", "cluster": cluster, "program": program, **keys}
    return write_spec(tmp_path, "", name="train", **given)


def table(text: str) -> dict[str, list[str]]:
    """The cells of the table by task; those of the heading by TASK."""
    lines = text.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    return {line.split()[0]: line.split() for line in lines}


def test_the_text_has_everything_that_the_json_has(distrun: Distrun) -> None:
    spec = write(distrun.cwd, ports={"range": "20000-29999"})
    plan = plan_of(distrun, spec)
    done = distrun.checked("plan", spec)
    rows = table(done.stdout)
    assert [task["task"] for task in plan["tasks"]] == [
        *("chief:0", "worker:0", "worker:1", "worker:2", "ps:0", "ps:1", "evaluator:0")
    ]
    cluster = re.findall(r"\blocalhost:\d+", done.stdout.partition("\nTF_CONFIG\n")[2])
    for task in plan["tasks"]:
        name, host, address = rows[task["task"]][:3]
        assert host == task["host"] == "localhost"
        assert (address == "none") == (task["address"] is None) == (name == "evaluator:0")
        if task["address"]:
            assert cluster.count(address.rstrip("*")) == 1
        role, index = name.split(":")
        own = rf'"task": \{{"type": "{role}", "index": {index}\}}\}} +for {name}$'
        assert re.search(own, done.stdout, re.MULTILINE)
        assert json.loads(task["env"]["TF_CONFIG"]) == task["tf_config"]
        assert shlex.join(task["argv"]) in done.stdout
        for variable, value in task["env"].items():
            if variable in RANKS:
                ranks = re.search(rf"^  (DISTRUN_RANK=.*) +for {name}$", done.stdout, re.MULTILINE)
                assert f"{variable}={value}" in not_none(ranks)[1].split()
            elif variable not in ("TF_CONFIG", "DISTRUN_TASK"):
                shown_as = ELSEWHERE.get(variable) or f"set    {variable}={value}"
                assert f"  {shown_as}\n" in done.stdout
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
    assert distrun.asked("ps", "-a", "--json") == distrun.asked("ps", "--json")
    assert plan_of(distrun, spec)["tasks"][0]["tf_config"] is None


def test_secrets_are_masked_in_output_and_real_in_the_task(distrun: Distrun) -> None:
    script = "; ".join(f'printf "%s\\n" "${name}" >> got' for name in SECRETS)
    env = {**SECRETS, "PLAIN": "seen", "DATABASE_URL": "postgres://me:hunter2@db/x"}
    args = ["--api-key", "hunter2", "--db=mysql://me:hunter2@db/x"]
    program = {"command": ["sh", "-c", script], "env": env, "args": args}
    spec = distrun.write_spec("", workers=1, program=program)
    said = [distrun("plan", spec), distrun("plan", spec, "--json"), distrun("launch", spec)]
    said += [distrun("status"), distrun("status", "--json"), distrun("ps", "-a", "--json")]
    said += [distrun("events"), distrun("events", "--json")]
    assert all(done.returncode == 0 for done in said)
    assert (distrun.cwd / "got").read_text().split() == list(SECRETS.values())
    text = "".join(done.stdout + done.stderr for done in said)
    assert "hunter2" not in text
    assert "PLAIN=seen" in text
    assert "HF_TOKEN=***" in text
    assert json.loads(said[1].stdout)["plan"]["tasks"][0]["env"]["DB_PASSWORD_2"] == "***"
    files = [path for path in distrun.home.rglob("*") if path.is_file()]
    found = [path for path in files if b"hunter2" in path.read_bytes()]
    assert {path.name for path in found} == {"spec.yaml", "spec.json", "plan.json"}
    assert {path.parent for path in found} == {Path(distrun.status()["folder"])}


def test_tasks_run_in_the_active_environment_and_a_failed_import_says_so(
    distrun: Distrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    write_program(python, f'#!/bin/sh\necho of the environment\nexec {sys.executable} "$@"\n')
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


SHOW = """\
import json, os, sys
json.dump([sys.argv[1:], dict(os.environ), os.getcwd()], open(os.environ["OUT"], "w"))
"""
NASTY = {
    "QUOTES": "a'b\"c`d$e\\f!g*h?i~j#k&l;m|n<o>p(q)r{s}t",
    "LINES": "one\ntwo\n\n",
    "CONTROL": "\x1b[31mred\x07\x01\r\t\x7f \u202e\x85\n",
    "FORMAT": "%s %d \\n \\033 %%", "EMPTY": "", "DASH": "-n", "ACCENTS": "Grüße 東京 🎉",
    "BLANKS": "  two  ", "odd.name-1": "it's odd",
}  # fmt: skip


def write_job(folder: Path, **program: Any) -> Path:
    (folder / "show.py").write_text(SHOW)
    (folder / "in here; it's").mkdir(exist_ok=True)
    nasty = {"args": [*NASTY.values()], "env": {**NASTY, "OUT": str(folder / "out")}}
    target = {} if "module" in program else {"script": "show.py"}
    program = {**target, "workdir": "in here; it's", **nasty, **program}
    return write_spec(folder, "", program=program)


def seen(folder: Path) -> tuple[list[str], dict[str, str], str]:
    args, env, cwd = json.loads((folder / "out").read_text())
    (folder / "out").unlink()
    return args, env, cwd


def in_sh(lines: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return captured(["sh"], input=lines, env=env)


def test_the_lines_give_the_task_what_a_launch_gives_it(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd)
    planned = distrun.checked("plan", spec, "--env", "worker:1")
    assert "\x1b" not in planned.stdout
    assert "\x07" not in planned.stdout
    subprocess.run(["bash"], input=planned.stdout, text=True, check=True, cwd="/", timeout=60)
    args, env, cwd = seen(distrun.cwd)
    assert args == list(NASTY.values())
    assert {name: env[name] for name in NASTY} == NASTY
    assert cwd == str(distrun.cwd / "in here; it's")
    config = json.loads(env["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert len(config["cluster"]["worker"]) == 2
    distrun.checked("launch", spec, "--no-preflight", "--set", "cluster.worker=1")
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
    for target in ({}, {"module": "show", "workdir": "."}):
        spec = write_job(distrun.cwd, args=["--epochs", "3"], **target)
        lines = distrun("plan", spec, "--env", "worker:0", "--env", "worker:1").stdout.splitlines()
        configs = [line.split("'")[1] for line in lines if line.startswith("export TF_CONFIG=")]
        first, second = (json.loads(config)["cluster"] for config in configs)
        assert first == second
        [pdb] = {line for line in lines if " -m pdb " in line}
        command = pdb.partition("debugger: ")[2]
        *lines, _ = distrun("plan", spec, "--env", "worker:0").stdout.splitlines()
        ran = in_sh("\n".join([*lines, f"printf 'c\\nq\\n' | {command}"]))
        assert "(Pdb)" in ran.stdout, ran.stderr
        assert seen(distrun.cwd)[0] == ["--epochs", "3"]


def test_wrong_usage(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd)
    assert "worker:0, worker:1" in distrun.told(2, "plan", spec, "--env", "worker:2")
    assert distrun("plan", spec, "--env", "worker:0", "--json").returncode == 2


def test_a_plan_of_a_job_in_pods_is_its_manifest(distrun: Distrun) -> None:
    """It needs neither a cluster nor kubectl."""
    settings = {"image": "i:1", "gpus": 2, "pod": {"spec": {"nodeSelector": {"pool": "a"}}}}
    spec = distrun.write_spec("true", hosts="kubernetes", kubernetes=settings)
    done = distrun.checked("plan", spec)
    job = yaml.safe_load(done.stdout)
    assert (job["kind"], job["spec"]["parallelism"]) == ("Job", 2)
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "a"}
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert plan_of(distrun, spec)["manifest"] == job
    assert "once the pods run" in distrun.told(2, "plan", spec, "--env", "worker:0")
    with pytest.raises(UsageError, match="once the pods run"):
        api.load(spec).plan()
    words = ("run", "--dry-run", "--image", "i:1")
    alone = distrun.checked(*words, "--on", "kubernetes", "true").stdout
    assert yaml.safe_load(alone)["spec"]["parallelism"] == 1
    assert "write --on kubernetes" in distrun.told(2, *words, "true")

"""Every command's `--help`: its examples work, docs/ has the same text, and it is fast."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.requirements import need_tensorflow
from harness.values import not_none

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    found
    for path in sorted((ROOT / "launcher" / "distrun" / "cli").glob("*.py"))
    for found in re.findall(r'^@click.command\("([a-z]+)"', path.read_text(), re.MULTILINE)
]
README = (ROOT / "README.md").read_text().partition("<!-- commands -->")[2].partition("\n\n")[0]
EXAMPLE = re.compile(r"^    (\S.*)$", re.MULTILINE)
JOB = """\
name: mnist
strategy: multi_worker_mirrored
cluster: {chief: 1, worker: 2}
program: {command: [sh, -c, 'echo "loss of $DISTRUN_TASK"']}
"""
SLEEPS = """\
name: mnist
strategy: multi_worker_mirrored
cluster: {{worker: 2}}
program: {{command: [{python}, -c, 'import time; time.sleep(600)']}}
"""
FAILS_ONCE = """\
name: mnist
strategy: default
program: {command: [sh, -c, 'test -e done || { touch done; exit 3; }']}
"""
TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist}
spec:
  tfReplicaSpecs:
    Worker:
      template:
        spec: {containers: [{name: tensorflow, image: "i:1", command: [python, /train.py]}]}
"""
SLURM = {"sbatch": "echo 7", "squeue": "echo '7|CANCELLED|N/A|N/A|None'"}
"""Commands of a Slurm that queues jobs and never runs one."""
TRAIN = """\
import os, signal
if os.environ["DISTRUN_STRATEGY"] == "parameter_server" and os.environ["DISTRUN_TASK"] != "chief:0":
    signal.pause()  # as a server does
print("epoch 1")
"""


@pytest.fixture
def bash(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a line as a user would type it, in a folder with job.yaml and train.py."""
    (distrun.cwd / "job.yaml").write_text(JOB)
    (distrun.cwd / "train.py").write_text(TRAIN)
    (distrun.cwd / "tfjob.yaml").write_text(TFJOB)
    (distrun.cwd / "sleeps.yaml").write_text(SLEEPS.format(python=sys.executable))
    (distrun.cwd / "fails-once.yaml").write_text(FAILS_ONCE)
    tool = distrun.cwd / "bin" / "distrun"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m distrun "$@"\n')
    tool.chmod(0o755)
    for name, line in SLURM.items():
        (tool.parent / name).write_text(f"#!/bin/sh\n{line}\n")
        (tool.parent / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)

    def run(line: str, shell: str = "bash") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shell, "-c", line],
            cwd=distrun.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def run_example(distrun: Distrun, bash: Callable[..., Any], line: str) -> Any:
    """Run an example; without a shell, much faster, where it needs none."""
    words = shlex.split(line)
    if words[0] == "distrun" and not set(line) & set("$|&;<>*#"):
        return distrun(*words[1:])
    return bash(*in_its_shell(line))


def in_its_shell(line: str) -> tuple[str, str]:
    """A line and its shell; without that shell, the command whose output it would have read."""
    shell = next((name for name in ("zsh", "fish") if f"completion {name}" in line), "bash")
    if shutil.which(shell) is not None:
        return line, shell
    return not_none(re.search(r"distrun completion \w+", line))[0], "bash"


def test_every_command_is_listed_in_the_order_of_the_readme(distrun: Distrun) -> None:
    text = distrun("--help").stdout
    listing = text.partition("\nCommands:\n")[2]
    listed = re.findall(r"^  ([a-z]+)", listing, re.MULTILINE)
    assert sorted(listed) == COMMANDS
    assert len(listed) >= 14
    assert listed == re.findall(r"^\| `distrun ([a-z]+)", README, re.MULTILINE), "another order"
    assert max(map(len, text.splitlines())) <= 80


READING = (
    *("ps", "status", "logs", "events", "wait", "report", "bundle", "compare", "attach", "plan"),
    *("explain", "schema", "completion", "validate"),
)
"""Commands that change no job: their examples can all be of the same ones."""


@pytest.mark.parametrize(
    "commands", [READING, *((each,) for each in COMMANDS if each not in READING)], ids="-".join
)
def test_the_examples_work(
    distrun: Distrun, bash: Callable[..., Any], commands: tuple[str, ...]
) -> None:
    if {"doctor", "run"} & {*commands}:
        need_tensorflow()  # which is looked for
    page = (ROOT / "docs" / "cli.md").read_text()
    examples = []
    for command in commands:
        asked = distrun(command, "--help")
        assert asked.returncode == 0
        assert max(map(len, asked.stdout.splitlines())) <= 80
        section = page.partition(f"\n## distrun {command}\n")[2].partition("\n## ")[0]
        options = re.findall(r"^  .*?(--[a-z-]+)", asked.stdout, re.MULTILINE)
        assert [name for name in ("--help", *options) if name not in section] == []
        found = EXAMPLE.findall(asked.stdout.partition("\nOptions:")[0])
        assert found, f"{command} has no example"
        assert all(f"distrun {command}" in example for example in found)
        examples += found
    text = " ".join(examples)
    if re.search(r"mnist|status|logs|events|wait|kill", text) and "init" not in commands:
        job = "-d sleeps.yaml" if commands in (("stacks",), ("profile",)) else "job.yaml"
        assert distrun("launch", *job.split()).returncode == 0
    if "night" in text:
        assert distrun(*"launch job.yaml -d --name night".split()).returncode == 0
    if "-o job.yaml" in text:
        (distrun.cwd / "job.yaml").unlink()
    for example in examples:
        # These need a person, or hosts: see test_live_page.py, test_watch.py, ssh/test_fetch.py.
        if "--serve" in example or commands in (("watch",), ("fetch",)):
            continue
        if "distrun resume" in example:
            (distrun.cwd / "done").unlink(missing_ok=True)
            assert distrun("launch", "fails-once.yaml").returncode == 3
        done = run_example(distrun, bash, example)
        assert done.returncode == 0, f"{example}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
    distrun("kill", "--all")


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "docs.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "launcher")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: make docs"


def test_a_typing_error_gets_a_suggestion(distrun: Distrun) -> None:
    for args, meant in ((["statsu"], "status"), (["logs", "--folow"], "--follow")):
        done = distrun(*args)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.search(rf"[Dd]id you mean:? '?{meant}", done.stderr)
        assert "Traceback" not in done.stderr


SLOW = {"distrun.agent", "distrun.job.events", "distrun.job.folder", "distrun.spec.model", "psutil"}
SLOW |= {"asyncio", "rich", "subprocess", "tensorflow", "yaml"}
QUICK = [
    *("run", "launch", "plan", "validate", "doctor", "ps", "status", "logs", "kill", "wait"),
    *("events", "init", "schema", "explain", "clean", "completion", ""),
]
FORKS = """
import atexit, os, sys, click
slow = {slow} - set(sys.modules)
for name, completed in {asked}:
    sys.stdout.flush()
    if not os.fork():
        if completed:
            os.environ.update(_DISTRUN_COMPLETE="bash_complete", COMP_LINE=completed)
        sys.argv = ["distrun", *name.split(), *(() if completed else ("--help",))]
        tell = lambda: print(name + completed, *(slow & set(sys.modules)), file=sys.stderr)
        atexit.register(tell)
        from distrun.__main__ import main
        main()
        sys.exit()
    os.wait()
"""
"""Runs `distrun` in forks, each of which tells what it imported that is slow.

click imports uuid, which imports subprocess in Python 3.10.
"""


def test_help_and_completion_import_nothing_slow() -> None:
    lines = ["distrun ", "distrun launch --"]
    asked = [*((name, "") for name in QUICK), *(("", line) for line in lines)]
    done = subprocess.run(
        [sys.executable, "-c", FORKS.format(slow=SLOW, asked=asked)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert [each.strip() for each in done.stderr.split("\n")[:-1]] == [
        *QUICK, *(line.strip() for line in lines)
    ]  # fmt: skip
    assert done.stdout.count("Usage: ") == len(QUICK)
    assert {"launch", "--detach"} <= set(re.split(r"[\n,]", done.stdout))

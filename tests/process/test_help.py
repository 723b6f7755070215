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

import pytest

from harness import tfjobs
from harness.command import Distrun, run_here
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
SLURM = {"sbatch": "echo 7", "squeue": "echo '7|CANCELLED|N/A|N/A|None'"}
"""Commands of a Slurm that queues jobs and never runs one."""
TRAIN = """\
import os, signal
if os.environ["DISTRUN_STRATEGY"] == "parameter_server" and os.environ["DISTRUN_TASK"] != "chief:0":
    signal.pause()  # as a server does
print("epoch 1")
"""


Bash = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bash(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Bash:
    """Run a line as a user would type it, in a folder with job.yaml and train.py.

    Without the shell that it names, only the command whose output that shell would have read.
    """
    (distrun.cwd / "job.yaml").write_text(JOB)
    (distrun.cwd / "train.py").write_text(TRAIN)
    (distrun.cwd / "tfjob.yaml").write_text(tfjobs.manifest("i:1"))
    (distrun.cwd / "sleeps.yaml").write_text(SLEEPS.format(python=sys.executable))
    (distrun.cwd / "fails-once.yaml").write_text(FAILS_ONCE)
    tools = distrun.write_tool()
    for name, line in SLURM.items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    monkeypatch.chdir(distrun.cwd)

    def run(line: str) -> subprocess.CompletedProcess[str]:
        shell = next((name for name in ("zsh", "fish") if f"completion {name}" in line), "bash")
        if shutil.which(shell) is None:
            shell, line = "bash", not_none(re.search(r"distrun completion \w+", line))[0]
        return subprocess.run(
            [shell, "-c", line], cwd=distrun.cwd, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


READING = {"ps", "status", "logs", "events", "wait", "compare", "explain", "validate", "schema"}
READING |= {"report", "bundle", "init", "import"}
"""Commands that this process can run."""


def run_example(distrun: Distrun, bash: Bash, line: str) -> tuple[int, str]:
    """Run an example; without a shell or even a process, much faster, where it needs none."""
    words = shlex.split(line)
    arguments = words[1 : words.index(">") if ">" in words else None]
    if {"&&", "|", "#"} & {*words} or "$" in line:
        done = bash(line)
    elif arguments[0] in READING and "-f" not in arguments:
        code, *said = run_here(arguments)
        return code, "".join(said)
    else:
        done = distrun(*arguments)
    return done.returncode, done.stdout + done.stderr


GROUPS = (
    *("ps status logs events wait report bundle compare attach plan explain schema", "submit"),
    *("launch completion validate kill clean watch fetch", "run doctor", "stacks profile"),
    *("resume", "init", "import"),
)
"""Commands whose examples may follow each other, of the same jobs."""
NOT_RUN = re.compile("distrun (watch|fetch)|--serve")
"""A person or hosts are needed: see test_watch.py, ssh/test_fetch.py and test_live_page.py."""


def test_every_command_is_listed_in_the_order_of_the_readme(distrun: Distrun) -> None:
    text = distrun("--help").stdout
    listing = text.partition("\nCommands:\n")[2]
    listed = re.findall(r"^  ([a-z]+)", listing, re.MULTILINE)
    assert sorted(listed) == sorted(" ".join(GROUPS).split()) == COMMANDS
    assert listed == re.findall(r"^\| `distrun ([a-z]+)", README, re.MULTILINE), "another order"
    assert max(map(len, text.splitlines())) <= 80
    assert "'status'" in distrun("statsu").stderr.partition("id you mean")[2]


@pytest.mark.parametrize("commands", GROUPS)
def test_the_examples_work(distrun: Distrun, bash: Bash, commands: str) -> None:
    if "doctor" in commands:
        need_tensorflow()  # which is looked for
    page = (ROOT / "docs" / "cli.md").read_text()
    examples = []
    for command in commands.split():
        code, text, _ = run_here((command, "--help"))
        assert code == 0
        assert max(map(len, text.splitlines())) <= 80
        section = page.partition(f"\n## distrun {command}\n")[2].partition("\n## ")[0]
        options = re.findall(r"^  .*?(--[a-z-]+)", text, re.MULTILINE)
        assert [name for name in ("--help", *options) if name not in section] == []
        found = EXAMPLE.findall(text.partition("\nOptions:")[0])
        assert found, f"{command} has no example"
        assert all(f"distrun {command}" in example for example in found)
        examples += found
    if commands == "stacks profile":
        distrun.checked("launch", "-d", "sleeps.yaml")
    elif commands[:2] in ("ps", "la"):
        distrun.checked("launch", "job.yaml")
        distrun.checked("launch", "job.yaml", "-d", "--name", "night")
    if any("-o job.yaml" in example for example in examples):
        (distrun.cwd / "job.yaml").unlink()
    for example in examples:
        if NOT_RUN.search(example):
            continue
        if "distrun resume" in example:
            (distrun.cwd / "done").unlink(missing_ok=True)
            assert distrun("launch", "fails-once.yaml").returncode == 3
        # The bundled job would train for minutes.
        code, said = run_example(distrun, bash, example.replace(" mnist --ep", " train.py --ep"))
        assert code == 0, f"{example}\n{said}"
        assert "Traceback" not in said
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


SLOW = {"distrun.agent", "distrun.job.events", "distrun.job.folder", "distrun.spec.model", "psutil"}
SLOW |= {"asyncio", "rich", "subprocess", "tensorflow", "yaml"}
QUICK = "run launch plan validate doctor ps status logs kill wait events init schema explain clean"
IMPORTED = """
import atexit, os, sys, click
slow = {slow} - set(sys.modules)  # click imports uuid, which imports subprocess in Python 3.10
from distrun.cli.main import distrun, main
for command in {commands}:
    distrun.main([*command.split(), "--help"], prog_name="distrun", standalone_mode=False)
os.environ.update(_DISTRUN_COMPLETE="bash_complete", COMP_LINE="distrun launch --")
sys.argv[1:] = []
atexit.register(lambda: print("slow:", *slow & set(sys.modules), file=sys.stderr))
main()
"""


def test_help_and_completion_import_nothing_slow() -> None:
    quick = [*QUICK.split(), ""]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(slow=SLOW, commands=quick)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr.strip() == "slow:"
    assert done.stdout.count("Usage: ") == len(quick)
    assert "--detach" in re.split(r"[\n,]", done.stdout)

"""What users of other tools type first, and what distrun answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.command import Detach, Distrun, WriteSpec
from harness.terminal import OpenTerminal
from harness.waiting import wait_until


@pytest.mark.parametrize("command", ["launch", "plan"])
@pytest.mark.parametrize("args", [["--epochs", "3"], ["--epochs=3"], ["-e", "3"]])
def test_program_arguments_follow_two_dashes(
    distrun: Distrun, write_spec: WriteSpec, command: str, args: list[str]
) -> None:
    spec = write_spec("exit 0")
    done = distrun(command, spec, *args)
    assert done.returncode == 2
    name = args[0].partition("=")[0]
    assert f"distrun {command} {spec} -- {name}" in done.stderr
    assert "Did you mean" not in done.stderr
    near = distrun(command, spec, "--strct")
    assert near.returncode == 2
    assert "Did you mean '--strict'?" in near.stderr


def test_tail_means_the_last_lines(distrun: Distrun, detached: Detach) -> None:
    detached("echo one; echo two", workers=1)
    distrun("wait")
    assert distrun("logs", "--tail", "1").stdout == "worker:0 | two\n"


@pytest.mark.parametrize("command", ["launch", "plan", "validate", "doctor"])
@pytest.mark.parametrize("name", ["slow", "slow.yml", "./slow.yml", "slwo.yaml"])
def test_a_spec_with_a_similar_name(
    distrun: Distrun, write_spec: WriteSpec, command: str, name: str
) -> None:
    write_spec("exit 0", name="slow")
    done = distrun(command, name)
    assert done.returncode == 2
    assert "slow.yaml'?" in done.stderr
    far = distrun(command, "training")
    assert far.returncode == 2
    assert "slow" not in far.stderr


@pytest.mark.parametrize("task", ["worker:0", "worker"])
def test_logs_of_a_task(distrun: Distrun, detached: Detach, task: str) -> None:
    detached("exit 0", name="job")
    distrun("wait")
    for args in ([task], ["job", task]):
        done = distrun("logs", *args)
        assert done.returncode == 2
        assert f"distrun logs -t {task}" in done.stderr


@pytest.mark.parametrize(
    ("verb", "ours"),
    [
        ("up", "distrun launch"),
        ("start", "distrun launch"),
        ("stop", "distrun kill"),
        ("cancel", "distrun kill"),
        ("top", "distrun status --watch"),
        ("list", "distrun ps"),
        ("describe", "distrun status"),
        ("version", "distrun --version"),
        ("help", "distrun --help"),
    ],
)
def test_verbs_of_other_tools(distrun: Distrun, verb: str, ours: str) -> None:
    done = distrun(verb)
    assert done.returncode == 2
    assert f"Use '{ours}" in done.stderr
    assert "Did you mean" not in done.stderr
    assert "Use 'distrun launch --help'" in distrun("help", "launch").stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_advice_on_an_older_job_has_its_id(
    distrun: Distrun, write_spec: WriteSpec, terminal: OpenTerminal, tmp_path: Path, columns: int
) -> None:
    (tmp_path / "bad.py").write_text("raise ValueError('7 is odd')\n")
    spec = write_spec("", program={"script": "bad.py"}, workers=1)
    window = terminal("launch", spec, columns=columns)
    wait_until(window.ended)
    assert "distrun logs -t worker:0" in window.text()
    old = distrun("ps", "-a").stdout.splitlines()[1].split()[0]
    assert "distrun logs -t worker:0" in distrun("status", old).stdout
    assert distrun("launch", write_spec("exit 0", name="new")).returncode == 0
    for shown in ("status", "events"):
        for as_json in ([], ["--json"]):
            text = distrun(shown, old, *as_json).stdout
            assert f"distrun logs {old} -t worker:0" in text
            assert "distrun logs -t" not in text


def test_when_and_where_are_not_glued_to_a_reason(distrun: Distrun, write_spec: WriteSpec) -> None:
    done = distrun("launch", write_spec("", program={"command": ["no-such-program"]}))
    assert done.returncode != 0
    [first] = [line for line in done.stderr.splitlines() if line.startswith("  first  ")]
    assert first.endswith("in PATH")
    assert " on localhost: could not be started: " in first


@pytest.mark.parametrize(
    "text",
    [
        "strategy: default\nprogram:\n  scrip: train.py\n",
        "strategy: default\nscrip: train.py\n",
        "strategy: default\nscript: train.py\n",
        "strateg: default\nprogram: {script: mnist}\n",
        "strategy: default\nprogrm: {script: mnist}\n",
    ],
)
def test_a_misspelt_key_is_not_also_missing(distrun: Distrun, tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    done = distrun("validate", "job.yaml")
    assert done.returncode == 65
    assert "did you mean" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr

"""What users of other tools type first, and what distrun answers."""

from __future__ import annotations

import re
from difflib import get_close_matches

import pytest

from harness.command import Distrun


@pytest.mark.parametrize(
    ("command", "args"), [("launch", ["--epochs", "3"]), ("plan", ["--epochs=3"])]
)
def test_program_arguments_follow_two_dashes(
    distrun: Distrun, command: str, args: list[str]
) -> None:
    spec = distrun.write_spec("exit 0")
    done = distrun(command, spec, *args)
    assert done.returncode == 2
    name = args[0].partition("=")[0]
    assert f"distrun {command} {spec} -- {name}" in done.stderr
    assert "Did you mean" not in done.stderr
    near = distrun(command, spec, "--strct")
    assert near.returncode == 2
    assert "Did you mean '--strict'?" in near.stderr


@pytest.mark.parametrize(
    ("command", "name"),
    [("launch", "slow"), ("plan", "./slow.yml"), ("validate", "slwo.yaml")],
)
def test_a_spec_with_a_similar_name(distrun: Distrun, command: str, name: str) -> None:
    distrun.write_spec("exit 0", name="slow")
    done = distrun(command, name)
    assert done.returncode == 2
    assert "slow.yaml'?" in done.stderr
    far = distrun(command, "training")
    assert far.returncode == 2
    assert "slow" not in far.stderr


def test_logs_of_a_task(distrun: Distrun) -> None:
    distrun.detached("exit 0", name="job")
    distrun("wait")
    for args, meant in ((["worker"], ""), (["job", "worker:0"], "job ")):
        task = args[-1]
        done = distrun("logs", *args)
        assert done.returncode == 2
        assert f"distrun logs {meant}-t {task}" in done.stderr


def test_advice_on_an_older_job_has_its_id(distrun: Distrun) -> None:
    (distrun.cwd / "bad.py").write_text("raise ValueError('7 is odd')\n")
    done = distrun.launch("", program={"script": "bad.py"}, workers=1)
    assert "distrun logs -t worker:0" in done.stderr
    old = distrun("ps", "-a").stdout.splitlines()[1].split()[0]
    assert "distrun logs -t worker:0" in distrun("status", old).stdout
    assert distrun.launch("exit 0", name="new").returncode == 0
    for shown in ("status", "events"):
        for as_json in ([], ["--json"]):
            text = distrun(shown, old, *as_json).stdout
            assert f"distrun logs {old} -t worker:0" in text
            assert "distrun logs -t" not in text


@pytest.mark.parametrize(
    "text",
    [
        "strategy: default\nprogram:\n  scrip: train.py\n",
        "strategy: default\nscrip: train.py\n",
        "strategy: default\nprogrm: {script: mnist}\n",
    ],
)
def test_a_misspelt_key_is_not_also_missing(distrun: Distrun, text: str) -> None:
    (distrun.cwd / "job.yaml").write_text(text)
    done = distrun("validate", "job.yaml")
    assert done.returncode == 65
    assert "did you mean" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("command", "words"), [("launch", "-n 2 train.py --epochs 3"), ("plan", "--epochs=3 train.py")]
)
def test_a_script_in_place_of_a_spec_is_to_be_run(
    distrun: Distrun, command: str, words: str
) -> None:
    done = distrun(command, *words.split())
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "distrun: train.py is a Python script, not a YAML file",
        "  distrun run train.py",
    ]


@pytest.mark.parametrize(
    ("word", "ours"),
    [("train.py", "run train.py"), ("a.yaml", "launch a.yaml")],
)
def test_a_file_in_place_of_a_command(distrun: Distrun, word: str, ours: str) -> None:
    done = distrun(word)
    assert done.returncode == 2
    assert f"No such command '{word}'. Use 'distrun {ours}'." in done.stderr


def test_a_misspelt_job_is_suggested(distrun: Distrun) -> None:
    assert distrun("run", "--name", "training", "true").returncode == 0
    for command in ("status", "logs", "kill"):
        done = distrun(command, "traning")
        assert done.returncode == 2
        assert "did you mean 'training'?" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "train.py", "job.yaml", "lanch job.yaml", "launch train.py", "launch job.yml",
        "launch job.yaml --epochs 3", "plan job.yaml --epochs=3", "validate jb.yaml",
        "run --worker 2 train.py", "run --num-workers 2 train.py", "status jobb", "logs worker",
        "launch job.yaml --strct", "explain program.arg", "explain keras2", "init kerasfit",
    ],
)  # fmt: skip
def test_who_does_what_is_suggested_succeeds(distrun: Distrun, words: str) -> None:
    (distrun.cwd / "train.py").write_text("import sys\nprint(sys.argv)\n")
    distrun.write_spec("exit 0", name="job")
    assert distrun("run", "--name", "job", "true").returncode == 0
    done = distrun(*words.split())
    assert done.returncode == 2
    said = done.stderr.partition("Error: ")[2] or done.stderr
    command = re.search(r"(?m)(?:Use '|: |^  )distrun ([^'\n]+)'?\.?$", said)
    meant = re.search(r"[Dd]id you mean '?(.+?)'?(?: or .*)?\?", said)
    if command is not None:
        again = command[1].split()
    else:
        assert meant is not None, done.stderr
        (wrong,) = get_close_matches(meant[1], words.split(), 1, 0.4)
        again = [meant[1] if each == wrong else each for each in words.split()]
    done = distrun(*again)
    assert done.returncode == 0, (again, done.stderr)

"""What users of other tools type first, and what distrun answers."""

from __future__ import annotations

import re

import pytest

from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until


@pytest.mark.parametrize("command", ["launch", "plan"])
@pytest.mark.parametrize("args", [["--epochs", "3"], ["--epochs=3"], ["-e", "3"]])
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


def test_tail_means_the_last_lines(distrun: Distrun) -> None:
    distrun.detached("echo one; echo two", workers=1)
    distrun("wait")
    assert distrun("logs", "--tail", "1").stdout == "worker:0 | two\n"


@pytest.mark.parametrize("command", ["launch", "plan", "validate", "doctor"])
@pytest.mark.parametrize("name", ["slow", "slow.yml", "./slow.yml", "slwo.yaml"])
def test_a_spec_with_a_similar_name(distrun: Distrun, command: str, name: str) -> None:
    distrun.write_spec("exit 0", name="slow")
    done = distrun(command, name)
    assert done.returncode == 2
    assert "slow.yaml'?" in done.stderr
    far = distrun(command, "training")
    assert far.returncode == 2
    assert "slow" not in far.stderr


@pytest.mark.parametrize("task", ["worker:0", "worker"])
def test_logs_of_a_task(distrun: Distrun, task: str) -> None:
    distrun.detached("exit 0", name="job")
    distrun("wait")
    for args, meant in (([task], ""), (["job", task], "job ")):
        done = distrun("logs", *args)
        assert done.returncode == 2
        assert f"distrun logs {meant}-t {task}" in done.stderr


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
    distrun: Distrun, terminal: OpenTerminal, columns: int
) -> None:
    (distrun.cwd / "bad.py").write_text("raise ValueError('7 is odd')\n")
    spec = distrun.write_spec("", program={"script": "bad.py"}, workers=1)
    window = terminal("launch", spec, columns=columns)
    wait_until(window.ended)
    assert "distrun logs -t worker:0" in window.text()
    old = distrun("ps", "-a").stdout.splitlines()[1].split()[0]
    assert "distrun logs -t worker:0" in distrun("status", old).stdout
    assert distrun.launch("exit 0", name="new").returncode == 0
    for shown in ("status", "events"):
        for as_json in ([], ["--json"]):
            text = distrun(shown, old, *as_json).stdout
            assert f"distrun logs {old} -t worker:0" in text
            assert "distrun logs -t" not in text


def test_when_and_where_are_not_glued_to_a_reason(distrun: Distrun) -> None:
    done = distrun.launch("", 1, program={"command": ["no-such-program"]})
    assert done.returncode != 0
    [first] = [line for line in done.stderr.splitlines() if line.startswith("job job-")]
    assert re.search(" failed: worker:0 on localhost(?: at [0-9:]+)?$", first)
    assert done.stderr.count("could not be started: ") == 1, done.stderr


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
def test_a_misspelt_key_is_not_also_missing(distrun: Distrun, text: str) -> None:
    (distrun.cwd / "job.yaml").write_text(text)
    done = distrun("validate", "job.yaml")
    assert done.returncode == 65
    assert "did you mean" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    "words",
    ["train.py --epochs 3", "-n 2 train.py", "--name x.y train.py -- -n 2", "--epochs=3 train.py"],
)
@pytest.mark.parametrize("command", ["launch", "plan"])
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
    [("train.py", "run train.py"), ("a.yaml", "launch a.yaml"), ("restart", "resume JOB")],
)
def test_a_file_in_place_of_a_command(distrun: Distrun, word: str, ours: str) -> None:
    done = distrun(word)
    assert done.returncode == 2
    assert f"No such command '{word}'. Use 'distrun {ours}'." in done.stderr


EVERYWHERE = """\
name: "${U1}"
strategy: ${U2}
cluster: {worker: "${U3}"}
program: {script: "${U4}/${U5}.py", workdir: "${U6}"}
hosts: ["${U7}"]
timeouts: {run: "${U8}"}
logs: {max_size: "${U9}"}
restart: {max: "${U10}"}
ssh: {port: "${U11}"}
"""


def test_an_unset_variable_is_one_error_wherever_it_is(distrun: Distrun) -> None:
    (distrun.cwd / "job.yaml").write_text(EVERYWHERE)
    lines = distrun("validate", "job.yaml").stderr.splitlines()
    assert [line.split(": ")[1].split(";")[0] for line in lines] == [
        f"the variable 'U{number}' is not set here" for number in range(1, 12)
    ]


def test_a_variable_in_quotes_can_be_a_number_or_a_text(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a flow mapping, ${NAME} must be in quotes."""
    monkeypatch.setenv("WORKERS", "3")
    text = (
        'strategy: multi_worker_mirrored\ncluster: {worker: "${WORKERS}"}\n'
        'ssh: {user: "${WORKERS}"}\nprogram: {command: [echo, "${WORKERS}"]}\n'
    )
    (distrun.cwd / "job.yaml").write_text(text)
    done = distrun("validate", "job.yaml")
    assert done.stderr == "" or "is valid" in done.stderr
    assert "3 tasks" in done.stdout + done.stderr
    quoted = text.replace('worker: "${WORKERS}"', 'worker: "3"')
    (distrun.cwd / "job.yaml").write_text(quoted)
    assert "write 3 without quotes" in distrun("validate", "job.yaml").stderr


def test_a_misspelt_job_is_suggested(distrun: Distrun) -> None:
    assert distrun("run", "--name", "training", "true").returncode == 0
    for command in ("status", "logs", "kill"):
        done = distrun(command, "traning")
        assert done.returncode == 2
        assert "did you mean 'training'?" in done.stderr


def test_keys_of_roles_are_not_taken_for_others(distrun: Distrun) -> None:
    (distrun.cwd / "x.yaml").write_text("strategy: default\ngpus: 2\nprogram: {script: mnist}\n")
    text = distrun("validate", "x.yaml").stderr
    assert "cluster.ps" not in text
    assert "cluster: {worker: {count: 2, gpus: 1}}" in text

"""What each strategy means to a launch: environment, success, who is stopped then."""

from __future__ import annotations

import json

import pytest

from harness.command import Distrun, Status
from harness.waiting import wait_until

ONE_PROCESS = ("default", "one_device", "mirrored", "central_storage", "tpu")
PARAMETER_SERVER = {"chief": 1, "worker": 2, "ps": 1}


def states(status: Status) -> dict[str, str]:
    return {task["task"]: task["state"] for task in status()["tasks"]}


@pytest.mark.parametrize("strategy", ONE_PROCESS)
def test_a_strategy_of_one_process_gets_no_tf_config(
    distrun: Distrun, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["elsewhere:1"]}}))
    spec = distrun.write_spec(
        "echo ${TF_CONFIG-none} $DISTRUN_STRATEGY $DISTRUN_TASK",
        strategy=strategy,
        cluster={"worker": 1},
    )
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"worker:0 | none {strategy} worker:0\n"


def test_ps_and_evaluator_get_no_gpu(distrun: Distrun) -> None:
    cluster = {**PARAMETER_SERVER, "evaluator": 1}
    spec = distrun.write_spec(
        "echo gpus=$CUDA_VISIBLE_DEVICES; touch up-$DISTRUN_TASK; "
        "[ ${DISTRUN_TASK%:*} = chief ] || exec sleep 600; "
        f"while [ $(ls up-* | wc -l) -lt {sum(cluster.values())} ]; do sleep 0.02; done",
        strategy="parameter_server",
        cluster=cluster,
        hosts=[{"name": "localhost", "gpus": [3, 5, 6]}],
        timeouts={"grace": "100ms"},
    )
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    shown = dict(line.replace(" ", "").split("|gpus=") for line in done.stdout.splitlines())
    assert shown["ps:0"] == shown["evaluator:0"] == "-1"
    given = [shown[name] for name in ("chief:0", "worker:0", "worker:1")]
    assert sorted(given) == ["3", "5", "6"]


# The workers exit 0 as soon as they have "trained"; those that decide wait for them, and save.
TRAINS = """
case $DISTRUN_TASK in
    ps:*) exec sleep 600 ;;
    {decides}) while ! test -e {other}.done; do sleep 0.02; done; sleep 0.3; touch saved ;;
    *) touch $DISTRUN_TASK.done ;;
esac
"""


@pytest.mark.parametrize(
    ("cluster", "decides", "other"),
    [
        ({"chief": 1, "worker": 2, "ps": 1}, "chief:0", "worker:1"),
        ({"worker": 2, "ps": 1}, "worker:0", "worker:1"),
    ],
)
def test_independent_workers_that_exit_0_have_finished(
    distrun: Distrun, cluster: dict[str, int], decides: str, other: str
) -> None:
    spec = distrun.write_spec(
        TRAINS.format(decides=decides, other=other),
        strategy="parameter_server",
        cluster=cluster,
        restart={"max": 3, "backoff": "10ms"},
    )
    done = distrun("launch", spec, "--set", "workers=independent")
    assert done.returncode == 0, done.stderr
    assert (distrun.cwd / "saved").exists(), "stopped before it had saved"
    found = states(distrun.status)
    assert found.pop("ps:0") == "stopped"
    assert set(found.values()) == {"succeeded"}
    assert {task["attempt"] for task in distrun.status()["tasks"]} == {0}


def test_independent_workers_are_a_key_that_a_warning_names(distrun: Distrun) -> None:
    """The program is one that does not import TensorFlow, but names what only such workers use."""
    (distrun.cwd / "train.py").write_text(
        "import os, pathlib, time\n"
        "def train():\n"
        "    import tensorflow.compat.v1 as tf\n"
        "    tf.train.MonitoredTrainingSession('').run([])\n"
        "role = os.environ['DISTRUN_TASK']\n"
        "if role.startswith('ps'):\n"
        "    time.sleep(600)\n"
        "if role == 'chief:0':\n"
        "    while len(list(pathlib.Path().glob('*.done'))) < int(os.environ['COUNT']):\n"
        "        time.sleep(0.02)\n"
        "else:\n"
        "    pathlib.Path(role + '.done').touch()\n"
    )
    warned = (
        "train.py:4:5: warning: tf.compat.v1.train.MonitoredTrainingSession is for workers that "
        "train by themselves, and the spec does not say that these do; write workers: independent"
    )
    program = {"script": "train.py", "env": {"COUNT": 2}}
    spec = distrun.write_spec(
        "", strategy="parameter_server", cluster=PARAMETER_SERVER, program=program
    )
    assert distrun("validate", spec).stderr.count(warned) == 1
    assert distrun("plan", "--strict", spec).returncode == 65
    done = distrun("launch", spec, "--set", "program.env.COUNT=3")
    assert done.returncode == 1
    assert warned in done.stderr
    assert "exited 0 before the chief had finished" in done.stderr

    said = ("--set", "workers=independent")
    done = distrun("launch", spec, *said)
    assert done.returncode == 0, done.stderr
    assert warned not in done.stderr
    assert set(states(distrun.status).values()) == {"succeeded", "stopped"}
    planned = distrun("plan", spec, *said)
    assert (
        "the job succeeds when chief:0 exits 0; the workers train by themselves" in planned.stdout
    )
    assert warned not in distrun("validate", spec, "--set", "workers=coordinated").stderr

    # `run` reads the script, and says so.
    words = ("-n", "2", "--ps", "1", "--env", "COUNT=2", "train.py")
    told = "workers: independent, because train.py:4:5 uses tf.compat.v1.train.MonitoredTraining"
    printed = distrun("run", "--print-spec", *words)
    assert "workers: independent\ncluster:\n  worker: 2\n  ps: 1\n" in printed.stdout
    assert printed.stderr.count(told) == 1
    printed = distrun("run", "--print-spec", "--set", "workers=coordinated", *words)
    assert "chief: 1" in printed.stdout
    assert told not in printed.stderr


def test_an_evaluator_that_stays_down_is_told_of_with_its_cause(distrun: Distrun) -> None:
    script = "[ $DISTRUN_TASK = evaluator:0 ] && exit 7; while ! test -e go; do sleep 0.02; done"
    spec = distrun.write_spec(script, cluster={"worker": 1, "evaluator": 1})
    launched = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)
    wait_until(lambda: "VerdictReached" in distrun("events", "--json").stdout)
    (distrun.cwd / "go").touch()
    _, said = launched.communicate(timeout=30)
    assert launched.returncode == 0
    assert "evaluator:0 has failed and stays down; the job continues without it" in said
    assert "first cause: evaluator:0 exited 7" in said

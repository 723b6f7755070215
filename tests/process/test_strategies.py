"""What each strategy means to a launch: environment, success, who is stopped then."""

from __future__ import annotations

import json

import pytest

from harness.command import Distrun


def test_a_strategy_of_one_process_gets_no_tf_config(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["elsewhere:1"]}}))
    script = "echo ${TF_CONFIG-none} $DISTRUN_STRATEGY $DISTRUN_TASK"
    done = distrun.launch(script, workers=1, strategy="tpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "worker:0 | none tpu worker:0\n"


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
    tasks = distrun.status()["tasks"]
    found = {task["task"]: task["state"] for task in tasks}
    assert found.pop("ps:0") == "stopped"
    assert set(found.values()) == {"succeeded"}
    assert {task["attempt"] for task in tasks} == {0}

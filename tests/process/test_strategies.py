"""What each strategy means to a launch: environment, success, who is stopped then."""

from __future__ import annotations

import json

import pytest

from harness.command import Distrun, Status


def states(status: Status) -> dict[str, str]:
    return {task["task"]: task["state"] for task in status()["tasks"]}


@pytest.mark.parametrize("strategy", ["default", "tpu"])
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

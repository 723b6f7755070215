"""What each strategy means to a launch: environment, success, who is stopped then."""

from __future__ import annotations

import pytest

from harness.command import Distrun

# The workers exit 0 as soon as they have "trained"; those that decide wait for them, and save.
TRAINS = """
case $DISTRUN_TASK in
    ps:*) exec sleep 600 ;;
    {decides}) while ! test -e worker:1.done; do sleep 0.02; done; sleep 0.3; touch saved ;;
    *) touch $DISTRUN_TASK.done ;;
esac
"""


@pytest.mark.parametrize("decides", ["chief:0", "worker:0"])
def test_independent_workers_that_exit_0_have_finished(distrun: Distrun, decides: str) -> None:
    spec = distrun.write_spec(
        TRAINS.format(decides=decides),
        strategy="parameter_server",
        cluster={"worker": 2, "ps": 1, **({"chief": 1} if decides == "chief:0" else {})},
        restart={"max": 3, "backoff": "10ms"},
    )
    done = distrun("launch", spec, "--set", "workers=independent")
    assert done.returncode == 0, done.stderr
    assert (distrun.cwd / "saved").exists(), "stopped before it had saved"
    found = {each["task"]: (each["state"], each["attempt"]) for each in distrun.status()["tasks"]}
    assert found.pop("ps:0") == ("stopped", 0)
    assert set(found.values()) == {("succeeded", 0)}

"""Real training: lost hosts at moments drawn by SEED, the real MNIST."""

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import host_fixtures
from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.network import pid_on_host
from harness.preloaded import PreloadedPython
from harness.training import DEADLINE, MAIN, Process, workers
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
network, ssh = host_fixtures.network, host_fixtures.ssh
SEED = int(os.environ.get("SEED", "1"))
STEPS, SAVE_EVERY = 12, 5
LEASE = 10.0
# A fork of the preloaded interpreter dies a little later than its task.
RESTART = {"max": 3, "backoff": "3s", "backoff_max": "3s", "min_workers": 2}


def epochs(distrun: Distrun) -> dict[int, tuple[int, float]]:
    log = distrun("logs", "--raw", "-t", "worker:0").stdout
    pattern = r"^epoch (\d+)/\d+  step (\d+) .*test_accuracy ([\d.]+)"
    return {int(n): (int(s), float(a)) for n, s, a in re.findall(pattern, log, re.MULTILINE)}


# The number of epochs is decided while it trains.
OPEN_ENDED = """\
import sys
sys.path.insert(0, {mnist!r})
sys.argv += ["--epochs", open({epochs!r}).read()]
from main import main
sys.exit(main(sys.argv[1:]))
"""


def test_training_continues_with_fewer_workers_and_grows_back_at_the_next_restart(
    preloaded: PreloadedPython,
    record_property: Callable[[str, object], None],
    ssh: Ssh,
    distrun: Distrun,
) -> None:
    """The host of the last worker dies, returns, and then a process dies, at drawn moments."""
    on = ssh.hosts(3)
    chooser = random.Random(SEED)
    script, count = distrun.cwd / "train.py", distrun.cwd / "epochs"
    script.write_text(OPEN_ENDED.format(mnist=str(MAIN.parent), epochs=str(count)))
    count.write_text("10000")
    arguments = [
        "--dataset", "synthetic", "--checkpoint-dir", str(distrun.cwd / "elastic"),
        "--optimizer", "adam", "--learning-rate", "0.003", "--batch-size", "16",
        "--steps-per-epoch", str(STEPS), "--checkpoint-every", str(SAVE_EVERY),
    ]  # fmt: skip
    program = {"script": "train.py", "python": preloaded.interpreter, "args": arguments}
    spec = ssh.spec(
        "", on, "elastic", program=program, cluster={"worker": 3}, restart=RESTART,
        timeouts={"link": f"{LEASE}s"},
    )  # fmt: skip
    distrun.checked("launch", "-d", spec, timeout=DEADLINE)

    def train(least: int = 0) -> int:
        """Let it train for some drawn steps, and to this one at least; returns the last step."""
        moment = max(least, last_step(distrun) + chooser.randrange(2, 2 * STEPS))
        print(f"seed {SEED}: until step {moment}")  # shown if the test fails
        wait_until(lambda: last_step(distrun) >= moment, DEADLINE)
        return last_step(distrun)

    def workers() -> int:
        return len(distrun.status()["tasks"])

    reached = train(SAVE_EVERY + 1)
    on[2].power_off()
    wait_until(lambda: workers() == 2, DEADLINE)
    on[2].restart()
    wait_until(lambda: states(distrun)["h3"] == "spare", DEADLINE)
    reached = train(reached + SAVE_EVERY + 2)  # two workers save at least once
    assert workers() == 2, "a host that is back restarts nothing"
    count.write_text(str(reached // STEPS + 3))
    (pid,) = [each["pid"] for each in distrun.status()["tasks"] if each["task"] == "worker:1"]
    (victim,) = [each for each in ssh.processes(on[1]) if pid_on_host(each) == pid]
    victim.kill()
    distrun.checked("wait", timeout=DEADLINE)
    log = distrun("logs", "--raw", "-t", "worker:0").stdout
    assert [int(each) for each in re.findall(r", (\d+) images a step", log)] == [48, 32, 48]
    assert [each["workers"] for each in distrun.status()["replacements"]] == [2, 3]
    found = epochs(distrun)
    record_property("table", f"seed {SEED}: {found}")
    assert list(found) == [*range(1, reached // STEPS + 4)], "an epoch is missing"
    assert {step for step, _ in found.values()} == {STEPS}
    assert found[max(found)][1] > found[1][1]
    resumed = re.findall(r"^resumed from .*: epoch (\d+), after step (\d+)", log, re.MULTILINE)
    first, second = ((int(epoch) - 1) * STEPS + int(step) for epoch, step in resumed)
    assert 0 < first < second <= reached + STEPS
    assert second >= reached - SAVE_EVERY - 1


def last_step(distrun: Distrun) -> int:
    return max(int(each["progress"].get("STEP", 0)) for each in distrun.status()["tasks"])


def states(distrun: Distrun) -> dict[str, str]:
    return {each["name"]: each["state"] for each in distrun.status()["hosts"]}


MNIST = Path(
    os.environ.get("DISTRUN_TEST_MNIST")
    or Path(__file__).parents[2].parent / "shared" / "data" / "mnist.npz"
)


def results(process: Process) -> list[dict[str, float]]:
    """The numbers of the epochs, without the times, which each worker measures itself."""
    return [
        {key: row[key] for key in row if key not in {"speed", "seconds"}} for row in process.epochs
    ]


@pytest.mark.mnist
@pytest.mark.skipif(
    not MNIST.exists(), reason=f"the real MNIST is not at {MNIST} (put mnist.npz there)"
)
def test_learns_mnist_as_in_the_tutorials(preloaded: PreloadedPython) -> None:
    with workers(preloaded, 2, "--data-dir", str(MNIST.parent)) as (first, second):
        assert (first.finish(300), second.finish()) == (0, 0)
    assert results(first) == results(second)
    losses = [row["loss"] for row in first.epochs]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    assert first.epochs[-1]["accuracy"] >= 0.93
    assert first.epochs[-1]["test_accuracy"] >= 0.93

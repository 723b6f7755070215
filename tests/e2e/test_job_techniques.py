"""The techniques of the tutorials: scripts in one process, and launches of clusters."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.training import MAIN, Alone, RunPython, Workers, notified

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(800)]

TECHNIQUES = Path(__file__).parent / "techniques"
APART = """
import sys
import numpy as np
import tensorflow as tf


def weights(path):
    reader = tf.train.load_checkpoint(path)
    keys = [key for key in reader.get_variable_to_shape_map() if key.startswith("model/layer")]
    return {key: reader.get_tensor(key) for key in keys if "OPTIMIZER_SLOT" not in key}


def way(one, other):
    one, other = weights(one), weights(other)
    assert len(one) == len(other) == 6, sorted(one)
    return np.sqrt(sum(float(np.sum((one[key] - other[key]) ** 2)) for key in one))


of_two, of_one = sys.argv[1:]
apart = way(f"{of_two}/ckpt-2", f"{of_one}/ckpt-2")
print(apart / way(f"{of_one}/ckpt-1", f"{of_one}/ckpt-2"))
"""
ONE_AND_TWO = 1e-3
"""The largest distance between the final weights of one process and of two workers, as a share of
the distance that one moves in its second epoch. Sums in another order cause 3e-6 of it. The
auto-shard policy OFF, or a loss divided by the worker's own batch, causes about 0.5."""


@pytest.fixture
def script(run_python: RunPython) -> Callable[..., None]:
    """Run a script of the folder techniques, and check that it succeeded."""

    def run(name: str, *arguments: str) -> None:
        output = run_python(str(TECHNIQUES / name), *arguments, cwd=MAIN.parent)
        assert "all is as it must be" in output

    return run


def test_replicas_have_the_gradients_of_the_mean_over_the_global_batch(
    script: Callable[..., None],
) -> None:
    script("gradients.py")


def test_every_way_to_train_comes_to_the_same(
    script: Callable[..., None], small_mnist: Path, tmp_path: Path
) -> None:
    script("loops.py", str(small_mnist), str(tmp_path))


def test_corners_of_one_process(
    script: Callable[..., None], small_mnist: Path, tmp_path: Path
) -> None:
    script("corners.py", str(small_mnist), str(tmp_path))


def test_fit_on_servers_is_stopped_and_goes_on(script: Callable[..., None], tmp_path: Path) -> None:
    script("fit_on_servers.py", str(tmp_path / "saved"))


def epoch_of(lines: list[str], number: int) -> str:
    """The line of an epoch without its times."""
    (line,) = (line for line in lines if line.startswith(f"epoch {number}/"))
    return re.sub(r"(images/s|seconds) [\d.]+ *", "", line)


def numbers(line: str) -> list[float]:
    return [float(word) for word in re.findall(r" ([\d.]+)", line.partition("/")[2])]


def test_two_workers_summarize_and_save_by_one_of_them(
    alone: Alone, workers: Workers, run_python: RunPython, small_mnist: Path, tmp_path: Path
) -> None:
    saved, logs = tmp_path / "saved", tmp_path / "logs"
    common = ["--data-dir", str(small_mnist), "--steps-per-epoch", "8", "--learning-rate", "1e-4"]
    common += ["--l2", "0.01"]
    with workers(
        2, *common, "--epochs", "1", "--batch-size", "32", "--loop", "for", "--input",
        "distribute", "--reduction", "ring", "--checkpoint-dir", str(saved),
        "--summary-dir", str(logs),
    ) as pair:  # fmt: skip
        assert [process.finish() for process in pair] == [0, 0]
    said = re.compile(r"^first step after [\d.]+ s$", re.MULTILINE)
    assert all(said.search(process.output) for process in pair)
    assert epoch_of(pair[0].lines, 1) == epoch_of(pair[1].lines, 1)
    first_epoch = numbers(epoch_of(pair[0].lines, 1))
    assert [len(list((logs / part).iterdir())) for part in ("train", "test")] == [1, 1]

    # Model.fit resumes where the loop stopped.
    with notified() as (notify, told), workers(
        2, *common, "--epochs", "2", "--batch-size", "32", "--loop", "fit",
        "--checkpoint-dir", str(saved), DISTRUN_NOTIFY=notify,
    ) as pair:  # fmt: skip
        assert [process.finish() for process in pair] == [0, 0]
        # The accuracy tells an epoch's end from its last step, whose loss is that of one batch.
        epochs = [fields for fields in told() if "ACCURACY" in fields]
    # All workers report the mean over the global batch.
    assert [fields["STEP"] for fields in epochs] == ["16"] * 2
    ends = [float(fields["LOSS"]) for fields in epochs]
    assert ends == pytest.approx([ends[0]] * len(ends), rel=1e-5)
    assert all("resumed from ckpt-1" in process.output for process in pair)
    assert {path.name for path in tmp_path.iterdir()} == {"saved", "logs"}

    # One process with the same global batches: with both inputs, the workers share them.
    one = tmp_path / "one"
    with alone(
        *common, "--epochs", "2", "--batch-size", "64", "--checkpoint-dir", str(one)
    ) as job:  # fmt: skip
        assert job.finish() == 0
    assert numbers(epoch_of(job.lines, 1)) == pytest.approx(first_epoch, abs=2e-3)

    tested = re.search(r"test_(accuracy [\d.]+)", epoch_of(pair[0].lines, 2))
    assert tested
    apart = run_python("-c", APART, str(saved), str(one), cwd=tmp_path)
    assert float(apart) <= ONE_AND_TWO
    with alone("--data-dir", str(small_mnist), "--evaluate", str(saved)) as job:
        assert job.finish() == 0
    assert f"ckpt-2 (epoch 2): test_{tested[1]}" in job.lines[-1]


def test_sigterm_in_an_epochs_loop_and_in_fit(
    alone: Alone, small_mnist: Path, tmp_path: Path
) -> None:
    arguments = ["--data-dir", str(small_mnist), "--checkpoint-dir", str(tmp_path)]
    endless = ["--steps-per-epoch", "100000"]
    steps = [0]
    for more in (["--loop", "epoch", "--checkpoint-every", "5"], ["--loop", "fit"]):
        with alone(*arguments, *endless, *more) as job:
            job.wait_for(r"resumed from .*, after step \d+" if steps[-1] else "images a step")
            job.send(signal.SIGTERM)
            saved = job.wait_for(r"preempted at epoch 1, after step (\d+): saved in")
            assert job.finish() == 42
        steps.append(int(saved[1]))
    assert steps[1] % 5 == 0  # between two calls
    assert steps[2] >= steps[1]
    with alone(*arguments, "--steps-per-epoch", str(steps[2] + 2), "--epochs", "1") as job:
        resumed = job.wait_for(r"resumed from .*: epoch 1, after step (\d+)")
        assert job.finish() == 0
    assert int(resumed[1]) == steps[2]
    assert job.epochs[0]["step"] == steps[2] + 2


SPEC = """\
name: fit
strategy: parameter_server
cluster: {{chief: 1, worker: 1, ps: 2}}
program:
  script: mnist
  python: {python}
  args: [--loop, fit, --epochs, 2, --steps-per-epoch, all, --batch-size, 80,
    --checkpoint-dir, saved]
"""


def test_fit_on_parameter_servers(
    distrun: Distrun, preloaded: PreloadedPython, alone: Alone, small_mnist: Path
) -> None:
    (distrun.cwd / "job.yaml").write_text(SPEC.format(python=preloaded.interpreter))
    with np.load(small_mnist / "mnist.npz") as archive:
        np.savez(distrun.cwd / "mnist.npz", **{name: archive[name][:500] for name in archive})
    done = distrun("launch", "job.yaml", "--", "--data-dir", str(distrun.cwd), timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.partition("| ")[2] for line in done.stdout.splitlines() if "chief:0" in line]
    assert "epoch 2/2  step 7  accuracy" in done.stdout
    assert said[-1] == "14 steps scheduled, optimizer.iterations 14: no update lost"
    states = json.loads(distrun("status", "--json").stdout)["job"]["tasks"]
    told = {state["task"]: state["progress"] for state in states}
    assert (told["chief:0"]["STEP"], told["chief:0"]["EPOCH"]) == (14, 2)
    # Variables that were in two parts on two ps are whole without a strategy.
    accuracy = re.search(r"test_accuracy [\d.]+", epoch_of(said, 2))
    assert accuracy
    with alone(
        "--data-dir", str(distrun.cwd), "--evaluate", str(distrun.cwd / "saved")
    ) as job:  # fmt: skip
        assert job.finish() == 0
    assert f"ckpt-2 (epoch 2): {accuracy[0]}" in job.lines[-1]


def test_two_parameter_servers_share_the_variables_and_divide_global_batches(
    distrun: Distrun, preloaded: PreloadedPython, small_mnist: Path
) -> None:
    spec = SPEC.format(python=preloaded.interpreter)
    (distrun.cwd / "job.yaml").write_text(spec.partition("  args:")[0])
    options = "--input distribute --optimizer adam --model cnn"
    steps = "--epochs 1 --steps-per-epoch 6 --summary-dir logs --learning-rate 1e-30"
    arguments = [*options.split(), *steps.split(), "--data-dir", str(small_mnist)]
    done = distrun("launch", "job.yaml", "--", *arguments, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.partition("| ")[2] for line in done.stdout.splitlines() if "chief:0" in line]
    assert any("replicas 1, chief 1, worker 1, ps 2" in line for line in said)
    assert said[-1] == "6 steps scheduled, optimizer.iterations 6: no update lost"
    # LOSS is the mean over one batch: with untrained weights, near the mean over the epoch, but
    # another number.
    states = json.loads(distrun("status", "--json").stdout)["job"]["tasks"]
    (told,) = (state["progress"] for state in states if state["task"] == "chief:0")
    (loss,) = (float(word) for word in re.findall(r" loss ([\d.]+)", epoch_of(said, 1)))
    assert 0 < abs(float(told["LOSS"]) - loss) < 0.5

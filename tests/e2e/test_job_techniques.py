"""The techniques of the tutorials, in one process and in clusters; the job's workarounds."""

import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.processes import captured
from harness.tables import read_program
from harness.training import MAIN, Alone, RunPython, Workers, notified
from harness.values import not_none
from harness.waiting import wait_until
from mnist_job import workarounds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(800)]

TECHNIQUES = Path(__file__).parent / "techniques"
ONE_AND_TWO = 1e-3
"""The largest distance between the final weights of one process and of two workers, as a share of
the distance that one moves in its second epoch. Sums in another order cause 3e-6 of it. The
auto-shard policy OFF, or a loss divided by the worker's own batch, causes about 0.5."""


@pytest.mark.parametrize("name", ["gradients.py", "loops.py"])
def test_one_process(name: str, run_python: RunPython, small_mnist: Path, tmp_path: Path) -> None:
    """Gradients of any number of replicas; all ways to train and to resume."""
    script = str(TECHNIQUES / name)
    output = run_python(script, str(small_mnist), str(tmp_path), cwd=MAIN.parent)
    assert "all is as it must be" in output


def epoch_of(lines: list[str], number: int) -> str:
    (line,) = (line for line in lines if line.startswith(f"epoch {number}/"))
    return re.sub(r"(images/s|seconds) [\d.]+ *", "", line)


def numbers(line: str) -> list[float]:
    return [float(word) for word in re.findall(r" ([\d.]+)", line.partition("/")[2])]


def test_two_workers_summarize_and_save_by_one_of_them(
    alone: Alone, workers: Workers, run_python: RunPython, small_mnist: Path, tmp_path: Path
) -> None:
    saved, logs = tmp_path / "saved", tmp_path / "logs"
    common = ["--data-dir", str(small_mnist), "--steps-per-epoch", "4", "--learning-rate", "1e-4"]
    common += ["--l2", "0.01", "--model", "cnn"]
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
        2, *common, "--epochs", "2", "--batch-size", "32", "--loop", "fit", "--reduction", "nccl",
        "--checkpoint-dir", str(saved), DISTRUN_NOTIFY=notify, CUDA_VISIBLE_DEVICES="-1",
    ) as pair:  # fmt: skip
        assert [process.finish() for process in pair] == [0, 0]
        # The accuracy tells an epoch's end from its last step, whose loss is that of one batch.
        epochs = [fields for fields in told() if "ACCURACY" in fields]
    # All workers report the mean over the global batch.
    assert [fields["STEP"] for fields in epochs] == ["8"] * 2
    ends = [float(fields["LOSS"]) for fields in epochs]
    assert ends == pytest.approx([ends[0]] * len(ends), rel=1e-5)
    for process in pair:
        assert "resumed from ckpt-1" in process.output
        assert "nccl needs GPUs, and this process has none: TensorFlow uses gRPC" in process.lines
    assert {path.name for path in tmp_path.iterdir()} == {"saved", "logs"}

    # One process with the same global batches: with both inputs, the workers share them.
    one = tmp_path / "one"
    with alone(
        *common, "--epochs", "2", "--batch-size", "64", "--checkpoint-dir", str(one)
    ) as job:  # fmt: skip
        assert job.finish() == 0
    assert numbers(epoch_of(job.lines, 1)) == pytest.approx(first_epoch, abs=2e-3)
    assert (
        float(run_python("-c", read_program("apart.py"), str(saved), str(one), cwd=tmp_path))
        <= ONE_AND_TWO
    )


def write_spec(distrun: Distrun, python: PreloadedPython, servers: int, args: str) -> None:
    program = {"script": "mnist", "python": python.interpreter, "args": args.split()}
    cluster = {"chief": 1, "worker": 1, "ps": servers}
    distrun.write_spec("", strategy="parameter_server", cluster=cluster, program=program)


def test_fit_on_parameter_servers(
    distrun: Distrun, preloaded: PreloadedPython, alone: Alone, small_mnist: Path
) -> None:
    arguments = "--loop fit --epochs 2 --steps-per-epoch all --batch-size 80 --checkpoint-dir saved"
    write_spec(distrun, preloaded, 2, arguments)
    with np.load(small_mnist / "mnist.npz") as archive:
        np.savez(distrun.cwd / "mnist.npz", **{name: archive[name][:500] for name in archive})
    done = distrun.checked("launch", "job.yaml", "--", "--data-dir", str(distrun.cwd), timeout=200)
    said = [line.partition("| ")[2] for line in done.stdout.splitlines() if "chief:0" in line]
    assert "epoch 2/2  step 7  accuracy" in done.stdout
    assert said[-1] == "14 steps scheduled, optimizer.iterations 14: no update lost"
    told = {task["task"]: task["progress"] for task in distrun.status()["tasks"]}
    assert (told["chief:0"]["STEP"], told["chief:0"]["EPOCH"]) == (14, 2)
    # Variables that were in two parts on two ps are whole without a strategy.
    accuracy = not_none(re.search(r"test_accuracy [\d.]+", epoch_of(said, 2)))
    saved = ["--data-dir", str(distrun.cwd), "--evaluate", str(distrun.cwd / "saved")]
    with alone(*saved) as job:
        assert job.finish() == 0
    assert f"ckpt-2 (epoch 2): {accuracy[0]}" in job.lines[-1]


def test_it_leaves_without_deleting_anything_and_flushes_what_is_written() -> None:
    left = captured([sys.executable, "-c", read_program("leaves.py")], cwd=MAIN.parent)
    assert (left.returncode, left.stderr) == (42, "")
    assert left.stdout == "written the generated code is removed\n"


def test_tensorflow_is_imported_with_keras_2_and_without_gc(run_python: RunPython) -> None:
    assert run_python("-c", read_program("imports.py"), cwd=MAIN.parent) == "tf_keras 2"


def test_a_clouds_metadata_service_is_not_found(run_python: RunPython) -> None:
    assert run_python("-c", read_program("cloud.py"), cwd=MAIN.parent) == "GCE_CPU INTERNAL_CPU"


@pytest.mark.parametrize(
    ("strategy", "steps", "compiles"),
    [
        ("default", 150, True), ("multi_worker_mirrored", 1000, True), ("default", 149, False),
        ("tpu", 1000, False), ("parameter_server", 1000, False),
    ],
)  # fmt: skip
def test_updates_are_compiled_where_it_pays(strategy: str, steps: int, compiles: bool) -> None:
    # Keras sets it where it finds a GPU.
    optimizer = SimpleNamespace(jit_compile=True)
    workarounds.compile_updates(optimizer, strategy, steps)
    assert optimizer.jit_compile is compiles


SAVED = re.compile(r"preempted at epoch 1, after step (\d+): saved in saved")


def test_sigterm_saves(distrun: Distrun, preloaded: PreloadedPython, small_mnist: Path) -> None:
    write_spec(
        distrun, preloaded, 1, "--epochs 1 --model cnn --batch-size 8 --checkpoint-dir saved"
    )
    arguments = ["--", "--data-dir", str(small_mnist), "--steps-per-epoch", "100000"]

    def launched(*more: str) -> str:
        done = distrun.checked("launch", "-d", "job.yaml", *arguments, *more)
        return str(done.stdout.strip())

    def tasks(job: str) -> dict[str, dict[str, Any]]:
        return {task["task"]: task for task in distrun.status(job)["tasks"]}

    def trains(job: str) -> bool:
        # Reading the log costs less than asking for the status.
        log = distrun.home / "jobs" / job / "logs" / "chief-0.log"
        if not (log.exists() and re.search("^first .* after", log.read_text(), re.MULTILINE)):
            return False
        state = tasks(job)["chief:0"]
        assert state["state"] in {"starting", "running"}, distrun.asked("status", job)
        return int(state["progress"].get("STEP", 0)) > 0

    first = launched()
    wait_until(lambda: trains(first), timeout=120)
    os.kill(tasks(first)["ps:0"]["pid"], signal.SIGTERM)
    assert distrun("wait", first, timeout=60).returncode == 42
    saved = not_none(SAVED.search(distrun.asked("logs", first, "-t", "chief:0")))
    assert int(saved[1]) > 0

    second = launched("--loop", "fit")
    wait_until(lambda: trains(second), timeout=120)
    distrun.checked("kill", second, timeout=60)
    output = distrun.asked("logs", second, "-t", "chief:0")
    resumed = re.search(r"resumed from ckpt-\d+ in saved: epoch 1, after step (\d+)", output)
    assert not_none(resumed)[1] == saved[1]
    assert int(not_none(SAVED.search(output))[1]) > int(saved[1])


def test_a_workers_data_are_packed_and_begin_anew_nowhere(run_python: RunPython) -> None:
    assert "all is as it must be" in run_python("-c", read_program("own_order.py"), cwd=MAIN.parent)


def test_a_save_without_its_worker_is_retried_and_a_full_disk_told(run_python: RunPython) -> None:
    assert run_python("-c", read_program("saved_again.py"), cwd=MAIN.parent) == "saved\nfull 2"

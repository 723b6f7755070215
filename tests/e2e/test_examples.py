"""The example scripts by hand with TF_CONFIG, and all templates by `distrun init` and `launch`."""

import re
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.parts.settings import examples, templates
from harness.parts.top import STRATEGIES
from harness.preloaded import PreloadedPython
from harness.training import Process, cluster, held_port
from harness.values import not_none
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SHORT = ("--epochs", "1", "--steps-per-epoch", "4")
SYNTHETIC = ("--synthetic",)
EVALUATOR = ("cluster.evaluator=1", "timeouts.grace=60s")
LOSS_AND_ACCURACY = r"(?i)(?=.*\baccuracy: \d\.\d)(?=.*loss: \d+\.\d)"
TWO_REPLICAS = """
import runpy, sys
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(8)  # for two replicas on two cores
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
KILLED_AFTER_A_BACKUP = """
import os, runpy, signal, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
class Backup(tf.keras.callbacks.BackupAndRestore):
    def on_epoch_end(self, *args, **options):
        super().on_epoch_end(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
tf.keras.callbacks.BackupAndRestore = Backup
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# The download itself cannot be had in a test: a copy takes its place.
WITH_DOWNLOAD = """
import os, runpy, shutil, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
source, *sys.argv = sys.argv[1:]
def get_file(name, url):
    assert url.endswith("/mnist.npz"), url
    return shutil.copy(source, os.path.expanduser(f"~/.keras/datasets/{name}"))
tf.keras.utils.get_file = get_file
runpy.run_path(sys.argv[0], run_name="__main__")
"""

ByHand = Callable[..., AbstractContextManager[list[Process]]]


@pytest.fixture
def by_hand(preloaded: PreloadedPython, small_mnist: Path, tmp_path: Path) -> ByHand:
    """Start a script once for each task, as a user does who writes each TF_CONFIG."""
    mnist = ("--data-dir", str(small_mnist))

    def start(
        argv: Sequence[str], tasks: Sequence[str], *more: str, data: Sequence[str] = mnist
    ) -> AbstractContextManager[list[Process]]:
        return cluster(preloaded, [*argv, *data], tasks, *more, cwd=tmp_path)

    return start


@pytest.fixture
def launch(distrun: Distrun, preloaded: PreloadedPython, small_mnist: Path) -> Callable[..., str]:
    """Write an example with `distrun init`, launch it, and return the output of its tasks."""
    mnist = ("--data-dir", str(small_mnist))

    def run(
        name: str, *arguments: str, settings: Sequence[str] = (), data: Sequence[str] = mnist
    ) -> str:
        if not Path(distrun.cwd, f"{name}.yaml").exists():
            assert distrun("init", name).returncode == 0
        settings = [f"program.python={preloaded.interpreter}", *settings]
        options = [word for setting in settings for word in ("--set", setting)]
        done = distrun.checked(
            "launch", f"{name}.yaml", *options, "--", *data, *arguments, timeout=200
        )
        return str(done.stdout)

    return run


def path_of(name: str) -> str:
    return str(examples()[name])


def epochs(output: str, first_word: str = "Epoch") -> list[str]:
    lines = [line.partition("| ")[2] if "| " in line else line for line in output.splitlines()]
    return [line for line in lines if line.startswith(first_word)]


def test_custom_loop_resumes(by_hand: ByHand, launch: Callable[..., str], tmp_path: Path) -> None:
    saved = tmp_path / "training_checkpoints"
    whole = epochs(launch("custom_loop", *SHORT, "--epochs", "2"))
    for file in saved.glob("ckpt-2.*"):
        file.unlink()
    (saved / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\n')
    output = launch("custom_loop", *SHORT, "--epochs", "2")
    assert "Resumed from training_checkpoints/ckpt-1: 1 epochs" in output
    assert epochs(output) == [whole[1]]  # to the last digit
    tested = re.search(r"Test Accuracy: ([\d.]+)", whole[1])
    assert tested
    assert f"after restoring the saved model without strategy: {tested[1]}" in output

    argv = ["-c", TWO_REPLICAS, path_of("custom_loop")]
    with by_hand(argv, ["worker:0"], *SHORT, "--epochs", "3", data=SYNTHETIC) as (process,):
        assert process.finish() == 0, process.output
    assert "Number of devices: 2" in process.lines
    (third,) = epochs(process.output)
    assert third.startswith("Epoch 3, ")
    assert re.search(LOSS_AND_ACCURACY, third)


def test_multi_worker_resumes(by_hand: ByHand, launch: Callable[..., str], tmp_path: Path) -> None:
    saved = tmp_path / "checkpoints"
    argv, endless = [path_of("multi_worker")], ("--steps-per-epoch", "1000000")
    every = ("--checkpoint-every", "3")
    with by_hand(argv, ["worker:0", "worker:1"], *endless, *every, data=SYNTHETIC) as pair:
        wait_until((saved / "checkpoint").exists, 200)
        for process in pair:
            process.send(signal.SIGKILL)
        for process in pair:
            assert process.finish() == -signal.SIGKILL, process.output
    match = re.search(r'model_checkpoint_path: "ckpt-(\d+)"', (saved / "checkpoint").read_text())
    assert match
    steps = 3 * int(match[1])

    short = ("--epochs", "1", "--steps-per-epoch", str(steps + 2))
    output = launch("multi_worker", *short, settings=EVALUATOR)
    resumed = f"Resumed from checkpoints/ckpt-{match[1]}: 0 epochs, {steps} steps"
    assert {*re.findall(rf"(worker:\d) +\| {resumed}", output)} == {"worker:0", "worker:1"}
    first, second = epochs(output)
    assert first == second
    assert re.search(LOSS_AND_ACCURACY, first)
    last = f"ckpt-{int(match[1]) + 1}"
    assert re.search(rf"evaluator:0 +\| Evaluated checkpoints/{last}: 1 epoch", output), output
    assert "Traceback" not in output
    assert {path.name.partition(".")[0] for path in saved.iterdir()} == {"checkpoint", last}, (
        "the other worker has not removed its files, or the evaluator has saved"
    )


def test_keras_fit_continues(by_hand: ByHand, launch: Callable[..., str], tmp_path: Path) -> None:
    """Launched with an evaluator without a break, and killed and resumed by hand."""
    workers, argv = ["worker:0", "worker:1"], [path_of("keras_fit")]
    more = ("--epochs", "2", "--steps-per-epoch", "2")

    def last_numbers(output: str) -> str:
        numbers = r"loss: [\d.]+ - accuracy: [\d.]+ - val_loss: [\d.]+ - val_accuracy: [\d.]+"
        return str(re.findall(rf"2/2 - .* ({numbers})", output)[-1])

    output = launch("keras_fit", *more, "--checkpoint-dir", "whole", settings=EVALUATOR)
    lines = output.splitlines()
    launched = ["\n".join(each for each in lines if each.startswith(worker)) for worker in workers]
    assert re.search(r"evaluator:0 +\| \d+/\d+ - .* - accuracy: [\d.]+", output), output
    assert "Traceback" not in output
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {"checkpoint", "weights-1.index", "weights-2.index"} <= names
    assert not [name for name in names if "temp" in name or "evaluator" in name]
    killed = ["-c", KILLED_AFTER_A_BACKUP, *argv]
    with by_hand(killed, workers, *more) as pair:
        for process in pair:
            process.finish()
    with by_hand(argv, workers, *more) as pair:
        assert [process.finish() for process in pair] == [0, 0], pair[0].output
    assert "Epoch 1/2" not in pair[0].lines, "it has begun anew"
    resumed = [last_numbers(process.output) for process in pair]
    assert resumed == [last_numbers(each) for each in launched]


def test_ps_resumes_by_hand(by_hand: ByHand, launch: Callable[..., str], tmp_path: Path) -> None:
    settings = ("cluster.worker=1", *EVALUATOR)
    output = launch("parameter_server", *SHORT, "--epochs", "2", settings=settings)
    assert len(epochs(output, "Finished epoch")) == 2
    assert re.search(r"evaluator:0 +\| Evaluated ps_checkpoints/ckpt-2: 2 epoch", output), output
    assert "Traceback" not in output
    assert not list((tmp_path / "ps_checkpoints").glob("*evaluator*")), "an evaluator saves nothing"
    argv, tasks = [path_of("parameter_server")], ["chief:0", "worker:0", "ps:0"]
    with by_hand(argv, tasks, *SHORT, "--epochs", "3", data=SYNTHETIC) as (chief, *_):
        assert chief.finish() == 0, chief.output
    assert "Resumed from ps_checkpoints/ckpt-2: 2 epochs" in chief.lines
    (line,) = epochs(chief.output, "Finished epoch")
    assert line.startswith("Finished epoch 2, ")
    assert re.search(LOSS_AND_ACCURACY, line)
    assert re.search(r"Evaluation accuracy: \d", chief.lines[-1])


@pytest.mark.parametrize("name", sorted(examples()))
def test_an_example_without_data_says_what_to_do(
    name: str, by_hand: ByHand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody trains on something else than MNIST by mistake."""
    monkeypatch.setenv("HOME", str(tmp_path))
    tasks = ["chief:0", "worker:0", "ps:0"] if name == "parameter_server" else ["worker:0"]
    with by_hand([path_of(name)], tasks, *SHORT, data=("--data-dir", "nowhere")) as (process, *_):
        assert process.finish() == 1, process.output
    assert "--data-dir DIR" in process.lines[-1]
    assert "--synthetic" in process.lines[-1]


def test_a_torn_download_is_never_read(
    by_hand: ByHand, small_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task has a file of its own, which has its name only when it is complete."""
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / ".keras" / "datasets"
    cache.mkdir(parents=True)
    (cache / "mnist.npz").write_bytes(b"PK")  # what another task's killed download has left
    argv = ["-c", WITH_DOWNLOAD, str(small_mnist / "mnist.npz"), path_of("multi_worker")]
    with by_hand(argv, ["worker:0"], *SHORT, data=()) as (process,):
        assert process.finish() == 0, process.output
    (line,) = epochs(process.output)
    assert re.search(LOSS_AND_ACCURACY, line)
    assert {path.name for path in cache.iterdir()} == {"mnist.npz", "mnist-worker-0.npz"}


def test_data_service_launched(launch: Callable[..., str], distrun: Distrun) -> None:
    output = launch("data_service", *SHORT, data=SYNTHETIC)
    assert re.search(r"worker:0 +\| 4/4 - .* loss: [\d.]+ - accuracy: [\d.]+", output)
    for server in ("dispatcher:0", "data_worker:0", "data_worker:1"):
        assert re.search(rf"{server} +\| {server[:-2]} serves at localhost:\d+", output)
    told = distrun.asked("events")
    order = (
        *("dispatcher:0 is ready", "data_worker:0 started", "data_worker:0 is ready"),
        *("worker:0 started", "worker:0 exited 0", "data_worker:0 was killed by SIGTERM"),
    )
    at = [told.index(f"  {words}") for words in order]
    assert at == sorted(at)


PLAIN = Path(__file__).parent / "plain"
FEW_STEPS = ["--epochs", "2", "--steps-per-epoch", "4", "--model", "cnn", "--batch-size", "16"]
MORE = {"parameter_server_mnist": ["--input", "distribute", "--summary-dir", "logs"]}
PATIENT = ["--set", "timeouts.grace=100s"]
"""Time for an evaluator to finish on a busy machine."""

TWO = "multi_worker_mirrored: replicas 2, worker 2"
CHIEF = "multi_worker_mirrored: replicas 2, chief 1, worker 1"
AT = "cluster.worker=[localhost:{}, localhost:{}]"
TRAINERS: dict[tuple[str, ...], dict[str, str]] = {
    ("mirrored",): {"worker:0": "mirrored: replicas 2, "},
    ("multi_worker_mirrored", AT): {"worker:0": TWO, "worker:1": TWO},
    ("chief_and_workers",): {"chief:0": CHIEF, "worker:0": CHIEF},
    ("parameter_server_mnist",): {
        "chief:0": "parameter_server: replicas 1, chief 1, worker 2, ps 1",
    },
}
"""Templates, with the changes that they describe: the tasks that print each epoch, and what."""


def test_every_template_is_tested_here_and_names_every_strategy() -> None:
    known = templates()
    assert set(known) == {*(name for name, *_ in TRAINERS), "script", *examples()}
    assert len(known) <= 10
    texts = {name: path.read_text() for name, path in known.items()}
    assert not [name for name, text in texts.items() if "GLIBC_TUNABLES" in text]
    saved = r"(?:shared: \[|--checkpoint-dir(?:, |\", default=\"))(\w+)"
    texts |= {name: texts[name] + path.read_text() for name, path in examples().items()}
    folders = [each for text in texts.values() for each in {*re.findall(saved, text)}]
    assert len(folders) == len({*folders}) == 5, "none restores the checkpoints of another"
    for strategy in STRATEGIES:
        here = rf"^(strategy: |#   ){strategy}\b"
        assert any(re.search(here, text, re.MULTILINE) for text in texts.values()), strategy


def written(distrun: Distrun, name: str) -> Path:
    distrun.checked("init", name)
    return distrun.cwd / f"{name}.yaml"


def lines_of(stdout: str) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in stdout.splitlines():
        task, _, text = line.partition("|")
        lines.setdefault(task.strip(), []).append(text.removeprefix(" "))
    return lines


@pytest.mark.parametrize("changed", TRAINERS, ids="-".join)
def test_trains(
    changed: tuple[str, ...], distrun: Distrun, small_mnist: Path, preloaded: PreloadedPython
) -> None:
    name, *changes = changed
    spec = written(distrun, name)
    data = ["--data-dir", str(small_mnist)]
    with ExitStack() as stack:
        ports = [stack.enter_context(held_port()) for _ in range(2)]
        changes += [f"program.python={preloaded.interpreter}"]
        sets = [word for each in changes for word in ("--set", each.format(*ports))]
        words = [*PATIENT, *sets, "--", *data, *FEW_STEPS, *MORE.get(name, [])]
        done = distrun.checked("launch", spec.name, *words, timeout=200)
    lines = lines_of(done.stdout)
    for task, headline in TRAINERS[changed].items():
        assert any(line.startswith(headline) for line in lines[task]), done.stdout
        assert len([line for line in lines[task] if line.startswith("epoch ")]) == 2, done.stdout
    tasks = {task["task"]: task for task in distrun.status()["tasks"]}
    for task in TRAINERS[changed]:
        assert tasks[task]["state"] == "succeeded"
        assert tasks[task]["progress"]["STEP"] == 8
    if name == "chief_and_workers":  # the evaluator follows to the end
        last = lines["evaluator:0"][-1]
        tested = r"test_accuracy [\d.]+  test_loss [\d.]+  data: .*"
        assert re.fullmatch(rf"ckpt-2 \(epoch 2\): {tested}", last)
        # Not the last line: if the worker exits first, TensorFlow may print that.
        (trained,) = (line for line in lines["chief:0"] if line.startswith("epoch 2/2 "))
        assert not_none(re.search(r"test_accuracy [\d.]+", trained))[0] in last
        assert tasks["evaluator:0"]["state"] == "succeeded"
        assert tasks["evaluator:0"]["progress"]["EPOCH"] == 2
    if name == "parameter_server_mnist":
        assert lines["chief:0"][-1] == "8 steps scheduled, optimizer.iterations 8: no update lost"
        served = {tasks[name]["state"] for name in ("worker:0", "worker:1", "ps:0")}
        assert served <= {"stopped", "succeeded"}


def test_your_own_script(distrun: Distrun, preloaded: PreloadedPython) -> None:
    spec = written(distrun, "script")
    (distrun.cwd / "train.py").write_bytes((PLAIN / "replicas.py").read_bytes())
    python = ["--set", f"program.python={preloaded.interpreter}"]
    done = distrun.checked("launch", spec.name, *python, timeout=200)
    for worker in ("worker:0", "worker:1"):
        assert "replicas: the sum over 2 replicas is 3" in lines_of(done.stdout)[worker]

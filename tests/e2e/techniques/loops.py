"""Trains the same run in all the ways of one process, and compares the results.

Working folder: jobs/mnist. Arguments: a folder with the data, and a folder for results.
"""

import json
import os
import resource
import shutil
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path[:0] = [os.getcwd(), str(Path(__file__).parents[2])]
DATA, RESULTS = sys.argv[1:]
TOLERANCE = 1e-3
"""The largest distance between the final weights of two runs, as a share of the distance that the
weights of the reference move in its second epoch. On one replica, the weights are equal. Sums over
replicas differ in the last bit: 1e-6 was measured, and more if a ReLU or a pooling near a tie
amplifies it.
"""

import main  # noqa: E402
from harness.training import notified  # noqa: E402

COMMON = ["--data-dir", DATA, "--steps-per-epoch", "8", "--model", "cnn"]
COMMON += ["--l2", "0.001", "--learning-rate", "1e-4", "--batch-size", "32"]
TWO = ["--strategy", "mirrored", "--devices", "2", "--batch-size", "16"]
EPOCHS = ["--epochs", "2"]


KEPT = []
"""The iterators of every run: deleting those of several replicas takes seconds."""


def keep_pipelines() -> None:
    from mnist_job.loop import Loop

    prepare = Loop.prepare

    def prepare_and_keep(training) -> None:
        prepare(training)
        KEPT.append(training)

    Loop.prepare = prepare_and_keep


def run(*argv):
    """Returns (exit code, the lines said, those of errors)."""
    said, errors = StringIO(), StringIO()
    with redirect_stdout(said), redirect_stderr(errors):
        code = main.main([*argv])
    return code, said.getvalue().splitlines(), errors.getvalue().splitlines()


def train(name, *argv):
    """Trains into a folder of its own; returns the epochs' lines."""
    with notified() as (os.environ["DISTRUN_NOTIFY"], told):
        code, said, errors = run(*COMMON, *argv, "--checkpoint-dir", f"{RESULTS}/{name}")
        steps = [each for each in told() if "STEP" in each]
    assert code == 0, (name, said, errors)
    assert steps, f"{name} told no progress"
    assert (steps[-1]["STEP"], steps[-1]["EPOCH"]) == ("16", "2"), (name, steps)
    return [line for line in said if line.startswith("epoch ")]


def numbers(line):
    """An epoch's line without its times."""
    words = line.split()
    return [words[words.index(key) + 1] for key in ("step", "accuracy", "loss", "test_accuracy")]


def weights(name):
    """Those of a folder's newest checkpoint, or of one."""
    reader = tf.train.load_checkpoint(f"{RESULTS}/{name}")
    found = {
        key: reader.get_tensor(key)
        for key in reader.get_variable_to_shape_map()
        if key.startswith("model/layer_with_weights") and "OPTIMIZER_SLOT" not in key
    }
    assert len(found) == 8, sorted(found)
    return found


def way(one, other):
    return np.sqrt(sum(float(np.sum((one[key] - other[key]) ** 2)) for key in one))


def apart(name, reference="reference"):
    """The distance of a run's final weights from another's, as a share of TOLERANCE's distance."""
    moved = way(weights("reference/ckpt-1"), weights("reference"))
    return way(weights(name), weights(reference)) / moved


os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf  # noqa: E402

keep_pipelines()

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

reference = train("reference", *EPOCHS, "--summary-dir", f"{RESULTS}/logs")
assert way(weights("reference/ckpt-1"), weights("reference")) > 0.05

# Saved by two replicas in the middle of the first epoch, and resumed in all other ways.
code, said, errors = run(
    *COMMON, *TWO, "--reduction", "one_device", "--epochs", "1",
    "--checkpoint-every", "2", "--loop", "epoch", "--checkpoint-dir", f"{RESULTS}/saved",
)  # fmt: skip
assert code == 0, errors
assert np.allclose(
    [*map(float, numbers(said[-1]))], [*map(float, numbers(reference[0]))], atol=2e-3
)
# If TensorFlow's list of the checkpoints is lost or damaged, nothing is overwritten.
DAMAGE = {"epoch": None, "one-device-fit": b"\xff{", "two-for": b""}
kept = sorted(path.name for path in Path(RESULTS, "saved").glob("*.index"))
assert kept == ["ckpt-2.index", "ckpt-3.index", "ckpt-4.index"], kept
for name, argv in {
    "epoch": ["--loop", "epoch", "--input", "distribute"],
    "one-device-fit": ["--loop", "fit", "--strategy", "one_device"],
    "two-for": [*TWO, "--loop", "for", "--input=distribute", "--reduction=hierarchical_copy"],
    "two-fit": [*TWO, "--loop", "fit", "--input", "distribute"],
    "central-two": [*TWO, "--strategy=central_storage", "--devices=CPU:0,CPU:1"],
}.items():
    shutil.copytree(
        f"{RESULTS}/saved",
        f"{RESULTS}/{name}",
        ignore=shutil.ignore_patterns("ckpt-4.*", "ckpt-3.*"),
    )
    if name in DAMAGE:
        saved_list = Path(RESULTS, name, "checkpoint")
        saved_list.unlink()
        if (left := DAMAGE[name]) is not None:
            saved_list.write_bytes(left)
        code, said, errors = run(*COMMON, *argv, "--checkpoint-dir", f"{RESULTS}/{name}")
        assert code == 65, errors
        assert f"the list {saved_list} of ckpt-2 is lost" in errors[-1], errors
    tf.compat.v1.train.update_checkpoint_state(f"{RESULTS}/{name}", f"{RESULTS}/{name}/ckpt-2")
    said = train(name, *EPOCHS, *argv)
    assert max(path.name for path in Path(RESULTS, name).glob("*.index")) == "ckpt-4.index"
    print(f"resumed {name}: {apart(name):.1e} of the way apart", flush=True)
    assert apart(name) <= TOLERANCE
    for line, right in zip(said, reference, strict=True):
        found, wanted = numbers(line), numbers(right)
        assert np.allclose([float(x) for x in found], [float(x) for x in wanted], atol=2e-3), line

# Passes with a smaller last batch, from the beginning: two replicas and one fit give the same. In
# the second pass, a pooling near a tie would amplify what two replicas differ by.
few = Path(RESULTS, "few")
few.mkdir()
with np.load(f"{DATA}/mnist.npz") as archive:
    np.savez(few / "mnist.npz", **{name: archive[name][:500] for name in archive})
PASS = ["--data-dir", str(few), "--steps-per-epoch", "all", "--batch-size", "80"]
for name, same, argv in (
    ("pass", "pass", [*EPOCHS, "--loop", "for"]),
    ("pass-two", "pass/ckpt-1", ["--epochs", "1", *TWO, "--batch-size", "40"]),
    ("pass-fit", "pass", [*EPOCHS, "--loop", "fit"]),
):
    code, said, errors = run(*COMMON, *PASS, *argv, "--checkpoint-dir", f"{RESULTS}/{name}")
    assert code == 0, errors
    assert "step 7 " in said[-1], said  # of 500 images: six full batches, and one of 20
    print(f"{name}: {apart(name, same):.1e} of the way apart", flush=True)
    assert apart(name, same) <= TOLERANCE

# A file size limit acts like a full disk. An epoch whose only step is the first has a speed too.
may_write = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, may_write[1]))
code, said, errors = run(*COMMON, "--steps-per-epoch", "1", "--checkpoint-dir", f"{RESULTS}/full")
resource.setrlimit(resource.RLIMIT_FSIZE, may_write)
assert code == 65, errors
assert errors[-1].startswith(f"error: no checkpoint can be written to {RESULTS}/full: "), errors
assert "File too large" in errors[-1], errors
assert list(Path(f"{RESULTS}/full").iterdir()) == []
assert int(said[-1].split()[said[-1].split().index("images/s") + 1]) > 0, said


# An evaluation without a strategy prints the same numbers as the run.
def evaluate(*argv):
    return run("--data-dir", DATA, "--evaluate", *argv)


wanted = f"test_accuracy {numbers(reference[-1])[-1]}"
for path in ("two-for", "two-for/ckpt-4", "two-for/ckpt-4.index"):
    # An evaluation needs no learning rate: the table has none for its own batch.
    code, said, errors = evaluate(f"{RESULTS}/{path}", "--model", "cnn", "--learning-rate", "7:0.1")
    assert code == 0, errors
    assert said[-1].startswith("ckpt-4 (epoch 2): test_accuracy 0."), said
    assert float(said[-1].split()[4]) == float(wanted.split()[1]), (said, wanted)
    assert said[-1].endswith(f"data: mnist from {DATA}/mnist.npz, 101 images"), said
tf.train.Checkpoint(model=tf.Variable(1.0)).save(f"{RESULTS}/foreign/ckpt")
shutil.copytree(f"{RESULTS}/two-for", f"{RESULTS}/damaged")
Path(f"{RESULTS}/damaged/ckpt-4.data-00000-of-00001").write_bytes(b"x" * 100)
shutil.copytree(f"{RESULTS}/damaged", f"{RESULTS}/listless")
Path(f"{RESULTS}/listless/checkpoint").write_text("{")
Path(f"{RESULTS}/empty").mkdir()
for path, model, says in (
    ("two-for", "small_cnn", "it was trained with --model cnn, not small_cnn"),
    ("foreign", "cnn", "cannot be restored: Key counters/"),
    ("damaged", "cnn", "ckpt-4 cannot be restored"),
    ("listless", "cnn", "is lost: name one of them to --evaluate"),
    ("empty", "cnn", "there is no checkpoint at"),
    ("nowhere", "cnn", "there is no checkpoint"),
):
    code, said, errors = evaluate(f"{RESULTS}/{path}", "--model", model)
    assert code == 65, (path, said, errors)
    assert errors[-1].startswith("error: "), errors
    assert says in errors[-1], errors
code, _, errors = run(
    "--dataset", "synthetic", "--evaluate", f"{RESULTS}/two-for", "--model", "cnn"
)
assert code == 65
assert "it was trained with --dataset mnist, not synthetic" in errors[-1], errors
for more, says in (
    (["--model", "small_cnn"], "cannot be restored: it was trained with --model cnn"),
    (["--optimizer", "adam"], "cannot be restored: it was trained with --optimizer rmsprop"),
):
    code, _, errors = run(*COMMON, *more, "--checkpoint-dir", f"{RESULTS}/two-for")
    assert code == 65
    assert says in errors[-1], errors

# The evaluator polls while the chief writes the first checkpoint.
from tensorflow.python.training import checkpoint_utils  # noqa: E402

growing = Path(RESULTS, "growing")
shutil.copytree(f"{RESULTS}/two-for", growing, ignore=shutil.ignore_patterns("checkpoint"))
(growing / "ckpt-4.index").write_bytes(b"")
looks = []


def whole_after_a_look(_) -> None:
    looks.append(len(looks))
    assert looks == [0], "it was not evaluated when it was whole"
    for name in ("ckpt-4.index", "checkpoint"):
        shutil.copy(f"{RESULTS}/two-for/{name}", growing)


checkpoint_utils.time = SimpleNamespace(sleep=whole_after_a_look, time=time.time)
config = {"cluster": {"worker": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}}
os.environ["TF_CONFIG"] = json.dumps(config)
code, said, errors = run(
    "--data-dir", DATA, "--model", "cnn", "--epochs", "2", "--checkpoint-dir", str(growing)
)  # fmt: skip
del os.environ["TF_CONFIG"]
assert code == 0, errors
assert len(said) == 2, said
assert said[1].startswith(f"ckpt-4 (epoch 2): {wanted}  "), said


def summaries(folder: Path):
    """(tag, step) -> number, of the one file of events in a folder."""
    (path,) = Path(folder).iterdir()
    return {
        (value.tag, event.step): float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }


trained, tested = summaries(Path(RESULTS, "logs/train")), summaries(Path(RESULTS, "logs/test"))
assert ("batch_loss", 1) in trained
for epoch, line in enumerate(reference, 1):
    _, accuracy, loss, test_accuracy = map(float, numbers(line))
    assert abs(trained["epoch_accuracy", epoch] - accuracy) < 1e-3
    assert abs(trained["epoch_loss", epoch] - loss) < 1e-3
    assert abs(tested["epoch_accuracy", epoch] - test_accuracy) < 1e-3
    assert f"test_loss {tested['epoch_loss', epoch]:.3f}" in line
    assert trained["images_per_second", epoch] > 0
print("all is as it must be", flush=True)
os._exit(0)  # without deleting the iterators

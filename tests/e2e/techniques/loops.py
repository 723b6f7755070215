"""Trains the same run in all the ways of one process, and compares the results.

Working folder: jobs/mnist. Arguments: a folder with the data, and a folder for results.
"""

import json
import os
import resource
import shutil
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path.insert(0, os.getcwd())
DATA, RESULTS = sys.argv[1:]
TOLERANCE = 1e-3
"""The largest distance between the final weights of two runs, as a share of the distance that the
weights of the reference move in its second epoch. On one replica, the weights are equal. Sums over
replicas differ in the last bit: 1e-6 was measured, and more if a ReLU or a pooling near a tie
amplifies it.
"""

import main  # noqa: E402

watches = []
watch_of_main = main.launcher.SigtermWatch


def one_watch():
    """A second watch would wait for the same signal as the first, which ends with its run."""
    for watch in watches:
        watch.end()
    watches[:] = [watch_of_main()]
    return watches[0]


main.launcher.SigtermWatch = one_watch
one_watch()  # before numpy and TensorFlow start threads

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from mnist_job import launcher, loop, strategies  # noqa: E402

MNIST = ["--data-dir", DATA, "--model", "cnn"]
COMMON = [*MNIST, "--steps-per-epoch", "4", "--l2", "0.001", "--batch-size", "32"]
COMMON += ["--learning-rate", "1e-4"]
TWO = ["--strategy", "mirrored", "--devices", "2", "--batch-size", "16"]
EPOCHS = ["--epochs", "2"]

kept = []
prepare, take_steps = loop.Loop.prepare, loop.Loop.take_steps


def prepare_and_keep(training):
    prepare(training)
    kept.append(training)  # deleting iterators of several replicas takes seconds


loop.Loop.prepare = prepare_and_keep
reports: list[dict[str, Any]] = []
launcher.report = lambda **values: reports.append(values)
launcher.REPORT_INTERVAL = 0.0  # each step is reported, however fast it is
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def run(*argv):
    """Returns (exit code, the lines said, those of errors)."""
    said, errors = StringIO(), StringIO()
    reports.clear()
    with redirect_stdout(said), redirect_stderr(errors):
        code = main.main([*argv])
    return code, said.getvalue().splitlines(), errors.getvalue().splitlines()


def train(name, *argv):
    """Trains into a folder of its own; returns the epochs' lines."""
    code, said, errors = run(*COMMON, *argv, "--checkpoint-dir", f"{RESULTS}/{name}")
    assert code == 0, (name, said, errors)
    return [line for line in said if line.startswith("epoch ")]


def losses(of_epochs=False):
    """Those that the last run reported of its calls, or of its epochs."""
    return [
        each["LOSS"] for each in reports if "STEP" in each and ("ACCURACY" in each) is of_epochs
    ]


def numbers(line):
    words = line.split()
    names = ("step", "accuracy", "loss", "test_accuracy")
    return [float(words[words.index(name) + 1]) for name in names]


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


def check_same(name, reference):
    """The final weights of a run are as far from another's as TOLERANCE allows."""
    moved = way(weights("reference/ckpt-1"), weights("reference"))
    apart = way(weights(name), weights(reference)) / moved
    print(f"{name}: {apart:.1e} of the way apart", flush=True)
    assert apart <= TOLERANCE


reference = train("reference", *EPOCHS, "--summary-dir", f"{RESULTS}/logs")
assert way(weights("reference/ckpt-1"), weights("reference")) > 0.02
# The loss of an epoch is that of the weights before each step's update.
means = np.reshape(losses(), (2, 4)).mean(axis=1)
np.testing.assert_allclose(means, losses(of_epochs=True), rtol=1e-5)

# Saved by two replicas in the middle of the first epoch, and resumed in all other ways.
said = train("saved", *TWO, "--epochs=1", "--checkpoint-every=1", "--loop=for")
assert np.allclose(numbers(said[-1]), numbers(reference[0]), atol=2e-3)
names = sorted(path.name for path in Path(RESULTS, "saved").glob("*.index"))
assert names == ["ckpt-2.index", "ckpt-3.index", "ckpt-4.index"], names
# If TensorFlow's list of the checkpoints is lost or damaged, nothing is overwritten.
DAMAGE = {"epoch": None, "one-device-fit": b"\xff{"}
for name, argv in {
    "one-device-fit": ["--loop", "fit", "--strategy", "one_device"],
    # The rate of the table, for as many images; each replica has as many of them.
    "epoch": [*TWO, "--loop=epoch", "--input=distribute", "--reduction=hierarchical_copy",
              "--batch-size=global:31", "--learning-rate=31:1e-4,16:9"],
    "central-two": [*TWO, "--strategy=central_storage", "--devices=CPU:0,CPU:1",
                    "--learning-rate=16:9,32:1e-4"],
}.items():  # fmt: skip
    left_out = shutil.ignore_patterns("ckpt-4.*", "ckpt-3.*")
    folder = Path(shutil.copytree(f"{RESULTS}/saved", f"{RESULTS}/{name}", ignore=left_out))
    if name in DAMAGE:
        saved_list = folder / "checkpoint"
        saved_list.unlink()
        if (left := DAMAGE[name]) is not None:
            saved_list.write_bytes(left)
        code, said, errors = run(*COMMON, *argv, "--checkpoint-dir", str(folder))
        assert code == 65, errors
        assert f"the list {saved_list} of ckpt-2 is lost" in errors[-1], errors
    tf.compat.v1.train.update_checkpoint_state(str(folder), f"{folder}/ckpt-2")
    said = train(name, *EPOCHS, *argv)
    assert max(path.name for path in folder.glob("*.index")) == "ckpt-4.index"
    check_same(name, "reference")
    if "fit" in name or "two" in name:  # one call is one step
        np.testing.assert_allclose(np.mean(losses()[-4:]), losses(of_epochs=True)[-1], rtol=1e-5)
    for line, right in zip(said, reference, strict=True):
        assert np.allclose(numbers(line), numbers(right), atol=2e-3), line
# An epoch of fit that has more steps behind it than are asked for has ended.
tf.compat.v1.train.update_checkpoint_state(f"{RESULTS}/saved", f"{RESULTS}/saved/ckpt-3")
said = train("saved", "--loop", "fit", "--steps-per-epoch", "2", "--epochs", "1")
assert numbers(said[-1])[0] == 3, said

# Passes with a smaller last batch, from the beginning: one fit gives the same as a loop.
few = Path(RESULTS, "few")
few.mkdir()
with np.load(f"{DATA}/mnist.npz") as archive:
    np.savez(few / "mnist.npz", **{name: archive[name][:200] for name in archive})
PASS = ["--data-dir", str(few), "--steps-per-epoch=all", "--batch-size=80", *EPOCHS]
for name in ("for", "fit"):
    said = train(f"pass-{name}", *PASS, "--loop", name)
    assert numbers(said[-1])[0] == 3, said  # of 200 images: two full batches, and one of 40
    check_same(f"pass-{name}", "pass-for")
    # A step's loss is the mean over its images, also of the smaller last one.
    means = np.average(np.reshape(losses(), (2, 3)), axis=1, weights=[80, 80, 40])
    np.testing.assert_allclose(means, losses(of_epochs=True), rtol=1e-5)

# Saves after every second epoch, as the tutorial does, and after the last one.
train("second", "--epochs=3", "--steps-per-epoch=1", "--checkpoint-every=2e")
names = sorted(path.name for path in Path(RESULTS, "second").glob("*.index"))
assert names == ["ckpt-1.index", "ckpt-2.index"], names

# An evaluation without a strategy prints the same numbers as the run.
wanted = f"test_accuracy {numbers(reference[-1])[-1]:.3f}"
# An evaluation needs no learning rate: the table has none for its own batch.
code, said, errors = run(*MNIST, "--evaluate", f"{RESULTS}/epoch", "--learning-rate=7:0.1")
assert code == 0, errors
assert said[-1].startswith(f"ckpt-4 (epoch 2): {wanted}  "), (said, wanted)
assert said[-1].endswith(f"data: mnist from {DATA}/mnist.npz, 101 images"), said
tf.train.Checkpoint(model=tf.Variable(1.0)).save(f"{RESULTS}/foreign/ckpt")
shutil.copytree(f"{RESULTS}/epoch", f"{RESULTS}/damaged")
Path(f"{RESULTS}/damaged/ckpt-4.data-00000-of-00001").write_bytes(b"x" * 100)
shutil.copytree(f"{RESULTS}/damaged", f"{RESULTS}/listless")
Path(f"{RESULTS}/listless/checkpoint").write_text("{")
Path(f"{RESULTS}/empty").mkdir()
TRAINED_WITH = "cannot be restored: it was trained with --"
for option, path, more, says in (
    ("--evaluate", "second/ckpt-1.index", [], ""),
    ("--evaluate", "epoch", ["--model=small_cnn"], f"{TRAINED_WITH}model cnn, not small_cnn"),
    ("--evaluate", "epoch", ["--dataset=synthetic"], f"{TRAINED_WITH}dataset mnist, not synth"),
    ("--checkpoint-dir", "epoch", ["--optimizer=adam"], f"{TRAINED_WITH}optimizer rmsprop, not"),
    ("--evaluate", "foreign", [], "cannot be restored: Key counters/"),
    ("--evaluate", "damaged", [], "ckpt-4 cannot be restored"),
    ("--evaluate", "listless", [], "is lost: name one of them to --evaluate"),
    ("--evaluate", "empty", [], "there is no checkpoint at"),
    ("--evaluate", "nowhere", [], "there is no checkpoint"),
):
    data = MNIST[2:] if "--dataset=synthetic" in more else MNIST
    code, said, errors = run(*data, *more, option, f"{RESULTS}/{path}")
    if not says:
        assert said[-1].startswith("ckpt-1 (epoch 2): test_accuracy "), (said, errors)
        continue
    assert code == 65, (path, said, errors)
    assert errors[-1].startswith("error: "), errors
    assert says in errors[-1], errors

# What is damaged falls back to what is older, and is never overwritten by a training from the
# beginning, except for a first save that was interrupted: it alone is not in the list.
folder = Path(RESULTS, "second")
argv = ["--epochs=3", "--steps-per-epoch=1", "--checkpoint-every=2e"]
argv = [*COMMON, *argv, "--checkpoint-dir", str(folder)]


def cut_off(name):
    (file,) = folder.glob(f"{name}*")
    file.write_bytes(file.read_bytes()[:100])


cut_off("ckpt-2.data")
code, said, errors = run(*argv)
assert code == 0, errors
assert "ckpt-2 cannot be restored" in said[1], said
assert said[2].startswith(f"resumed from ckpt-1 in {folder}: epoch 3, after step 0"), said
cut_off("ckpt-2.data")
cut_off("ckpt-1.index")
code, said, errors = run(*argv)
assert code == 65, errors
assert f"error: none of the 2 checkpoints in {folder} can be restored" in errors[-1], errors
for file in (*folder.glob("ckpt-2.*"), folder / "checkpoint"):
    file.unlink()
# A file size limit acts like a full disk. An epoch whose only step is the first has a speed too.
may_write = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, may_write[1]))
code, said, errors = run(*argv)
resource.setrlimit(resource.RLIMIT_FSIZE, may_write)
assert f"the first checkpoint in {folder} is incomplete" in said[1], said
assert int(said[3].split()[said[3].split().index("images/s") + 1]) > 0, said
assert code == 65, errors
assert errors[-1].startswith(f"error: no checkpoint can be written to {folder}: "), errors
assert "File too large" in errors[-1], errors
assert {path.name.partition(".")[0] for path in folder.iterdir()} == {"ckpt-1"}

# The evaluator polls while the chief writes the first checkpoint.
from tensorflow.python.training import checkpoint_utils  # noqa: E402

growing = Path(RESULTS, "growing")
shutil.copytree(f"{RESULTS}/epoch", growing, ignore=shutil.ignore_patterns("checkpoint"))
(growing / "ckpt-4.index").write_bytes(b"")
looks = []


def whole_after_a_look(_) -> None:
    looks.append(len(looks))
    assert looks == [0], "it was not evaluated when it was whole"
    for name in ("ckpt-4.index", "checkpoint"):
        shutil.copy(f"{RESULTS}/epoch/{name}", growing)


checkpoint_utils.time = SimpleNamespace(sleep=whole_after_a_look, time=time.time)
config = {"cluster": {"worker": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}}
os.environ["TF_CONFIG"] = json.dumps(config)
code, said, errors = run(*MNIST, *EPOCHS, "--checkpoint-dir", str(growing))
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
    _, accuracy, loss, test_accuracy = numbers(line)
    assert abs(trained["epoch_accuracy", epoch] - accuracy) < 1e-3
    assert abs(trained["epoch_loss", epoch] - loss) < 1e-3
    assert abs(tested["epoch_accuracy", epoch] - test_accuracy) < 1e-3
    assert f"test_loss {tested['epoch_loss', epoch]:.3f}" in line
    assert trained["images_per_second", epoch] > 0

# Without a choice, several GPUs make it mirrored.
physical, mirrored = tf.config.list_physical_devices, tf.distribute.MirroredStrategy
tf.distribute.MirroredStrategy = lambda *_args, **_kwargs: "mirrored"
for gpus, strategy in ((0, "default"), (1, "default"), (2, "mirrored")):
    tf.config.list_physical_devices = lambda _kind=None, gpus=gpus: ["GPU"] * gpus
    options = main.parse([], {})
    strategies.create(options)
    assert options.strategy == strategy
tf.config.list_physical_devices, tf.distribute.MirroredStrategy = physical, mirrored

# SIGTERM saves under tpu: one device stands for it.
strategies._tpu = lambda _name: None
tf.distribute.TPUStrategy = lambda _resolver: tf.distribute.OneDeviceStrategy("CPU:0")


def take_steps_until_sigterm(training, *args, **kwargs):
    if training.counters.step == 3:
        os.kill(os.getpid(), signal.SIGTERM)
        assert training.sigterm.wait(60)
    return take_steps(training, *args, **kwargs)


loop.Loop.take_steps = take_steps_until_sigterm
code, said, errors = run(*COMMON, "--strategy", "tpu", "--checkpoint-dir", f"{RESULTS}/tpu")
assert code == 42, errors
assert said[-1] == f"preempted at epoch 1, after step 3: saved in {RESULTS}/tpu", said
assert Path(f"{RESULTS}/tpu/ckpt-1.index").exists()
print("all is as it must be", flush=True)
os._exit(0)  # without deleting the iterators

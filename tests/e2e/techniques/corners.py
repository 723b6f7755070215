"""Cases of one process that the other scripts do not have: each trains a few steps, or none.

Working folder: jobs/mnist. Arguments: a folder with the data, and a folder for results.
"""

import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path[:0] = [os.getcwd(), str(Path(__file__).parents[2])]
DATA, RESULTS = sys.argv[1:]

import main  # noqa: E402
from harness.training import notified  # noqa: E402

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
import tf_keras  # noqa: E402

from mnist_job import launcher, loop, strategies  # noqa: E402
from mnist_job import training as job  # noqa: E402


def run(*argv, data=DATA):
    """Returns (exit code, the lines said, those of errors)."""
    said, errors = StringIO(), StringIO()
    with redirect_stdout(said), redirect_stderr(errors):
        code = main.main(["--data-dir", data, "--model", "cnn", *argv])
    return code, said.getvalue().splitlines(), errors.getvalue().splitlines()


def devices(replicas):
    """So many of three: a process divides its CPU only once."""
    return f"--devices={','.join(f'CPU:{at}' for at in [*range(replicas - 1), 2])}"


kept = []
prepare = loop.Loop.prepare


def prepare_and_keep(training):
    prepare(training)
    kept.append(training)  # deleting iterators of several replicas takes seconds


loop.Loop.prepare = prepare_and_keep
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)

# --batch-size is per replica, so 3 replicas train; the guide's table of learning rates.
code, said, errors = run(
    "--strategy=mirrored", devices(3), "--batch-size=4", "--reduction=one_device", "--epochs=1",
    "--steps-per-epoch=2", "--learning-rate=4:0.5,12:0.002",
)  # fmt: skip
assert code == 0, errors
assert "replicas 3, 12 images a step;" in said[0], said
assert kept[-1].counters.images_seen == 24
assert abs(kept[-1].optimizer.learning_rate.numpy() - 0.002) < 1e-9

# Saves after every second epoch, as the tutorial does, and after the last one.
folder = Path(RESULTS, "second")
code, said, errors = run(
    "--epochs=3", "--steps-per-epoch=1", "--checkpoint-every=2e", "--checkpoint-dir", str(folder)
)
assert code == 0, errors
assert sorted(path.name for path in folder.glob("*.index")) == ["ckpt-1.index", "ckpt-2.index"]
code, said, errors = run("--evaluate", f"{folder}/ckpt-1")
assert said[-1].startswith("ckpt-1 (epoch 2): test_accuracy "), said

# The LOSS and the batch_loss of the last, smaller step are its mean, with fit, too. With 200
# images, a step of 160 has 40 after it: a share of 4 would show.
few = Path(RESULTS, "few")
few.mkdir()
with np.load(f"{DATA}/mnist.npz") as archive:
    np.savez(few / "mnist.npz", **{name: archive[name][:200] for name in archive})
launcher.REPORT_INTERVAL = 0.0  # each step is reported, however fast it is
for more in ([], ["--loop", "fit"]):
    with notified() as (os.environ["DISTRUN_NOTIFY"], told):
        code, said, errors = run(
            "--strategy=mirrored", devices(2), "--batch-size=80", "--epochs=1",
            "--steps-per-epoch=all", "--learning-rate=1e-30", *more,
            "--reduction=one_device", data=str(few),
        )  # fmt: skip
        # of a step, not of an epoch or of a save
        last = [each for each in told() if "STEP" in each and "ACCURACY" not in each][-1]
    assert code == 0, errors
    images, labels = kept[-1].data.train_images, kept[-1].data.train_labels
    batches = job.batches(200, 160, seed=0, passes=True)
    indices, weights = (each.numpy() for each in list(batches.take(2))[1])
    chosen = indices[weights > 0]
    assert len(chosen) == 40
    logits = kept[-1].model(tf.constant(images[chosen][..., None] / 255.0, tf.float32))
    right = float(
        tf.reduce_mean(
            tf_keras.losses.sparse_categorical_crossentropy(
                labels[chosen].astype(np.int32), logits, from_logits=True
            )
        )
    )
    assert last["STEP"] == "2", last
    assert abs(float(last["LOSS"]) - right) < 1e-4, (more, last, right)
del os.environ["DISTRUN_NOTIFY"]

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
take_steps = loop.Loop.take_steps


def take_steps_until_sigterm(training, *args, **kwargs):
    if training.counters.step == 3:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)  # longer than the watch takes to look
    return take_steps(training, *args, **kwargs)


loop.Loop.take_steps = take_steps_until_sigterm
code, said, errors = run("--strategy", "tpu", "--checkpoint-dir", f"{RESULTS}/tpu")
loop.Loop.take_steps = take_steps
assert code == 42, errors
assert said[-1] == f"preempted at epoch 1, after step 3: saved in {RESULTS}/tpu", said
assert Path(f"{RESULTS}/tpu/ckpt-1.index").exists()

# The tutorial on custom training: 10 epochs of Fashion-MNIST with cnn and adam, on images in that
# format.
fashion = Path(RESULTS, "fashion")
fashion.mkdir()
with np.load(f"{DATA}/mnist.npz") as archive:
    arrays = {name: archive[name][:320] for name in archive}
arrays["y_train"][:10] = [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
np.savez(fashion / "fashion_mnist.npz", **arrays)
code, said, errors = run(
    "--dataset=fashion_mnist", "--optimizer=adam", "--epochs=10", "--steps-per-epoch=all",
    "--loop=epoch", data=str(fashion),
)  # fmt: skip
assert code == 0, errors
assert f"data: fashion_mnist from {fashion}/fashion_mnist.npz, 320 + 101 images" in said[0], said
epochs = [line.split() for line in said if line.startswith("epoch ")]
assert [words[1] for words in epochs] == [f"{number}/10" for number in range(1, 11)]
assert float(epochs[-1][7]) < float(epochs[0][7]) / 2, said
print("all is as it must be", flush=True)
os._exit(0)

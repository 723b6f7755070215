"""Model.fit on a worker and a ps that are servers in this process: interrupted and resumed.

Working folder: jobs/mnist. Argument: a folder for checkpoints.
"""

import json
import os
import re
import signal
import socket
import sys
import time
from contextlib import redirect_stdout
from io import StringIO

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_GRPC_REUSE_PORT"] = "true"
sys.path.insert(0, os.getcwd())
(SAVED,) = sys.argv[1:]
STEPS, EPOCHS = 8, 3

from mnist_job.launcher import SigtermWatch  # noqa: E402

watch = SigtermWatch()  # before TensorFlow starts a thread

import tensorflow as tf  # noqa: E402

from mnist_job import data, parameter_server  # noqa: E402
from mnist_job.checkpoints import Counters  # noqa: E402
from mnist_job.options import parse  # noqa: E402

drawn = data.synthetic()
digits = data.DataSet(
    name="synthetic",
    source="",
    train_images=drawn.train_images[::100],
    train_labels=drawn.train_labels[::100],
    test_images=drawn.test_images[::250],
    test_labels=drawn.test_labels[::250],
)


def held_port():
    held = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("::", 0))
    return held


held = [held_port() for _ in range(2)]
addresses = [f"localhost:{each.getsockname()[1]}" for each in held]
cluster = {"worker": addresses[:1], "ps": addresses[1:]}
servers = [tf.distribute.Server(cluster, job_name=role, task_index=0) for role in cluster]
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
)
roles = {"chief": ["localhost:1"], **cluster}
config = {"TF_CONFIG": json.dumps({"cluster": roles, "task": {"type": "chief", "index": 0}})}


def fit(*argv, begun=0):
    """Returns (the lines said, whether it was preempted, its counters)."""
    common = ["--strategy=parameter_server", "--loop=fit", "--model=cnn", "--batch-size=20"]
    steps = ["--steps-per-epoch", str(STEPS), "--epochs", str(EPOCHS)]
    chosen = parse([*common, *steps, *argv], config)
    training = parameter_server.ParameterServerLoop(strategy, digits, chosen)
    training.optimizer.iterations.assign(begun)
    counters = training.counters
    counters.step = counters.total_steps = begun
    counters.epoch_images = counters.images_seen = begun * 20
    said = StringIO()
    with redirect_stdout(said):
        training.run(watch)
    return said.getvalue().splitlines(), counters.epoch < chosen.epochs, counters


def sends_sigterm(function, at):
    """Wraps a function: its n-th call sends this process a SIGTERM, and waits until it is seen."""
    calls = iter(range(1, at + 1))

    def wrapped(*args, **kwargs):
        if next(calls, 0) == at:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)  # longer than the watch takes to look
        return function(*args, **kwargs)

    return wrapped


# Resumed with fewer steps per epoch than are trained.
said, _, counters = fit(begun=STEPS)
epochs = [re.match(r"epoch (\d)/3  step 8 ", line) for line in said if "epoch " in line]
assert [epoch and epoch[1] for epoch in epochs] == ["1", "2", "3"], said
assert said[-1] == "24 steps scheduled, optimizer.iterations 24: no update lost", said
assert counters.total_steps == 24, said
print("resumed", flush=True)

# SIGTERM while it saves at the end of the first epoch: that checkpoint is complete.
serialize = Counters.serialize
Counters.serialize = sends_sigterm(serialize, at=1)
said, ended_early, counters = fit("--checkpoint-dir", SAVED)
Counters.serialize = serialize
assert ended_early, said
assert (counters.epoch, counters.step) == (1, 0)
assert os.path.exists(f"{SAVED}/ckpt-1.index")
assert tf.train.latest_checkpoint(SAVED) == f"{SAVED}/ckpt-2"
print("stopped while it saved", flush=True)

# SIGTERM during an epoch: its finished steps are saved.
take_steps = parameter_server.ParameterServerLoop.take_steps
parameter_server.ParameterServerLoop.take_steps = sends_sigterm(take_steps, at=3)
said, ended_early, counters = fit("--checkpoint-dir", SAVED, "--steps-per-epoch", "500")
parameter_server.ParameterServerLoop.take_steps = take_steps
assert ended_early, said
assert counters.epoch == 1
assert counters.step >= 2, counters
assert any(line.startswith("resumed from ckpt-2 in ") for line in said), said
assert tf.train.latest_checkpoint(SAVED) == f"{SAVED}/ckpt-3"
# Resumed in the middle of an epoch.
steps = counters.step + 2
said, _, counters = fit("--checkpoint-dir", SAVED, "--steps-per-epoch", str(steps))
assert any(f"resumed from ckpt-3 in {SAVED}: epoch 2, after step " in line for line in said), said
epochs = [re.match(rf"epoch (\d)/3  step {steps} ", line) for line in said if "epoch " in line]
assert [epoch[1] for epoch in epochs if epoch] == ["2", "3"], said
total = STEPS + 2 * steps
assert counters.total_steps == total, said
assert said[-1].startswith(f"{total} steps scheduled"), said
assert said[-1].endswith(": no update lost"), said
print("all is as it must be", flush=True)
os._exit(0)

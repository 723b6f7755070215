"""Model.fit on a worker and a ps that are servers in this process: interrupted and resumed.

Working folder: jobs/mnist. Argument: a folder for checkpoints.
"""

import os
import re
import signal
import socket
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_GRPC_REUSE_PORT"] = "true"
sys.path.insert(0, os.getcwd())
(SAVED,) = sys.argv[1:]
STEPS, EPOCHS = 8, 3

import tensorflow as tf  # noqa: E402

import arguments  # noqa: E402
import process_data  # noqa: E402
import synthetic  # noqa: E402
from cluster import Task  # noqa: E402
from counters import Counters  # noqa: E402
from fitting import AsynchronousFit  # noqa: E402
from preemption import Preempted  # noqa: E402

digits = synthetic.draw(300, 20, variants=4)
handed = process_data.ProcessData(0, digits)


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
task = Task(role="chief", cluster=tuple((role, tuple(each)) for role, each in roles.items()))


def fit(*argv, begun=0):
    """Returns (the lines said, whether it was preempted, its counters)."""
    common = ["--strategy", "parameter_server", "--fit", "--model", "cnn", "--batch-size", "20"]
    chosen = arguments.parse(
        [*common, "--steps-per-epoch", str(STEPS), "--epochs", str(EPOCHS), *argv], {}, task
    )
    said = []
    training = AsynchronousFit(strategy, digits, chosen, task, said.append)
    state = training._state
    state.optimizer.iterations.assign(begun)
    state.counters.count_steps(begun, begun * 20)
    try:
        training.run()
    except Preempted:
        return said, True, state.counters
    return said, False, state.counters


def sends_sigterm(function, at):
    """Wraps a function: its n-th call sends this process a SIGTERM."""
    calls = iter(range(1, at + 1))

    def wrapped(*args):
        if next(calls, 0) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*args)

    return wrapped


# Resumed in the middle of an epoch, and resumed with fewer steps per epoch than are trained.
said, _, counters = fit(begun=3)
epochs = [re.match(r"epoch (\d)/3  step 8 ", line) for line in said[:-1]]
assert [epoch and epoch[1] for epoch in epochs] == ["1", "2", "3"], said
assert said[-1] == "24 steps scheduled, optimizer.iterations 24: no update lost", said
said, _, counters = fit(begun=STEPS)
assert said[0] == "epoch 1/3 has all its steps already", said
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
assert tf.train.latest_checkpoint(SAVED) == f"{SAVED}/ckpt-1"
print("stopped while it saved", flush=True)

# SIGTERM during an epoch: its steps are lost.
AsynchronousFit._schedule = sends_sigterm(AsynchronousFit._schedule, at=3)
said, ended_early, counters = fit("--checkpoint-dir", SAVED)
assert ended_early, said
assert (counters.epoch, counters.step) == (1, 0)
assert len(said) == 1, said
assert said[0].startswith("resumed from ckpt-1 in "), said
print("all is as it must be", flush=True)
os._exit(0)

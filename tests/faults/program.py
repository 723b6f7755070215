"""A few steps of real training, which reports each moment to a controller and fails on its order.

The controller listens on the socket named by CONTROLLER. Each line to it is JSON. `reached` waits
for an order: `go`, or `inject` and the fault to inject.
"""

import gc
import json
import os
import select
import socket

STEPS, SAVE_EVERY, MID_EPOCH = (int(each) for each in os.environ["SCHEDULE"].split())
FOLDER = "saved"
ME = os.environ["DISTRUN_TASK"]
ROLE, _, INDEX = ME.partition(":")


class BrokenSampleError(Exception):
    pass


class Controller:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.environ["CONTROLLER"])
        self._answers = self._socket.makefile("r")
        self.report(task=ME, attempt=int(os.environ["DISTRUN_ATTEMPT"]), pid=os.getpid())

    def report(self, **said) -> None:
        self._socket.sendall(json.dumps(said).encode() + b"\n")

    def reached(self, moment) -> None:
        self.report(moment=moment)
        self.follow_order()

    def follow_order(self) -> None:
        """Waits for an order of the controller, and follows it."""
        word, *what = self._answers.readline().split() or ["inject", "exit1"]
        if word == "inject":
            print("injected:", *what, flush=True)
            if what == ["exit1"]:
                os._exit(1)
            raise BrokenSampleError("sample 4711 is broken")

    def wait(self, seconds=None) -> None:
        """Follows an order that comes within so many seconds."""
        if select.select([self._socket], [], [], seconds)[0]:
            self.follow_order()


CONTROLLER = Controller()
CONTROLLER.reached("starting")

gc.disable()  # a fifth of the import's time
import tensorflow as tf  # noqa: E402 - its import is a part of starting

gc.freeze()
gc.enable()


def report(step, loss) -> None:
    print("step", step, "loss", loss, flush=True)
    CONTROLLER.report(step=step)
    address = os.environ["DISTRUN_NOTIFY"].replace("@", "\0", 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(f"STEP={step} LOSS={loss}".encode(), address)


class Training:
    """A linear model, and a counter of its steps that is saved with it."""

    def __init__(self, strategy: str, is_chief) -> None:
        self._folder = FOLDER if is_chief else f"{FOLDER}-{INDEX}"
        with strategy.scope():
            self.weight = tf.Variable(tf.zeros([4, 1]))
            self.done = tf.Variable(0, dtype=tf.int64)
        self._checkpoint = tf.train.Checkpoint(weight=self.weight, done=self.done)

    def gradient(self):
        samples = tf.random.normal([16, 4])
        errors = samples @ (self.weight - 1.0)
        return 2 / 16 * tf.transpose(samples) @ errors, tf.reduce_mean(errors**2)

    def restore(self):
        newest = tf.train.latest_checkpoint(FOLDER)
        if newest:
            self._checkpoint.read(newest).assert_consumed()
        CONTROLLER.report(resumed=int(self.done.numpy()))
        return int(self.done.numpy())

    def save(self, step) -> None:
        path = self._checkpoint.write(os.path.join(self._folder, f"step-{step}"))
        if step == 2 * SAVE_EVERY:
            CONTROLLER.reached("saving")
        tf.compat.v1.train.update_checkpoint_state(self._folder, path)

    def run(self, step_of) -> None:
        first = self.restore() + 1
        CONTROLLER.reached("first_step")
        for step in range(first, STEPS + 1):
            if step == MID_EPOCH:
                CONTROLLER.reached("mid_epoch")
            report(step, step_of())
            if step % SAVE_EVERY == 0:
                self.done.assign(step)
                self.save(step)
        CONTROLLER.reached("shutting_down")
        print("done", flush=True)
        os._exit(0)  # TensorFlow may hang in its own clean-up once a worker has been replaced


def synchronous() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    has_chief = "chief" in json.loads(os.environ["TF_CONFIG"])["cluster"]
    training = Training(strategy, is_chief=ROLE == "chief" or (ME == "worker:0" and not has_chief))

    @tf.function(autograph=False)
    def step():
        def replica():
            gradient, loss = training.gradient()
            total = tf.distribute.get_replica_context().all_reduce("mean", gradient)
            training.weight.assign_sub(0.1 * total)
            return loss

        return strategy.reduce("mean", strategy.run(replica), axis=None)

    training.run(lambda: float(step()))


def asynchronous(resolver) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    training = Training(strategy, is_chief=True)

    @tf.function(autograph=False)
    def step():
        gradient, loss = training.gradient()
        training.weight.assign_sub(0.1 * gradient)
        return loss

    def one():
        loss = coordinator.schedule(step)
        coordinator.join()
        return float(loss.fetch())

    training.run(one)


def serve(resolver) -> None:
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=ROLE, task_index=int(INDEX), protocol="grpc"
    )
    print("serves at", server.target, flush=True)
    while True:
        CONTROLLER.wait()


def evaluate() -> None:
    step = 0
    while step < STEPS:
        CONTROLLER.wait(0.1)
        newest = tf.train.latest_checkpoint(FOLDER)
        if newest and int(newest.rpartition("-")[2]) != step:
            weight = tf.train.load_variable(newest, "weight/.ATTRIBUTES/VARIABLE_VALUE")
            step = int(newest.rpartition("-")[2])
            print("evaluated step", step, "error", abs(weight - 1.0).mean(), flush=True)


if ROLE == "evaluator":
    evaluate()
elif os.environ["DISTRUN_STRATEGY"] == "multi_worker_mirrored":
    synchronous()
else:
    RESOLVER = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if ROLE == "chief":
        asynchronous(RESOLVER)
    else:
        serve(RESOLVER)

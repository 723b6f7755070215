"""MISHAP='{"who": "worker:1", "where": "4", "what": "overflow"}'."""

import json
import os
import signal
import sys
import threading
import time

PLAN = json.loads(os.environ.get("MISHAP", '{"who": "", "where": "", "what": ""}'))
NAME = os.environ.get("DISTRUN_TASK", "worker:0")
STRUCK = NAME == PLAN["who"]


class ShardError(LookupError):
    pass


def point(where):
    if STRUCK and PLAN["where"] == str(where):
        print("now at", where, flush=True)
        sys.stdout.flush()
        MISHAPS[PLAN["what"]]()


def after(path):
    def watch():
        while not os.path.exists(path):
            time.sleep(0.03)
        point("after")

    if STRUCK and PLAN["where"] == "after":
        threading.Thread(target=watch, daemon=True).start()


def killed_by(number):
    def do():
        os.kill(os.getpid(), number)
        time.sleep(3)

    return do


def overflow():
    import struct

    struct.pack("b", 4000)


def attribute():
    None.shape


def nested():
    try:
        try:
            int("twelve")
        except ValueError as error:
            raise ShardError("shard 12") from error
    finally:
        print("closing files", flush=True)


def division():
    return 1 / (len(NAME) - len(NAME))


def pool():
    from concurrent.futures import ThreadPoolExecutor

    def load(number):
        if number == 3:
            raise ShardError(f"shard {number} is missing")
        return number

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(load, range(8)))


def processes():
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as workers:
        workers.map(int, ["1", "2", "x"])


def deadline():
    raise TimeoutError("the feature store did not answer within 5 s")


def quiet_three():
    os._exit(3)


def loud_ninety():
    print("FATAL: validation set is empty", file=sys.stderr, flush=True)
    sys.exit(90)


def usage():
    import argparse

    parser = argparse.ArgumentParser("train.py")
    parser.add_argument("--rate", type=float)
    parser.parse_args(["--rate", "fast"])


def full_device():
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"weights")


def read_only():
    os.mkdir("/sys/fs/checkpoints")


def vast():
    list(range(1 << 60))


def absent():
    import jaxx.numpy  # noqa: F401


def renamed():
    from collections import Mapping  # noqa: F401


def relative():
    import importlib

    importlib.import_module(".layers", package="models")


def deref():
    import ctypes

    ctypes.cast(16, ctypes.POINTER(ctypes.c_int)).contents.value = 1


def native_abort():
    import ctypes

    ctypes.CDLL(None).abort()


def finished():
    print("all done here", flush=True)
    os._exit(0)


def bound():
    import socket

    first = socket.create_server(("127.0.0.1", 0))
    socket.create_server(first.getsockname())


def tensor_shapes():
    import tensorflow as tf

    tf.concat([tf.zeros([2, 3]), tf.zeros([3, 2])], axis=0)


def tensor_type():
    import tensorflow as tf

    tf.add(tf.constant(1), tf.constant(1.0))


def ended_data():
    import tensorflow as tf

    source = iter(tf.data.Dataset.from_tensors([1.0]))
    source.get_next()
    source.get_next()


def infinite():
    import tensorflow as tf

    tf.debugging.assert_all_finite(tf.constant([1.0, 0.0]) / 0.0, "gradients")


def broken_record():
    import tensorflow as tf

    with open(f"bad-{NAME}.tfrecord", "wb") as file:
        file.write(b"no record at all, just text")
    for _ in tf.data.TFRecordDataset(f"bad-{NAME}.tfrecord"):
        pass


def stuck():
    time.sleep(900)


MISHAPS = {name: value for name, value in globals().items() if callable(value)}
MISHAPS.update(
    term=killed_by(signal.SIGTERM),
    kill=killed_by(signal.SIGKILL),
    interrupt=lambda: signal.raise_signal(signal.SIGINT),
    hangup=killed_by(signal.SIGHUP),
    user=killed_by(signal.SIGUSR1),
    illegal=killed_by(signal.SIGILL),
    stop=killed_by(signal.SIGSTOP),
)

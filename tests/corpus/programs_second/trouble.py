"""TROUBLE="worker:1@4=abort": what befalls whom at which point of its program."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

ME = os.environ.get("DISTRUN_TASK", "worker:0")
WHO, _, _REST = os.environ.get("TROUBLE", "nobody@0=nothing").partition("@")
POINT, _, WHAT = _REST.partition("=")
IS_MINE = ME == WHO


def here(point):
    if IS_MINE and str(point) == POINT:
        befall(WHAT)


def later(path):
    """Once a file is there, from a thread of its own."""

    def wait():
        while not os.path.exists(path):
            time.sleep(0.02)
        befall(WHAT)

    if IS_MINE:
        threading.Thread(target=wait, daemon=True).start()


def befall(what):
    name, _, value = what.partition("-")
    globals()["_" + name](*([value] if value else []))


def _signal(name):
    signal.raise_signal(getattr(signal, "SIG" + name))
    time.sleep(0.2)


def _other(name):
    """From another process, as an operator's kill."""
    subprocess.run(["kill", "-" + name, str(os.getpid())])
    time.sleep(5)


def _leave(code):
    sys.stdout.flush()
    os._exit(int(code))


def _quit(code):
    sys.exit(int(code))


def _told():
    sys.exit("train: no GPU of the wanted kind")


def _index():
    labels = list(range(10))
    return [labels[each] for each in (3, 17)]


def _recursion(depth=0):
    return _recursion(depth + 1)


def _group():
    errors = [ValueError("shard 3 is cut off"), OSError("shard 9 is missing")]
    raise ExceptionGroup("2 shards cannot be read", errors)


def _noted():
    error = TypeError("expected float32, got str")
    error.add_note("while reading column 'label'")
    raise error


def _child():
    subprocess.run(["sh", "-c", "echo no such bucket >&2; exit 4"], check=True)


def _unicode():
    return b"\xff\xfe7".decode("utf-8")


def _files():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    return [open(os.devnull) for _ in range(100)]


def _again():
    """Logged, tried again, and given up at last."""
    import logging

    for _ in range(2):
        try:
            json.loads("{'lr': 0.1}")
        except ValueError:
            logging.exception("bad settings, trying again")
    raise RuntimeError("gave up on the settings")


def _database():
    socket.create_connection(("127.0.0.1", 9), 2)


def _full():
    with open("/dev/full", "w") as file:
        json.dump(list(range(100000)), file)


def _denied():
    open("/sys/kernel/model.bin", "wb")


def _array():
    import numpy as np

    return np.ones((1 << 20, 1 << 22))


def _eat():
    hoard = []
    while True:
        hoard.append(b"\1" * (8 << 20))


def _module():
    import sklearnn  # noqa: F401


def _member():
    from collections import OrderedDefaultDict  # noqa: F401


def _library():
    import ctypes

    try:
        ctypes.CDLL("libcudart.so.11.0")
    except OSError as error:
        raise ImportError(str(error)) from None


def _abort():
    os.abort()


def _null():
    import ctypes

    ctypes.memset(8, 0, 8)


def _sleep():
    time.sleep(600)


def _shape():
    import tensorflow as tf

    return tf.matmul(tf.ones([2, 3]), tf.ones([4, 5]))


def _expect():
    import tensorflow as tf

    tf.debugging.assert_less(tf.constant([3, 12]), 10, message="labels must be digits")


def _numerics():
    import tensorflow as tf

    tf.debugging.check_numerics(tf.math.log([-1.0]), "the loss")


def _gfile():
    import tensorflow as tf

    with tf.io.gfile.GFile("/data/mnist/train.tfrecord", "rb") as file:
        file.read()


def _dry():
    import tensorflow as tf

    batches = iter(tf.data.Dataset.range(20).batch(10))
    for _ in range(3):
        print("batch", next(batches).numpy().sum(), flush=True)


def _drained():
    import tensorflow as tf

    batches = tf.compat.v1.data.make_one_shot_iterator(tf.data.Dataset.range(3))
    return [batches.get_next() for _ in range(5)]

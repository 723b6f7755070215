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


def _other(name):
    """From another process, as an operator's kill."""
    subprocess.run(["kill", "-" + name, str(os.getpid())])
    time.sleep(5)


def _leave(code):
    sys.stdout.flush()
    os._exit(int(code))


def _quit(code):
    sys.exit(int(code))


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


def _eat():
    hoard = []
    while True:
        hoard.append(b"\1" * (8 << 20))


def _module():
    import sklearnn  # noqa: F401


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

"""FATE='worker:1 third bus' means that worker:1 meets `bus` at the point `third`."""

import os
import signal
import sys
import time

TASK = os.environ.get("DISTRUN_TASK", "worker:0")
VICTIM, POINT, FATE = os.environ.get("FATE", "nobody never none").split(" ")
IS_VICTIM = VICTIM in (TASK, "all")


class QuotaError(Exception):
    """An exception of the program's own."""


def meet(point):
    if IS_VICTIM and str(point) == POINT:
        globals()[FATE]()


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(5)


def kill():
    send(signal.SIGKILL)


def bus():
    send(signal.SIGBUS)


def pause():
    send(signal.SIGSTOP)


def terminate():
    send(signal.SIGTERM)


def quit_zero():
    print("nothing left to do", flush=True)
    os._exit(0)


def quit_eleven():
    print("config error: no experiment of that name", file=sys.stderr, flush=True)
    os._exit(11)


def quota():
    raise QuotaError("the bucket's quota of 10 requests per second is used up")


def from_thread():
    import threading

    def count():
        raise QuotaError("thread 2 counted nothing")

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()
    sys.exit(1)


def grouped():
    problems = [ValueError("row 3 has no label"), TypeError("row 9 is a list")]
    raise ExceptionGroup("2 rows cannot be used", problems)


def full():
    import shutil

    with open("/dev/full", "wb", buffering=0) as sink, open(sys.executable, "rb") as source:
        shutil.copyfileobj(source, sink)


def protected():
    os.makedirs("/sys/kernel/checkpoints", exist_ok=True)


def listen():
    import http.server

    first = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    http.server.HTTPServer(first.server_address, http.server.BaseHTTPRequestHandler)


def missing():
    import sklearn.linear_model  # noqa: F401


def missing_in_library():
    import PIL.Image

    PIL.Image.new("L", (8, 8)).toqimage()


def misspelt():
    from collections import OrderdDict  # noqa: F401


def misspelt_module():
    import xml.etree.ElementTre  # noqa: F401


def ask():
    input("Overwrite the results? [y/n] ")


def secret():
    import click

    click.prompt("API key", hide_input=True)


def debugger():
    import pdb

    pdb.set_trace()
    print("counted", flush=True)


def huge():
    import numpy as np

    np.ones((1 << 24, 1 << 24))


def options():
    import click

    @click.command()
    @click.option("--fraction", type=click.FloatRange(0, 1))
    def main(fraction):
        print(fraction)

    main(["--fraction", "7"])


def unpack():
    first, second = "one", "two", "three"
    print(first, second)


def freeze():
    time.sleep(600)


def null():
    import ctypes

    ctypes.memset(0, 1, 1)

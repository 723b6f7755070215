"""Programs whose workers wait for ever, or take each step together as with TensorFlow."""

import shlex
import sys
from pathlib import Path

HANG = """\
import os, socket, sys, threading, time
def load_batch():
    threading.Lock().acquire(timeout=0.001)
    lock = threading.Lock(); lock.acquire()
    print("hangs", flush=True)
    lock.acquire()
def all_reduce():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0)); server.listen()
        print("hangs", flush=True)
        server.accept()
def train():
    load_batch() if os.environ["DISTRUN_TASK"] == "worker:1" else all_reduce()
train()
"""
ACCEPTS = "socket.accept" if sys.version_info >= (3, 11) else "accept"
"""Where the others wait, as py-spy names it: before Python 3.11 it cannot tell the class."""


def hanging_script(folder: Path) -> str:
    (folder / "hang.py").write_text(HANG)
    return f"exec {shlex.quote(sys.executable)} {shlex.quote(str(folder / 'hang.py'))}"


_EXECUTE = """\
import os, socket, time
n, rank = int(os.environ["DISTRUN_WORLD_SIZE"]), int(os.environ["DISTRUN_RANK"])
others = []
server = socket.socket(socket.AF_UNIX)
if rank == 0:
    server.bind("all-reduce.new")
    server.listen()
    os.rename("all-reduce.new", "all-reduce")
    others = [server.accept()[0] for _ in range(n - 1)]
else:
    while not os.path.exists("all-reduce"):
        time.sleep(0.02)
    server.connect("all-reduce")
def quick_execute(seconds=0.005):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    if rank:
        server.send(b"x")
        server.recv(1)
    for other in others:
        other.recv(1)
    for other in others:
        other.send(b"x")
"""
_TRACE = """\
import time
def func_graph_from_py_func(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""
_BEGIN = """\
import logging, os, sys, time
sys.path.insert(0, "site-packages")
from tensorflow import execute, func_graph
print("trains", flush=True)
"""


def training_program(folder: Path, loop: str) -> str:
    """Write a program that does `loop` into a folder; returns a shell script that becomes it.

    `execute.quick_execute(seconds)` in it computes for so long, and waits for the other workers.
    """
    library = folder / "site-packages" / "tensorflow"
    library.mkdir(parents=True)
    (library / "execute.py").write_text(_EXECUTE)
    (library / "func_graph.py").write_text(_TRACE)
    (library / "__init__.py").write_text("")
    (folder / "train.py").write_text(_BEGIN + loop)
    return f"cd {shlex.quote(str(folder))}; exec {shlex.quote(sys.executable)} train.py"

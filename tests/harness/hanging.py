"""A program whose workers wait for ever: the second one elsewhere than the others."""

from __future__ import annotations

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
    """Write the program into a folder; returns a shell script that becomes it."""
    (folder / "hang.py").write_text(HANG)
    return f"exec {shlex.quote(sys.executable)} {shlex.quote(str(folder / 'hang.py'))}"

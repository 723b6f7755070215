"""A signal that arrives where Python loses what its handler raises still ends a command."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal, sys, time, weakref
from distrun.cli import signals

signals.install()

class Referent:
    pass

referent = Referent()
number = signal.Signals[sys.argv[1]]
reference = weakref.ref(referent, lambda _: os.kill(os.getpid(), number))
try:
    del referent
    time.sleep(60)
except signals.ENDED as error:
    print("ended by", int(signals.signal_of(error)))
"""


def test_it_is_raised_again() -> None:
    for name, number in (("SIGTERM", 15), ("SIGINT", 2)):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, name],
            capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (f"ended by {number}\n", "")

"""Signals that arrive before a command waits for them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from harness.command import Distrun

IN_A_CLASS = """\
import os, sys
from distrun.cli.main import main

def profile(frame, event, argument):
    code = frame.f_code
    if (event, code.co_name) == ("call", "__set_name__") and "dataclasses" in code.co_filename:
        sys.setprofile(None)
        os.kill(os.getpid(), {number})

sys.setprofile(profile)
main()
"""
"""Sends a signal while a class is created: Python before 3.12 replaces what is raised there."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_class_is_created(distrun: Distrun, number: signal.Signals) -> None:
    script = IN_A_CLASS.format(number=int(number))
    done = subprocess.run(
        [sys.executable, "-c", script, "launch", distrun.write_spec("exec sleep 600")],
        capture_output=True,
        text=True,
        cwd=distrun.cwd,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (128 + number, "", "")

"""Stopping tasks so that Python prints where they are."""

from __future__ import annotations

import signal
import sys

from distrun.agent import protocol
from harness.agents import Host
from harness.waiting import wait_until

HANGS = """
import os, signal, sys, threading

def wait_for_others():
    print("begun", flush=True)
    while True:
        threading.Event().wait()

if "handles" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"saving\\n"))
if "child" in sys.argv and os.fork():
    os.wait()
wait_for_others()
"""


def start(host: Host, task: str, *words: str) -> None:
    host.run(task, sys.executable, "-X", "faulthandler", "-c", HANGS, *words)
    wait_until(lambda: b"begun" in host.log(task))


def stop(host: Host, task: str, signum: int = signal.SIGTERM, grace: float = 60.0) -> None:
    host.send(protocol.StopTask(task, signum, grace, with_stacks=signum == signal.SIGTERM))


def test_python_prints_where_it_is_in_place_of_dying_in_silence(any_host: Host) -> None:
    start(any_host, "worker:0", "child")  # and so does a process that it has started
    stop(any_host, "worker:0")
    assert any_host.expect(protocol.TaskExited, "worker:0").signal == signal.SIGABRT
    any_host.expect(protocol.TaskEnded, "worker:0")
    shown = any_host.log("worker:0").decode()
    assert "in <module>" in shown
    assert "in wait_for_others" in shown


def test_a_handler_of_the_signal_has_its_time_first(host: Host) -> None:
    start(host, "worker:0", "handles")
    stop(host, "worker:0")
    wait_until(lambda: b"saving" in host.log("worker:0"))
    assert b"wait_for_others" not in host.log("worker:0")
    stop(host, "worker:0", signal.SIGABRT, 1.0)
    assert host.expect(protocol.TaskExited, "worker:0").signal == signal.SIGABRT
    assert "in wait_for_others" in host.log("worker:0").decode()


def test_other_programs_get_the_signal_itself(host: Host) -> None:
    host.run("worker:0", "sh", "-c", "echo begun; sleep 600")
    wait_until(lambda: b"begun" in host.log("worker:0"))
    stop(host, "worker:0")
    assert host.expect(protocol.TaskExited, "worker:0").signal == signal.SIGTERM
    host.expect(protocol.TaskEnded, "worker:0")

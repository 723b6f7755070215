"""Signals that end a command."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from distrun.cli import signals
from harness.waiting import wait_until


@pytest.fixture
def installed() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in signals.ENDING_SIGNALS}
    signals.install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGTERM, signals.TerminatedError), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_deferred_signal_raises_at_the_end_whichever_thread_receives_it(
    number: signal.Signals, error: type[BaseException]
) -> None:
    done: list[str] = []

    def send() -> None:
        signal.pthread_kill(threading.get_ident(), number)
        done.append("sent")

    thread = threading.Thread(target=send)
    with pytest.raises(error), signals.deferred():  # noqa: PT012 - the block is what is tested
        thread.start()
        wait_until(lambda: done)
        thread.join()
        done.append("whole")
    assert done == ["sent", "whole"]
    with pytest.raises(error):
        os.kill(os.getpid(), number)

"""Who is reached when ports of other hosts are dialled, on real sockets."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from distrun.agent.probe import dialer
from distrun.agent.protocol import Code
from distrun.agent.protocol.probe_messages import Dial, Target

GREETING = "distrun here\n"


@contextlib.contextmanager
def answering(greeting: str) -> Iterator[int]:
    """A port on which one caller hears so much, until it hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                guest, _ = server.accept()
                with guest:
                    guest.sendall(greeting.encode())
                    guest.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def failures(port: int, seconds: float, *seams: Any) -> list[Code]:
    """What is wrong with that port, as its caller sees it."""
    order = Dial([Target("127.0.0.1", [port], GREETING)], seconds)
    return [each.cause.code for each in dialer.dial(order, *seams).unreachable]


@pytest.mark.parametrize(
    ("said", "missed"),
    [
        (GREETING, []),
        ("SSH-2.0-\n", [Code.GREETING_DIFFERENT]),
        (GREETING[:5], [Code.GREETING_MISSING]),
        ("", [Code.GREETING_MISSING]),
    ],
)
def test_who_answers_is_known_by_the_greeting(said: str, missed: list[Code]) -> None:
    with answering(said) as port:
        assert failures(port, 0.1 if missed == [Code.GREETING_MISSING] else 60.0) == missed


@pytest.mark.parametrize(
    ("pauses", "missed"),
    [
        ([60.0, 60.0], []),  # the caller itself did not run, and then heard of it at once
        ([4.0, -4.0, -4.0, 4.0], []),
        ([4.0, -4.0, -4.0, -4.0, -4.0, -4.0], [Code.GREETING_MISSING]),
    ],
)
def test_who_is_there_may_take_longer_to_greet_and_the_caller_to_hear_it(
    pauses: list[float], missed: list[Code]
) -> None:
    now = 0.0

    class Slow(selectors.DefaultSelector):
        """What each wait takes; in those with a minus nothing is heard."""

        def select(self, timeout: float | None = None) -> Any:
            nonlocal now
            pause = pauses.pop(0)
            heard = super().select(60.0) if pause > 0 else []
            now += abs(pause)
            return heard

    with answering(GREETING) as port:
        assert failures(port, 5.0, lambda: now, Slow()) == missed

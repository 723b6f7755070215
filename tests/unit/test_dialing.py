"""Who is reached when ports of other hosts are dialled, on real sockets."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from distrun.agent import dialing
from distrun.agent.questions import Dial, Target

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


def kinds(port: int, seconds: float) -> list[str]:
    """What is wrong with that port, as one sees it who calls it."""
    order = Dial([Target("127.0.0.1", [port], GREETING)], seconds)
    return [miss.kind for miss in dialing.dial(order).misses]


@pytest.mark.parametrize(
    ("said", "missed"),
    [(GREETING, []), ("SSH-2.0-\n", ["stranger"]), (GREETING[:5], ["silent"]), ("", ["silent"])],
)
def test_who_answers_is_known_by_the_greeting(said: str, missed: list[str]):
    with answering(said) as port:
        assert kinds(port, 0.5 if missed == ["silent"] else 60.0) == missed


def test_a_caller_that_was_kept_waiting_itself_misses_no_answer(monkeypatch: pytest.MonkeyPatch):
    now = 0.0

    class KeptWaiting(selectors.DefaultSelector):
        """After whatever it waits for, its process does not run for long."""

        def select(self, timeout: float | None = None) -> Any:
            nonlocal now
            heard = super().select(60.0)
            now += 60.0
            return heard

    monkeypatch.setattr(dialing, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(dialing.selectors, "DefaultSelector", KeptWaiting)
    with answering(GREETING) as port:
        assert kinds(port, 5.0) == []

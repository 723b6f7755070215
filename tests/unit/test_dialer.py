"""Who is reached when ports of other hosts are dialled, on real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from distrun.agent.probe import dialer
from distrun.agent.protocol import Code
from distrun.agent.protocol.probe_messages import Dial, Target

GREETING = "distrun here\n"


@contextlib.contextmanager
def answering(greeting: str, *, after: float = 0.0) -> Iterator[int]:
    """A port on which one caller hears so much, so many seconds later, until it hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                guest, _ = server.accept()
                with guest:
                    time.sleep(after)
                    guest.sendall(greeting.encode())
                    guest.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def failures(port: int, seconds: float) -> list[Code]:
    """What is wrong with that port, as its caller sees it."""
    order = Dial([Target("127.0.0.1", [port], GREETING)], seconds)
    return [each.cause.code for each in dialer.dial(order).unreachable]


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


def test_who_is_there_may_take_longer_to_greet_than_to_connect() -> None:
    with answering(GREETING, after=0.3) as port:
        assert failures(port, 0.2) == []


def test_ports_are_dialled_at_the_same_time_and_each_failure_is_named() -> None:
    with answering("", after=1.0) as silent, answering(GREETING) as right:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            refused = closed.getsockname()[1]
        targets = [
            Target("127.0.0.1", [silent, right, refused], GREETING),
            Target("no-such-name.invalid", [1], GREETING),
        ]
        began = time.monotonic()
        found = dialer.dial(Dial(targets, 0.2)).unreachable
        assert time.monotonic() - began < 5.0
    codes = {(each.machine, each.port): each.cause.code for each in found}
    assert codes.pop(("no-such-name.invalid", 1)) is Code.NAME_NOT_RESOLVED
    assert codes == {
        ("127.0.0.1", silent): Code.GREETING_MISSING,
        ("127.0.0.1", refused): Code.CONNECTION_REFUSED,
    }

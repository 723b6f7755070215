"""Frames over real sockets, whatever the pieces they come in; and the outbox."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.protocol import file_messages, probe_messages
from distrun.agent.protocol.channel import MAX_FRAME, Channel, Outbox, ProtocolError, encode
from harness.generated import OS_TEXT, causes

VALUES: dict[Any, st.SearchStrategy[Any]] = {str: OS_TEXT, int: st.integers(-(2**53), 2**53)}
VALUES[bytes] = st.binary(max_size=40)
VALUES[float] = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(st.none() | OS_TEXT | VALUES[int], lambda inner: st.lists(inner, max_size=3))
VALUES[Any] = JSON
VALUES[protocol.Cause] = causes(OS_TEXT)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    if kind in VALUES:
        return VALUES[kind]
    name = str(kind)
    if name.startswith(("typing.Optional", "typing.Union")):
        return st.none() | _values(kind.__args__[0])
    is_tuple = getattr(kind, "__args__", ())[-1:] == (...,)
    if is_tuple or name.startswith(("typing.List", "typing.Sequence")):
        values = st.lists(_values(kind.__args__[0]), max_size=4)
        return values.map(tuple) if is_tuple else values
    if name == "bool" or kind is bool:
        return st.booleans()
    if hasattr(kind, "_fields"):
        return _messages(kind)
    return st.dictionaries(OS_TEXT, _values(kind.__args__[1]), max_size=4)


def _messages(message: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(message)
    return st.builds(message, **{field: _values(hints[field]) for field in message._fields})


TYPES = {
    name: kind
    for name, kind in protocol.Message.kinds.items()
    if kind.__module__.startswith(
        (protocol.__name__, probe_messages.__name__, file_messages.__name__)
    )
}
MESSAGES = st.sampled_from(sorted(TYPES)).flatmap(lambda name: _messages(TYPES[name]))


class Pair:
    """A raw socket and the channel at its other end."""

    def __init__(self) -> None:
        self.raw, other = socket.socketpair()
        descriptor = other.detach()
        self.channel: Channel[Any, Any] = Channel(descriptor, descriptor, protocol.Message)

    def close(self) -> None:
        self.raw.close()
        self.channel.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with contextlib.closing(Pair()) as made:
        yield made


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(
    messages=st.lists(st.tuples(MESSAGES, st.integers(0, 99)), max_size=5),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_messages_arrive_whole_and_in_order_in_whatever_pieces(
    messages: list[tuple[protocol.Message, int]], cuts: list[int]
) -> None:
    with contextlib.closing(Pair()) as pair:
        stream = b"".join(encode(message, seq) for message, seq in messages)
        received = []
        for start, end in itertools.pairwise(sorted({0, len(stream), *cuts})):
            pair.raw.sendall(stream[start:end])
            received += pair.channel.receive()
            assert not pair.channel.ended
        assert [encode(message, seq) for seq, message in received] == [
            encode(message, seq) for message, seq in messages
        ]
        pair.raw.close()
        assert pair.channel.receive() == []
        assert pair.channel.ended


def test_what_came_before_the_end_is_received_with_it(pair: Pair) -> None:
    pair.raw.sendall(encode(protocol.Detach()) + encode(protocol.Ack(7))[:-1])
    pair.raw.close()
    assert pair.channel.receive() == [(0, protocol.Detach())], "and a torn frame is not"
    assert pair.channel.ended


@pytest.mark.parametrize(
    "noise",
    [
        b"Welcome to Linux!\n",
        struct.pack(">I", MAX_FRAME + 1),
        frame(b"no json"),
        frame(b"[]"),
        frame(b"null"),
        frame(b'{"type":"Nothing"}'),
        frame(b'{"type":"Ack"}'),
        frame(b'{"type":"Ack","last":1,"seq":"x"}'),
        frame(b'{"type":[]}'),
        frame(b"\xff\xfe"),
        frame(b""),
        frame(b"[" * 100_000),
    ],
    ids=lambda noise: repr(noise[:30]),
)
def test_noise_is_an_error_of_the_wire(pair: Pair, noise: bytes) -> None:
    pair.raw.sendall(noise)
    with pytest.raises(ProtocolError):
        pair.channel.receive()


def test_a_message_over_the_limit_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="message_too_long"):
        encode(protocol.LogData("worker-0.log", 0, bytes(MAX_FRAME)))


def test_a_reader_that_is_slow_blocks_nobody_and_misses_nothing(pair: Pair) -> None:
    sent = [
        protocol.Configure(number, "x" * 10_000, "", None, variables=[], former=[])
        for number in range(200)
    ]
    for message in sent:
        pair.channel.send(message)
    assert pair.channel.pending
    with contextlib.closing(Loop()) as loop:
        descriptor = os.dup(pair.raw.fileno())
        reader: Channel[Any, Any] = Channel(descriptor, descriptor, protocol.Message)
        received: list[Any] = []
        while len(received) < len(sent):
            pair.channel.watch_writing(loop)
            loop.turn(0.0)
            received += [message for _, message in reader.receive()]
        pair.channel.watch_writing(loop)
        assert not loop.is_watched(pair.channel.writer), "nothing is waited for once all is sent"
        reader.close()
    assert received == sent


def test_the_outbox_keeps_what_is_not_acknowledged() -> None:
    outbox: Outbox[Any] = Outbox()
    assert [outbox.add(f"report {number}") for number in (1, 2, 3)] == [1, 2, 3]
    assert outbox.after(0) == [(1, "report 1"), (2, "report 2"), (3, "report 3")]
    outbox.acknowledge(2)
    outbox.acknowledge(1)
    assert outbox.after(0) == [(3, "report 3")]
    assert outbox.after(3) == []
    assert outbox.add("report 4") == 4
    outbox.acknowledge(99)
    assert outbox.after(0) == []

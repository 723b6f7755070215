"""Frames over real sockets, whatever the pieces they come in, and whatever is between them."""

import contextlib
import itertools
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import examples
from harness.generated import OS_TEXT, causes
from harness.messages import PLAIN
from harness.parts.agent import Loop, protocol
from harness.parts.channel import (
    HEADER,
    MARK,
    MAX_FRAME,
    Channel,
    ChecksummedSender,
    ProtocolError,
    encode,
)
from harness.parts.hosts import ChecksummedReceiver, Damage

MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(protocol.LogData, OS_TEXT, st.integers(0, 2**53), st.binary(max_size=40)),
    st.builds(protocol.Progress, OS_TEXT, st.dictionaries(OS_TEXT, OS_TEXT), st.floats(0, 1e10)),
    st.builds(protocol.Fault, causes(OS_TEXT), st.floats(0, 1e10)),
    st.just(PLAIN),
)


class Pair:
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
def test_messages_are_whole(messages: list[tuple[protocol.Message, int]], cuts: list[int]) -> None:
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


@pytest.mark.parametrize(
    "noise",
    [
        b"Welcome to Linux!\n", struct.pack(">I", MAX_FRAME + 1), frame(b"no json"),
        frame(b'{"type":"Nothing"}'), frame(b'{"type":[]}'), frame(b"[" * 100_000),
    ],
    ids=lambda noise: repr(noise[:30]),
)  # fmt: skip
def test_noise_is_an_error_of_the_wire(pair: Pair, noise: bytes) -> None:
    pair.raw.sendall(noise)
    with pytest.raises(ProtocolError):
        pair.channel.receive()


def test_a_message_over_the_limit_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="message_too_long"):
        encode(protocol.LogData("worker-0.log", 0, bytes(MAX_FRAME)))


def test_a_closed_channel_leaves_the_file_that_has_its_number_now(pair: Pair) -> None:
    """An agent's lost link; it would hear no new one whose socket has the number."""
    loop, (reader, writer) = Loop(), os.pipe()
    number = pair.channel.writer
    pair.channel.close()
    os.dup2(reader, number)
    loop.watch(number, lambda: None)
    pair.channel.watch_writing(loop)
    is_watched = loop.is_watched(number)
    pair.channel.close = lambda: None  # type: ignore[method-assign]
    for each in (reader, writer, number):
        os.close(each)
    loop.close()
    assert is_watched


BEGIN = b"\nbegin\n"
NOISE = st.sampled_from([b"late 1\n", b"\0\0\0\x02{}", b"d", MARK, MARK + b"\0" * 30, b"\n" * 5000])


class Link:
    """What an agent sends, as bytes, and the other side's channel."""

    def __init__(self) -> None:
        self._agents, self._raw = socket.socketpair()
        self._agent = ChecksummedSender(self._raw.fileno(), os.dup(self._raw.fileno()))
        self._ours, self._theirs = socket.socketpair()
        number = self._ours.fileno()
        self.channel = ChecksummedReceiver(number, os.dup(number), BEGIN)

    def sealed(self, message: Any, seq: int = 0) -> bytes:
        self._agent.send(message, seq)
        return self._agents.recv(1 << 20)

    def receive(self, block: bytes) -> list[Any]:
        self._theirs.sendall(block)
        return self.channel.receive()

    def close(self) -> None:
        os.close(self._agent.writer)
        os.close(self.channel.writer)
        for each in (self._agents, self._raw, self._theirs, self._ours):
            each.close()


def header(number: int, length: int, check: int) -> bytes:
    fields = HEADER.pack(MARK, number, length, check)
    return fields + struct.pack(">I", zlib.crc32(fields))


def reports(count: int) -> list[tuple[int, Any]]:
    return [(n, protocol.LogData(f"log {n}", n, b"line\n" * (n * 7))) for n in range(1, count + 1)]


@settings(max_examples=examples(60))
@given(noises=st.lists(NOISE, min_size=5, max_size=5), cut=st.integers(1, 700))
def test_noise_between_messages_is_left_out(noises: list[bytes], cut: int) -> None:
    with contextlib.closing(Link()) as link:
        sent = reports(4)
        stream = noises[0] + BEGIN
        for (number, message), noise in zip(sent, noises[1:], strict=True):
            stream += noise + link.sealed(message, number)
        parts = (stream[at : at + cut] for at in range(0, len(stream), cut))
        assert [each for part in parts for each in link.receive(part)] == sent


@given(noise=NOISE, place=st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_noise_in_a_message_is_noticed_and_costs_no_other(noise: bytes, place: float) -> None:
    with contextlib.closing(Link()) as link:
        first, second, third = reports(3)
        frame = [link.sealed(message, number) for number, message in (first, second, third)]
        at = min(max(1, int(place * len(frame[1]))), len(frame[1]) - 1)
        damaged = frame[1][:at] + noise + frame[1][at:]
        received = link.receive(BEGIN + frame[0] + damaged + frame[2])
        # Noise that repeats what stands there leaves the message as it was.
        assert (received[0], received[-1]) == (first, third)
        assert received[1:-1] in ([(0, Damage())], [(0, Damage()), (0, Damage())], [second])


def test_a_login_that_prints_without_end_is_not_waited_for() -> None:
    with contextlib.closing(Link()) as link:
        assert not any(link.receive(b"noise\n" * 10_000) for _ in range(17))
        with pytest.raises(ProtocolError, match="login_prints_on"):
            link.receive(b"noise\n" * 10_000)


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (header(0, 1 << 23, 0), "frame_too_long"),  # nothing is allocated for it
        (header(0, 40, 0) * 200 + bytes(40), "frames_damaged"),
    ],
)
def test_a_false_header_or_many_damaged_frames_end_it(block: bytes, code: str) -> None:
    with contextlib.closing(Link()) as link, pytest.raises(ProtocolError, match=code):
        link.receive(BEGIN + block)

"""A link into which a login's background processes print: what comes of the messages on it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrun.agent import protocol
from distrun.agent.protocol.channel import ProtocolError
from distrun.agent.protocol.framing import HEADER, MARK, ChecksummedSender
from distrun.supervisor.hosts.host_channel import ChecksummedReceiver, Damage
from harness.examples import examples

BEGIN = b"\nbegin\n"
NOISE = st.sampled_from([b"late 1\n", b"\0\0\0\x02{}", b"d", MARK, MARK + b"\0" * 30, b"\n" * 5000])


class Link:
    """What an agent sends, as bytes, and the other side's channel."""

    def __init__(self) -> None:
        self._agents, raw = socket.socketpair()
        self._raw = raw
        self._agent = ChecksummedSender(raw.fileno(), os.dup(raw.fileno()))
        ours, self._theirs = socket.socketpair()
        self.channel = ChecksummedReceiver(ours.fileno(), os.dup(ours.fileno()), BEGIN)
        self._ours = ours

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


@pytest.fixture
def link() -> Iterator[Link]:
    with contextlib.closing(Link()) as made:
        yield made


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
        frame = link.sealed(first[1], 1), link.sealed(second[1], 2), link.sealed(third[1], 3)
        at = min(max(1, int(place * len(frame[1]))), len(frame[1]) - 1)
        damaged = frame[1][:at] + noise + frame[1][at:]
        received = link.receive(BEGIN + frame[0] + damaged + frame[2])
        # Noise that repeats what stands there leaves the message as it was.
        assert received[0] == first
        assert received[-1] == third
        assert received[1:-1] in ([(0, Damage())], [(0, Damage()), (0, Damage())], [second])


def test_damage_is_told_before_another_message_comes(link: Link) -> None:
    frame = link.sealed(protocol.LogData("log", 0, b"line\n" * 10))
    assert link.receive(BEGIN + frame[:50] + b"late 1\n" + frame[50:]) == [(0, Damage())]


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (header(0, 1 << 23, 0), "frame_too_long"),  # nothing is allocated for it
        (header(0, (1 << 32) - 1, 0), "frame_too_long"),
        (header(0, 40, 0) * 200 + bytes(40), "frames_damaged"),
    ],
)
def test_a_header_that_claims_too_much_and_many_damaged_frames_end_the_link(
    link: Link, block: bytes, code: str
) -> None:
    with pytest.raises(ProtocolError, match=code):
        link.receive(BEGIN + block)

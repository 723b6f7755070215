"""The supervisor's ends of links to agents: they trust nothing that a host sends.

The messages of a host are checked by the types of their fields. A host can neither have much memory
allocated, nor keep the supervisor from its other hosts.
"""

from __future__ import annotations

import os
import time
import zlib

from distrun.agent.protocol import Ack, Message, Order, Report
from distrun.agent.protocol.causes import Cause, Code
from distrun.agent.protocol.channel import CHECK, HEADER, LENGTH, MARK, Channel, ProtocolError
from distrun.codec import from_json

_BYTES_PER_TURN = 1 << 18
"""A link that always has more to read must not starve the others."""
_MOST_QUEUED = 100_000
"""Messages for an agent that reads nothing: more than the orders of any job."""
_HEADER_SIZE = HEADER.size + CHECK.size
_LONGEST_PLAIN = 600
"""Bytes of an order that is not compressed. srun passes on 1024 bytes at a time, and the next ones
up to 40 ms later."""
_NOISE_BYTES = 4000
_MOST_NOISE = 1 << 20
"""Bytes before the mark: more than any banner or profile prints."""
_QUOTED_NOISE = 40
_MOST_DAMAGED = 64
"""Damaged frames in what is read in a turn. To verify a frame takes time."""


class HostChannel(Channel[Report, Order]):
    """A link on which the agent alone writes."""

    ack_seconds = 0.0
    """How long an acknowledgement waits for an order."""
    longest_frame = 4 << 20
    """Bytes. The longest are the answers of a preflight among thousands of tasks."""

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(reader, writer, Report)
        self.joins = True
        self.ack_due: float | None = None
        """When to acknowledge the last reports, unless an order is sent before; None: never."""
        self._received = 0

    def acknowledge(self, last: int) -> None:
        """Acknowledge the reports up to a number, together with the next order or soon."""
        self._received = last
        if self.ack_due is None:
            self.ack_due = time.monotonic() + self.ack_seconds
        self.send_due_ack()

    def send_due_ack(self) -> None:
        """Send an acknowledgement that has waited for long enough."""
        if self.ack_due is not None and self.ack_due <= time.monotonic():
            self._send_ack()

    def send(self, message: Order, seq: int = 0) -> None:
        self._send_ack()
        super().send(message, seq)

    def _send_ack(self) -> None:
        if self.ack_due is not None:
            self.ack_due = None
            super().send(Ack(self._received))

    @property
    def is_flooded(self) -> bool:
        """Whether the agent reads too little of what it is sent."""
        return len(self._outgoing) > _MOST_QUEUED

    def discard(self) -> None:
        """Drop what has arrived. Sets :attr:`ended` at the end."""
        self._fill()
        self._incoming.clear()

    def _fill(self) -> None:
        if self.ended:
            return
        try:
            block = os.read(self.reader, _BYTES_PER_TURN)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        self.ended = not block
        self._incoming += block

    def _decode(self, body: bytes) -> tuple[int, Report]:
        seq, message = super()._decode(body)
        try:
            return seq, from_json(type(message), message)
        except ValueError as error:
            cause = Cause(Code.REPORT_INVALID, name=type(message).__name__, text=str(error))
            raise ProtocolError(cause) from error


class Damage(Report):
    """Replaces at least one message that noise has damaged."""


del Message.kinds[Damage.__name__]  # no host can send it


class ChecksummedReceiver(HostChannel):
    """Reads the frames after `mark`, among whatever else is printed on the link."""

    ack_seconds = 0.5
    """An order that follows it soon may be held back for 40 ms by a TCP connection whose other side
    has not answered yet, such as srun's."""

    def __init__(self, reader: int, writer: int, mark: bytes) -> None:
        super().__init__(reader, writer)
        self.met = False
        self._noise = b""
        self._noise_size = 0
        self._mark = mark
        self._framed = bytearray()
        """The bytes after the mark that are not a complete frame yet."""
        self._next = 0

    def _encode(self, message: Order, seq: int) -> bytes:
        frame = super()._encode(message, seq)
        if len(frame) <= _LONGEST_PLAIN or hasattr(message, "data"):
            return frame
        # A cluster of thousands of addresses takes 5 ms for each of its tasks at the usual level.
        body = zlib.compress(frame[LENGTH.size :], 1)
        return LENGTH.pack(len(body)) + body

    @property
    def noise(self) -> bytes:
        return self._noise if self.met else self._noise + bytes(self._incoming)

    def receive(self) -> list[tuple[int, Report]]:
        self._fill()
        if not self.met:
            at = self._incoming.find(self._mark)
            self.met = at >= 0
            # All but the last byte of the mark may have arrived.
            noise = at if self.met else max(0, len(self._incoming) - len(self._mark) + 1)
            self._noise = (self._noise + self._incoming[:noise])[-_NOISE_BYTES:]
            self._noise_size += noise
            if self._noise_size > _MOST_NOISE:
                text = self._noise[-_QUOTED_NOISE:].decode("utf-8", "replace").strip()
                text = text.rpartition("\n")[2]
                raise ProtocolError(Cause(Code.LOGIN_PRINTS_ON, count=_MOST_NOISE, text=text))
            del self._incoming[: noise + len(self._mark) if self.met else noise]
        return self._unframed() if self.met else []

    def _unframed(self) -> list[tuple[int, Report]]:
        self._framed += self._incoming
        self._incoming.clear()
        messages: list[tuple[int, Report]] = []
        damaged = 0
        while (found := self._next_frame()) is not None:
            number, frame = found
            if number != self._next or not frame:
                messages.append((0, Damage()))
            damaged += not frame
            if damaged > _MOST_DAMAGED:
                raise ProtocolError(Cause(Code.FRAMES_DAMAGED, count=damaged))
            self._next = number + 1
            self._incoming += frame
            messages += self._frames()
        return messages

    def _next_frame(self) -> tuple[int, bytes] | None:
        """The number of the next frame, and the frame, empty after damage. None: incomplete."""
        framed = self._framed
        at = 0
        while True:
            at = framed.find(MARK, at)
            if at < 0:
                at = max(0, len(framed) - len(MARK) + 1)
                break
            if len(framed) < at + _HEADER_SIZE:
                break
            start = at + _HEADER_SIZE
            header = bytes(framed[at : at + HEADER.size])
            if CHECK.unpack_from(framed, at + HEADER.size)[0] == zlib.crc32(header):
                _, number, length, check = HEADER.unpack(header)
                if length > self.longest_frame + _HEADER_SIZE:
                    raise ProtocolError(Cause(Code.FRAME_TOO_LONG, count=length))
                end = start + length
                if len(framed) < end:
                    break
                frame = bytes(framed[start:end])
                is_whole = zlib.crc32(frame) == check
                # Noise lengthens a frame, so the next one starts before the end of this one.
                del framed[: end if is_whole else start]
                return number, frame if is_whole else b""
            at += 1
        del framed[:at]
        return None

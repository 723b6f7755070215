"""Checksummed frames: messages on a link on which other processes may print.

Every process that a login leaves running on a host shares the link's standard output. So each frame
on such a link begins with a header: a mark, the frame's number on this link, its length, and
checksums of frame and header. Noise between two frames is skipped. Noise inside a frame is
detected, and the receiver requests the reports again (:class:`distrun.agent.protocol.Reattach`).
"""

from __future__ import annotations

import struct
import zlib
from typing import List, Optional, Tuple

from distrun.agent.protocol.channel import Channel, encode
from distrun.agent.protocol.messages import Order, Report

MARK = b"\xfe\x00dr"
_FIELDS = struct.Struct(">4sIII")
_CHECK = struct.Struct(">I")
_HEADER_SIZE = _FIELDS.size + _CHECK.size
_NOISE_BYTES = 4000


class ChecksummedSender(Channel[Order, Report]):
    """The agent's end of such a link: sends each message with a header."""

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(reader, writer, Order)
        self._count = 0

    def send(self, message: Report, seq: int = 0) -> None:
        if not self.broken:
            frame = encode(message, seq)
            fields = _FIELDS.pack(MARK, self._count, len(frame), zlib.crc32(frame))
            self._count += 1
            self.send_bytes(fields + _CHECK.pack(zlib.crc32(fields)) + frame)


class Damage(Report):
    """Stands in place of at least one message that noise has damaged."""


class ChecksummedReceiver(Channel[Report, Order]):
    """The supervisor's end: reads the frames after `mark`, among whatever else is printed."""

    def __init__(self, reader: int, writer: int, mark: bytes) -> None:
        super().__init__(reader, writer, Report)
        self.met = False
        """Whether the mark has arrived."""
        self._noise = b""
        self._mark = mark
        self._framed = bytearray()
        """The bytes after the mark that are not a complete frame yet."""
        self._next = 0
        """The number of the next frame."""

    @property
    def noise(self) -> bytes:
        """The last bytes before the mark."""
        return self._noise if self.met else self._noise + bytes(self._incoming)

    def receive(self) -> List[Tuple[int, Report]]:
        self._fill()
        if not self.met:
            at = self._incoming.find(self._mark)
            self.met = at >= 0
            # All but the last byte of the mark may have arrived.
            noise = at if self.met else max(0, len(self._incoming) - len(self._mark) + 1)
            self._noise = (self._noise + self._incoming[:noise])[-_NOISE_BYTES:]
            del self._incoming[: noise + len(self._mark) if self.met else noise]
        return self._unframed() if self.met else []

    def _unframed(self) -> List[Tuple[int, Report]]:
        self._framed += self._incoming
        self._incoming.clear()
        messages: List[Tuple[int, Report]] = []
        while (found := self._next_frame()) is not None:
            number, frame = found
            if number != self._next or not frame:
                messages.append((0, Damage()))
            self._next = number + 1
            self._incoming += frame
            messages += self._frames()
        return messages

    def _next_frame(self) -> Optional[Tuple[int, bytes]]:
        """The number of the next frame, and the frame, which is empty if noise damaged it.

        Skips the bytes before it. None: it is not complete yet.
        """
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
            header = _read_header(bytes(framed[at:start]))
            if header is not None:
                number, length, check = header
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


def _read_header(block: bytes) -> Optional[Tuple[int, int, int]]:
    """Number, length and checksum of the frame after a header; None if it is not a header."""
    _, number, length, check = _FIELDS.unpack_from(block)
    if _CHECK.unpack_from(block, _FIELDS.size)[0] != zlib.crc32(block[: _FIELDS.size]):
        return None
    return number, length, check

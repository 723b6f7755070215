"""Frames that can be told from what others print into the same link, between them or in one.

Whatever a login leaves running on a host holds the link's standard output as well. So each frame
there begins with a header: a mark, the frame's number on this link, its length, and checks of
frame and header. Between frames noise is left out; one that came in the middle of a frame is
noticed, and the other side asks for what it has missed (:class:`distrun.agent.wire.Attach`).
"""

from __future__ import annotations

import struct
import zlib
from typing import Optional, Tuple

from distrun.agent.wire import Channel, Message, encode

MARK = b"\xfe\x00dr"
_FIELDS = struct.Struct(">4sIII")
_CHECK = struct.Struct(">I")
SIZE = _FIELDS.size + _CHECK.size


class SealedChannel(Channel):
    """A channel that seals what it sends."""

    _count = 0

    def send(self, message: Message, seq: int = 0) -> None:
        if not self.broken:
            frame = encode(message, seq)
            fields = _FIELDS.pack(MARK, self._count, len(frame), zlib.crc32(frame))
            self._count += 1
            self.send_bytes(fields + _CHECK.pack(zlib.crc32(fields)) + frame)


def read_header(block: bytes) -> Optional[Tuple[int, int, int]]:
    """Number, length and check of the frame behind a header; None where it is none."""
    _, number, length, check = _FIELDS.unpack_from(block)
    if _CHECK.unpack_from(block, _FIELDS.size)[0] != zlib.crc32(block[: _FIELDS.size]):
        return None
    return number, length, check

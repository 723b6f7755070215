"""Checksummed frames: messages on a link on which other processes may print.

Every process that a login leaves running on a host shares the link's standard output. So each frame
on such a link begins with a header: a mark, the frame's number on this link, its length, and
checksums of frame and header. Noise between two frames is skipped. Noise inside a frame is
detected, and the receiver requests the reports again (:class:`distrun.agent.protocol.Reattach`).
The supervisor's messages may be compressed.

This is the agent's end. The supervisor's is :mod:`distrun.supervisor.hosts.host_channel`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Tuple

from distrun.agent.protocol import Order, Report
from distrun.agent.protocol.causes import Cause, Code
from distrun.agent.protocol.channel import Channel, ProtocolError

MARK = b"\xfe\x00dr"
HEADER = struct.Struct(">4sIII")
CHECK = struct.Struct(">I")


class ChecksummedSender(Channel[Order, Report]):
    """The agent's end of such a link: sends each message with a header."""

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(reader, writer, Order)
        self._count = 0

    def _encode(self, message: Report, seq: int) -> bytes:
        frame = super()._encode(message, seq)
        fields = HEADER.pack(MARK, self._count, len(frame), zlib.crc32(frame))
        self._count += 1
        return fields + CHECK.pack(zlib.crc32(fields)) + frame

    def _decode(self, body: bytes) -> Tuple[int, Order]:
        if not body.startswith(b"{"):
            try:
                body = zlib.decompress(body)
            except zlib.error as error:
                raise ProtocolError(Cause(Code.MESSAGE_INVALID, text=str(error))) from error
        return super()._decode(body)

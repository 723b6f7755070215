"""Messages in frames, and a channel for them.

A frame is a length (4 bytes, big endian) and that many bytes of JSON: an object with the
message's `type`, its fields, `seq` for a numbered message, and `version`, the PROTOCOL, for a
request: commands and supervisors may be of different versions. Unknown fields are ignored, so
that a newer side can add some; a change of meaning raises PROTOCOL. Strings may contain
bytes that are not UTF-8, as Python's `surrogateescape` keeps them. The bytes of a message that has
some (`data`) follow its JSON and a newline, unchanged.

Every process that a login leaves running on a host shares the link's standard output. So each frame
that an agent sends on such a link (:class:`ChecksummedSender`) begins with a header: a mark, the
frame's number on this link, its length, and checksums of frame and header. Noise between two frames
is skipped. Noise inside a frame is detected, and the receiver requests the reports again
(:class:`distrun.agent.protocol.Reattach`). The supervisor's messages may be compressed. Its end is
:mod:`distrun.supervisor.hosts.host_channel`.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Type

from distrun.agent.linux import syscalls
from distrun.agent.protocol import PROTOCOL, Message, Order, Report, Request
from distrun.agent.protocol.causes import Cause, CauseError, Code
from distrun.agent.structs import Generic

if TYPE_CHECKING:
    from typing import Deque, TypeVar

    from distrun.agent.loop import Loop

    Received = TypeVar("Received", bound=Message)
    Sent = TypeVar("Sent", bound=Message)
else:
    Received = Sent = Message

MAX_FRAME = 64 * 1024 * 1024
_MOST_JOINED = 64
LENGTH = struct.Struct(">I")
MARK = b"\xfe\x00dr"
HEADER = struct.Struct(">4sIII")
CHECK = struct.Struct(">I")
_DELAY = 2.0
"""Seconds that what is in flight may delay other messages, judged by the last part to arrive."""
_SMALLEST_WINDOW = 8 * 1024
_GROWTH = 8
"""How much more than what has arrived is tried next: a short part says little about a link."""


class ProtocolError(CauseError):
    """The other side broke the protocol: not a distrun of this version, or noise on the link."""


def encode(message: Message, seq: int = 0) -> bytes:
    """A message as one frame. `seq` 0 is for messages that are not numbered."""
    body = encode_body(message, seq)
    if len(body) > MAX_FRAME:
        raise ProtocolError(Cause(Code.MESSAGE_TOO_LONG, count=len(body)))
    return LENGTH.pack(len(body)) + body


def encode_body(message: Message, seq: int = 0) -> bytes:
    """A frame without its length, as :func:`decode` reads it."""
    fields: Dict[str, Any] = message._asdict()
    fields["type"] = type(message).__name__
    if seq:
        fields["seq"] = seq
    if isinstance(message, Request):
        fields["version"] = PROTOCOL
    attached = fields.pop("data", None)
    body = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return body if attached is None else body + b"\n" + attached


def decode(body: bytes) -> Tuple[int, Message]:
    """The number and message in a frame. Raises ProtocolError if it contains no message.

    Its fields may have any values: what may not be trusted is read by :mod:`distrun.codec`. Until
    then a cause or another structure in it is a list, except in orders.
    """
    try:
        text, newline, attached = body.partition(b"\n")
        fields = json.loads(text)
        if newline:
            fields["data"] = attached
        version = fields.pop("version", PROTOCOL)
        if version != PROTOCOL:
            count = version if type(version) is int else 0
            raise ProtocolError(Cause(Code.REQUEST_VERSION_DIFFERS, count=count, total=PROTOCOL))
        kind = _kind(fields.pop("type"))
        seq = _read_seq(fields.pop("seq", 0))
        for name, inner in kind.structs.items():
            fields[name] = [inner(*each) for each in fields[name]]
        known = {name: fields[name] for name in kind._fields if name in fields}
        return seq, kind(**known)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        begin = body[:80].decode("ascii", "backslashreplace")
        raise ProtocolError(Cause(Code.MESSAGE_INVALID, text=begin)) from error


def _read_seq(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError(value)
    return value


def _kind(name: str) -> Type[Message]:
    """The class of a message. To create classes takes time, and few jobs need all."""
    if name not in Message.kinds:
        from distrun.agent.protocol import (  # noqa: F401
            file_messages,
            probe_messages,
            stack_messages,
        )
    return Message.kinds[name]


class Channel(Generic[Received, Sent]):
    """Messages over a pair of descriptors, which it owns; never blocks.

    Have a loop watch :attr:`reader`, call :meth:`receive` when it is readable, and
    :meth:`watch_writing` before each wait. `receives`: the kind of messages that come.
    """

    longest_frame = MAX_FRAME

    def __init__(self, reader: int, writer: int, receives: Type[Received]) -> None:
        self._receives = receives
        self.reader = reader
        self.writer = os.dup(reader) if writer == reader else writer
        self.ended = False
        """Whether the other side has closed its end; everything that it sent was received."""
        self.broken = False
        """Whether the other side no longer reads what is sent."""
        self.is_closed = False
        self.joins = False
        """Whether :meth:`watch_writing` writes all that was queued since its last call at once.

        Where the link is a TCP connection that sends nothing before its last bytes are
        acknowledged, as srun's is, several small writes in a row would wait for each other.
        """
        self._incoming = bytearray()
        self._outgoing: Deque[bytes] = collections.deque()
        os.set_blocking(reader, False)
        os.set_blocking(self.writer, False)

    @property
    def pending(self) -> bool:
        return bool(self._outgoing) and not self.broken

    def send(self, message: Sent, seq: int = 0) -> None:
        """Queue a message, and write as much as the link accepts now, unless :attr:`joins`."""
        if not self.broken:
            self.send_bytes(self._encode(message, seq))

    def _encode(self, message: Sent, seq: int) -> bytes:
        return encode(message, seq)

    def send_bytes(self, block: bytes) -> None:
        """Do the same with bytes that are not a message."""
        self._outgoing.append(block)
        if not self.joins or len(self._outgoing) >= _MOST_JOINED:
            self.flush()

    def flush(self) -> None:
        """Write as much of what is queued as the link accepts now."""
        while self._outgoing and not self.broken:
            block = b"".join(itertools.islice(self._outgoing, _MOST_JOINED))
            try:
                written = os.write(self.writer, block)
            except BlockingIOError:
                return
            except OSError:
                self.broken = True
                self._outgoing.clear()
                return
            for _ in range(min(len(self._outgoing), _MOST_JOINED)):
                self._outgoing.popleft()
            if written < len(block):
                self._outgoing.appendleft(block[written:])

    def drain(self, seconds: Optional[float] = None) -> None:
        """Write all of it; blocks. Gives up a reader that reads nothing for so many seconds."""
        while self.pending and syscalls.wait_until_ready([], [self.writer], seconds):
            self.flush()

    def watch_writing(self, loop: Loop, on_ready: Optional[Callable[[], None]] = None) -> None:
        """Write what is queued; have the loop call :meth:`flush`, or `on_ready`, later."""
        if self.is_closed:  # its descriptors may be those of others by now
            return
        self.flush()
        if not self.pending:
            loop.unwatch(self.writer)
        elif not loop.is_watched(self.writer):
            loop.watch_writing(self.writer, on_ready or self.flush)

    def receive(self) -> List[Tuple[int, Received]]:
        """Whole messages that have arrived, with their numbers. Sets :attr:`ended` at the end.

        Raises ProtocolError if the bytes are not a frame of this protocol.
        """
        self._fill()
        return self._frames()

    def _fill(self) -> None:
        while not self.ended:
            try:
                block = os.read(self.reader, 1 << 18)
            except BlockingIOError:
                break
            except OSError:
                block = b""
            if not block:
                self.ended = True
            self._incoming += block

    def _frames(self) -> List[Tuple[int, Received]]:
        messages: List[Tuple[int, Received]] = []
        position = 0
        while len(self._incoming) - position >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._incoming, position)
            if length > self.longest_frame:
                raise ProtocolError(Cause(Code.FRAME_TOO_LONG, count=length))
            start = position + LENGTH.size
            if len(self._incoming) < start + length:
                break
            messages.append(self._decode(bytes(self._incoming[start : start + length])))
            position = start + length
        del self._incoming[:position]
        return messages

    def _decode(self, body: bytes) -> Tuple[int, Received]:
        seq, message = decode(body)
        if not isinstance(message, self._receives):
            name, expected = type(message).__name__, self._receives.__name__
            raise ProtocolError(Cause(Code.MESSAGE_UNEXPECTED, name=name, text=expected.lower()))
        return seq, message

    def close(self) -> None:
        self.broken = self.ended = self.is_closed = True
        os.close(self.reader)
        os.close(self.writer)


class Outbox(Generic[Sent]):
    """A side's numbered messages, kept until the other side acknowledges them."""

    def __init__(self) -> None:
        self._unacknowledged: Deque[Tuple[int, Sent]] = collections.deque()
        self._last = 0

    def add(self, message: Sent) -> int:
        """Keep a message; returns its number, from 1."""
        self._last += 1
        self._unacknowledged.append((self._last, message))
        return self._last

    def acknowledge(self, seq: int) -> None:
        """Forget every message up to this number."""
        while self._unacknowledged and self._unacknowledged[0][0] <= seq:
            self._unacknowledged.popleft()

    def after(self, seq: int) -> List[Tuple[int, Sent]]:
        """The messages after this number, each with its own number."""
        return [item for item in self._unacknowledged if item[0] > seq]


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


class Flight:
    """How much of logs and files is in flight: other messages wait only shortly.

    `window`: how many bytes that may be.
    """

    def __init__(self, window: int = 0) -> None:
        self.window, self._usable = window, _SMALLEST_WINDOW
        self.size = 0
        self._parts: Deque[Tuple[float, int, int]] = collections.deque()
        """When a part was sent, its size, and the bytes in flight with it."""

    @property
    def room(self) -> int:
        """How many bytes the link takes to the other end soon."""
        return min(self.window, self._usable) - self.size

    def add(self, size: int) -> None:
        self.size += size
        self._parts.append((time.monotonic(), size, self.size))

    def remove(self, received: int) -> None:
        self.size = max(0, self.size - received)
        while self._parts and received > 0:
            sent_at, size, with_it = self._parts.popleft()
            received -= size
            seconds = max(time.monotonic() - sent_at, 0.001)
            self._usable = max(_SMALLEST_WINDOW, int(with_it * min(_DELAY / seconds, _GROWTH)))

"""In place of ssh: runs the agent on this machine, and changes messages of the host `evil`.

The variable ATTACK names the change. Most are made to the first report that a task has started.
"""

import json
import os
import struct
import subprocess
import sys
import zlib

MARK = b"\xfe\x00dr"
HEADER = struct.Struct(">4sIIII")
NUMBER = struct.Struct(">I")
ATTACK = os.environ["ATTACK"]
CHANGES: dict[str, dict[str, object]] = {
    "foreign-exit": {"type": "TaskExited", "task": "chief:0", "code": 1, "signal": None},
    "own-words": {
        "type": "Fault",
        "cause": {"code": "agent_defect", "text": "x\ndistrun: it succeeded\x1b]52;c;eA==\x07"},
    },
}


def header(number: int, length: int, check: int) -> bytes:
    fields = struct.pack(">4sIII", MARK, number, length, check)
    return fields + NUMBER.pack(zlib.crc32(fields))


def write(block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(1, view) :]


class Sender:
    """Sends the agent's messages on, and attacks."""

    def __init__(self, is_hostile: bool) -> None:
        self._number = 0
        self._attack = ATTACK if is_hostile else ""
        self._has_started = False

    def send(self, body: bytes) -> None:
        frame = NUMBER.pack(len(body)) + body
        write(header(self._number, len(frame), zlib.crc32(frame)) + frame)
        self._number += 1

    def send_frames(self, received: bytes) -> bytes:
        """Send on what is complete. Returns the rest."""
        while MARK in received:
            at = received.index(MARK)
            write(received[:at])  # the mark of the link
            received = received[at:]
            if len(received) < HEADER.size:
                break
            end = HEADER.size + HEADER.unpack_from(received)[2]
            if len(received) < end:
                break
            self._send_on(received[HEADER.size + NUMBER.size : end])
            received = received[end:]
        return received

    def _send_on(self, body: bytes) -> None:
        fields = json.loads(body.partition(b"\n")[0])
        kind = fields["type"]
        is_start = kind == "TaskStarted" and not self._has_started
        self._has_started = self._has_started or is_start
        if self._attack and is_start:
            self._attack_start(body, fields)
        else:
            self.send(body)

    def _attack_start(self, body: bytes, fields: dict[str, object]) -> None:
        if self._attack == "claims-4-gib":
            write(header(self._number, 0xFFFFFFFF, 0))
            self._number += 1
        else:
            changes = CHANGES.get(self._attack, {})
            self.send(json.dumps({**fields, **changes}).encode() if changes else body)


def main() -> int:
    if sys.argv[1] == "-V":
        return 0
    host, command = sys.argv[-2:]
    child = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
    assert child.stdout is not None
    output = child.stdout.fileno()
    sender = Sender(host == "evil")
    received = b""
    while block := os.read(output, 65536):
        received = sender.send_frames(received + block)
    write(received)
    return child.wait()


sys.exit(main())

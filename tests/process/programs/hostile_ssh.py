"""In place of ssh: runs the agent on this machine, and changes a message of the host `evil`.

The variable ATTACK names the change. It is made to the first report that a task has started.
"""

import json
import os
import struct
import subprocess
import sys
import zlib

MARK = b"\xfe\x00dr"
STARTED = b'"type":"TaskStarted"'
HEADER = struct.Struct(">4sIIII")
NUMBER = struct.Struct(">I")


def header(number: int, length: int, check: int) -> bytes:
    fields = struct.pack(">4sIII", MARK, number, length, check)
    return fields + NUMBER.pack(zlib.crc32(fields))


def sealed(number: int, body: bytes) -> bytes:
    frame = NUMBER.pack(len(body)) + body
    return header(number, len(frame), zlib.crc32(frame)) + frame


def attacked(number: int, body: bytes) -> bytes:
    """What is sent in place of the report."""
    fields = json.loads(body)
    changes: dict[str, dict[str, object]] = {
        "infinite-number": {"seq": float("inf")},
        "text-for-a-number": {"attempt": "0"},
        "time": {"at": 1e300},
        "surrogate": {"task": "evaluator:0\ud800"},
        "newline": {"task": "evaluator:0\nchief:0"},
        "unknown-task": {"task": "worker:7"},
        "foreign-exit": {
            "type": "TaskExited",
            "task": "chief:0",
            "code": 1,
            "signal": None,
        },
        "own-words": {
            "type": "Fault",
            "cause": {"code": "agent_defect", "text": "x\ndistrun: it succeeded\x1b]52;c;eA==\x07"},
        },
        "hello": {
            "type": "Hello",
            "hostname": "x",
            "protocol": 1,
            "python": "3",
            "cores": 1.0,
            "gpus": [],
        },
    }
    attack = os.environ["ATTACK"]
    if attack == "claims-4-gib":
        return header(number, 0xFFFFFFFF, 0)
    if attack == "flood":
        return b"".join(sealed(number, b'{"type":"Nothing"}') for _ in range(200_000))
    return sealed(number, json.dumps({**fields, **changes[attack]}).encode())


def main() -> int:
    if sys.argv[1] == "-V":
        return 0
    host, command = sys.argv[-2:]
    child = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
    assert child.stdout is not None
    received, is_over = b"", host != "evil"
    while block := os.read(child.stdout.fileno(), 65536):
        received += block
        while not is_over and MARK in received:
            at = received.index(MARK)
            if len(received) < at + HEADER.size:
                break
            _, number, length, _, _ = HEADER.unpack_from(received, at)
            end = at + HEADER.size + length
            if len(received) < end:
                break
            body = received[at + HEADER.size + NUMBER.size : end]
            sent = received[:end]
            if STARTED in body:
                is_over, sent = True, received[:at] + attacked(number, body)
            write(sent)
            received = received[end:]
        if is_over or MARK not in received:
            write(received)
            received = b""
    return child.wait()


def write(block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(1, view) :]


sys.exit(main())

"""The emulated agent, whose messages the fuzzer mutates, sends what a real one does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from distrun.agent import protocol
from distrun.agent.protocol.channel import encode_body
from harness.agents import Host
from harness.hostile import World

PROGRAM = """
import os, socket
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.sendto(b"STEP=1", os.environ["DISTRUN_NOTIFY"].replace("@", "\\0", 1))
print("go", flush=True)
"""
Shapes = dict[str, dict[str, set[str]]]
"""For each kind of message: its fields, each with the JSON types of its values."""


def add_shape(shapes: Shapes, body: bytes) -> None:
    fields = json.loads(body.partition(b"\n")[0])
    fields.pop("seq", None)
    seen = shapes.setdefault(fields.pop("type"), {})
    for name, value in fields.items():
        seen.setdefault(name, set()).add(type(value).__name__)


def test_the_emulator_sends_the_fields_of_a_real_agent(host: Host, tmp_path: Path) -> None:
    host.send(protocol.HoldPorts(1, [], 20000, 30000))
    host.expect(protocol.PortsHeld)
    host.start("worker:0", sys.executable, "-c", PROGRAM)
    host.expect(protocol.TaskEnded, "worker:0")
    host.send(protocol.Shutdown())
    host.expect_end()
    real: Shapes = {}
    for message in host.said:
        add_shape(real, encode_body(message))
    emulated: Shapes = {}

    def record(body: bytes) -> list[bytes]:
        add_shape(emulated, body)
        return [body]

    world = World(tmp_path, record)
    try:
        world.run()
    finally:
        world.close()
    both = real.keys() & emulated.keys()
    assert both >= {"Hello", "PortsHeld", "TaskStarted", "Progress", "TaskExited", "TaskEnded"}
    for kind in both:
        assert real[kind].keys() == emulated[kind].keys()
        for name, types in real[kind].items():
            known = types - {"NoneType"}  # what could not be read, such as a short task's memory
            assert not known or known & emulated[kind][name], (kind, name, types)

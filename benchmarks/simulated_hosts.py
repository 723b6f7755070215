"""Many hosts in one process: agents that speak the protocol, whose tasks do not exist.

    python simulated_hosts.py FIFO

A stand-in for ssh writes its process id into FIFO and sleeps. Its standard input and output are the
link of a new agent here. On SIGUSR1, the first agent's task dies.
"""

from __future__ import annotations

import ast
import os
import re
import selectors
import signal
import sys
import time
import zlib
from typing import Any, cast

from distrun.agent import protocol
from distrun.agent.link import Link
from distrun.agent.protocol.channel import ChecksummedSender
from distrun.agent.reattach import ReattachListener

_FIRST_PORT = 20000
_TICK = 0.5


class _Listener:
    """What gives a link a lease and heartbeats; nobody connects to it."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class SimulatedAgent:
    """One agent, on the link of a process that stands in for ssh."""

    def __init__(self, process: int, selector: selectors.BaseSelector) -> None:
        self._process = process
        self._selector = selector
        self._reader = os.open(f"/proc/{process}/fd/0", os.O_RDONLY)
        self._writer = os.open(f"/proc/{process}/fd/1", os.O_WRONLY)
        os.write(self._writer, self._read_mark())
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
        self._listener = _Listener(f"{process:x}")
        channel = ChecksummedSender(self._reader, self._writer)
        self.link = Link(channel, cast("ReattachListener", self._listener))
        self._tasks: dict[str, protocol.StartTask] = {}
        self.is_abandoned = self.has_ended = False
        self.link.open(selector, self)

    def _read_mark(self) -> bytes:
        """Read the agent's code; return the bytes that an agent writes first."""
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._reader, 1)
        size = int(re.search(rb"len\(block\) < (\d+)", line)[1])  # type: ignore[index]
        block = b""
        while len(block) < size:
            block += os.read(self._reader, size - len(block))
        start = zlib.decompressobj().decompress(block)
        found: Any = re.search(rb"main_over_ssh\((b'[^']*')", start)
        return cast("bytes", ast.literal_eval(found[1].decode()))

    @property
    def has_tasks(self) -> bool:
        return bool(self._tasks)

    def execute(self, order: protocol.Order) -> None:
        if isinstance(order, protocol.Configure):
            self.link.configure(order.lease)
            self.link.report(self._hello(order))
        elif isinstance(order, protocol.HoldPorts):
            chosen = [_FIRST_PORT + number for number in range(order.free)]
            self.link.report(protocol.PortsHeld(chosen, list(order.wanted)))
        elif isinstance(order, protocol.StartTask):
            self._tasks[order.task] = order
            started = protocol.TaskStarted(order.task, order.attempt, self._process, time.time())
            self.link.report(started)
        elif isinstance(order, protocol.StopTask):
            self.end_task(order.task, order.signal, was_stopping=True)
        elif isinstance(order, protocol.Shutdown):
            self.end_tasks()

    def _hello(self, order: protocol.Configure) -> protocol.Hello:
        return protocol.Hello(
            pid=self._process,
            hostname=order.host,
            python="3.11.0",
            cores=1.0,
            gpus=[],
            at=time.time(),
            address="127.0.0.1",
            seen_from="127.0.0.1",
            token=self._listener.token,
            folder=f"/nowhere/{order.host}",
            files=f"/nowhere/{order.host}/files",
        )

    def end_task(self, name: str, number: int, *, was_stopping: bool = False) -> None:
        order = self._tasks.pop(name, None)
        if order is not None:
            now = time.time()
            self.link.report(
                protocol.TaskExited(
                    name, order.attempt, now, None, number, lived=1.0, was_stopping=was_stopping
                )
            )
            self.link.report(protocol.LogEnded(order.log, 0))
            self.link.report(protocol.TaskEnded(name, order.attempt, now))

    def fail(self) -> None:
        for name in list(self._tasks):
            self.end_task(name, signal.SIGKILL)

    def end_tasks(self, grace: float = 0.0) -> None:  # noqa: ARG002 - nothing takes time here
        for name in list(self._tasks):
            self.end_task(name, signal.SIGTERM, was_stopping=True)
        if not self.has_ended:
            self.has_ended = True
            self.link.send(protocol.AgentExiting(""))

    def abandon(self, grace: float = 0.0) -> None:
        self.is_abandoned = True
        self.end_tasks(grace)

    def on_link_lost(self) -> None:
        """Nothing is streamed."""

    def close(self) -> None:
        self.link.close()
        for descriptor in (self._reader, self._listener.fileno()):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        os.kill(self._process, signal.SIGKILL)
        for descriptor in (self._reader, self._writer):
            os.close(descriptor)
        self._listener.close()


def main() -> None:
    selector = selectors.DefaultSelector()
    processes = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
    selector.register(processes, selectors.EVENT_READ)
    agents: dict[int, SimulatedAgent] = {}  # by the descriptors of their links
    failing: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: failing.append(1))
    ticked = 0.0
    while True:
        active = []  # a look at all agents each time would take most of a core
        for key, _ in selector.select(_TICK):
            if key.data is not None:
                key.data()
                active.append(agents[key.fd])
                continue
            for line in os.read(processes, 1 << 16).split():
                agent = SimulatedAgent(int(line), selector)
                agents[agent.link.channel.reader] = agents[agent.link.channel.writer] = agent
                active.append(agent)
        if failing and agents:
            failing.clear()
            first = next(iter(agents.values()))
            first.fail()
            active.append(first)
        now = time.monotonic()
        if now - ticked >= _TICK:
            ticked = now
            active = list(agents.values())
            for agent in active:
                agent.link.on_time(now)
        for agent in dict.fromkeys(active):
            channel = agent.link.channel
            channel.watch_writing(selector)
            if agent.has_ended:
                del agents[channel.reader], agents[channel.writer]
                agent.close()


if __name__ == "__main__":
    main()

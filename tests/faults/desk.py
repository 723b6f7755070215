"""The desk that a cell's tasks tell where they are, and that says when to fail."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Caller:
    """One attempt of a task."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.task = ""
        self.attempt = 0
        self.pid = 0
        self.resumed = 0
        self.steps: list[int] = []
        self.has_ended = False
        self._incoming = b""

    def receive(self) -> list[dict[str, Any]]:
        try:
            block = self.connection.recv(1 << 16)
        except ConnectionError:
            block = b""
        self.has_ended = not block
        *lines, self._incoming = (self._incoming + block).split(b"\n")
        return [json.loads(line) for line in lines]

    def answer(self, word: str) -> None:
        with contextlib.suppress(OSError):  # it has died since
            self.connection.sendall(word.encode() + b"\n")


class Desk:
    """Keeps all callers going until `hold` says of one at a moment that it is to wait."""

    def __init__(self, path: Path, hold: Callable[[Caller, str], bool]) -> None:
        self.callers: list[Caller] = []
        self._hold = hold
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def serve_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Whether it came true in time. Asked whenever a caller has spoken, and now and then."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._admit()
                else:
                    self._hear(key.data)
        return True

    def caller(self, task: str, attempt: int = 0) -> Caller | None:
        found = (each for each in self.callers if (each.task, each.attempt) == (task, attempt))
        return next(found, None)

    def _admit(self) -> None:
        caller = Caller(self._listener.accept()[0])
        self.callers.append(caller)
        self._selector.register(caller.connection, selectors.EVENT_READ, caller)

    def _hear(self, caller: Caller) -> None:
        for said in caller.receive():
            if "task" in said:
                caller.task, caller.attempt, caller.pid = said["task"], said["attempt"], said["pid"]
            elif "step" in said:
                caller.steps.append(said["step"])
            elif "resumed" in said:
                caller.resumed = said["resumed"]
            elif not self._hold(caller, said["moment"]):
                caller.answer("go")
        if caller.has_ended:
            self._selector.unregister(caller.connection)
            caller.connection.close()

    def close(self) -> None:
        for caller in self.callers:
            caller.connection.close()
        self._listener.close()
        self._selector.close()

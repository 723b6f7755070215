"""The controller of a cell: its tasks report each moment, and it tells them when to fail."""

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Attempt:
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


class Controller:
    """Lets all attempts continue, except those that `pauses` selects at a moment."""

    def __init__(self, path: Path, pauses: Callable[[Attempt, str], bool]) -> None:
        self.attempts: list[Attempt] = []
        self._pauses = pauses
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def serve_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Serves until `done` is true; returns whether that was in time. Polls it every 20 ms."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.data)
        return True

    def attempt(self, task: str, attempt: int = 0) -> Attempt | None:
        found = (each for each in self.attempts if (each.task, each.attempt) == (task, attempt))
        return next(found, None)

    def _accept(self) -> None:
        attempt = Attempt(self._listener.accept()[0])
        self.attempts.append(attempt)
        self._selector.register(attempt.connection, selectors.EVENT_READ, attempt)

    def _receive(self, attempt: Attempt) -> None:
        for said in attempt.receive():
            if "task" in said:
                attempt.task, attempt.attempt, attempt.pid = (
                    said["task"],
                    said["attempt"],
                    said["pid"],
                )
            elif "step" in said:
                attempt.steps.append(said["step"])
            elif "resumed" in said:
                attempt.resumed = said["resumed"]
            elif not self._pauses(attempt, said["moment"]):
                attempt.answer("go")
        if attempt.has_ended:
            self._selector.unregister(attempt.connection)
            attempt.connection.close()

    def close(self) -> None:
        for attempt in self.attempts:
            attempt.connection.close()
        self._listener.close()
        self._selector.close()

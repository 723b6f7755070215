"""The program's files on their way to the other hosts: who has them, and who cannot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distrun import events
from distrun.agent.protocol import file_messages
from distrun.cli.cause_text import cause_advice, cause_text
from distrun.errors import HostError
from distrun.supervisor.hosts.file_sender import Sender, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distrun.agent.protocol import Cause, Order, Report
    from distrun.sync.manifest import Manifest

_TELL_SECONDS = 0.2


class Delivery:
    """Sends one manifest to each of some hosts.

    Args:
        hosts: those that need the files.
        send: begins to send to one of them, see :meth:`.pool.Hosts.deliver`.
        emit: told of what goes into the record.
        tell: told how far it has come, now and then.
    """

    def __init__(
        self,
        manifest: Manifest,
        hosts: Iterable[str],
        send: Callable[[str, Sender, list[Order]], None],
        emit: Callable[[events.Event], None],
        tell: Callable[[file_messages.TransferProgress], None],
    ) -> None:
        self._manifest = manifest
        self._waiting = set(hosts)
        self._send = send
        self._emit = emit
        self._tell = tell
        self._senders: dict[str, Sender] = {}
        self._refused: dict[str, Cause] = {}
        self._told = 0.0
        self._list: list[Order] = list(listed(manifest))

    @property
    def is_settled(self) -> bool:
        """Whether every host has its copy, or will not have one."""
        return not self._waiting

    @property
    def error(self) -> HostError | None:
        """Why some hosts cannot have one, for people."""
        if not self._refused:
            return None
        if len(self._refused) == 1:
            host, cause = next(iter(self._refused.items()))
            text = f"{host} cannot have the program's files: {cause_text(cause)}"
        else:
            lines = [f"  {host}: {cause_text(cause)}" for host, cause in self._refused.items()]
            text = "\n".join(
                [f"{len(lines)} hosts cannot have the program's files", *lines],
            )
        advice = [cause_advice(cause) for cause in self._refused.values()]
        return HostError(text, hint=next((each for each in advice if each is not None), None))

    def begin(self, host: str) -> None:
        """Start with a host whose agent has answered."""
        if host in self._waiting:
            self._senders[host] = Sender(self._manifest)
            self._send(host, self._senders[host], self._list)

    def takes(self, host: str, message: Report) -> bool:
        """Whether the message was about files; then what follows from it has been done."""
        if isinstance(message, file_messages.FilesRequested):
            self._on_wanted(host)
        elif isinstance(message, file_messages.FileDataReceived):
            self._tell_all()
        elif isinstance(message, file_messages.FilesReady):
            self._on_ready(host, message)
        elif isinstance(message, file_messages.FilesRefused):
            self._waiting.discard(host)
            self._refused[host] = message.cause
            self._tell_all(at_once=True)
        elif isinstance(message, file_messages.FilesPreserved):
            self._emit(
                events.FilesPreserved(
                    at=message.at,
                    host=host,
                    folder=message.folder,
                    files=message.files,
                    size=message.size,
                )
            )
        else:
            return False
        return True

    def _on_wanted(self, host: str) -> None:
        sender = self._senders[host]
        if sender.is_new:
            sender.is_new = False
            self._emit(
                events.SyncStarted(
                    at=time.time(),
                    host=host,
                    files=sender.files,
                    size=sender.size or 0,
                    all_files=len(self._manifest.files),
                    all_size=self._manifest.size,
                )
            )
        self._tell_all(at_once=True)

    def _on_ready(self, host: str, message: file_messages.FilesReady) -> None:
        sender = self._senders[host]
        self._waiting.discard(host)
        self._emit(
            events.Synced(
                at=message.at,
                host=host,
                files=sender.files,
                size=sender.size or 0,
            )
        )
        self._tell_all(at_once=True)

    def _tell_all(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._told >= _TELL_SECONDS:
            self._told = now
            busy = [sender for sender in self._senders.values() if sender.size]
            done = sum(sender.taken for sender in busy)
            total = sum(sender.size or 0 for sender in busy)
            is_over = self.is_settled
            self._tell(file_messages.TransferProgress(total if is_over else done, total, len(busy)))

"""Starts of tasks that wait until their hosts have executed earlier ones."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.lifecycle import StartTask

MOST_UNANSWERED = 8
"""How many starts a host may have that it has not answered. More would start no task sooner, and
an agent executes them before an order to stop that follows."""


class StartQueue:
    """Sends each host a few starts at a time, so that an order to stop precedes all others.

    So the orders, which contain a TF_CONFIG each, are not all in memory either.

    Args:
        send: sends a start to its host.
    """

    def __init__(self, send: Callable[[StartTask], None]) -> None:
        self._send = send
        self._waiting: dict[str, OrderedDict[str, StartTask]] = {}
        self._unanswered: dict[str, set[str]] = {}
        self._canceled: list[str] = []

    def add(self, host: str, start: StartTask) -> None:
        """Send a start, now or later."""
        self._waiting.setdefault(host, OrderedDict())[start.task] = start
        self._fill(host)

    def on_answer(self, host: str, task: str) -> None:
        """Send further starts: the host has executed that one, or could not."""
        self._unanswered.get(host, set()).discard(task)
        self._fill(host)

    def cancel(self, host: str, task: str) -> bool:
        """Cancel a start that was not sent. Returns whether there was one."""
        waiting = self._waiting.get(host)
        if waiting is None or task not in waiting:
            return False
        del waiting[task]
        self._canceled.append(task)
        return True

    def pop_canceled(self) -> tuple[str, ...]:
        """Return the tasks whose starts were canceled since the last call."""
        canceled, self._canceled = tuple(self._canceled), []
        return canceled

    def remove_host(self, host: str) -> None:
        """Forget the starts of a host that is lost."""
        self._waiting.pop(host, None)
        self._unanswered.pop(host, None)

    def _fill(self, host: str) -> None:
        waiting = self._waiting.get(host)
        unanswered = self._unanswered.setdefault(host, set())
        while waiting and len(unanswered) < MOST_UNANSWERED:
            task, start = waiting.popitem(last=False)
            unanswered.add(task)
            self._send(start)

"""The times by which a host's agent must have been heard, and must have executed its orders.

The host can move these times by heartbeats, and extend that of its shutdown by sending logs, which
it cannot without limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.protocol import KILL_GRACE, Order, Report
from distrun.supervisor.hosts.report_checker import ANSWERS

_END_SECONDS = 120.0
"""How long an agent may take to answer an order, to end a task after its grace, or to send more of
the logs after its shutdown. A process that waits for a disk of the network ends late."""
_EXTRA_SECONDS = {"Dial": 480.0, "FileList": 3600.0, "Inspect": 60.0, "StartTask": 180.0}
"""How much longer it may take for these, which depend on disks and on other hosts."""
SLOWEST_LINK = 16 * 1024
"""Bytes per second. The files, and the logs after the shutdown, must be sent faster on average."""
LONGEST_SHUTDOWN = 2 * 3600.0
"""Seconds that the agent may send logs after its shutdown, however fast it sends them."""
_ORDERS = ANSWERS | {
    "TaskStarted": "StartTask",
    "TaskNotStarted": "StartTask",
    "TaskEnded": "StopTask",
}
ENDS = ("StopTask", "Shutdown")
"""These orders are not answered: the task or the agent ends."""


class OrderDeadlines:
    """The deadlines of one host's orders.

    Args:
        lease: `timeouts.link` in seconds; None: off. Then the time during which the link is lost
            does not count. Otherwise the host itself is lost after that time.
        on_late: called with the name and the task of an order that was not executed in time.
    """

    def __init__(
        self, loop: Loop, lease: float | None, on_late: Callable[[str, str], None]
    ) -> None:
        self._loop, self._on_late = loop, on_late
        self._alarm = loop.call_at(None, self._call_late)
        # The link may be lost for as long as the lease, and restored.
        self._seconds = max(_END_SECONDS, 2 * (lease or 0.0))
        self._most_seconds = dict.fromkeys(ENDS, math.inf)
        self._is_pausable = lease is None
        self._paused_at: float | None = None
        self._dues: dict[tuple[str, str], float] = {}
        self._file_bytes = 0
        self._shutdown_at = 0.0
        self._log_bytes = 0

    def record_order(self, order: Order) -> None:
        """Start the time for an order. A second one for the same task can only shorten it."""
        name = type(order).__name__
        extra = 0.0
        if isinstance(order, protocol.StopTask):
            extra = order.grace
        elif isinstance(order, protocol.Shutdown):
            self._shutdown_at, self._log_bytes = self._loop.now(), 0
        elif name == "FileList":
            self._file_bytes += sum(size for _, _, size, _ in order.files)  # type: ignore[attr-defined]
            extra = self._file_bytes / SLOWEST_LINK
        elif name not in _ORDERS.values():
            return
        if name != "FileList" or order.last:  # type: ignore[attr-defined]
            self._set(name, getattr(order, "task", ""), extra)

    def record_report(self, report: Report) -> None:
        """End the time for the order that a report answers."""
        name, task = type(report).__name__, getattr(report, "task", "")
        self._dues.pop((_ORDERS.get(name, ""), task), None)
        if isinstance(report, protocol.TaskNotStarted):
            self._dues.pop(("StopTask", task), None)
        elif isinstance(report, protocol.TaskExited):
            self._set("StopTask", task, KILL_GRACE)  # the agent ends what the task has left

    def record_log(self, size: int) -> None:
        """Extend the time of the shutdown: so many bytes of logs have arrived."""
        if size and ("Shutdown", "") in self._dues:
            self._log_bytes += size
            self._dues["Shutdown", ""] = min(
                self._loop.now() + self.seconds_for("Shutdown"),
                self._shutdown_at + self._seconds + self._log_bytes / SLOWEST_LINK,
                self._shutdown_at + min(LONGEST_SHUTDOWN, self._most_seconds["Shutdown"]),
            )

    def limit_shutdown(self, seconds: float) -> None:
        """Let a shutdown, this one or a later one, take so many seconds: the job ends at once."""
        self._most_seconds["Shutdown"] = seconds
        if ("Shutdown", "") in self._dues:
            self._shutdown_at = self._loop.now()
            self._set("Shutdown", "", 0.0)

    def limit_ends(self, grace: float, seconds: float) -> None:
        """Let ends of tasks and a shutdown take these seconds after SIGKILL, after `grace`."""
        self._most_seconds = {name: min(seconds, most) for name, most in self._most_seconds.items()}
        due = self._loop.now() + grace + seconds
        for key in [key for key in self._dues if key[0] in ENDS]:
            self._dues[key] = min(due, self._dues[key])
        self._schedule()

    def pause(self) -> None:
        if self._is_pausable and self._paused_at is None:
            self._paused_at = self._loop.now()
            self._alarm.cancel()

    def resume(self) -> None:
        if self._paused_at is not None:
            lost = self._loop.now() - self._paused_at
            self._paused_at = None
            self._shutdown_at += lost
            self._dues = {key: due + lost for key, due in self._dues.items()}
            self._schedule()

    def clear(self) -> None:
        self._dues.clear()
        self._alarm.cancel()

    def _schedule(self) -> None:
        if self._paused_at is None:
            self._alarm.move(min(self._dues.values(), default=None))

    def _call_late(self) -> None:
        """Forget the first order and report it, unless it was executed or has more time now."""
        first = min(self._dues, key=self._dues.__getitem__, default=None)
        if first is None or self._dues[first] > self._loop.now():
            self._schedule()
            return
        del self._dues[first]
        self._schedule()
        self._on_late(*first)

    @property
    def unanswered(self) -> str:
        """The name of the first order that was not answered; empty if there is none."""
        return next((name for name, _ in self._dues if name not in ENDS), "")

    def seconds_for(self, name: str) -> float:
        """Return how long an agent may take for an order with that name, besides its grace."""
        seconds = self._seconds + _EXTRA_SECONDS.get(name, 0.0)
        return min(seconds, self._most_seconds.get(name, seconds))

    def _set(self, name: str, task: str, extra: float) -> None:
        due = self._loop.now() + extra + self.seconds_for(name)
        self._dues[name, task] = due = min(due, self._dues.get((name, task), due))
        if self._paused_at is None:
            self._alarm.move_forward(due)

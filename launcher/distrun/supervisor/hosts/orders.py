"""The orders of one host: what its agent may report by them, and when they must be executed.

The types of the fields are checked before, by :mod:`.host_channel`. Here each report is compared
with the orders that the host was sent. So a host that is broken or hostile cannot speak for another
host's tasks, and cannot have the supervisor do anything twice. What it says of itself may be false.
It can move times by heartbeats, and extend that of its shutdown by sending logs, which it cannot
without limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.protocol import KILL_GRACE, Cause, Code, Report
from distrun.codec import FieldError
from distrun.spec.host_spec import host_address_problem
from distrun.supervisor.hosts.addresses import parse_ip
from distrun.supervisor.hosts.reach import Lifetime

_END_SECONDS = 120.0
"""How long an agent may take to answer an order, to end a task after its grace, or to send more of
the logs after its shutdown. A process that waits for a disk of the network ends late."""
_EXTRA_SECONDS = {"Dial": 480.0, "FileList": 3600.0, "Inspect": 60.0, "StartTask": 180.0}
"""How much longer it may take for these, which depend on disks and on other hosts."""
SLOWEST_LINK = 16 * 1024
"""Bytes per second. The files, and the logs after the shutdown, must be sent faster on average."""
LONGEST_SHUTDOWN = 2 * 3600.0
"""Seconds that the agent may send logs after its shutdown, however fast it sends them."""
ENDS = ("StopTask", "Shutdown")
"""These orders are not answered: the task or the agent ends."""
_STAGES: dict[type[Report], tuple[int, int]] = {
    protocol.TaskStarted: (0, 1),
    protocol.TaskExited: (1, 2),
    protocol.TaskEnded: (2, 3),
    protocol.TaskNotStarted: (0, 3),
}
"""The stage of an attempt before each report and after it. Each report comes once."""
_WHILE_RUNNING = (1, 1)
"""The same for a report that may come again."""
_IN_TIME = {
    "PortsHeld": "HoldPorts",
    "PortsRefused": "HoldPorts",
    "Listening": "Listen",
    "Dialled": "Dial",
    "Measured": "Measure",
    "StoppedListening": "StopListening",
    "Inspected": "Inspect",
    "FilesReady": "FileList",
    "FilesRefused": "FileList",
    "TaskStarted": "StartTask",
    "TaskNotStarted": "StartTask",
    "TaskEnded": "StopTask",
}
"""The order that each of these answers. One of them comes for each order, in time."""
_ANSWERS = {
    **_IN_TIME,
    "Hello": "Configure",
    "CpuMeasured": "MeasureCpu",
    "FilesPreserved": "FileList",
    "ProgramRequested": "DumpStacks",
    "StacksDumped": "DumpStacks",
}
"""The order that each answer follows, at most once."""
_OF_FILES = {"FilesRequested", "FileDataReceived"}
"""What follows the list of the program's files, any number of times."""
_UNASKED = {"Ack", "AgentExiting", "Damage", "Fault", "Heartbeat", "LogData", "Reattached"}
_OF_TASKS = (
    *(*_STAGES, protocol.Progress, *protocol.NOTICES, protocol.TaskListening),
    protocol.UsageSampled,
)
_DEEPEST = 10
"""A report has a cause within a cause within a list, at most."""


class Orders:
    """The orders of one host.

    Args:
        lease: `timeouts.link` in seconds; None: off. Then the time during which the link is lost
            does not count. Otherwise the host itself is lost after that time.
        lifetime: that of its agent. One below this process may be suspended with it, and ends with
            its link: only ends have a time, for its tasks may have processes that do not die. One
            that is lost with its link has none at all.
        on_late: called with the name and the task of an order that was not executed in time.
    """

    def __init__(
        self,
        loop: Loop,
        lease: float | None,
        lifetime: Lifetime,
        on_late: Callable[[str, str], None],
    ) -> None:
        self._loop, self._on_late = loop, on_late
        self._alarm = loop.call_at(None, self._call_late)
        # The link may be lost for as long as the lease, and restored.
        self._seconds = max(_END_SECONDS, 2 * (lease or 0.0))
        self._most_seconds = dict.fromkeys(ENDS, math.inf)
        self._is_pausable, self._lifetime = lease is None, lifetime
        self._paused_at: float | None = None
        self._dues: dict[tuple[str, str], float] = {}
        self._shutdown_at = 0.0
        self._log_bytes = 0
        self._stages: dict[str, tuple[int, int]] = {}
        """The attempt of each task that was ordered last, and how far its reports have come."""
        self._logs: set[str] = set()
        self._sent = Counter(Configure=1)
        """How often each order was sent. Only the last part of a list of files counts."""
        self._answers = Counter[str]()
        """How often each order was answered, and how often each of the other answers came."""
        self._ports: list[int] = []
        """How many ports each order that is not answered yet has it choose."""
        self._files = self._file_bytes = 0

    @property
    def attempts(self) -> dict[str, int]:
        """The last attempt of each task that was ordered to start."""
        return {task: attempt for task, (attempt, _) in self._stages.items()}

    def record(self, order: Any) -> None:
        """Note an order: its answers are valid from now on, and its time begins.

        A second one for the same task can only shorten that.
        """
        name, extra = type(order).__name__, 0.0
        if isinstance(order, protocol.StartTask):
            self._stages[order.task] = (order.attempt, 0)
            self._logs.add(order.log)
        elif isinstance(order, protocol.HoldPorts):
            self._ports.append(order.free)
        elif isinstance(order, protocol.StopTask):
            extra = order.grace
        elif isinstance(order, protocol.Shutdown):
            self._shutdown_at, self._log_bytes = self._loop.now(), 0
        elif name == "FileList":
            self._files += len(order.files)
            self._file_bytes += sum(size for _, _, size, _ in order.files)
            extra = self._file_bytes / SLOWEST_LINK
            if not order.last:
                return
        self._sent[name] += 1
        is_timed = self._lifetime is Lifetime.LEASE and name in _IN_TIME.values()
        if is_timed or (name in ENDS and self._lifetime is not Lifetime.LINK):
            self._set(name, getattr(order, "task", ""), extra)

    def check(self, report: Report) -> Cause | None:
        """Return what is wrong with a report, or None. One that is right ends its order's time."""
        name = type(report).__name__
        try:
            _check_causes(report)
            is_of_task = isinstance(report, _OF_TASKS)
            fault = self._check_task(report) if is_of_task else self._check_answer(name, report)
        except FieldError as error:
            return Cause(Code.REPORT_INVALID, name=name, text=str(error))
        if fault is None:
            self._end_time(name, report)
        return fault

    def _check_task(self, report: Any) -> Cause | None:
        name, task = type(report).__name__, report.task
        if task not in self._stages:
            return Cause(Code.REPORT_OF_FOREIGN_TASK, task=task, name=name)
        if isinstance(report, (protocol.Progress, *protocol.NOTICES)):
            return None
        before, after = _STAGES.get(type(report), _WHILE_RUNNING)
        if self._stages[task] != (report.attempt, before):
            return Cause(Code.REPORT_UNASKED, task=task, name=name)
        if isinstance(report, protocol.TaskExited) and (report.code is None) is (
            report.signal is None
        ):
            raise FieldError(f"code is {report.code}, signal is {report.signal}")
        self._stages[task] = (report.attempt, after)
        return None

    def _check_answer(self, name: str, report: Any) -> Cause | None:
        is_asked = name in _UNASKED
        if isinstance(report, protocol.LogEnded):
            if report.name not in self._logs:
                return Cause(Code.REPORT_OF_FOREIGN_TASK, task=report.name, name=name)
            is_asked = True
        elif name in _OF_FILES:
            is_asked = self._sent["FileList"] > 0
        elif name in _ANSWERS:
            kind = _IN_TIME.get(name, name)
            is_asked = self._answers[kind] < self._sent[_ANSWERS[name]]
            self._answers[kind] += is_asked
        if is_asked:
            self._check_content(name, report)
        return None if is_asked else Cause(Code.REPORT_UNASKED, name=name)

    def _check_content(self, name: str, report: Any) -> None:
        """Check what the supervisor counts on: as many ports and files as ordered, addresses."""
        if name in ("PortsHeld", "PortsRefused"):
            count = self._ports.pop(0)
            if name == "PortsHeld" and len({*report.chosen}) != count:
                raise FieldError(f"chosen is {report.chosen[:10]}")
        elif name == "FilesRequested" and any(each >= self._files for each in report.numbers):
            raise FieldError(f"numbers has {max(report.numbers)}")
        elif isinstance(report, protocol.Hello):
            for field in ("address", "seen_from"):
                if (address := getattr(report, field)) and not _is_address(address):
                    raise FieldError(f"{field} is {address[:40]!r}")

    # Times ---------------------------------------------------------------------------------

    def _end_time(self, name: str, report: Report) -> None:
        task = getattr(report, "task", "")
        self._dues.pop((_IN_TIME.get(name, ""), task), None)
        if isinstance(report, protocol.TaskNotStarted):
            self._dues.pop(("StopTask", task), None)
        elif isinstance(report, protocol.TaskExited) and self._lifetime is not Lifetime.LINK:
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


def _is_address(text: str) -> bool:
    """Whether a text is an IP address. Tasks of other hosts get it, perhaps through a shell."""
    try:
        parse_ip(text)
    except ValueError:
        return False
    return host_address_problem(text) is None  # the scope of an IPv6 address may be any text


def _check_causes(values: Any, depth: int = 0) -> None:
    """Refuse commands to type in a cause, which only distrun says, and what is very deep."""
    if depth > _DEEPEST or (isinstance(values, Cause) and values.commands):
        raise FieldError("a cause has commands, or too many within each other")
    for each in values:
        if isinstance(each, (list, tuple)):
            _check_causes(each, depth + 1)

"""What an agent may report: answers to its orders, and what happens to its own tasks.

The types of the fields are checked before, by :mod:`.host_channel`. Here each report is compared
with the orders that the host was sent. So a host that is broken or hostile cannot speak for another
host's tasks, and cannot have the supervisor do anything twice. What it says of itself may be false.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, Report
from distrun.codec import FieldError
from distrun.spec.host_spec import host_address_problem
from distrun.supervisor.hosts.addresses import parse_ip

_STAGES: dict[type[Report], tuple[int, int]] = {
    protocol.TaskStarted: (0, 1),
    protocol.TaskExited: (1, 2),
    protocol.TaskEnded: (2, 3),
    protocol.TaskNotStarted: (0, 3),
}
"""The stage of an attempt before each report and after it. Each report comes once."""
_WHILE_RUNNING = (1, 1)
"""The same for a report that may come again."""
ANSWERS = {
    "PortsHeld": "HoldPorts",
    "PortsRefused": "HoldPorts",
    "Listening": "Listen",
    "Dialled": "Dial",
    "Measured": "Measure",
    "StoppedListening": "StopListening",
    "Inspected": "Inspect",
    "FilesReady": "FileList",
    "FilesRefused": "FileList",
}
"""The order that each of these answers. One of them comes for each order, in time."""
_ANSWERS = {
    **ANSWERS,
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
    *(*_STAGES, protocol.Progress, protocol.ProgressIgnored, protocol.TaskListening),
    protocol.UsageSampled,
)
_DEEPEST = 10
"""A report has a cause within a cause within a list, at most."""


class ReportChecker:
    """Compares the reports of one host with the orders that it was sent."""

    def __init__(self) -> None:
        self._stages: dict[str, tuple[int, int]] = {}
        """The attempt of each task that was ordered last, and how far its reports have come."""
        self._logs: set[str] = set()
        self._orders = Counter(Configure=1)
        """How often each order was sent. Only the last part of a list of files counts."""
        self._answers = Counter[str]()
        """How often each order was answered, and how often each of the other answers came."""
        self._ports: list[int] = []
        """How many ports each order that is not answered yet has it choose."""
        self._files = 0

    @property
    def attempts(self) -> dict[str, int]:
        """The last attempt of each task that was ordered to start."""
        return {task: attempt for task, (attempt, _) in self._stages.items()}

    def record_order(self, order: Any) -> None:
        """Note an order, whose answers are valid from now on."""
        name = type(order).__name__
        if isinstance(order, protocol.StartTask):
            self._stages[order.task] = (order.attempt, 0)
            self._logs.add(order.log)
        elif isinstance(order, protocol.HoldPorts):
            self._ports.append(order.free)
        elif name == "FileList":
            self._files += len(order.files)
        self._orders[name] += name != "FileList" or order.last

    def find_fault(self, report: Report) -> Cause | None:
        """Return what is wrong with a report, or None. A report that is right is noted."""
        name = type(report).__name__
        try:
            _check_causes(report)
            if isinstance(report, _OF_TASKS):
                return self._check_task(report)
            return self._check_answer(name, report)
        except FieldError as error:
            return Cause(Code.REPORT_INVALID, name=name, text=str(error))

    def _check_task(self, report: Any) -> Cause | None:
        name, task = type(report).__name__, report.task
        if task not in self._stages:
            return Cause(Code.REPORT_OF_FOREIGN_TASK, task=task, name=name)
        if isinstance(report, (protocol.Progress, protocol.ProgressIgnored)):
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
            is_asked = self._orders["FileList"] > 0
        elif name in _ANSWERS:
            kind = ANSWERS.get(name, name)
            is_asked = self._answers[kind] < self._orders[_ANSWERS[name]]
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

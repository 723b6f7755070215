"""What an agent may report: answers to its orders, and what happens to its own tasks.

The types of the fields are checked before, by :mod:`.host_channel`. Here each report is compared
with the orders that the host was sent. So a host that is broken or hostile cannot speak for another
host's tasks, and cannot have the supervisor do anything twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sized
from typing import Any

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, Report, Struct
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
    "HoldPorts": ("PortsHeld", "PortsRefused"),
    "Listen": ("Listening",),
    "Dial": ("Dialled",),
    "Measure": ("Measured",),
    "StopListening": ("StoppedListening",),
    "Inspect": ("Inspected",),
}
"""The orders that are answered once, each with one of these."""
_ONCE_PER_LIST = (("FilesReady", "FilesRefused"), ("FilesPreserved",))
"""What follows the list of the program's files, at most once each."""
_ONCE_PER_ORDER = {
    **{order: (answers,) for order, answers in ANSWERS.items()},
    "DumpStacks": (("ProgramRequested",), ("StacksDumped",)),
}
"""What follows these orders, at most once each."""
_UNASKED = {"Ack", "AgentExiting", "Damage", "Heartbeat", "LogData", "Reattached"}
_OF_TASKS = (
    *(*_STAGES, protocol.Progress, protocol.ProgressIgnored, protocol.TaskListening),
    protocol.UsageSampled,
)
_BEFORE_HELLO = {"Ack", "AgentExiting", "Fault", "Heartbeat", "Hello", "Reattached"}
_MOST_FAULTS = 5
_MOST_IGNORED = 100
"""For each task. An attempt has a few."""
_LONGEST_NAME = 255
LONGEST_PATH = 4096
_TOKEN = re.compile(r"[A-Za-z0-9_-]{0,64}")
_MOST_VALUES = 100
_LONGEST_VALUE = 4096
_LARGEST_PORT = 65535
_FASTEST = 1e15
"""Bytes a second, of a link."""
_LONGEST_TEXT = 4000
"""Characters of a text in a cause; the rest is cut off."""
_MOST_ITEMS = 100
"""Of a list in a cause."""
_MOST_WITHIN = 8
"""Causes within one. Those have none in turn."""
_CUT = " ... (cut)"
_CUT_FIELDS = [
    name
    for name, default in Cause(Code.UNCODED)._asdict().items()
    if isinstance(default, (str, tuple)) and name not in ("code", "within")
]
_AGENT_CODES = frozenset(
    Code(name)
    for name in """
    process_not_made log_not_opened log_not_written workdir_not_entered program_not_found
    interpreter_not_found program_not_executable program_format_unknown arguments_too_long
    program_not_executed agent_defect agent_failed oom_kill_logged oom_kill_counted
    child_killed progress_from_stranger progress_excessive resource_limit listens_on_loopback
    agent_terminated guard_died agent_dir_not_created path_not_writable path_changeable
    log_dir_not_created log_disk_full log_disk_read_only lease_expired link_closed
    logs_not_limited former_tasks_alive supervisor_died protocol_differs
    request_version_differs frame_too_long message_too_long message_invalid
    message_unexpected
    port_taken port_held_by_job port_privileged port_not_held free_ports_not_held
    too_few_free_ports port_name_taken port_of_stranger file_not_written file_not_read
    file_changed file_truncated disk_unreliable digest_invalid path_outside_tree
    link_outside_tree
    probe_not_started probe_timed_out probe_died no_route port_not_listening
    connection_refused connection_timed_out connection_failed name_not_resolved
    folder_not_shared folder_not_usable
    gpus_unknown greeting_missing greeting_different script_not_read interpreter_failed uncoded
    """.split()  # noqa: SIM905 - a table of words
)
"""The codes that agents make. What distrun itself says, and what it advises, has other codes."""


class ReportChecker:
    """Compares the reports of one host with the orders that it was sent."""

    def __init__(self) -> None:
        self._stages: dict[str, tuple[int, int]] = {}
        """The attempt of each task that was ordered last, and how far its reports have come."""
        self._logs: set[str] = set()
        self._unanswered: Counter[tuple[str, ...]] = Counter()
        self._ports: list[protocol.HoldPorts] = []
        self._held = 0
        """How many ports it was ordered to hold."""
        self._dialable: set[tuple[str, int]] = set()
        """The ports that it was ordered to dial."""
        self._most_programs = 0
        """How many programs it was ordered to inspect at a time."""
        self._modules: set[str] = set()
        self._file_sizes: list[int] = []
        self._ignored: Counter[str] = Counter()
        """How often each task's progress was ignored."""
        self._has_said_hello = False
        self._faults = 0

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
            self._ports.append(order)
            self._held += order.free + len(order.wanted)
        elif name == "Dial":
            for target in order.targets:
                self._dialable.update((target.machine, port) for port in target.ports)
        elif name == "Inspect":
            programs = order.programs
            self._most_programs = max(self._most_programs, len(programs))
            for program in programs:
                self._modules.update(program.modules)
        elif name == "FileList":
            files = order.files
            self._file_sizes += [size for _, _, size, _ in files]
            if order.last:
                self._unanswered.update(_ONCE_PER_LIST)
        self._unanswered.update(_ONCE_PER_ORDER.get(name, ()))

    def find_fault(self, report: Report) -> Cause | None:
        """Return what is wrong with a report, or None. A report that is right is noted."""
        name = type(report).__name__
        try:
            if not self._has_said_hello and name not in _BEFORE_HELLO:
                return Cause(Code.REPORT_UNASKED, name=name)
            for cause in _causes(report):
                _check_cause(cause)
            if isinstance(report, protocol.TaskEnded):
                _check_name(report.left_command, "left_command")
            elif isinstance(report, protocol.TaskExited):
                _check_name(report.contact, "contact")
                _check_count("found", report.found, _MOST_ITEMS)
            if isinstance(report, _OF_TASKS):
                return self._check_task(report)
            return self._check_answer(name, report)
        except FieldError as error:
            return Cause(Code.REPORT_INVALID, name=name, text=str(error))

    # Tasks ---------------------------------------------------------------------------------

    def _check_task(self, report: Any) -> Cause | None:
        name, task = type(report).__name__, report.task
        if task not in self._stages:
            return Cause(Code.REPORT_OF_FOREIGN_TASK, task=task, name=name)
        if isinstance(report, protocol.Progress):
            _shorten(report.values)
            return None
        if isinstance(report, protocol.ProgressIgnored):
            self._ignored[task] += 1
            is_asked = self._ignored[task] <= _MOST_IGNORED
            return None if is_asked else Cause(Code.REPORT_UNASKED, task=task, name=name)
        before, after = _STAGES.get(type(report), _WHILE_RUNNING)
        if self._stages[task] != (report.attempt, before):
            return Cause(Code.REPORT_UNASKED, task=task, name=name)
        if isinstance(report, protocol.TaskExited) and (report.code is None) is (
            report.signal is None
        ):
            raise FieldError(f"code is {report.code}, signal is {report.signal}")
        if isinstance(report, protocol.TaskListening):
            _check_listening(report.ports)
        elif isinstance(report, protocol.UsageSampled):
            _shorten(report.progress)
        self._stages[task] = (report.attempt, after)
        return None

    # Answers -------------------------------------------------------------------------------

    def _check_answer(self, name: str, report: Any) -> Cause | None:
        is_asked = True
        if isinstance(report, protocol.Hello):
            is_asked = not self._has_said_hello
            _check_hello(report)
            self._has_said_hello = True
        elif isinstance(report, protocol.Fault):
            self._faults += 1
            is_asked = self._faults <= _MOST_FAULTS
        elif isinstance(report, protocol.LogEnded):
            if report.name not in self._logs:
                return Cause(Code.REPORT_OF_FOREIGN_TASK, task=report.name, name=name)
        elif isinstance(report, protocol.CpuMeasured):
            foreign = [task for task in report.seconds if task not in self._stages]
            if foreign:
                return Cause(Code.REPORT_OF_FOREIGN_TASK, task=foreign[0], name=name)
        elif name == "FilesRequested":
            is_asked = self._unanswered[_ONCE_PER_LIST[0]] > 0
            self._check_files(report)
        elif name == "FileDataReceived":  # parts that were under way follow a refusal
            is_asked = bool(self._file_sizes)
        elif name not in _UNASKED:
            is_asked = self._check_single_answer(name, report)
        return None if is_asked else Cause(Code.REPORT_UNASKED, name=name)

    def _check_single_answer(self, name: str, report: Any) -> bool:
        answered = next((each for each in self._unanswered if name in each), None)
        if answered is None or self._unanswered[answered] <= 0:
            return False
        self._check_content(name, report)
        self._unanswered[answered] -= 1
        return True

    def _check_content(self, name: str, report: Any) -> None:
        if name in ("PortsHeld", "PortsRefused"):
            order = self._ports.pop(0)
            if name == "PortsHeld":
                _check_ports(report.chosen, order)
            else:
                _check_count("causes", report.causes, self._held + 1, least=1)
        elif name == "Listening":
            _check_count("errors", report.errors, self._held)
        elif name == "Dialled":
            ports = [(each.machine, each.port) for each in report.unreachable]
            if len(set(ports)) < len(ports) or not self._dialable.issuperset(ports):
                raise FieldError(f"unreachable is {ports!r}"[:100])
        elif name == "Measured" and not 0.0 <= report.rate < _FASTEST:
            raise FieldError(f"rate is {report.rate}")
        elif name == "Inspected":
            _check_count("programs", report.programs, self._most_programs)
            self._check_inspected(report)

    def _check_inspected(self, report: Any) -> None:
        if report.facts is not None:
            _check_count("disks", report.facts.disks, self._most_programs + 1)
        elif report.failure is None:
            raise FieldError("facts is None")
        for program in report.programs:
            for text in (program.digest, program.python, program.tensorflow):
                _check_name(text, "version")
            if not self._modules.issuperset(program.missing):
                raise FieldError(f"missing is {list(program.missing)!r}"[:100])

    def _check_files(self, report: Any) -> None:
        numbers, offset = report.numbers, report.offset
        if any(number >= len(self._file_sizes) for number in numbers):
            raise FieldError(f"numbers has {max(numbers)}")
        if len(set(numbers)) < len(numbers):
            raise FieldError("numbers has one twice")
        if offset > (self._file_sizes[numbers[0]] if numbers else 0):
            raise FieldError(f"offset is {offset}")


def _shorten(values: dict[str, str]) -> None:
    """Drop what is too much. It is not a fault of the host: its task chose the values."""
    for key in [*values][_MOST_VALUES:]:
        del values[key]
    for key in [each for each in values if len(each) > _LONGEST_NAME]:
        del values[key]
    values.update({key: value[:_LONGEST_VALUE] for key, value in values.items()})


def _check_hello(hello: protocol.Hello) -> None:
    for name in ("hostname", "python", "address", "seen_from", "pid_namespace", "libc"):
        _check_name(getattr(hello, name), name)
    if not _TOKEN.fullmatch(hello.token):
        raise FieldError(f"token is {hello.token[:40]!r}")
    if len(hello.folder) > LONGEST_PATH or "\0" in hello.folder:
        raise FieldError(f"folder is {hello.folder[:40]!r}")
    for name in ("address", "seen_from"):
        address = getattr(hello, name)
        if address and not _can_be_of_host(address):
            raise FieldError(f"{name} is {address[:40]!r}")
    if hello.pid < 1 or not hello.cores or len(hello.gpus) != len(set(hello.gpus)):
        raise FieldError(f"pid is {hello.pid}, cores is {hello.cores:g}")


def _can_be_of_host(address: str) -> bool:
    """Whether a TCP connection can come from that address. It may lead to this machine only."""
    if host_address_problem(address):  # the scope of an IPv6 address may be any text
        return False
    try:
        found = parse_ip(address)
    except ValueError:
        return False
    is_reserved = found.version == 4 and found.is_reserved  # broadcast, too
    return not (found.is_multicast or found.is_unspecified or is_reserved)


def _check_count(field: str, values: Sized, most: int, least: int = 0) -> None:
    if not least <= len(values) <= most:
        raise FieldError(f"{field} has {len(values)} items")


def _check_name(text: str, field: str) -> None:
    if len(text) > _LONGEST_NAME or not text.isprintable():
        raise FieldError(f"{field} is {text[:40]!r}")


def _check_ports(chosen: list[int], order: protocol.HoldPorts) -> None:
    first, last = order.first or 1, order.last or 65535
    is_right = len(set(chosen)) == len(chosen) == order.free
    if not is_right or any(not first <= port <= last for port in chosen):
        raise FieldError(f"chosen is {chosen[:10]}")


def _check_listening(ports: list[int]) -> None:
    if sorted(set(ports)) != ports or not all(0 < port <= _LARGEST_PORT for port in ports):
        raise FieldError(f"ports is {ports[:10]}")


def cut_causes(value: Any) -> Any:
    """Return a report with what is too long in its causes cut off."""
    if isinstance(value, Cause):
        within = tuple(_cut_cause(each)._replace(within=()) for each in value.within[:_MOST_WITHIN])
        return _cut_cause(value)._replace(within=within)
    if isinstance(value, Struct):
        items = value._asdict().items()
        parts = {name: part for name, part in items if isinstance(part, (Struct, list, tuple))}
        return value._replace(**{name: cut_causes(part) for name, part in parts.items()})
    return type(value)(map(cut_causes, value)) if isinstance(value, (list, tuple)) else value


def _cut_cause(cause: Cause) -> Cause:
    fields = {name: value for name, value in cause._asdict().items() if name in _CUT_FIELDS}
    return cause._replace(**{name: _cut(value) for name, value in fields.items()})


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + _CUT
    return tuple(each[:_LONGEST_NAME] for each in value[:_MOST_ITEMS])


def _check_cause(cause: Cause) -> None:
    """Refuse what only distrun says: other codes, and commands to type."""
    if cause.code not in _AGENT_CODES:
        raise FieldError(f"code is {cause.code.value}")
    if cause.commands:
        raise FieldError(f"commands is {list(cause.commands)!r}"[:100])


def _causes(values: Any) -> Iterator[Cause]:
    """Yield the causes in a structure, and those within them."""
    if isinstance(values, Cause):
        yield values
    for each in values:
        if isinstance(each, (list, tuple)):
            yield from _causes(each)

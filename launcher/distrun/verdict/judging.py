"""A case and the ends of its logs -> the verdict."""

from __future__ import annotations

import re
from errno import ENOENT
from typing import TYPE_CHECKING

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.cli.cause_text import cause_text, folder_variable
from distrun.verdict import finding
from distrun.verdict.finding import Finding
from distrun.verdict.model import Evidence, Kind, Verdict
from distrun.verdict.reading import Reading, Tail
from distrun.verdict.rules.echoes import PROXY
from distrun.verdict.rules.setup import CLUSTER_ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.lifecycle import TaskState
    from distrun.verdict.case import Case

_MOST_LOGS = 96
_WAITING = re.compile(r"Waiting for \d+/(\d+) tasks to connect")
_SERVING = re.compile(r"Started server with target: grpc://(\S+)")
_MOST_ECHOES_OF_INTEREST = 16
_MOST_NAMED = 8
_HOST_ADVICE = (
    "see whether the host is up and can be reached, and whether somebody ended distrun's agent "
    "there; a link that is slow to come back needs more than `timeouts.link`"
)
_PROGRAM_ADVICE = "check `program` in the spec; `distrun plan SPEC` shows each task's command"


def judge(case: Case, read: Callable[[str], Tail]) -> Verdict:
    """The first cause of a failure.

    Args:
        case: what failed, and all it may concern.
        read: gives the end of a task's log by the task's name; not called more than some hundred
            times, however many tasks there are.
    """
    return _Judge(case, read).verdict()


class _Judge:
    def __init__(self, case: Case, read: Callable[[str], Tail]) -> None:
        self._case = case
        self._read = read
        self._readings: dict[str, Reading] = {}
        self._logs_left = _MOST_LOGS

    def verdict(self) -> Verdict:
        trigger = self._case.trigger
        if isinstance(trigger, events.TaskNotStarted):
            return _not_started(trigger)
        ended = [self._case.tasks[name] for name in self._case.members]
        by_themselves = [task for task in ended if not task.stopped_by_us and _has_failed(task)]
        found = [finding.find(task, self._reading(task.name)) for task in by_themselves]
        failed = {each.task for each in found}
        causes = [each for each in found if not self._is_echo(each, failed)]
        lost = self._host_lost(ended, found)
        if lost is not None and (not causes or isinstance(trigger, events.HostLost)):
            return lost
        root = (
            _first_preempted(causes)
            or self._early_server()
            or self._hidden(ended)
            or self._stood_still(ended)
            or self._other_cluster(ended)
        )
        if root is None and isinstance(trigger, events.TaskExited):
            root = (
                self._left_early(ended, found) or self._behind_proxy(ended) or self._unheard(found)
            )
        elif root is None and isinstance(trigger, events.TimedOut):
            root = self._behind_proxy(ended)
        if root is not None and root.kind is Kind.CLUSTER_MISMATCH:
            root = self._other_cluster(ended) or root
        if root is not None:
            return self._as_verdict(root, found)
        if not isinstance(trigger, events.TaskExited):
            return self._of_job(trigger)
        return self._as_verdict(found[0], found) if found else self._of_exit(trigger)

    def _reading(self, name: str) -> Reading:
        if name not in self._readings:
            self._logs_left -= 1
            tail = self._read(name) if self._logs_left >= 0 else Tail(b"")
            self._readings[name] = Reading(tail, self._case.tasks[name].code)
        return self._readings[name]

    def _is_echo(self, each: Finding, failed: set[str]) -> bool:
        """An error of TensorFlow's that names another task that failed is that one's."""
        return each.is_echo or bool(failed.intersection(each.names))

    def _host_lost(self, ended: list[TaskState], found: list[Finding]) -> Verdict | None:
        """Tasks whose host was lost; what others say of its silence is an echo."""
        lost = [task for task in ended if task.host in self._case.lost_hosts and task.code is None]
        lost = [task for task in lost if task.signal is None]
        if not lost:
            return None
        host, why = lost[0].host, self._case.lost_hosts[lost[0].host]
        names = ", ".join(task.name for task in lost[:_MOST_NAMED])
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        were = "was" if len(lost) == 1 else "were"
        return Verdict(
            task=lost[0].name if len(lost) == 1 else None,
            attempt=lost[0].attempt,
            kind=Kind.HOST_LOST,
            cause=f"{names}{more} {were} lost with {host}: {why}",
            evidence=(Evidence(task=None, place=f"the link to {host}", text=why),),
            advice=_HOST_ADVICE,
            echoes=tuple(each.task for each in found),
        )

    def _early_server(self) -> Finding | None:
        """A server that exited 0 although it is to serve to the end."""
        trigger = self._case.trigger
        if not isinstance(trigger, events.TaskExited) or trigger.code != 0:
            return None
        return self._left(self._case.tasks[trigger.task])

    def _left(self, task: TaskState) -> Finding:
        reading = self._reading(task.name)
        evidence = [Evidence(task=task.name, place="its exit", text="exited 0")]
        index = reading.last_said()
        if index is not None and reading.lines[index].strip():
            evidence.insert(0, finding.line_of(task.name, reading, index))
        known = finding.by_log(task, reading)
        if known is not None and known.kind is Kind.DATA_RAN_OUT:
            return known
        return Finding(
            task=task.name,
            kind=Kind.LEFT_EARLY,
            cause="exited 0 while the others still needed it",
            evidence=tuple(evidence),
            advice=(
                "every task must take part to the end: as many steps or batches for each worker, "
                "and servers that join()"
            ),
        )

    def _hidden(self, ended: list[TaskState]) -> Finding | None:
        """A task that had failed before it was stopped, its processes still there.

        A job that ran too long has its own cause: what its tasks said at the end, they may have
        said at distrun's signal.
        """
        if self._is_overdue:
            return None
        stopped = (task for task in ended if task.stopped_by_us and task.code != 0)
        for task in stopped:
            found = self._hidden_crash(task) or self._hidden_exception(task)
            if found is not None and not found.is_echo and found.kind is not Kind.KILLED:
                return found
        return None

    @property
    def _is_overdue(self) -> bool:
        trigger = self._case.trigger
        return isinstance(trigger, events.TimedOut) and trigger.timer in ("run", "stall")

    def _hidden_crash(self, task: TaskState) -> Finding | None:
        number = finding.signal_of(task)
        if number not in finding.CRASHES or number in self._case.sent:
            return None
        reading = self._reading(task.name)
        spoke = reading.abort if reading.crash is None else reading.crash
        return None if _is_provoked(reading, spoke) else finding.find(task, reading)

    def _hidden_exception(self, task: TaskState) -> Finding | None:
        reading = self._reading(task.name)
        if not reading.is_last_word or _is_provoked(reading, reading.exception):
            return None
        return finding.by_log(task, reading)

    def _stood_still(self, ended: list[TaskState]) -> Finding | None:
        for task in ended:
            if task.was_suspended:
                return _unresponsive(
                    task.name,
                    "stood still: it was suspended",
                    (Evidence(task=task.name, place="its process", text="state T (stopped)"),),
                )
        return None

    def _other_cluster(self, ended: list[TaskState]) -> Finding | None:
        """A task that served at another's address, or waited for another number of tasks."""
        expected = self._case.cluster_size
        for task in ended:
            reading = self._reading(task.name)
            served, waited = reading.find_last(_SERVING), reading.find_last(_WAITING)
            if served is not None and task.address and served[1][1] != task.address:
                index, cause = served[0], f"served at {served[1][1]} instead of {task.address}"
            elif waited is not None and expected and int(waited[1][1]) != expected:
                index = waited[0]
                cause = f"waited for {waited[1][1]} tasks to connect, but the job has {expected}"
            else:
                continue
            return Finding(
                task=task.name,
                kind=Kind.CLUSTER_MISMATCH,
                cause=f"{cause}: its TF_CONFIG does not fit that of the others",
                evidence=(finding.line_of(task.name, reading, index),),
                advice=CLUSTER_ADVICE,
            )
        return None

    def _behind_proxy(self, ended: list[TaskState]) -> Finding | None:
        """TensorFlow says nothing of it: a task whose proxy is in its way just waits."""
        for task in ended:
            if task.proxied is not None:
                variable, machine = task.proxied.name, task.proxied.host
                how = f"{variable} is set, and no_proxy does not name {machine}"
                return Finding(
                    task=task.name,
                    kind=Kind.PROXY,
                    cause=f"reaches its peers only through a proxy: {how}",
                    evidence=(Evidence(task=task.name, place="its variables", text=how),),
                    advice=PROXY.advice,
                )
        return None

    def _left_early(self, ended: list[TaskState], found: list[Finding]) -> Finding | None:
        if not found:
            return None
        for task in ended:
            if task.code == 0 and not task.stopped_by_us:
                return self._left(task)
        return None

    def _unheard(self, found: list[Finding]) -> Finding | None:
        """A task that the others missed although it had not ended."""
        failed = {each.task for each in found}
        for each in found[:_MOST_ECHOES_OF_INTEREST]:
            names = each.names
            if not names and "CoordinationService" in self._reading(each.task).said:
                names = (self._case.leader,) if self._case.leader else ()
            for name in names:
                task = self._case.tasks.get(name)
                if task is not None and name not in failed and task.stopped_by_us:
                    return _unresponsive(name, "no longer answered", each.evidence[-1:])
        return None

    def _as_verdict(self, root: Finding, found: list[Finding]) -> Verdict:
        echoes = tuple(each.task for each in found if each.task != root.task)
        return Verdict(
            task=root.task,
            attempt=self._case.tasks[root.task].attempt,
            kind=root.kind,
            cause=f"{root.task} {root.cause}",
            evidence=root.evidence,
            advice=root.advice,
            echoes=echoes,
        )

    def _of_exit(self, trigger: events.TaskExited) -> Verdict:
        words = finding.exit_words(self._case.tasks[trigger.task])
        return Verdict(
            task=trigger.task,
            attempt=trigger.attempt,
            kind=Kind.EXIT,
            cause=f"{trigger.task} {words}",
        )

    def _of_job(self, trigger: events.Event) -> Verdict:
        """A failure that is no task's."""
        if isinstance(trigger, events.TimedOut):
            return self._stalled() if trigger.timer == "stall" else self._timed_out(trigger)
        fault = getattr(trigger, "cause", None)
        reason = getattr(trigger, "reason", type(trigger).__name__)
        if fault is not None:
            reason = cause_text(fault)
        host = getattr(trigger, "host", None)
        kind, advice = Kind.OTHER, ""
        if fault is not None and fault.is_disk_full:
            variable = folder_variable(_name_within(fault))
            kind, advice = Kind.DISK_FULL, f"make room there, or set {variable} to another disk"
        elif isinstance(trigger, (events.HostLost, events.HostFault)):
            kind, advice = Kind.HOST_LOST, _HOST_ADVICE
        elif "is taken" in reason:
            kind = Kind.PORT_TAKEN
            advice = "end what holds the port, or give counts instead of addresses in `cluster`"
        return Verdict(
            task=None,
            kind=kind,
            cause=reason if host is None else f"{host}: {reason}",
            evidence=(Evidence(task=None, place=host or "distrun", text=reason),),
            advice=advice,
        )

    def _stalled(self) -> Verdict:
        """Where each task stood: Python prints it at the signal that ends a stall."""
        evidence = []
        for name in self._case.members[:4]:
            reading = self._reading(name)
            index = reading.standstill
            if index is None:
                index = reading.last_said()
            if index is not None:
                evidence.append(finding.line_of(name, reading, index))
        return Verdict(
            task=None,
            kind=Kind.STALLED,
            cause=f"no progress within timeouts.stall, {self._case.stall_timeout:g} s",
            evidence=tuple(evidence),
            advice="the logs end with where each thread of each task stood; a longer first step "
            "or evaluation needs a longer timeouts.stall",
        )

    def _timed_out(self, trigger: events.TimedOut) -> Verdict:
        seconds = self._case.start_timeout if trigger.timer == "start" else self._case.run_timeout
        what = "did not start" if trigger.timer == "start" else "did not end"
        evidence = []
        for name in self._case.members[:4]:
            reading = self._reading(name)
            index = reading.last_said()
            if index is not None:
                evidence.append(finding.line_of(name, reading, index))
        if not evidence:
            silence = "nothing but what TensorFlow logs"
            evidence.append(Evidence(task=None, place="their logs", text=silence))
        return Verdict(
            task=None,
            kind=Kind.TIMEOUT,
            cause=f"the job {what} within timeouts.{trigger.timer}, {seconds:g} s",
            evidence=tuple(evidence),
            advice=f"see where its tasks wait, or raise timeouts.{trigger.timer}",
        )


def _is_provoked(reading: Reading, index: int | None) -> bool:
    """Whether a line of the log came of the SIGTERM that TensorFlow says it caught before."""
    caught = reading.find_last(finding.CAUGHT)
    return caught is not None and index is not None and caught[0] < index


def _has_failed(task: TaskState) -> bool:
    return task.signal is not None or bool(task.code)


def _first_preempted(causes: list[Finding]) -> Finding | None:
    """The first cause; of several that ended as preempted, the one that caught the signal."""
    if not causes:
        return None
    if causes[0].kind is Kind.PREEMPTED:
        caught = [each for each in causes if each.kind is Kind.PREEMPTED and len(each.evidence) > 1]
        return next(iter(caught), causes[0])
    return causes[0]


def _name_within(cause: Cause) -> str:
    return cause.name or next((name for name in map(_name_within, cause.within) if name), "")


def _unresponsive(task: str, cause: str, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        task=task,
        kind=Kind.UNRESPONSIVE,
        cause=cause,
        evidence=evidence,
        advice=(
            "it was stopped by SIGSTOP or a debugger, its machine was asleep or overloaded, or the "
            "network to it is gone"
        ),
    )


def _not_started(trigger: events.TaskNotStarted) -> Verdict:
    kind, advice, reason = Kind.NOT_STARTED, _PROGRAM_ADVICE, cause_text(trigger.cause)
    code = trigger.cause.code
    if code is Code.PROGRAM_NOT_FOUND:
        kind = Kind.SCRIPT_NOT_FOUND
    elif code is Code.PROGRAM_NOT_EXECUTABLE:
        kind = Kind.PERMISSION
    elif code is Code.LOG_NOT_OPENED and trigger.cause.errno == ENOENT:
        reason = f"the record was removed while the job ran: {reason}"
        advice = (
            "leave the job's folder in DISTRUN_HOME alone until the job has ended: a restart "
            "writes there"
        )
    elif code is Code.WORKDIR_NOT_ENTERED:
        advice = "see whether `program.workdir` is there on its host, or was removed meanwhile"
    return Verdict(
        task=trigger.task,
        attempt=trigger.attempt,
        kind=kind,
        cause=f"{trigger.task} could not be started: {reason}",
        evidence=(Evidence(task=trigger.task, place="its start", text=cause_text(trigger.cause)),),
        advice=advice,
    )

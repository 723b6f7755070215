"""A failure and the ends of its tasks' logs -> the verdict: the first cause, apart from echoes."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Hashable, Iterator, Sequence

from distrun.agent.protocol.causes import Cause, Code
from distrun.frozen import replace
from distrun.job import events
from distrun.job.events import TimerKind
from distrun.job.stacks import Place, differing_threads, odd_one
from distrun.lifecycle import SAME_TIME, TaskState
from distrun.strategies import Role
from distrun.verdict.failures import Failure, is_by_slurm
from distrun.verdict.log_analysis import SERVING, LogAnalysis
from distrun.verdict.model import Evidence, Kind, LogTail, Source, Verdict
from distrun.verdict.task_failures import (
    CRASH_SIGNALS,
    SIGTERM_CAUGHT,
    TaskFailure,
    child_failure,
    death,
    exception_cause,
    exit_cause,
    exit_evidence,
    failure_in_log,
    signal_of,
    task_failure,
    with_limit,
)
from distrun.verdict.tracebacks import LOGGED
from distrun.verdict.trainers import place_reached

_EARLIER = 1.0
"""Seconds by which an exception must precede the loss of a host to be the first cause."""
_MOST_LOGS = 96
_MOST_ECHOES_EXAMINED = 16
_MOST_TASKS_QUOTED = 4
_UNREACHED = re.compile(
    r"(?i)connect(?:ion)? (?:refused|failed|timed out)|unreachable|unavailable"
    r"|(?:failed|not|unable to) connect"
)
_OF_TRAINING = re.compile(
    r"errors_impl|/job:|NCCL|gloo|[Hh]orovod|Barrier|[Cc]ollective|[Cc]oordination|JAX |s joined"
)
"""What is in an error of TensorFlow's own connections between tasks."""
_WAITING = re.compile(r"Waiting for \d+/(\d+) tasks to connect")
_JOB_KINDS = {
    Kind.PORT_TAKEN: (Code.PORT_TAKEN, Code.PORT_HELD_BY_JOB, Code.PORT_NAME_TAKEN),
    Kind.LOGIN_REFUSED: (
        *(Code.LOGIN_REFUSED, Code.HOST_KEY_CHANGED, Code.HOST_KEY_UNKNOWN),
        *(Code.NO_COMMON_ALGORITHM, Code.ACCOUNT_RUNS_NO_COMMANDS, Code.INPUT_TAKEN_BY_LOGIN),
        *(Code.SSH_OPTION_REFUSED, Code.SSH_CONFIGURATION_REFUSED),
    ),
    Kind.HOST_UNKNOWN: (Code.SSH_NAME_NOT_RESOLVED,),
    Kind.NO_PYTHON: (
        *(Code.PYTHON_MISSING, Code.PYTHON_TOO_OLD, Code.PYTHON_NOT_EXECUTABLE),
        *(Code.PYTHON_NOT_RUNNING, Code.INTERPRETER_UNUSABLE),
    ),
    Kind.NO_TENSORFLOW: (Code.TENSORFLOW_MISSING,),
    Kind.IMPORT_ERROR: (Code.MODULES_MISSING, Code.TF_KERAS_MISSING),
    Kind.SCRIPT_NOT_FOUND: (Code.SCRIPT_UNUSABLE, Code.PROGRAM_UNUSABLE),
    Kind.NETWORK: (
        *(Code.PORTS_UNREACHABLE, Code.PORTS_NOT_DIALLED, Code.ADDRESS_SHARED),
        *(Code.LOOPBACK_IN_CLUSTER, Code.LOOPBACK_OF_HOST),
    ),
    Kind.NO_ROOM: (Code.NO_ROOM, Code.TOO_FEW_SLOTS, Code.TOO_FEW_GPUS, Code.POD_UNSCHEDULABLE),
    Kind.SCHEDULER: tuple(
        each for each in Code if each.value.startswith(("slurm_", "srun_", "pod_", "kubectl_"))
    ),
    Kind.RECORD: (Code.PLAN_NOT_WRITTEN, Code.RECORD_NOT_WRITTEN, Code.JOB_FOLDER_NOT_CREATED),
    Kind.HOST_UNFIT: (
        *(Code.WORKDIR_UNUSABLE, Code.CLOCK_DIFFERS, Code.FILES_REFUSED, Code.SCRIPT_DIFFERS),
        *(Code.PYTHON_DIFFERS, Code.TENSORFLOW_DIFFERS, Code.INSPECTION_FAILED),
        *(Code.AGENT_NOT_STARTED, Code.AGENT_NOT_CONFIGURED, Code.HOST_NOT_PREPARED),
        *(Code.FREE_PORTS_NOT_HELD, Code.TOO_FEW_FREE_PORTS, Code.PORTS_REFUSED),
        *(Code.ONE_MACHINE_TWICE, Code.FORMER_TASKS_ALIVE, Code.PROC_MISSING),
        *(Code.FOLDER_NOT_SHARED, Code.FOLDER_NOT_USABLE),
        Code.PREFLIGHT_FAILED,
    ),
    Kind.LIMIT: (Code.TF_CONFIG_TOO_LONG,),
    Kind.HOST_DOWN: (Code.HOST_UNUSABLE, Code.NO_HOST_ANSWERED, Code.FORMER_HOST_UNREACHABLE),
}
"""The kinds of failures that are no task's, the more specific first, and the causes of each."""
_NO_SINGLE_TASK = (Code.COLLECTIVES_MISMATCHED, Code.GROUP_SIZES_DIFFER)
_OUT_OF_MEMORY = (Code.SLURM_OUT_OF_MEMORY, Code.POD_OUT_OF_MEMORY)
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
_START_KINDS = {
    Code.PROGRAM_NOT_FOUND: Kind.SCRIPT_NOT_FOUND,
    Code.PROGRAM_NOT_EXECUTABLE: Kind.PERMISSION,
}
"""The kinds of verdicts on programs that could not be executed; `not_started` for all others."""


def analyze(failure: Failure, read_log: Callable[[str], LogTail]) -> Verdict:
    """Return the first cause of a failure.

    Args:
        failure: what failed, and everything that may show its cause.
        read_log: returns the end of a task's log by the task's name. It is called for at most 96
            tasks, however many there are.
    """
    return _Analysis(failure, read_log).verdict()


class _Analysis:
    def __init__(self, failure: Failure, read_log: Callable[[str], LogTail]) -> None:
        self._failure, self._tasks = failure, failure.state.tasks
        self._read_log = read_log
        self._logs: dict[str, LogAnalysis] = {}
        self._ended = [self._tasks[name] for name in failure.members]
        self._found: list[TaskFailure] = []
        """Why each task failed that distrun did not stop, in the order of their exits."""

    def verdict(self) -> Verdict:
        trigger = self._failure.trigger
        if isinstance(trigger, events.TaskNotStarted):
            return _not_started(trigger)
        if isinstance(trigger, events.ClusterMismatched):
            return self._cluster_mismatch(trigger.cause)
        if isinstance(trigger, events.StopRequested):
            quiet = self._failure.state.quiet or events.TasksQuiet(at=trigger.at, since=trigger.at)
            code = Code.TASKS_STOPPED if quiet.usual else Code.TASKS_QUIET
            cause = Cause(code, seconds=trigger.at - quiet.since, tasks=quiet.busy)
            one = _suspended(self._ended) or self._child_of_stalled()
            return self._where_tasks_were(cause) if one is None else self._of_task(one)
        # Whatever tasks and hosts say after a defect of distrun is an echo.
        return _defect(trigger) or self._first_failure(trigger)

    def _first_failure(self, trigger: events.Event) -> Verdict:
        unstopped = (each for each in self._ended if not each.stopped_by_us)
        self._found = [
            task_failure(task, self._log(task.name))
            for task in unstopped
            if task.code or task.signal
        ]
        failed = {each.task for each in self._found}
        causes = [each for each in self._found if not (each.is_echo or failed & set(each.peers))]
        if isinstance(trigger, events.HostFault) and trigger.cause.is_disk_full:
            # A program that cannot write its output often exits without a word.
            causes = [each for each in causes if each.kind is not Kind.EXIT]
        if is_by_slurm(trigger):
            # Slurm ends the tasks of all nodes; some may report it before their node does.
            by_signal = (Kind.PREEMPTED, Kind.KILLED)
            causes = [each for each in causes if each.kind not in by_signal]
        lost = self._lost_host()
        is_first = isinstance(trigger, events.HostLost) or all(map(self._may_follow_loss, causes))
        if lost is not None and is_first:
            return lost
        root = (
            self._unreachable_server(trigger, _first_cause(causes))
            or self._server_exit(trigger)
            or self._failure_before_stop(trigger)
            or _suspended(self._ended)
            or self._other_cluster()
        )
        if root is None and isinstance(trigger, events.TaskExited):
            root = (
                self._early_exit()
                or self._late_for_collective()
                or next((each for each in self._found if each.cause.code in _NO_SINGLE_TASK), None)
                or self._not_answering()
            )
        if root is not None and root.kind is Kind.CLUSTER_MISMATCH:
            root = self._other_cluster() or root
        if root is not None:
            return self._verdict_on(root)
        if isinstance(trigger, events.TimedOut):
            return self._timed_out(trigger)
        if not isinstance(trigger, events.TaskExited):
            return _job_failure(trigger)
        if self._found:
            return self._verdict_on(self._found[0])
        cause = exit_cause(self._tasks[trigger.task])._replace(task=trigger.task)
        return Verdict(task=trigger.task, attempt=trigger.attempt, kind=Kind.EXIT, cause=cause)

    def _log(self, name: str) -> LogAnalysis:
        if name not in self._logs:
            tail = self._read_log(name) if len(self._logs) < _MOST_LOGS else LogTail(b"")
            self._logs[name] = LogAnalysis(tail, self._tasks[name].code, name)
        return self._logs[name]

    def _lost_host(self) -> Verdict | None:
        """Blame a lost host; what the other tasks say of its silence is an echo."""
        hosts = self._failure.lost_hosts
        lost = [
            task
            for task in self._ended
            if task.host in hosts and hosts[task.host].has_ended_with(task)
        ]
        why = hosts[lost[0].host].lost if lost else None
        if why is None:
            return None
        host, names = lost[0].host, tuple(task.name for task in lost)
        lost_hosts = tuple(dict.fromkeys(task.host for task in lost))
        cause = Cause(Code.TASKS_LOST_WITH_HOST, tasks=names, host=host, within=(why,))
        return Verdict(
            task=names[0] if len(names) == 1 else None,
            attempt=lost[0].attempt,
            kind=_kind_of_loss(why),
            cause=cause._replace(hosts=lost_hosts if len(lost_hosts) > 1 else ()),
            evidence=(Evidence(source=Source.LINK, host=host, cause=why),),
            echoes=tuple(each.task for each in self._found if each.task not in names),
        )

    def _may_follow_loss(self, found: TaskFailure) -> bool:
        """Whether a task may have failed only because a host was lost at about the same time.

        A program may exit without a word when its connection breaks. An exception of its own counts
        as the first cause if it was earlier than the loss.
        """
        before = {Kind.EXIT: SAME_TIME, Kind.EXCEPTION: _EARLIER}.get(found.kind)
        exited_at = self._failure.exits.get(found.task)
        for host in self._failure.lost_hosts.values():
            if host.has_ended_with(self._tasks[found.task]):
                return True
            is_concerned = any(map(host.has_ended_with, self._ended))
            if is_concerned and before is not None and exited_at is not None:
                return host.explains_exit(exited_at, before)
        return False

    def _server_exit(self, trigger: events.Event) -> TaskFailure | None:
        """Blame a server that exited 0 although it must serve to the end."""
        if not isinstance(trigger, events.TaskExited) or trigger.code != 0:
            return None
        task = self._tasks[trigger.task]
        found = self._exit_while_needed(task)
        is_worker = task.role is Role.WORKER and found.cause.code is Code.EXITED_WHILE_NEEDED
        return replace(found, cause=found.cause._replace(name="worker")) if is_worker else found

    def _early_exit(self) -> TaskFailure | None:
        """Blame a task that exited 0, if others failed afterwards."""
        for task in self._ended if self._found else ():
            is_needed = not (self._failure.state.has_finished(task) or task.stopped_by_us)
            if task.code == 0 and is_needed:
                return self._exit_while_needed(task)
        return None

    def _exit_while_needed(self, task: TaskState) -> TaskFailure:
        log = self._log(task.name)
        known = failure_in_log(task, log)
        if known is not None and known.kind is Kind.DATA_RAN_OUT:
            return known
        how = exit_evidence(task, Cause(Code.TASK_EXITED, status=0))
        if log.sigterm is not None:
            preempted = Cause(Code.PREEMPTED, task=task.name, status=0)
            return TaskFailure(Kind.PREEMPTED, preempted, (log.evidence(log.sigterm), how))
        cause = Cause(Code.EXITED_WHILE_NEEDED, task=task.name)
        return TaskFailure(Kind.LEFT_EARLY, cause, (*log.evidence_at(None), how))

    def _failure_before_stop(self, trigger: events.Event) -> TaskFailure | None:
        """Blame a task that had failed before distrun stopped it, while its processes remained.

        Not after a timeout: what the tasks print then may be an effect of distrun's signal.
        """
        timers = (TimerKind.RUN, TimerKind.STALL)
        if isinstance(trigger, events.TimedOut) and trigger.timer.kind in timers:
            return None
        for task in (each for each in self._ended if each.stopped_by_us and each.code != 0):
            found = self._crash_before_stop(task) or self._exception_before_stop(task)
            if found is not None and not found.is_echo and found.kind is not Kind.KILLED:
                return found
        return None

    def _crash_before_stop(self, task: TaskState) -> TaskFailure | None:
        number = signal_of(task)
        if number not in CRASH_SIGNALS or number in self._failure.sent:
            return None
        log = self._log(task.name)
        line = next(reversed(log.aborts), None) if log.crash is None else log.crash
        return None if _follows_sigterm(log, line) else task_failure(task, log)

    def _exception_before_stop(self, task: TaskState) -> TaskFailure | None:
        log = self._log(task.name)
        end = None if log.message is None else log.message.index
        has_ended = log.ends_with_exception or (task.code == 1 and end is not None)
        if not has_ended or _follows_sigterm(log, end):
            return None
        found = failure_in_log(task, log)
        return None if found is None else with_limit(found, task, log)

    def _other_cluster(self) -> TaskFailure | None:
        """Blame a task that served at another's address, or waited for a wrong number of tasks."""
        expected = self._failure.cluster_size
        for task in (each for each in self._ended if not each.owns_tf_config):
            log = self._log(task.name)
            served, waited = log.find_last(SERVING), log.find_last(_WAITING)
            cause = Cause(Code.SERVED_ELSEWHERE, task=task.name)
            if served is not None and task.address and served[1][1] != task.address:
                index, address = served[0], served[1][1]
                cause = cause._replace(text=address, name=task.address)
            elif waited is not None and expected and int(waited[1][1]) != expected:
                index, count = waited[0], waited[1][1]
                cause = cause._replace(code=Code.WAITED_FOR_OTHERS, text=count, count=expected)
            else:
                continue
            return TaskFailure(Kind.CLUSTER_MISMATCH, cause, (log.evidence(index),))
        return None

    def _cluster_mismatch(self, cause: Cause) -> Verdict:
        """Return the verdict on a task that was found to serve elsewhere while it ran."""
        evidence: list[Evidence] = []
        serving = re.compile(rf"grpc://{re.escape(cause.text)}\s*$") if cause.text else SERVING
        for name in (cause.task, *cause.tasks)[:_MOST_TASKS_QUOTED]:
            served = self._log(name).find_last(serving)
            if served is not None:
                evidence.append(self._log(name).evidence(served[0]))
            elif name == cause.task:
                seen = Cause(Code.LISTENING, port=cause.port)
                evidence.append(Evidence(task=name, source=Source.PROCESS, cause=seen))
        return self._of_task(TaskFailure(Kind.CLUSTER_MISMATCH, cause, tuple(evidence)))

    def _late_for_collective(self) -> TaskFailure | None:
        """Blame the tasks for which others waited in a collective until its time was over."""
        waited = [each for each in self._found if each.cause.code is Code.COLLECTIVE_TIMED_OUT]
        names = {each.task for each in waited}
        late = [task for task in self._ended if task.is_in_group and task.name not in names]
        if not waited or not late:
            return None
        first = waited[0]
        shown = [self._tasks[first.task], *late[:_MOST_TASKS_QUOTED]]
        at = tuple(
            Cause(Code.WAS_AT, task=task.name, text=place)
            for task in shown
            if (place := place_reached(task, self._log(task.name)))
        )
        cause = first.cause._replace(
            task=late[0].name if len(late) == 1 else "",
            tasks=tuple(task.name for task in late),
            expected=first.task,
            within=at,
        )
        evidence = (*first.evidence, *self._log(late[0].name).evidence_at(None))
        return TaskFailure(first.kind, cause, evidence)

    def _not_answering(self) -> TaskFailure | None:
        """Blame a task that the others lost although it had not ended."""
        failed = {each.task for each in self._found}
        for each in self._found[:_MOST_ECHOES_EXAMINED]:
            names = each.peers
            if not names and "CoordinationService" in self._log(each.task).text:
                names = (self._failure.leader,) if self._failure.leader else ()
            for name in names:
                task = self._tasks.get(name)
                if task is not None and name not in failed and task.stopped_by_us:
                    cause = Cause(Code.NOT_ANSWERING, task=name)
                    return TaskFailure(Kind.UNRESPONSIVE, cause, each.evidence[-1:])
        return None

    def _unreachable_server(
        self, trigger: events.Event, root: TaskFailure | None
    ) -> TaskFailure | None:
        """Blame a server that others could not reach, by their words or by the time that passed."""
        if root is not None and root.kind not in (Kind.EXIT, Kind.EXCEPTION):
            return root
        said = [each.name for each in self._ended] if root is None else [root.task]
        is_late = isinstance(trigger, events.TimedOut)
        for task in self._ended:
            found = (each for each in task.exit.found if each.code is Code.LISTENS_ON_LOOPBACK)
            where, address = next(found, None), task.address or ""
            host = address.rpartition(":")[0].replace("localhost", "127.0.0.1")
            if where is None or any(each.startswith(f"{host}:") for each in where.addresses):
                continue
            logs = (self._log(name) for name in said if name != task.name)
            if is_late or any(log.find_last(_UNREACHED) for log in logs):
                cause = where._replace(task=task.name, name=address)
                seen = Evidence(task=task.name, source=Source.PROCESS, cause=where)
                return TaskFailure(Kind.NETWORK, cause, (seen,))
        return root

    def _verdict_on(self, root: TaskFailure) -> Verdict:
        if root.cause.code in _NO_SINGLE_TASK:
            return self._disagreement(root)
        failed = list(self._found)
        if root.is_echo:
            root = self._of_another_server(root)
            failed = failed if root.is_echo else [*map(self._of_another_server, failed)]
        # Tasks that distrun stopped too late: the same error, or echoes.
        for task in (each for each in self._ended if each.stopped_by_us and each.code):
            late = None if task.name == root.task else self._exception_before_stop(task)
            if late is not None and (late.is_echo or late.is_like(root)):
                failed.append(late)
        others = {each.task: each.is_like(root) for each in failed if each.task != root.task}
        return self._of_task(
            root,
            tuple(name for name, is_like in others.items() if not is_like),
            tuple(name for name, is_like in others.items() if is_like),
        )

    def _of_another_server(self, found: TaskFailure) -> TaskFailure:
        """Return a lost connection as what it is if it is one to a database or the like."""
        task, log = self._tasks[found.task], self._log(found.task)
        # It has no peers, unless its own processes are some.
        is_alone = len(self._tasks) == 1 and found.cause.code is not Code.COLLECTIVE_TIMED_OUT
        said = "" if log.message is None else f"{log.message.type} {log.text}"
        if not found.is_echo or (_OF_TRAINING.search(said or found.cause.text) and not is_alone):
            return found
        own = replace(found, is_echo=False, peers=())
        if said:
            kind = Kind.EXCEPTION if is_alone else found.kind
            return replace(own, kind=kind, cause=exception_cause(task, log))
        if not found.evidence or LOGGED.match(found.evidence[-1].text):
            return found
        if task.signal is not None:
            shown = (*(log.evidence(each) for each in log.aborts), *found.evidence)
            crash = exit_cause(task)._replace(code=Code.CRASHED, task=task.name, text=shown[0].text)
            return replace(own, kind=Kind.CRASH, cause=crash, evidence=shown[:1])
        cause = Cause(Code.EXITED_BY_ITSELF, task=task.name, status=task.code)
        evidence = (*found.evidence, exit_evidence(task))
        return replace(own, kind=Kind.EXIT, cause=cause, evidence=evidence)

    def _of_task(
        self, root: TaskFailure, echoes: tuple[str, ...] = (), alike: tuple[str, ...] = ()
    ) -> Verdict:
        return Verdict(
            task=root.task,
            attempt=self._tasks[root.task].attempt,
            kind=root.kind,
            cause=root.cause,
            evidence=root.evidence,
            echoes=echoes,
            alike=alike,
        )

    def _disagreement(self, root: TaskFailure) -> Verdict:
        """Return the verdict on tasks that do not agree, with the words of each side."""
        evidence: list[Evidence] = []
        alike: list[str] = []
        for task in self._ended[:_MOST_TASKS_QUOTED]:
            log = self._log(task.name)
            said = root if task.name == root.task else failure_in_log(task, log)
            if said is not None and said.cause.code is root.cause.code:
                alike.append(task.name)
            lines = log.evidence_at(None) if said is None else said.evidence
            evidence.extend(lines or (exit_evidence(task),))
        verdict = self._of_task(root, (), tuple(alike) if len(alike) > 1 else ())
        cause = root.cause._replace(task="")
        return replace(verdict, task=None, cause=cause, evidence=tuple(evidence))

    def _timed_out(self, trigger: events.TimedOut) -> Verdict:
        """Return the verdict on a job that took too long: what its tasks printed last."""
        timeouts, timer = self._failure.state.timeouts, trigger.timer.kind
        child = None if timer is TimerKind.START else self._child_of_stalled(timer)
        if child is not None:
            return self._of_task(child)
        if timer is TimerKind.STALL:
            cause = Cause(Code.STALLED, seconds=timeouts.stall or 0.0, tasks=trigger.busy)
            return self._where_tasks_were(cause, trigger.places)
        is_start = timer is TimerKind.START
        code = Code.JOB_DID_NOT_START if is_start else Code.JOB_DID_NOT_END
        seconds = timeouts.start if is_start else timeouts.run
        left = tuple(each.name for each in self._tasks.values() if each.stopped_by_us)
        logs = {name: self._log(name).until_limit() for name in left or self._failure.members}
        raised = [name for name, log in logs.items() if log.ends_with_exception]
        # What all of them have printed, they may have caught: their own libraries' words.
        within = tuple(
            exception_cause(self._tasks[name], logs[name])
            for name in raised[: _MOST_TASKS_QUOTED if len(raised) < len(logs) else 0]
        )
        within = trigger.within[:_MOST_TASKS_QUOTED] if is_start else within
        evidence = [
            Evidence(source=Source.HOST, host=each.host, cause=next(iter(each.within), each))
            for each in (within if is_start else ())
        ]
        if not evidence:
            names = sorted(logs, key=lambda each: each not in raised)[:_MOST_TASKS_QUOTED]
            evidence = [line for name in names for line in self._last_said(name, logs[name])]
        nothing = Evidence(source=Source.LOGS, cause=Cause(Code.NO_OUTPUT))
        return Verdict(
            kind=Kind.TIMEOUT,
            cause=Cause(code, seconds=seconds or 0.0, within=within),
            evidence=tuple(evidence) or (nothing,),
        )

    def _last_said(self, name: str, log: LogAnalysis) -> Iterator[Evidence]:
        """Yield what a task that did not end has shown: a child's death, an exception, a line."""
        child = self._tasks[name].exit.child
        if child is not None and child.signal:
            yield death(self._tasks[name], child)
        at = {log.message.index if log.message else log.last_line(), log.last_line()}
        yield from map(log.evidence, sorted(each for each in at if each is not None))

    def _child_of_stalled(self, timer: TimerKind = TimerKind.STALL) -> TaskFailure | None:
        """Blame a process or a thread of a task that waits for it without end."""
        for task in self._ended:
            log = self._log(task.name).until_limit()
            index = log.interrupted_at
            where = () if index is None else (log.evidence(index),)
            # One that was killed may have been replaced since, if the tasks did not stall.
            child = task.exit.child if timer is TimerKind.STALL else None
            if child is not None and child.signal:
                return child_failure(task, child, where)
            raised = log.raised if log.raised and log.raised.is_uncaught_aside else None
            aside = raised.aside if raised else ""
            # Without a stall, only a pool that replaces its children without end takes long by it.
            frames = log.lines[raised.first : raised.exception] if raised else []
            of_pool = "PoolWorker-" in aside or "/spawn.py" in aside
            of_pool |= any("/multiprocessing/pool.py" in each for each in frames)
            is_aside = aside and (timer is TimerKind.STALL or of_pool)
            is_over = log.ends_with_exception and log.waits_at_exit
            found = failure_in_log(task, log) if is_aside or is_over else None
            # Children that distrun has interrupted print a traceback, too.
            if found is not None and not found.is_echo and found.cause.code is not Code.INTERRUPTED:
                limited = with_limit(found, task, log)
                return replace(limited, evidence=(*found.evidence, *where))
            if child is not None and log.waits_for_others:
                return child_failure(task, child, where)
        return None

    def _where_tasks_were(self, cause: Cause, seen: Sequence[Place] = ()) -> Verdict:
        """Return the verdict on a hung job: the lines that Python printed at distrun's signal.

        Args:
            cause: with the tasks that were busy, if not all were.
            seen: where the tasks were before the signal; none: only the logs say it.
        """
        logs = {name: self._log(name) for name in self._failure.members}
        path = next(filter(None, (log.forks_at for log in logs.values())), "")
        mains = [log.interrupted_in for log in logs.values()]
        threads: list[dict[Hashable, tuple[str, int]]] = [
            {at: (at, line) for at, line in log.threads_in.items()} for log in logs.values()
        ]
        differing = differing_threads(zip(mains, threads, strict=True))
        groups: dict[tuple[str, str], list[str]] = {}
        lines: dict[str, int | None] = {}
        for (name, log), main, thread in zip(logs.items(), mains, differing, strict=True):
            place, lines[name] = thread or (main, log.interrupted_at)
            groups.setdefault((place, main if thread else ""), []).append(name)
        named = [
            Place(tasks=tuple(names), place=place, main=main)
            for (place, main), names in groups.items()
            if place
        ]
        places = seen or named
        odd = odd_one(places)
        if cause.tasks:
            busy = (each.place for each in places if each.tasks == cause.tasks)
            cause = cause._replace(text=next(busy, ""))
        elif odd is not None:
            cause = cause._replace(tasks=odd.tasks, name=", ".join(odd.tasks), text=odd.place)
        elif named and all(log.waits_at_exit for log in logs.values() if log.interrupted_in):
            cause = cause._replace(text=named[0].place)
        # First one task of each place, from the rarest one on.
        ranks = {
            name: (number, not place, len(names), not main)
            for (place, main), names in groups.items()
            for number, name in enumerate(names)
        }
        quoted = sorted(ranks, key=ranks.__getitem__)[:_MOST_TASKS_QUOTED]
        shown = (line for name in quoted for line in logs[name].evidence_at(lines[name]))
        return Verdict(
            kind=Kind.STALLED,
            cause=cause._replace(path=path),
            evidence=tuple(each for each in shown if "<no Python frame>" not in each.text),
        )


def _job_failure(trigger: events.Event) -> Verdict:
    if not isinstance(trigger, (events.Aborted, events.HostLost, events.HostFault)):
        raise TypeError(f"no job fails by {type(trigger).__name__}")
    host = "" if isinstance(trigger, events.Aborted) else trigger.host
    reason = cause = trigger.cause
    if reason.is_disk_full:
        kind = Kind.DISK_FULL
        variable = next((each.name for each in reason.chain() if each.name), "")
        cause = Cause(Code.JOB_DISK_FULL, host=host, name=variable, within=(reason,))
    elif host:
        code = Code.HOST_LOST if isinstance(trigger, events.HostLost) else Code.HOST_FAILED
        kind, cause = _kind_of_loss(reason), Cause(code, host=host, within=(reason,))
    else:
        codes = {each.code for each in reason.chain()}
        found = (kind for kind, causes in _JOB_KINDS.items() if not codes.isdisjoint(causes))
        kind = next(found, Kind.OTHER)
    source = Source.HOST if host else Source.DISTRUN
    evidence = Evidence(source=source, host=host, cause=reason)
    return Verdict(kind=kind, cause=cause, evidence=(evidence,))


def _kind_of_loss(why: Cause) -> Kind:
    """Return the kind of the loss of a host, which its scheduler may have ended for its memory."""
    codes = {each.code for each in why.chain()}
    return Kind.HOST_LOST if codes.isdisjoint(_OUT_OF_MEMORY) else Kind.HOST_MEMORY


def _follows_sigterm(log: LogAnalysis, index: int | None) -> bool:
    """Whether a line of the log comes after the SIGTERM that TensorFlow says it caught."""
    caught = log.find_last(SIGTERM_CAUGHT)
    return caught is not None and index is not None and caught[0] < index


def _first_cause(causes: list[TaskFailure]) -> TaskFailure | None:
    """Return the first cause; among preempted tasks, the one that caught the signal."""
    first = next(iter(causes), None)
    if first is None or first.kind is not Kind.PREEMPTED:
        return first
    caught = (each for each in causes if each.kind is Kind.PREEMPTED and len(each.evidence) > 1)
    return next(caught, first)


def _suspended(ended: list[TaskState]) -> TaskFailure | None:
    for task in ended:
        if task.exit.suspended:
            state = Evidence(task=task.name, source=Source.PROCESS, text="state T (stopped)")
            return TaskFailure(Kind.UNRESPONSIVE, Cause(Code.SUSPENDED, task=task.name), (state,))
    return None


def _defect(trigger: events.Event) -> Verdict | None:
    """Blame distrun, and no host, for a defect in it."""
    if not isinstance(trigger, (events.Aborted, events.HostLost, events.HostFault)):
        return None
    cause, text = trigger.cause, events.agents_defect(trigger.cause)
    if text is not None and not isinstance(trigger, events.Aborted):
        last = text.strip().rpartition("\n")[2]
        cause = Cause(Code.AGENT_FAILED, host=trigger.host, text=last)
    elif cause.code not in (Code.AGENT_FAILED, Code.SUPERVISOR_FAILED):
        return None
    return Verdict(kind=Kind.DEFECT, cause=cause, evidence=(Evidence(cause=cause),))


def _not_started(trigger: events.TaskNotStarted) -> Verdict:
    why = trigger.cause
    is_gone = why.code is Code.LOG_NOT_OPENED and why.errno == errno.ENOENT
    code = Code.RECORD_REMOVED if is_gone else Code.TASK_NOT_STARTED
    kind = Kind.LIMIT if why.errno in _LIMITS else _START_KINDS.get(why.code, Kind.NOT_STARTED)
    return Verdict(
        task=trigger.task,
        attempt=trigger.attempt,
        kind=Kind.DISK_FULL if why.is_disk_full else kind,
        cause=Cause(code, task=trigger.task, within=(why,)),
        evidence=(Evidence(task=trigger.task, source=Source.START, cause=why),),
    )

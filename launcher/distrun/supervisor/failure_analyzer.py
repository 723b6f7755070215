"""Analyzes a job's failures. Errors in the analysis never fail the job."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from distrun.agent.protocol.causes import Cause, Code
from distrun.errors import DistrunError
from distrun.frozen import replace
from distrun.job.events import Event, Outcome, Result, TimedOut, TimerKind, VerdictReached
from distrun.job.folder import JobFolder
from distrun.lifecycle import JobState, TaskPhase, TaskState
from distrun.spec.model import BY_RUN, ProgramKind
from distrun.spec.regular_file import data_start, open_regular_file
from distrun.supervisor.hosts.background_calls import Question
from distrun.supervisor.hosts.host import LogEnd
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.program_files import ProgramFiles
from distrun.supervisor.running_job import RunningJob
from distrun.verdict.model import Kind, LogTail, Replacement, Source, Verdict

if TYPE_CHECKING:
    from distrun.verdict.failures import Failure

    Ask = Callable[[], Verdict | None]
    """Reads logs, which may take seconds: call it in a process of its own."""

_TAIL_BYTES = (64 * 1024, 1024 * 1024)
"""How many bytes of a log's end are read. The second is used if the first holds no whole line."""
_SUSPECT = (
    *(b"traceback (most recent", b"error", b"exception", b"\xe2\x95\xad", b"sigterm", b"signal "),
    *(b"preempt", b"terminat", b"killed", b"exit code", b"exitcode", b"ran out of", b"usage: "),
    *(b" not found", b" failed", b"occurred", b"wrong", b"no module named", b"no such file"),
    *(b"critical", b"\nsynopsis", b"skipping training", b"no space left", b"quota exceeded"),
)
"""What the log of a task that has failed may have, in lower case: a traceback in any form, or a
signal. To find words takes a tenth of the time of one regular expression."""
_NO_DATA = re.compile(
    rb"\b(?:0|no) (?:\w+ )?(?:batch|data|file|image|sample|example|record|shard)|\bempty\b"
)
_OF_KERAS = re.compile(r"\b(?:tf_)?keras\b|\btensorflow\b")
_KERAS_CODES = (Code.KERAS_2_CODE, Code.KERAS_3_USED)
_OF_FILES = (Code.EXCEPTION_RAISED, Code.MODULE_NOT_IMPORTED, Code.FILE_DAMAGED)
_WITH_TRACEBACK = (Code.EXCEPTION_RAISED, Code.EXITED_AFTER_EXCEPTION)
_MADE_BY_SOME = (
    *(Code.COLLECTIVES_MISMATCHED, Code.COLLECTIVE_TIMED_OUT, Code.EXITED_WHILE_NEEDED),
)
"""What may come of a call that only some tasks make."""
_SENDS_SIGNAL = re.compile(
    r"(?!\s*#).*\bkill (?:-\w+ )?(?:0\b|(?:-- )?-\$)|(?!\s*(?:#|trap)).*\bkill "
)
"""A line of a shell script that signals its own group of processes, also in a trap, or another."""
_MOST_SECONDS = 5.0
"""No further log is read after this time: an analysis must not delay a job's end. It takes some
milliseconds, but a busy machine may delay it by seconds."""


class _Logs:
    """Reads the ends of tasks' logs as they are now; `hosts` have more of those that ended."""

    def __init__(
        self,
        folder: JobFolder,
        tasks: Mapping[str, TaskState],
        hosts: HostPool | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._folder, self._tasks = folder, tasks
        self._sizes: dict[str, int] = {}
        """Where to stop reading, by task."""
        self._ends: dict[str, LogEnd] = {}
        self._limits: Mapping[str, int] = limits or {}
        """How much each task had printed when `timeouts.run` expired."""
        if hosts is not None:
            self._sizes = {name: folder.size_of_log(name) for name in tasks}
            found = {name: hosts.log_end(task.host, name) for name, task in tasks.items()}
            self._ends = {name: end for name, end in found.items() if end is not None}
        self._deadline = 0.0

    @property
    def are_awaited(self) -> bool:
        """Whether hosts are still to send parts of them."""
        return any(end.is_awaited() for end in self._ends.values())

    def close(self) -> None:
        """Ignore what is printed from now on, such as the output of the next attempt."""
        for task, end in self._ends.items():
            self._sizes[task] = min(end.size, self._folder.size_of_log(task))

    def read(self, task: str) -> LogTail:
        now = time.monotonic()
        self._deadline = self._deadline or now + _MOST_SECONDS
        if now > self._deadline:
            return LogTail(b"")
        try:
            with open_regular_file(self._folder.log_of(task)) as file:
                size = file.seek(0, 2)
                size = min(size, self._sizes.get(task, size))
                tail = LogTail(b"")
                for most in _TAIL_BYTES:
                    start = file.seek(max(data_start(file.fileno()), size - most))
                    begin = self._tasks[task].output_start or 0
                    begin = max(0, begin - start) if begin <= size else 0  # the task has cut it
                    limit = self._limits.get(task)
                    limit = None if limit is None else max(0, limit - start)
                    tail = LogTail(file.read(size - start), start == 0, begin, limit)
                    if tail.is_enough:
                        break
                return tail
        except OSError:
            return LogTail(b"")

    def begin(self, task: str) -> LogTail:
        """Return the first output of a task's last attempt, if its end does not have that."""
        begin, raw = self._tasks[task].output_start or 0, b""
        is_in_time = time.monotonic() < (self._deadline or float("inf"))
        is_longer = self._folder.size_of_log(task) - begin > _TAIL_BYTES[0]
        if begin < _TAIL_BYTES[1] and is_longer and is_in_time:
            with contextlib.suppress(OSError), open_regular_file(self._folder.log_of(task)) as file:
                raw = file.read(begin + _TAIL_BYTES[0]) or b""
        return LogTail(raw, begin=begin)


class FailureAnalyzer:
    """Follows a job's events, has its failures analyzed while it goes on, and records the verdicts.

    The verdicts come in the order of the failures. Analyses run in forks: reading logs may take
    seconds. None begins before the logs of the attempts that have ended are all here: other hosts
    report an exit before the last lines of a log.
    """

    def __init__(self, job: RunningJob) -> None:
        from distrun.verdict.failures import FailureTracker

        self._job, self._folder, self._spec = job, job.folder, job.spec
        self._files = ProgramFiles(job.spec)
        self._tracker = FailureTracker()
        self._asked: Outcome | None = None
        self._limits: dict[str, int] = {}
        self._analyses: deque[tuple[Outcome | None, list[Verdict | None]]] = deque()
        """The failures that are being analyzed: the outcome, if the job has ended with it, and the
        answer."""
        self._unasked: list[tuple[_Logs, Callable[[], None]]] = []
        """What waits for the rest of logs, and what begins the analysis then."""
        job.loop.checks.append(self._ask_complete)
        self._count = 0

    def on_event(self, before: JobState, event: Event, after: JobState) -> None:
        """Note an event, and have a failure analyzed after which the job continues."""
        if isinstance(event, TimedOut) and event.timer.kind is TimerKind.RUN:
            self._limits = {name: self._folder.size_of_log(name) for name in after.tasks}
        with _defects_printed():
            failure = self._tracker.on_event(before, event, after)
            if failure is not None:
                is_replaced = len(after.replacements) > len(before.replacements)
                replacement = after.replacements[-1] if is_replaced else None
                self._find(*self._question(failure, replacement), None)

    def find_last(self) -> bool:
        """Find out why the job failed, if it did. Returns whether a verdict is being waited for."""
        state = self._job.state
        outcome = state.outcome
        if outcome is not None and outcome.verdict is None and outcome != self._asked:
            self._asked = outcome
            question: tuple[Ask, _Logs] | None = (lambda: None, _Logs(self._folder, {}))
            with _defects_printed():
                question = self._last_question(state)
            if question is not None:
                self._find(*question, outcome)
        return bool(self._analyses)

    def _find(self, ask: Ask, logs: _Logs, outcome: Outcome | None) -> None:
        answer: list[Verdict | None] = []
        self._count += 1
        self._analyses.append((outcome, answer))
        question = Question(f"failure {self._count}", ask, Verdict)

        def on_answer(verdict: Verdict | None) -> None:
            answer.append(verdict)
            while self._analyses and self._analyses[0][1]:
                self._record(*self._analyses.popleft())

        self._unasked.append((logs, partial(self._job.hosts.calls.ask, question, on_answer)))
        self._ask_complete()

    def _ask_complete(self) -> None:
        """Begin the analyses for which all logs are here."""
        ready = [each for each in self._unasked if not each[0].are_awaited]
        self._unasked = [each for each in self._unasked if each not in ready]
        for logs, begin in ready:
            logs.close()
            begin()

    def _record(self, outcome: Outcome | None, answer: list[Verdict | None]) -> None:
        (verdict,) = answer
        if verdict is None and outcome is not None and outcome.result is not Result.SUCCEEDED:
            # The analysis failed: the outcome's cause is all that is known.
            cause = Cause(Code.VERDICT_MISSING, within=(outcome.cause,))
            verdict = Verdict(task=outcome.task, kind=Kind.OTHER, cause=cause)
        if verdict is not None:
            before_restart = outcome is None
            self._job.emit(
                VerdictReached(at=time.time(), verdict=verdict, before_restart=before_restart)
            )

    # What is asked -------------------------------------------------------------------------

    def _question(self, failure: Failure, replacement: Replacement | None) -> tuple[Ask, _Logs]:
        """Return what judges a failure, and by which logs: the job may go on."""
        logs = _Logs(self._folder, failure.state.tasks, self._job.hosts, self._limits)
        return lambda: replace(self._analyze(failure, logs), replacement=replacement), logs

    def _last_question(self, state: JobState) -> tuple[Ask, _Logs] | None:
        """Return the function that judges how the job ended; None if there is nothing to judge."""
        if state.outcome is not None and state.outcome.result is Result.SUCCEEDED:
            if not self._is_suspect(state):
                return None
            logs = _Logs(self._folder, state.tasks)
            return partial(self._judge_success, state, logs), logs
        failure = self._tracker.final_failure(state)
        return None if failure is None else self._question(failure, None)

    def _is_suspect(self, state: JobState) -> bool:
        """Whether a success may need a warning: few jobs need the time of an analysis."""
        from distrun.verdict.trainers import may_be_behind, not_finite, without_contact

        tasks = [task for task in state.tasks.values() if task.code == 0]
        is_seen = any(each.end.left or each.exit.child or each.attempt for each in tasks)
        is_seen |= any(each.phase is TaskPhase.FAILED for each in state.tasks.values())
        if is_seen or may_be_behind(tasks) or without_contact(state) or [*not_finite(tasks)]:
            return True
        if self._files.may_have_output:
            return True
        logs = _Logs(self._folder, state.tasks)
        texts = (logs.read(task.name).raw.lower() for task in tasks)
        return any(_NO_DATA.search(text) or any(w in text for w in _SUSPECT) for text in texts)

    def _judge_success(self, state: JobState, logs: _Logs) -> Verdict | None:
        from distrun.verdict.success import success_verdict

        programs = (self._spec.program, *map(self._spec.program_of, self._spec.roles))
        are_scripts = all(each.kind is ProgramKind.SCRIPT for each in programs)
        scripts = [os.path.basename(each) for each in self._spec.scripts if are_scripts]
        are_python = all(each.endswith(".py") for each in scripts)
        text = "\n".join(text for _, text in self._files.scripts())
        names = scripts if are_python else ()
        shell = self._files.shell_texts()
        rest = (shell, names, text, self._files.text_of)
        by_log = success_verdict(state, logs.read, *rest, logs.begin)
        # An exit code alone says less than the files do.
        codes = () if by_log is None or by_log.evidence else by_log.cause.within
        is_bare = any(codes) and all(each.code is Code.COMMAND_FAILED for each in codes)
        known = None if is_bare else by_log

        def judge(read: Callable[[str], LogTail]) -> Verdict | None:
            found = success_verdict(state, read, *rest)
            return found if found is not None and found.evidence else None

        return self._with_files(known, judge) or by_log

    def _with_files(
        self, by_log: Verdict | None, judge: Callable[[Callable[[str], LogTail]], Verdict | None]
    ) -> Verdict | None:
        """Judge by the files here to which a script sends output, if the log says nothing."""
        said = None if by_log is None else by_log.cause
        known = said and not (
            said.code is Code.EXITED_BY_ITSELF or said.text.startswith("CalledProcessError:")
        )
        state = self._job.state
        for name, tail in () if known else self._files.written(state, has_failed=bool(said)):
            numbers, tasks = re.findall(r"\d+", name), state.tasks.values()
            own = [each for each in tasks if each.name in name or str(each.index) in numbers]
            tails = {each.name: tail for each in own or tasks}
            found = judge(defaultdict(partial(LogTail, b""), tails).__getitem__)
            if found is not None and found.cause.code is not Code.EXITED_BY_ITSELF:
                lines = []
                for each in filter(lambda each: each.line, found.evidence):
                    place = f"{name}:{each.line}" if (each.line or 0) > 0 else name
                    text = f"{place}: {each.text}"
                    lines.append(replace(each, source=Source.PROCESS, text=text))
                cause = found.cause._replace(within=tuple(
                    each._replace(text=f"{each.text} (in {name})") if each.text else each
                    for each in found.cause.within
                ))  # fmt: skip
                if cause.code in _WITH_TRACEBACK:
                    cause = cause._replace(expected=os.path.join(self._spec.program.workdir, name))
                return replace(found, cause=cause, evidence=tuple(lines))
        return by_log

    def _analyze(self, failure: Failure, logs: _Logs) -> Verdict:
        from distrun.verdict.analysis import analyze

        by_log = analyze(failure, logs.read)
        verdict = self._with_files(by_log, partial(analyze, failure)) or by_log
        verdict = self._with_set_up(verdict, logs)
        cause = verdict.cause
        if cause.code is Code.KERAS_2_CODE and not self._may_use_keras(logs.read(cause.task).raw):
            cause = cause._replace(code=Code.EXCEPTION_RAISED)
            return replace(verdict, kind=Kind.EXCEPTION, cause=cause)
        if cause.code in _KERAS_CODES and self._spec.program.keras is not None:
            cause = cause._replace(version=str(self._spec.program.keras))
        elif cause.code is Code.ARGUMENTS_REFUSED and self._spec.origin is not None:
            by_run = self._spec.origin.file == BY_RUN
            cause = cause._replace(path=BY_RUN if by_run else "")
        elif cause.code is Code.PREEMPTED:
            return self._by_own_signal(verdict, failure, logs)
        elif cause.code in _MADE_BY_SOME:
            call = self._files.call_of_one(verdict.evidence) or self._files.call_of_one()
            cause = cause._replace(path=call)
            if cause.code is Code.COLLECTIVE_TIMED_OUT:
                cause = cause._replace(within=(*cause.within, *self._files.find_limit()))
        elif verdict.kind is Kind.STALLED:
            cause = cause._replace(expected=self._files.call_of_one(verdict.evidence))
        elif cause.code in _OF_FILES:
            return self._with_file(verdict, failure)
        elif verdict.kind is Kind.CLUSTER_MISMATCH and not (cause.path or cause.expected):
            cause = cause._replace(path=self.find_tf_config_line()[0])
        return replace(verdict, cause=cause)

    def _with_set_up(self, verdict: Verdict, logs: _Logs) -> Verdict:
        """Return a verdict; if a shell could not set up what it ran, with that as evidence."""
        from distrun.verdict.log_analysis import LogAnalysis
        from distrun.verdict.shell_scripts import not_set_up

        log = LogAnalysis(logs.read(verdict.task), 1, verdict.task) if verdict.task else None
        told = [] if log is None else [*not_set_up(log, self._files.shell_texts())]
        shown = (log.evidence(at) for at, _ in told if log)
        before = [each for each in shown if each not in verdict.evidence][:1]
        return replace(verdict, evidence=(*before, *verdict.evidence))

    def _by_own_signal(self, verdict: Verdict, failure: Failure, logs: _Logs) -> Verdict:
        """Return a preemption with the line of a script that sends that signal, too.

        What the script ran may have failed before, with an exception that is the cause then.
        """
        from distrun.verdict.log_analysis import LogAnalysis
        from distrun.verdict.task_failures import exception_cause

        lines = ((name, text.split("\n")) for name, text in self._files.shell_texts().items())
        numbered = ((f"{name}:{n}: ", e) for name, each in lines for n, e in enumerate(each, 1))
        found = (at + line.strip() for at, line in numbered if _SENDS_SIGNAL.match(line))
        cause = verdict.cause._replace(path=next(found, ""))
        log = LogAnalysis(logs.read(cause.task), 1, cause.task)
        task = failure.state.tasks[cause.task]
        if cause.path and log.ends_with_exception and log.message is not None:
            raised = exception_cause(task, log)._replace(path=cause.path, status=task.exit_status)
            cause = raised._replace(code=Code.EXITED_AFTER_EXCEPTION)
            evidence = (*verdict.evidence, *log.evidence_at(log.message.index))
            return replace(verdict, kind=Kind.EXCEPTION, cause=cause, evidence=evidence)
        return replace(verdict, cause=cause)

    def _may_use_keras(self, log: bytes) -> bool:
        """Whether a class may be Keras's: other libraries, and users, have classes of that name."""
        said = [log.decode("utf-8", "replace"), *(text for _, text in self._files.scripts())]
        return len(said) == 1 or any(map(_OF_KERAS.search, said))

    def _with_file(self, verdict: Verdict, failure: Failure) -> Verdict:
        """Return a verdict; if a file is missing or damaged, with where that is, or is not."""
        from distrun.sync.unsent_files import file_beside_script, missing_file
        from distrun.verdict.task_failures import missing_checkpoint

        cause, path = verdict.cause, ""
        if cause.code is Code.FILE_DAMAGED:
            host = failure.state.tasks[cause.task].host
            path = cause.path or self._files.damaged(cause.text, host)
            return replace(verdict, cause=cause._replace(path=path))
        hosts = {task.host for task in failure.state.tasks.values()}
        with contextlib.suppress(DistrunError):
            path = missing_file(self._spec, cause.text)
        if path:
            cause = cause._replace(code=Code.FILE_NOT_SENT, path=path)
            return replace(verdict, kind=Kind.FILE_NOT_SENT, cause=cause)
        if path := file_beside_script(self._spec, cause.text):
            folder = self._spec.program.workdir
            cause = cause._replace(code=Code.FILE_ELSEWHERE, path=path, expected=folder)
        elif (path := missing_checkpoint(cause.text)) and len(hosts) == 1 and ".data-" in path:
            cause = cause._replace(code=Code.FILE_DAMAGED, path=path.partition(".data-")[0])
        elif path and len(hosts) > 1:
            host, within = failure.state.tasks[cause.task].host, failure.state.unshared
            missing = {"path": path, "host": host, "within": within}
            cause = cause._replace(code=Code.CHECKPOINT_NOT_FOUND, **missing)
        return replace(verdict, cause=cause)

    def find_tf_config_line(self) -> tuple[str, bool]:
        """Return where the program sets TF_CONFIG, as `train.py:6`, and whether it certainly does.

        It reads the program, which may take seconds. The place is empty if it is not known.
        """
        from distrun.lint.program import read_program
        from distrun.spec.program_strategy import tf_config_line

        place, is_certain = "", False
        with _defects_printed():
            place, is_certain = tf_config_line(read_program(self._spec))
        return place, is_certain


@contextlib.contextmanager
def _defects_printed() -> Iterator[None]:
    """Continue after an error: errors in the analysis never fail a job."""
    try:
        yield
    except Exception:  # noqa: BLE001 - whatever it is
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stderr)

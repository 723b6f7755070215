"""What `launch`, `attach`, `logs -f` and `wait` print at the end of a job."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections import Counter
from collections.abc import Container

from distrun.agent.protocol.causes import Cause, Code
from distrun.errors import DistrunError
from distrun.job import events
from distrun.job.events import Origin, Outcome, Result
from distrun.job.folder import JobFolder
from distrun.job.job import Job
from distrun.job.resumption import spec_of
from distrun.job.timing import unmade_restarts
from distrun.lifecycle import JobState, TaskState
from distrun.logs import StartupFilter, TaskLog, View
from distrun.logs.tail import shown_end
from distrun.spec.host_spec import HostSpec
from distrun.spec.problems import printable
from distrun.strategies import Role
from distrun.verdict.model import Verdict
from distrun.words.causes import advise_about, cause_advice, cause_text, exit_text
from distrun.words.events import resumed_text
from distrun.words.formats import format_count, format_duration, format_names, format_time
from distrun.words.progress import progress_words
from distrun.words.verdicts import labelled, replacement_text, steps_text, verdict_lines

_LAST_BYTES = 16 * 1024
_WIDEST = 400
_MOST_CAUSES = 4
_LAST_LINES = 12
_SOON = 10.0
"""Seconds in which a task only starts the program that it leaves."""
_TRACEBACK = "Traceback (most recent call last):"
"""Begins the last lines, if it is among them: the cause is not printed before an exception."""
_ABORTED = "Fatal Python error: Aborted"
"""Begins what Python prints at SIGABRT."""


def task_end_text(task: TaskState) -> str:
    if task.reason is not None:
        reason = cause_text(task.reason)
        return f"could not be started: {reason}" if task.pid is None else reason
    if task.exit_status is None:
        return "was never started" if task.pid is None else "ended in a way that is not recorded"
    return exit_text(task.code, task.signal)


def failure_report(job: Job, *, shown: Container[str] = (), left_out: str = "") -> list[str]:
    """Return the lines of the report; the last one says who determined the exit code.

    Args:
        job: one that has ended.
        shown: the tasks whose output the reader has seen: their last lines are not repeated, unless
            only start-up lines of TensorFlow were there, and left out.
        left_out: a sentence on the lines of the output that were left out.
    """
    folder, state, outcome = job.folder, job.state, job.state.outcome
    if outcome is None:
        return []
    advise_about(folder.job_id)
    verdict = outcome.verdict
    has_own = verdict is not None and not verdict.repeats_outcome  # else only the headline has it
    said = cause_text(verdict.cause) if verdict is not None and has_own else ""
    cause, *more = _without_said(_failure(outcome), said).split("\n")
    first = state.tasks.get((verdict.task if verdict is not None else outcome.task) or "")
    lines = ["", _headline(state, outcome, cause, first), *map(printable, more)]
    if verdict is not None:
        lines += verdict_lines(verdict)
        lines += _about_interpreter(folder, verdict, first)
    if first is not None:
        above, is_shown = "\n".join(lines), first.name in shown
        lines += _last_lines(folder, state, first, above, is_shown=is_shown)
    lines += _about_others(state, first, verdict)
    lines += _about_restarts(job)
    replaced = map(replacement_text, job.other_replacements)
    lines += [labelled("replaced", printable(each)) for each in replaced]
    if state.resumed_at:
        lines += _without_lost_hosts(folder, outcome)
        lines.append(labelled("before", f"it had been {printable(resumed_text(state))}"))
    logs = f"{printable(str(folder.logs))}   (distrun logs {state.job_id})"
    lines += [labelled("record", job.record_note)] if job.record_note else []
    lines.append(labelled("logs", "; ".join(filter(None, (logs, left_out)))))
    lines += [labelled("slow", printable(job.advice_words))] if job.advice is not None else []
    is_said = outcome.result is Result.FAILED and any(cause in line for line in lines)
    lines.append(exit_line(outcome, with_cause=not is_said))
    return lines


def closing_lines(job: Job, *, shown: Container[str] = (), left_out: str = "") -> list[str]:
    """Return what `launch`, `attach` and `logs -f` end with; the arguments of `failure_report`."""
    outcome = job.state.outcome
    if outcome is not None and outcome.result is not Result.SUCCEEDED:
        return failure_report(job, shown=shown, left_out=left_out)
    return [end_line(job, left_out=left_out)]


def end_line(job: Job, *, left_out: str = "") -> str:
    state, outcome = job.state, job.state.outcome
    seconds = (state.ended_at or 0.0) - state.created_at
    lived = format_duration(seconds) if seconds > 0 else ""  # else the times are damaged
    if outcome is None or outcome.result is Result.SUCCEEDED:
        how = ["succeeded" + (f" in {lived}" if lived else ""), _cost_of_restarts(job)]
        how += job.warnings
        if any(task.end.left and (task.exit.lived or 0.0) < _SOON for task in state.tasks.values()):
            how.append(cause_advice(Cause(Code.LEFT_AT_WORK)) or "")
        how.append(job.advice_words)
        how.append(", ".join(progress_words(job.progress, at_end=True)))
    else:
        cause, *_ = cause_text(_failure(outcome)).split("\n")
        is_stopped = outcome.result is Result.STOPPED
        shown = "" if outcome.origin is Origin.TASK else cause  # else its exit code says it
        why = ": ".join(filter(None, (job.cause_word, shown)))
        how = [f"was {cause}"] if is_stopped else ["failed", why]
        how[0] += f" after {lived}" if lived else ""
        how.append(f"exit code {outcome.exit_code}, {_whose(outcome)}")
    logs = f"logs: distrun logs {state.job_id}"
    parts = [f"{state.job_id} {how[0]}", *how[1:], job.record_note, logs, left_out]
    return printable(" · ".join(filter(None, parts)))


def _cost_of_restarts(job: Job) -> str:
    """Return `after 2 restarts: 41 s without a step, 120 steps repeated`; empty without any."""
    if not job.restarts:
        return ""
    text = f"after {format_count(job.restarts, 'restart')}"
    gaps = [each for each in job.state.interruptions if each.is_restart]
    if not gaps:
        return text
    lost = format_duration(sum(each.seconds for each in gaps))
    counts = [each.repeated_steps for each in gaps if each.repeated_steps is not None]
    steps = steps_text(sum(counts) if len(counts) == len(gaps) else None)
    return f"{text}: {lost} without a step, {steps}"


def exit_line(outcome: Outcome, *, with_cause: bool = True) -> str:
    text = f"distrun: exit code {outcome.exit_code}, {_whose(outcome)}"
    if outcome.origin is Origin.TASK or not with_cause:
        return text
    cause, *_ = cause_text(_failure(outcome)).split("\n")
    return f"{text}: {printable(cause)}"


def _whose(outcome: Outcome) -> str:
    return f"{outcome.task}'s own" if outcome.origin is Origin.TASK else "distrun's"


def _failure(outcome: Outcome) -> Cause:
    """Return the cause without the reason why nothing was restarted, which has its own line."""
    cause = outcome.cause
    return cause.within[0] if cause.code is Code.NOT_RESTARTED and cause.within else cause


def _without_said(cause: Cause, said: str) -> str:
    """Return a cause without the reason at its end that another text has, too."""
    text = cause_text(cause)
    reasons = (cause_text(each) for each in cause.within)
    return text.removesuffix(next((f": {each}" for each in reasons if each in said), ""))


def _headline(state: JobState, outcome: Outcome, cause: str, first: TaskState | None) -> str:
    """Return how the job ended, and how the first task did, unless the verdict says it."""
    if outcome.result is Result.STOPPED:
        how = f"was {printable(cause)}"
    else:
        how = "failed" if outcome.task else f"failed: {printable(cause)}"
    has_recurred = any(each.code is Code.FAILURE_RECURS for each in outcome.cause.within)
    if first is not None and first.stopped_by_us and has_recurred:  # the attempt after the failure
        return f"job {state.job_id} failed: {printable(cause)}"
    if first is None:
        return f"job {state.job_id} {how}"
    when = f" at {format_time(first.exited_at)}" if first.exited_at is not None else ""
    pid = f" (pid {first.pid})" if first.pid is not None else ""
    said = cause_text(outcome.verdict.cause) if outcome.verdict is not None else cause
    own = None if first.pid is None else first.reason
    ended = printable(task_end_text(first) if own is None else _without_said(own, said))
    what = f" {ended}" if first.reason is None and ended not in said else ""
    where = (
        f"{what}{', stopped by distrun' if first.stopped_by_us else ''} on {first.host}{pid}{when}"
    )
    # A reason is a sentence of its own, so it comes last.
    reason = f": {ended}" if first.reason is not None and ended not in said else ""
    return f"job {state.job_id} {how}: {first.name}{where}{reason}"


def _about_interpreter(folder: JobFolder, verdict: Verdict, task: TaskState | None) -> list[str]:
    if task is None or verdict.cause.code is not Code.MODULE_NOT_IMPORTED:
        return []
    with contextlib.suppress(DistrunError):
        spec = spec_of(folder, ())
        role = next(each for each in spec.roles if each.role.value == task.name.partition(":")[0])
        for host in spec.hosts:
            used = spec.program_of(role).interpreter_on(host) if host.name == task.host else None
            if used is not None:
                return [labelled("interpreter", printable(str(used)))]
    return []


def _without_lost_hosts(folder: JobFolder, outcome: Outcome) -> list[str]:
    """Return how to resume on the hosts that can be used, if their names are all they need."""
    lost = {each.host for each in outcome.cause.chain() if each.code is Code.HOST_UNUSABLE}
    with contextlib.suppress(DistrunError):
        left = [each for each in spec_of(folder).hosts if each.name not in lost] if lost else []
        if left and all(each == HostSpec(name=each.name, local=each.local) for each in left):
            hosts = shlex.quote(f"hosts=[{', '.join(each.name for each in left)}]")
            command = f"distrun resume {folder.job_id} --set {hosts}"
            return [labelled("without them" if len(lost) > 1 else "without it", command)]
    return []


def _last_lines(
    folder: JobFolder, state: JobState, task: TaskState, above: str, *, is_shown: bool
) -> list[str]:
    """Return the end of its log, unless all of it was shown, or is quoted in the lines above."""
    log, is_missing = TaskLog.of(folder, task.name), not folder.log_of(task.name).exists()
    begin = task.output_start or 0
    try:
        tail = shown_end(log, View(()), _LAST_BYTES, begin=begin)
        view = View((), startup=StartupFilter(state.gpu_tasks))
        without = shown_end(log, view, _LAST_BYTES, begin=begin)
    except OSError:
        is_missing = True
    if is_missing:
        return [] if is_shown else [labelled("last lines", "its log cannot be read")]
    tail = without or tail
    # After the task's own process, its children have printed where they were.
    dumps = [number for number, line in enumerate(tail) if line == _ABORTED]
    tail = tail[: dumps[1] if len(dumps) > 1 else None][-_LAST_LINES:]
    if is_shown and (without or not tail or task.stopped_by_us):
        return []
    if not tail:
        return [] if task.pid is None else [labelled("last lines", "it had printed nothing")]
    raised = [number for number, line in enumerate(tail) if line == _TRACEBACK]
    lines = (printable(line.expandtabs()) for line in tail[raised[-1] if raised else 0 :])
    shown = [each if len(each) <= _WIDEST else f"{each[:_WIDEST]}…" for each in lines]
    if all(f": {line}\n" in f"{above}\n" for line in shown):
        return []
    return [labelled("last lines", f"of {task.name}:"), *(f"    | {line}" for line in shown)]


def _about_restarts(job: Job) -> list[str]:
    outcome = job.state.outcome
    is_final = outcome is not None and outcome.cause.code is Code.NOT_RESTARTED
    reasons = outcome.cause.within[1:] if outcome is not None and is_final else ()
    why = [f"not restarted: {printable(cause_text(each))}" for each in reasons]
    if not job.restarts:
        return [labelled("restarts", each) for each in why]
    unmade = unmade_restarts(job.history)
    planned = (each for each in job.history if isinstance(each, events.RestartPlanned))
    made = (each for each in planned if each not in unmade and _is_of_job(each, job.state))
    causes = [cause_text(each.cause) for each in made]
    most_frequent = [
        cause if times == 1 else f"{cause} ({times} times)"
        for cause, times in Counter(causes).most_common(_MOST_CAUSES)
    ]
    after = f" after {printable(', '.join(most_frequent))}" if most_frequent else ""
    text = "; ".join([f"{format_count(job.restarts, 'restart')}{after}", *why])
    return [labelled("earlier failures", text)]


def _is_of_job(event: events.RestartPlanned, state: JobState) -> bool:
    """Whether it counts for the job: an evaluator's restarts do not."""
    tasks = (state.tasks[name] for name in event.tasks if name in state.tasks)
    return any(task.role is not Role.EVALUATOR for task in tasks)


def _about_others(state: JobState, first: TaskState | None, verdict: Verdict | None) -> list[str]:
    after: dict[str, list[str]] = {}
    resumed = max(state.resumed_at, default=0.0)
    for task in state.tasks.values():
        if task is first or (task.ended_at or resumed) < resumed:
            continue
        what = task_end_text(task)
        if task.stopped_by_us and task.pid is not None:
            what = "" if task.signal == signal.SIGTERM else f" ({what})"
        elif verdict is not None and task.name in verdict.echoes:
            what = f" {what}, which followed from that"
        elif verdict is not None and task.name in verdict.alike:
            what = f" {what}, of the same error"
        elif (
            verdict is not None
            and task.reason is not None
            and (
                what in cause_text(verdict.cause)
                or (task.reason.code is Code.LOST_WITH_HOST and task.name in verdict.cause.tasks)
            )
        ):
            what = ", of the same error"
        else:
            what = f" {what}"
        after.setdefault(what, []).append(task.name)
    label, lines = "also stopped" if first is not None else "stopped", []
    for how_ended, names in after.items():
        is_plural = len(names) > 1 and how_ended.startswith((" was ", " (was "))
        what = how_ended.replace("was", "were", 1) if is_plural else how_ended
        lines.append(labelled(label, f"{format_names(names)}{printable(what)}"))
    return lines

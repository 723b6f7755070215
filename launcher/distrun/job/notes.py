"""The messages about a job as it is now: the lines that `status`, `watch` and the page show."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from distrun.agent.protocol import Cause
from distrun.job.events import Origin, Result
from distrun.job.job import Job
from distrun.lifecycle import HostState, JobPhase, TaskState
from distrun.words.causes import cause_text
from distrun.words.events import (
    first_times,
    queue_text,
    quiet_advice,
    quiet_text,
    resumed_text,
    waiting_text,
)
from distrun.words.formats import (
    format_count,
    format_duration,
    format_host_names,
    format_names,
    format_time,
)
from distrun.words.verdicts import evidence_lines, replacement_text, verdict_lines

_MOST_REPLACEMENTS = 3
_LATE = 5.0
"""Seconds: what a task has left takes no longer to end after SIGKILL."""


def job_notes(job: Job, *, has_times: bool = True) -> list[str]:
    notes = []
    outcome = job.outcome
    if outcome is not None and outcome.result is not Result.SUCCEEDED:
        whose = outcome.task if outcome.origin is Origin.TASK else "distrun"
        cause, *more = cause_text(outcome.cause).split("\n")
        notes += [f"{cause}; exit code {outcome.exit_code}, {whose}'s", *more]
    if job.queued is not None and job.queued.is_active and job.queued.entry is not None:
        notes.append(queue_text(job.queued.entry))
    if job.is_lost and job.queued is not None:
        who = f"{job.queued.scheduler} no longer knows its job {job.state.batch_id}"
        notes.append(f"{who}, and its record here has no end; somebody else may have ended it")
    elif job.is_lost and job.record_fault is not None:
        notes.append(f"its record {job.record_fault}; its result is lost")
    elif job.is_lost:
        notes.append("its supervisor died; its result is lost")
    elif job.record_note:
        notes.append(job.record_note)
    notes += _notes_on_run(job)
    notes += _notes_on_hosts(job)
    if job.state.verdict is not None:
        verdict = job.state.verdict
        is_of_outcome = outcome is not None and outcome.verdict == verdict
        has_succeeded = outcome is not None and outcome.result is Result.SUCCEEDED
        is_before = job.state.judged_restart < job.state.last_restart
        is_of_restart = job.is_lost or is_before or job.state.phase is JobPhase.RUNNING
        is_past = not is_of_outcome and (has_succeeded or is_of_restart or verdict.repeats_outcome)
        is_success = is_of_outcome and has_succeeded
        notes += job.warnings if is_success else []
        notes += evidence_lines(verdict) if is_success else verdict_lines(verdict, is_past=is_past)
    notes += map(replacement_text, job.other_replacements[-_MOST_REPLACEMENTS:])
    words = first_times(job.timing) if has_times and not job.is_running else []
    notes += [*_notes_on_attempts(job), *([", ".join(words)] if words else [])]
    if job.tensorboard:
        notes.append(f"TensorBoard: {job.tensorboard}")
    return notes


def _notes_on_attempts(job: Job) -> list[str]:
    notes = []
    if job.restarts:
        times = format_count(job.restarts, "time")
        left = f"; {format_count(job.restarts_left, 'restart')} left" if job.is_running else ""
        notes.append(f"restarted {times}{left}")
    notes += [resumed_text(job.state)] if job.state.resumed_at else []
    if job.is_running and job.state.former_hosts:
        names = format_names(job.state.former_hosts)
        notes.append(f"making sure that nothing of earlier attempts is left on {names}")
    if job.resume_command is not None:
        notes.append(f"to continue it: {job.resume_command}")
    return notes


def _notes_on_run(job: Job) -> list[str]:
    if not job.is_running:
        return [job.advice_words] if job.outcome is not None and job.advice is not None else []
    notes = [*([job.silence] if job.silence is not None else []), *job.warnings]
    notes += [f"about {format_duration(job.time_left)} left"] if job.time_left is not None else []
    if job.advice is not None:
        notes.append(job.advice_words)
    if job.behind is not None and job.behind not in notes:
        notes.append(job.behind)
    if job.state.quiet is not None and job.state.outcome is None:
        notes.append(quiet_text(job.state.quiet, time.time()))
        notes.append(quiet_advice(job.folder.job_id))
    most = job.state.timeouts.start
    limit = "" if most is None else f", at most {format_duration(most)} (timeouts.start)"
    notes += [waiting_text(cause, limit) for cause in job.state.awaited]
    notes += [
        f"the exit of {incident.refusal.task} ends the job, unless the loss of a host explains it: "
        "waiting until all other hosts have stopped their tasks"
        for incident in job.state.incidents.values()
        if incident.refusal is not None
    ]
    notes += [
        _unended(task)
        for task in job.state.tasks.values()
        if task.exited_at is not None
        and not task.has_ended
        # What a stop leaves has the grace of `kill --grace`; `kill` names what does not die.
        and not (task.stopped_by_us and job.state.outcome is not None)
        and time.time() - task.exited_at > job.state.timeouts.grace + _LATE
    ]
    hosts = job.state.hosts.values()
    links = [(each, each.link_lost, each.link_lost_at) for each in hosts if each.link_lost]
    for whose, why, since in _alike(links):
        seconds = format_duration(max(0.0, time.time() - (since or 0.0)))
        notes.append(f"{whose}: the link has been lost for {seconds} ({cause_text(why)})")
    return notes


def _alike(
    found: Iterable[tuple[HostState, Cause, float | None]],
) -> Iterator[tuple[str, Cause, float | None]]:
    """Group what is the same but for the host's name or address, in the same minute.

    What is said is that of the first one.
    """
    groups = dict[tuple[str, float], list[tuple[HostState, Cause, float | None]]]()
    for host, why, since in found:
        own = rf"\b(?:{re.escape(host.name)}|\d{{1,3}}(?:\.\d{{1,3}}){{3}})\b"
        words = re.sub(own, "", cause_text(why))
        groups.setdefault((words, (since or 0.0) // 60), []).append((host, why, since))
    for group in groups.values():
        yield format_host_names([host.name for host, *_ in group]), *group[0][1:]


def _notes_on_hosts(job: Job) -> list[str]:
    notes, names = [], dict[str, list[str]]()
    reasons = dict[str, list[tuple[HostState, Cause, float | None]]]()
    hosts = job.state.hosts
    used = [task.host for task in job.state.tasks.values() if task.host in hosts]
    for host in map(hosts.__getitem__, dict.fromkeys([*used, *hosts])):  # in the tasks' order
        state = job.host_state(host)
        names.setdefault(state, []).append(host.name)
        why = host.fault or host.left_out or host.lost
        if why is not None:
            since = host.lost_at if state == "lost" else None
            reasons.setdefault(state, []).append((host, why, since))
    for state, hosts_of in reasons.items():
        for whose, why, since in _alike(hosts_of):
            verb = "is" if whose in hosts else "are"
            when = "" if since is None else f"since {format_time(since)}, "
            notes.append(f"{whose} {verb} {state}: {when}{cause_text(why)}")
    if names.keys() <= {"in use", "link lost"} or not job.state.tasks:
        return notes
    words = {"in use": "hosts in use", "spare": "spare hosts"}
    found = [f"{words[each]}: {format_names(names[each])}" for each in words if each in names]
    return notes + (["; ".join(found)] if found else [])


def _unended(task: TaskState) -> str:
    since = format_duration(time.time() - (task.exited_at or 0.0))
    return (
        f"{task.name} exited {since} ago, but processes that it started do not die, not even by "
        f"SIGKILL; `ps -o pid,user,stat,wchan:20,args -s {task.pid}` on {task.host} shows those of "
        "its session"
    )

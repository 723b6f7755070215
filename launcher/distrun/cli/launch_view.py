"""What `distrun launch` and `distrun attach` show while a job runs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from distrun.agent.protocol import Cause, Progress
from distrun.agent.protocol.file_messages import TransferProgress
from distrun.cli import console
from distrun.cli.output import Output
from distrun.cli.terminal import Terminal
from distrun.cli.transfer_bar import TransferBar
from distrun.frozen import replace
from distrun.job import events
from distrun.lifecycle import JobState, TaskPhase, why_not_restarted
from distrun.preflight import Grade
from distrun.verdict.model import Verdict
from distrun.words.causes import cause_advice, cause_text, check_text
from distrun.words.events import event_text, quiet_advice
from distrun.words.formats import clip, format_count, format_duration, format_host_names
from distrun.words.progress import progress_words, seconds_left

_MOST_FINDINGS = 20
"""Findings of the preflight that are printed; more would hide the others."""
_MOST_HOSTS, _TOGETHER = 4, 10.0
"""Hosts of which the same is said if it happens within seconds, as when a switch fails."""
_LEAST_WORDS = 3
"""Of the progress: epoch, step, time left. On a narrow terminal, metrics make room for the id."""
_BEFORE_ID = 64
"""Columns of the status line that the tasks, their progress and the times may take."""


class LaunchView:
    """Prints the tasks' output, messages about events, and a status line with the progress."""

    def __init__(
        self, output: Output, stream: TextIO, messages: tuple[Output, TextIO] | None = None
    ) -> None:
        self._output = output
        self._terminal = Terminal(output, stream, messages)
        self.has_status_line = self._terminal.has_status_line
        self.write_output = self._terminal.write
        self._kill_due: float | None = None
        """When tasks that are being stopped get SIGKILL (monotonic)."""
        self._bar = TransferBar(self._terminal)
        self._started = time.monotonic()
        self._phase = "preparing the hosts"
        self._question = ""
        self._found: list[events.PreflightFound] = []
        """What the preflight has found, and is not shown yet: hosts often have the same."""
        self._alike = Counter[tuple[type, float]]()
        self._advice: set[str] = set()
        self._reasons: set[tuple[str, str]] = set()
        """Why hosts are lost, as it was said."""

    def began_before(self, seconds: float) -> None:
        """Show that the job has been running for so many seconds."""
        self._started -= max(0.0, seconds)

    def ask(self, question: str) -> None:
        """Show a question in the status line's place; an empty one removes it."""
        self._question = question
        if question and not self.has_status_line:
            self.print(question)
        self._terminal.show_status(question)

    def print(self, text: str) -> None:
        self.print_lines([f"distrun: {text}"])

    def print_lines(self, lines: list[str]) -> None:
        self._terminal.clear_status()
        console.print_lines(lines)

    def show_status(self, state: JobState, progress: Mapping[str, Progress]) -> None:
        """Show the job's state in the status line, unless files are being transferred."""
        if self.has_status_line and not self._output.is_behind:
            self._terminal.show_status(self._bar.text or self._status_line(state, progress))

    def _status_line(self, state: JobState, progress: Mapping[str, Progress]) -> str:
        """Tasks up, progress, elapsed time and id; the phase until the tasks are planned."""
        if self._question:
            return self._question
        seconds = time.monotonic() - self._started
        stopping = self._stopping() if state.outcome else ""
        if not state.tasks:
            return f"{stopping or self._phase}  {format_duration(seconds)}" if seconds >= 1 else ""
        up = [name for name, task in state.tasks.items() if task.phase is TaskPhase.RUNNING]
        ends = sum(task.phase is TaskPhase.STOPPING for task in state.tasks.values())
        count = f"{len(up) + ends}/{len(state.tasks)} tasks up"
        before = [stopping or _restarting(state), count]
        running = [progress[name] for name in up if name in progress]
        reported = next((each.values for each in running or progress.values()), {})
        left = None if stopping else seconds_left((each.ends_at for each in running), time.time())
        words = progress_words(reported, rate_of=" examples", left=left, is_running=not stopping)
        while True:
            parts = [*before, *words, format_duration(seconds), state.job_id]
            line = "  ".join(filter(None, parts))
            if len(words) <= _LEAST_WORDS or clip(line, self._terminal.columns) == line:
                return line
            words.pop()

    def _stopping(self) -> str:
        """`stopping, SIGKILL in 7 s` if it is known when that signal is due."""
        left = None if self._kill_due is None else self._kill_due - time.monotonic()
        if left is None or left <= 0:
            return "stopping"
        due = f"{math.ceil(left)} s" if left <= 60 else format_duration(left)
        return f"stopping, SIGKILL in {due}"

    def clear_status(self) -> None:
        self._terminal.show_status("")

    def close(self) -> None:
        self._bar.close()
        self._terminal.clear_status()

    def show_transfer(self, message: TransferProgress, state: JobState) -> None:
        """Show how much of the files other hosts have received, or of results has come."""
        what = "sending files to" if state.outcome is None else "fetching results from"
        hosts = format_count(message.hosts, "host")
        self._bar.update(f"{what} {hosts}", message.done, message.total)

    def show_plan(self, state: JobState) -> None:
        """Print the job's id and size, unless the status line shows them all the time."""
        if self.has_status_line and len(state.job_id) + _BEFORE_ID <= self._terminal.columns:
            return
        hosts = list(dict.fromkeys(task.host for task in state.tasks.values()))
        where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
        self.print(f"job {state.job_id}: {format_count(len(state.tasks), 'task')} on {where}")

    def show_event(self, event: events.Event, state: JobState) -> None:
        if isinstance(event, events.StopRequested):
            due = time.monotonic() + event.grace
            self._kill_due = due if self._kill_due is None else min(self._kill_due, due)
        if isinstance(event, events.PreflightStarted):
            self._phase = f"checking {format_count(event.hosts, 'host')}"
        if isinstance(event, events.PreflightFound):
            self._found.append(event)
        elif self._found:
            self._show_findings(state.job_id)
        replaced_at = state.replacements[-1].at if state.replacements else None
        is_first_plan = isinstance(event, events.JobPlanned) and event.at != replaced_at
        if isinstance(event, _SHOWN) and not is_first_plan and not self._is_hidden(event, state):
            for text in _messages(event, state):
                self.print(self._without_told(text, event))

    def _is_hidden(self, event: events.Event, state: JobState) -> bool:
        """Whether it has just been said of enough other hosts; says once that there are more."""
        if not isinstance(event, _OF_HOSTS):
            return False
        together = type(event), event.at // _TOGETHER
        self._alike[together] += 1
        if self._alike[together] == _MOST_HOSTS + 1:
            self.print(f"the same of more hosts: distrun events {state.job_id}")
        return self._alike[together] > _MOST_HOSTS

    def _without_told(self, text: str, event: events.Event) -> str:
        """Leave out why a host is lost if the messages about it have said it before."""
        host, causes = "", tuple[Cause, ...]()
        if isinstance(event, events.VerdictReached):
            host, causes = event.verdict.cause.host, event.verdict.cause.within
        elif isinstance(event, (events.HostLost, events.LogsIncomplete)):
            host, causes = event.host, (event.cause,)
        reasons = (each for cause in causes for each in cause.chain() if host)
        for reason in ((host, f": {cause_text(each)}") for each in reasons):
            if reason in self._reasons:
                text = text.replace(reason[1], "")
            elif reason[1] in text:
                self._reasons.add(reason)
        return text

    def _show_findings(self, job_id: str) -> None:
        """Print what the preflight has found, and advice, each once for all hosts that have it."""
        alike: dict[tuple[Grade, Cause], list[events.PreflightFound]] = {}
        for each in self._found:
            alike.setdefault((each.grade, each.cause), []).append(each)
        self._found, groups = [], list(alike.values())
        for found in groups[:_MOST_FINDINGS]:
            hosts = format_host_names(dict.fromkeys(each.host for each in found))
            text = check_text(replace(found[0], host=hosts))
            self.print(f"{found[0].grade.value}: {text}")
            advice = cause_advice(found[0].cause)
            if advice is not None and advice not in self._advice:
                self._advice.add(advice)
                console.print_lines([f"  {advice}"])
        if hidden := sum(map(len, groups[_MOST_FINDINGS:])):
            self.print(f"and {hidden} more: distrun events {job_id}")


_WHILE_RUNNING = (events.HostFault, events.HostLost)
"""After these, either the job continues, or the final report says the same."""
_OF_HOSTS = (events.LinkLost, events.LinkRestored, events.HostLost, events.LogsIncomplete)
_SHOWN = (
    events.ChildrenFail,
    events.HostLeftOut,
    events.HostNotCleared,
    events.JobPlanned,
    events.JobResumed,
    events.PlanFailed,
    events.FilesPreserved,
    events.LinkRestored,
    events.LogsIncomplete,
    events.LogsReceivedLate,
    events.LinkLost,
    events.ProgressIgnored,
    events.RestartPlanned,
    events.ResultsFetched,
    events.TasksQuiet,
    events.JobAdvised,
    events.TensorBoardEnded,
    events.TensorBoardSilent,
    events.TensorBoardStarted,
    events.VerdictReached,
    *_WHILE_RUNNING,
)


def _messages(event: events.Event, state: JobState) -> list[str]:
    text = event_text(event) or ""
    if isinstance(event, events.LinkLost):
        gives_up = state.killing and state.timeouts.link is None
        return [text if gives_up else f"{text}; reconnecting"]
    if isinstance(event, events.TasksQuiet):
        return [] if event.is_asked else [text, quiet_advice(state.job_id)]
    if isinstance(event, (events.TensorBoardEnded, events.TensorBoardSilent)):
        return [f"{text}; the job continues"]
    if isinstance(event, events.VerdictReached):
        return _verdict_messages(event.verdict, text, state)
    if isinstance(event, _WHILE_RUNNING):
        # Its tasks may start again, or wait for a host: what is printed next says so.
        goes_on = "" if state.incidents else "; the job continues without it"
        return [f"{text}{goes_on}"] if state.outcome is None else []
    return [text]


def _verdict_messages(verdict: Verdict, text: str, state: JobState) -> list[str]:
    """The messages about a verdict, unless the final report has it."""
    if state.outcome is not None and state.outcome.verdict == verdict:
        return []
    failed = state.tasks.get(verdict.task or "")
    if failed is not None and failed.phase is TaskPhase.FAILED and not state.needs(failed):
        why = why_not_restarted(state, failed)
        down = "stays down" if why is None else f"stays down ({cause_text(why)})"
        goes_on = "; the job continues without it" if state.outcome is None else ""
        return [f"{failed.name} has failed and {down}{goes_on}", text]
    return [text]


def _restarting(state: JobState) -> str:
    """What the job waits for before a restart: `restarting in 4 s`, or `waiting for a host`."""
    if not state.incidents:
        return ""
    if state.is_queued:
        return "queued"
    if any(state.requires(each) and each.waits_for_host for each in state.incidents.values()):
        return "waiting for a host"
    if any(incident.refusal for incident in state.incidents.values()):
        return "stopping"
    wait = min(incident.due_at for incident in state.incidents.values()) - time.time()
    return f"restarting in {format_duration(wait)}" if wait > 0 else "restarting"

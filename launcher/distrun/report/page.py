"""The page of a job's report: what its record, its samples and its logs say, as one HTML file."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol import Cause
from distrun.frozen import replace
from distrun.job import events, held_package, history, installed
from distrun.job.end_report import end_line, failure_report
from distrun.job.events import Result
from distrun.job.folder import JobFolder
from distrun.job.job import read_job
from distrun.job.notes import job_notes
from distrun.job.timing import Activity, unmade_restarts
from distrun.lifecycle import highest, total
from distrun.logs import TaskLog, View
from distrun.logs.tail import shown_end
from distrun.report import plots
from distrun.report.flame import read_flames
from distrun.report.outliers import Measure, Outlier, outliers
from distrun.report.series import panels
from distrun.spec.regular_file import open_regular_file
from distrun.spec.units import format_bytes
from distrun.words.causes import advise_about, cause_text
from distrun.words.events import EventFormatter, first_times, timing_title
from distrun.words.formats import (
    format_count,
    format_duration,
    format_names,
    format_time,
    format_used,
)
from distrun.words.progress import progress_words
from distrun.words.verdicts import labelled, steps_text

if TYPE_CHECKING:
    import jinja2

    from distrun.bundle.archive import About

_MOST_TASKS = 48
"""That are drawn, and whose logs are shown."""
_MOST_ROWS = 1000
"""Of a table of tasks or hosts."""
_MOST_BARS = 300
"""Of the timeline, that stand in a table, too."""
_MOST_LINES, _MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS = 200, 16 << 10, 256 << 10
_MOST_EVENTS = 1200
_MOST_SPEC_BYTES = 64 << 10
_SHORTEST_AXIS = 1.0
_MARGIN = 0.01
_LOGS = labelled("logs", "")


class Report:
    """What the page shows of a job, as it is now.

    Args:
        folder: the job's.
        tasks: those to draw; empty: all, or those that matter most if there are very many.
        about: the bundle that the job is in, if it is in one.
    """

    def __init__(
        self,
        folder: JobFolder,
        tasks: Sequence[str] = (),
        about: About | None = None,
    ) -> None:
        advise_about(folder.job_id)
        self.folder, self._about = folder, about
        self.job = read_job(folder)
        self.made_at = time.time() if about is None else about.made_at
        self.is_running = self.job.is_running if about is None else about.is_running
        self.phase = self.job.phase if about is None else about.phase
        self.versions = installed.here() if about is None else about.versions
        self.history = self.job.history
        self.all_tasks = self._all_tasks()
        until = self.job.state.ended_at or self._last_known()
        self.spans = self.job.spans(until)
        # With what their present attempts have used and reported, too.
        tasks_now = [
            replace(task.state, used=task.used, reported=dict(task.progress))
            for task in self.job.tasks
        ]
        self.outliers = outliers(tasks_now, self.spans, self.history)
        self.axis = self._time_axis(until)
        self.tasks = [each for each in self.all_tasks if each in tasks] or self._most_important()
        self.samples = self.job.samples_of(self.tasks)
        self.bars = [span for span in self.spans if span.task in set(self.tasks)]
        stalls = (each for each in self.history if isinstance(each, events.TimedOut))
        self.places = [place for each in stalls for place in each.places]
        """Where the tasks stood whenever `timeouts.stall` expired."""
        self.left_out = len(self.all_tasks) - len(self.tasks)
        self.marks: dict[str, str] = {}
        """In what the outliers differ."""
        for each in self.outliers:
            before = (self.marks.get(each.task), outlier_text(each))
            self.marks[each.task] = "; ".join(filter(None, before))

    def _last_known(self) -> float:
        """Return now if the job runs; else when the last of it happened that is known."""
        if self.is_running:
            return self.made_at
        times = [event.at for event in self.history[-50:]]
        times += [
            sample.at for task in self.all_tasks for sample in history.last(self.folder, task, 1)
        ]
        return min(max(times, default=self.made_at), self.made_at)

    def _time_axis(self, until: float) -> plots.TimeAxis:
        starts = [event.at for event in self.history[:1]] or [self.job.state.created_at]
        start = min(starts[0], until)
        # What is drawn at the very edge is hardly seen.
        return plots.TimeAxis(start, start + max(_SHORTEST_AXIS, (until - start) * (1 + _MARGIN)))

    def _all_tasks(self) -> list[str]:
        plans = [event for event in self.history if isinstance(event, events.JobPlanned)]
        former = [task.name for plan in plans for task in plan.tasks]
        named = list(dict.fromkeys([*self.job.state.tasks, *former]))
        return named or self.folder.logged_tasks()

    def _most_important(self) -> list[str]:
        """Return the tasks to draw, in their order: outliers and failed ones, then the first."""
        states = self.job.state.tasks.values()
        first = [each.task for each in self.outliers]
        first += [task.name for task in states if task.has_failed_exit and not task.stopped_by_us]
        chosen = set(list(dict.fromkeys([*first, *self.all_tasks]))[:_MOST_TASKS])
        return [task for task in self.all_tasks if task in chosen]

    def outcome(self) -> list[str]:
        job = self.job
        if job.outcome is None:
            return [] if self.is_running and not job.is_running else job_notes(job)
        if job.outcome.result is Result.SUCCEEDED:
            last = end_line(job).partition(" · logs: ")[0]
            return [last, *(each for each in job_notes(job) if each not in last)]
        lines = failure_report(job)
        # The folder of an unpacked bundle is not where the logs are.
        return [line for line in lines if line and not (self._about and line.startswith(_LOGS))]

    def numbers(self) -> list[tuple[str, str]]:
        job, state = self.job, self.job.state
        end = state.ended_at or self._last_known()
        found = [
            ("began", format_time(state.created_at)),
            ("lasted", format_duration(end - state.created_at)),
            ("tasks", f"{len(state.tasks)} on {format_count(len(job.hosts_in_use), 'host')}"),
        ][: None if job.has_counts else 1]
        if job.restarts or state.resumed_at:
            resumed = f", resumed {format_count(len(state.resumed_at), 'time')}"
            found.append(("restarts", f"{job.restarts}{resumed if state.resumed_at else ''}"))
        words = [each.partition(" after ") for each in first_times(job.timing)]
        found += [(f"until the {name}", after) for name, _, after in words]
        used = job.used
        if cpu := format_used(total(each.cpu_seconds for each in used), format_duration):
            found.append(("processor time", cpu))
        if peak := highest(each.peak_memory_bytes for each in used):
            found.append(("peak memory of a task", format_bytes(peak)))
        if words_told := progress_words(job.progress, at_end=True):
            found.append(("last progress", ", ".join(words_told)))
        if job.outcome is not None:
            found.append(("exit code", str(job.outcome.exit_code)))
        return found

    def interruptions(self) -> list[dict[str, Any]]:
        """Return each restart, resume and loss of a host: when, why, and what it cost."""
        rows: list[dict[str, Any]] = []
        last: dict[str, Any] = {}
        """The last restart or resume."""
        costs = {each.at: each for each in self.job.state.interruptions}
        unmade = unmade_restarts(self.history)
        had_tasks = {*self.job.hosts_in_use, *(span.host for span in self.spans)}

        def add(at: float, what: str, why: str, tasks: Sequence[str] = ()) -> dict[str, Any]:
            row = {"at": at, "what": what, "why": why, "tasks": tasks, "verdict": "", "cost": ""}
            rows.append(row)
            return row

        for event in self.history:
            match event:
                case events.RestartPlanned():
                    is_made = event not in unmade
                    what = "restart" if is_made else "restart, not made"
                    tasks = event.tasks if is_made else ()
                    last = add(event.at, what, _first_line(event.cause), tasks)
                case events.JobResumed():
                    why = f"the job had ended {format_duration(event.down)} before"
                    last = add(event.at, "resume", why)
                case events.HostLost() if event.host in had_tasks:
                    add(event.at, "host lost", f"{event.host}: {_first_line(event.cause)}")
                case events.VerdictReached(verdict=found) if (
                    found.task or event.before_restart
                ) and last.get("verdict") == "":
                    last["verdict"] = f"{_first_line(found.cause)} ({found.kind.value})"
                case events.FirstStep(at=at) if last and at in costs:
                    steps = steps_text(costs[at].repeated_steps)
                    last["cost"] = f"{format_duration(costs[at].seconds)} without a step, {steps}"
        return rows[:_MOST_ROWS]

    def hosts(self) -> list[tuple[events.HostReady, str]]:
        states = self.job.state.hosts
        return [
            (event, self.job.host_state(states[name]) if name in states else "")
            for name, event in list(self.job.ready_hosts.items())[:_MOST_ROWS]
        ]

    def spec(self) -> str:
        try:
            with open_regular_file(self.folder.spec_file) as file:
                return file.read(_MOST_SPEC_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def log_ends(self) -> dict[str, str]:
        most = min(_MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS // max(1, len(self.tasks)))
        found: dict[str, str] = {}
        for task in self.tasks:
            with contextlib.suppress(OSError):
                lines = shown_end(TaskLog.of(self.folder, task), View([task]), most)
                found[task] = "\n".join(lines[-_MOST_LINES:]).strip("\n")
        return {task: text for task, text in found.items() if text}

    def event_lines(self) -> tuple[list[str], int]:
        """Return the events in words, and how many are left out in the middle."""
        formatter = EventFormatter()
        lines = [line for event in self.history for line, _ in formatter.lines(event)]
        if len(lines) <= _MOST_EVENTS:
            return lines, 0
        half = _MOST_EVENTS // 2
        return [*lines[:half], "", *lines[-half:]], len(lines) - 2 * half

    def plots(self) -> list[plots.Plot]:
        numbers = {task: number for number, task in enumerate(self.tasks)}
        marks = [each.at for each in self.history if isinstance(each, events.RestartPlanned)]
        rows = {task: task in self.marks for task in self.tasks}
        drawn = [plots.timeline(rows, self.bars, marks, self.axis)] if rows else []
        starting = (each for each in self.spans if each.activity is Activity.STARTING)
        starts = {(each.task, each.attempt): each.start for each in starting}
        found = panels(self.samples, starts)
        lines = sum(len(panel.curves) for panel in found)
        return drawn + [plots.curves(each, numbers, marks, self.axis, lines) for each in found]


def _first_line(cause: Cause) -> str:
    return cause_text(cause).partition("\n")[0]


def outlier_text(outlier: Outlier) -> str:
    """Return how a task differs from the others: `slowest: first step 9.1 s after its start`."""
    value, usual = outlier.value, outlier.usual
    match outlier.measure:
        case None:
            return f"unusual: it was at {outlier.place} when the job stalled"
        case Measure.START:
            took = format_duration(value)
            words = f"{took} until its first step; usual: {format_duration(usual)}"
        case Measure.STEPS:
            words = f"{value:,.0f} steps; usual: {usual:,.0f}"
        case Measure.LOAD:
            words = f"{value:.0f}% of a core; usual: {usual:.0f}%"
        case Measure.MEMORY | Measure.READ | Measure.WRITTEN:
            noun = "of memory" if outlier.measure is Measure.MEMORY else outlier.measure.value[0]
            words = f"{format_bytes(int(value))} {noun}; usual: {format_bytes(int(usual))}"
    return f"{'slowest' if outlier.is_slow else 'unusual'}: {words}"


@functools.cache
def template(name: str) -> jinja2.Template:
    """Return a template of this folder. It calls the functions that put values into words."""
    import jinja2

    @jinja2.pass_context
    def redacted(context: jinja2.runtime.Context, value: object) -> object:
        is_text = isinstance(value, str) and not hasattr(value, "__html__")
        return context["redact"](value) if is_text else value

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=redacted,
    )
    templates.globals.update(
        bytes=format_bytes,
        duration=format_duration,
        line_style=plots.line_style,
        names=format_names,
        outlier_text=outlier_text,
        part=part,
        progress_words=progress_words,
        signal_name=signal_name,
        sizes=plots.SIZES,
        time=format_time,
        timing_title=timing_title,
        used=format_used,
    )
    return templates.get_template(name)


def render(
    report: Report,
    redact: Callable[[str], str] = str,
    *,
    refresh: float | None = None,
    may_stop: bool = False,
) -> str:
    """Return the page.

    Args:
        report: what it shows.
        redact: returns a text without what must not be shown.
        refresh: after how many seconds a page that is served asks for the next one; None: it is a
            file.
        may_stop: whether such a page may stop the job.
    """
    events_shown, events_left_out = report.event_lines()
    return template("page.html").render(
        report=report,
        job=report.job,
        title=report.folder.job_id,
        redact=redact,
        refresh=refresh,
        may_stop=may_stop,
        outcome=[line.rstrip() for line in report.outcome()],
        interruptions=report.interruptions(),
        plots=report.plots(),
        flames=read_flames(report.folder.profile_file),
        events=events_shown,
        events_left_out=events_left_out,
        activities=[each for each in Activity if any(s.activity is each for s in report.spans)],
        most_rows=_MOST_ROWS,
        most_bars=_MOST_BARS,
        began=date(report.axis.start),
        made_at=date(report.made_at),
    )


def date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


@functools.cache
def part(name: str) -> str:
    return held_package.read(str(Path(__file__).with_name(name))).decode("utf-8")

"""The full-screen view of `distrun watch`: tasks, and the log of the chosen one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Label, RichLog, Static
from textual.widgets.data_table import ColumnKey

from distrun.cli.stacks import stacks_view, take
from distrun.errors import DistrunError
from distrun.job import control, history
from distrun.job.folder import JobFolder
from distrun.job.job import Job, TaskView, read_job
from distrun.job.notes import job_notes
from distrun.job.status_view import headline, task_row
from distrun.job.steps import Report, numbers, steps_a_second, steps_over_time
from distrun.job.stop_order import order_of
from distrun.logs import Follower, TaskLog, View
from distrun.logs.tail import line_start
from distrun.spec.problems import printable
from distrun.words.causes import advise_about, error_words
from distrun.words.formats import wrapped
from distrun.words.progress import progress_words
from distrun.words.table import Column, fitting

_REFRESH_SECONDS = 1.0
_LONGEST_REFRESH = 5.0
_MOST_CPU = 0.03
"""The part of a core that it may use: with many tasks, it looks less often."""
_ADVICE_SECONDS = 10.0
_LOG_SECONDS = 0.25
_MOST_LOG_BYTES = 64 << 10
"""Of the log of a task that is chosen: of what it printed before."""
_MOST_READS = 4
"""Of 64 KiB, before what follows is left out."""
_MOST_LINES = 5000
_MOST_NOTES = 3
_RATE_SECONDS, _RATE_SAMPLES = 20.0, 12
_COLUMNS = (
    Column("TASK"),
    Column("STATE"),
    Column("HOST", drop_rank=5),
    Column("EXIT"),
    Column("EPOCH", right=True),
    Column("STEP", right=True),
    Column("RATE", right=True, drop_rank=1),
    Column("CPU", right=True, drop_rank=2),
    Column("MEM", right=True, drop_rank=3),
    Column("GPU", right=True, drop_rank=3),
    Column("SEEN", right=True, drop_rank=4),
    Column("PROGRESS", drop_rank=6),
)
_COUNTS = (("EPOCH", "EPOCHS"), ("STEP", "STEPS"))


class StopQuestion(ModalScreen[bool]):
    CSS = """
    StopQuestion { align: center middle; }
    StopQuestion Label { padding: 1 2; border: round $error; max-width: 90%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Stop"),
        Binding("n,escape,q,ctrl+c", "dismiss(False)", "Continue"),
    ]

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self._job_id = job_id

    def compose(self) -> ComposeResult:
        yield Label(f"Stop job {self._job_id}? y stops it, n does not")


class _Threads(ThreadPoolExecutor):
    """What they do is not waited for at the end: a cluster may not answer."""

    must_finish = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait and self.must_finish, cancel_futures=cancel_futures)


class WatchApp(App[int]):
    """Shows one job until a key or a signal ends it; returns the exit code after a signal."""

    CSS = """
    Screen { overflow: hidden; }
    #head { height: auto; max-height: 8; }
    #tasks { height: auto; max-height: 50%; }
    #filter { display: none; height: 1; border: none; }
    #title { background: $panel; height: 1; }
    #log { height: 1fr; min-height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", priority=False),
        # With priority, the next key is for the text, or no more.
        Binding("slash", "filter", "Filter", priority=True),
        Binding("enter", "table", show=False, priority=True),
        Binding("s", "stacks", "Stacks"),
        Binding("l", "log", "Log"),
        Binding("k", "stop", "Stop job"),
        Binding("escape", "clear", "Show all"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, folder: JobFolder) -> None:
        super().__init__()
        self.folder = folder
        self.chosen: str | None = None
        self._job: Job | None = None
        self._notes: list[str] = []
        self._look_due = self._advised_at = 0.0
        self._spent = sum(os.times()[:4])
        self._rates: dict[str, str] = {}
        self._reports: dict[tuple[str, int], list[Report]] = {}
        """The last ones of each task and attempt."""
        self._is_filtered = False
        """Whether the field for the filter is open."""
        self._shown: list[str] = []
        """The titles of the table's columns."""
        self._follower: Follower | None = None
        """Of the log of the chosen task; None: its stacks are shown instead."""
        self._threads = _Threads()

    def compose(self) -> ComposeResult:
        # Timers may fire when these are no more on the screen: so they are not looked for there.
        self._head, self._title = Static(id="head"), Static(id="title")
        self._table: DataTable[Text] = DataTable(id="tasks", cursor_type="row")
        self._filter = Input(id="filter", placeholder="tasks, states or hosts that have this text")
        self._pane = RichLog(id="log", wrap=True, max_lines=_MOST_LINES, min_width=20)
        yield self._head
        yield self._table
        yield self._filter
        yield self._title
        yield self._pane
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(self._threads)
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, self.exit, 128 + signum)
        self._table.focus()
        self._pane.anchor()  # the head may grow, above it
        self._look()
        self.set_interval(_REFRESH_SECONDS, self._look)
        self.set_interval(_LOG_SECONDS, self._follow_log)

    def on_resize(self) -> None:
        self._show()
        if self._follower is not None:  # its rows fit the former width
            self.action_log()

    @work(thread=True, exclusive=True, group="look")
    def _look(self) -> None:
        if time.monotonic() < self._look_due:
            return
        spent, self._spent = self._spent, sum(os.times()[:4])  # with commands that it has run
        due = (self._spent - spent) / _MOST_CPU
        self._look_due = time.monotonic() + min(due, _LONGEST_REFRESH)
        advise_about(self.folder.job_id)  # in each thread
        try:
            job = self._read()
            rates = {task.state.name: self._rate(task) for task in job.tasks}
            notes = job_notes(job, has_times=False)[:_MOST_NOTES]
        except (DistrunError, OSError) as error:
            self.call_from_thread(self.notify, error_words(error), severity="error")
            return
        self.call_from_thread(self._take, job, rates, notes)

    def _read(self) -> Job:
        """Read the job, but its advice only at times."""
        job, before = read_job(self.folder), self._job
        if before is not None and time.monotonic() < self._advised_at + _ADVICE_SECONDS:
            job.advice = before.advice
        else:
            self._advised_at = time.monotonic()
        return job

    def _rate(self, task: TaskView) -> str:
        """Return the steps per second of a task, by its last reports; empty: unknown."""
        key = task.state.name, task.state.attempt
        if task.state.has_ended or task.progress_at is None:
            return ""
        reports = self._reports.get(key) or [
            (each.at, each.progress)
            for each in history.last(self.folder, task.state.name, _RATE_SAMPLES)
            if each.attempt == task.state.attempt
        ]
        now = task.progress_at, numbers(task.progress)
        recent = [each for each in reports if now[0] - each[0] <= _RATE_SECONDS] or reports[-1:]
        self._reports[key] = recent if recent[-1:] == [now] else [*recent, now]
        (first, _), (last, _) = self._reports[key][0], self._reports[key][-1]
        hangs = time.time() - last > last - first + _RATE_SECONDS
        rate = steps_a_second(steps_over_time(self._reports[key]))
        if hangs or not rate:
            return ""
        return f"{rate:.3g}/s" if rate < 1000 else f"{rate:,.0f}/s"

    def _take(self, job: Job, rates: dict[str, str], notes: list[str]) -> None:
        if job.state.name or self._job is None:  # else its record was removed
            self._job, self._rates, self._notes = job, rates, notes
        self._show()

    def _show(self) -> None:
        job = self._job
        if job is None or not self.is_running:
            return
        wanted = self._filter.value.lower()
        rows = {
            task.state.name: _row(task, self._rates.get(task.state.name, ""))
            for task in job.tasks
            if wanted in f"{task.state.name} {task.phase} {task.state.host}".lower()
        }
        is_none = wanted and not rows
        notes = [f"no task, state or host has the text {self._filter.value}"] if is_none else []
        notes = [wrapped(printable(each), self.size.width) for each in (*self._notes, *notes)]
        head = [*headline(job, self.size.width).wrap(self.console, self.size.width)]
        head += [Text(each, no_wrap=True) for each in "\n".join(notes).splitlines()]
        self._head.update(Group(*head), layout=self._head.size.height != len(head))
        table = self._table
        columns = [each for each in _COLUMNS if any(row[each.title] for row in rows.values())]
        columns = fitting(columns, list(rows.values()), self.size.width - 4) if rows else []
        titles = [each.title for each in columns]
        if titles != self._shown or list(rows) != [key.value for key in table.rows]:
            chosen = self.chosen
            table.clear(columns=True)
            for column in columns:
                heading = Text(column.title, justify="right" if column.right else "left")
                table.add_column(heading, key=column.title)
            for name, row in rows.items():
                table.add_row(*(_cell(row, each) for each in columns), key=name)
            self._shown = titles
            # Once the widths are known: rows that were drawn before stay as they are, cut.
            self.call_after_refresh(table.notify_style_update)
            if chosen in rows:
                table.move_cursor(row=list(rows).index(chosen))
        for name, row in rows.items():
            for each in columns:
                cell = _cell(row, each)
                if table.get_cell(name, each.title) != cell:
                    # A column keeps its width: to find a smaller one, all its cells are measured.
                    is_wide = cell.cell_len > table.columns[ColumnKey(each.title)].content_width
                    table.update_cell(name, each.title, cell, update_width=is_wide)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        # While the rows are made again, the first one is the highlighted one for a moment.
        is_still = event.cursor_row == self._table.cursor_row
        if is_still and event.row_key.value != self.chosen:
            self.chosen = event.row_key.value
            self.action_log()

    def action_log(self) -> None:
        if self.chosen is None:
            return
        self._pane.clear()
        self._entitle(f"log of {self.chosen}")
        self._open_log(self.chosen)
        self._follow_log()

    def _open_log(self, task: str) -> None:
        self._close_log()
        log = TaskLog.of(self.folder, task)
        with contextlib.suppress(OSError):
            start = line_start(log, max(0, log.extent().size - _MOST_LOG_BYTES))
            self._follower = Follower([log], View((), bare=True), starts=[start], polls=True)

    def _close_log(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _follow_log(self) -> None:
        if self._follower is None or self.chosen is None:
            return
        with contextlib.suppress(OSError):
            shown = b"".join(block for _ in range(_MOST_READS) for block in self._follower.read())
            if self._job is not None and not self._job.is_running:
                shown += b"".join(self._follower.finish())
            if shown:
                text = shown.decode("utf-8", "replace").rstrip("\n")
                self._pane.write(Text.from_ansi(text))
            if self._follower.wait == 0.0:  # nobody can read so much
                self._open_log(self.chosen)

    def _entitle(self, text: str) -> None:
        self._title.update(Text(printable(text)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Offer Escape while the field for the filter is open, and Enter while one writes there."""
        if action == "table":
            return self.focused is self._filter
        return action != "clear" or self._is_filtered

    def action_filter(self) -> None:
        if len(self.screen_stack) == 1:  # no question is open
            field = self._filter
            field.display = self._is_filtered = True
            self.set_focus(field)
            self.refresh_bindings()

    def action_clear(self) -> None:
        field = self._filter
        field.value, field.display = "", False
        self._is_filtered = False
        self.set_focus(self._table)
        self.refresh_bindings()

    def on_input_changed(self) -> None:
        self._show()

    def action_table(self) -> None:
        self.set_focus(self._table)

    def action_stacks(self) -> None:
        if self.chosen is not None:
            self._close_log()
            self._entitle(f"reading the stacks of {self.chosen}; l shows its log")
            self._pane.clear()
            self._take_stacks(self.chosen)

    @work(thread=True, exclusive=True, group="stacks")
    def _take_stacks(self, task: str) -> None:
        try:
            found: Group | Text = stacks_view(take(self.folder, (task,)), all_threads=False)
        except DistrunError as error:
            found = Text(error_words(error))
        self.call_from_thread(self._show_stacks, task, found)

    def _show_stacks(self, task: str, found: Group | Text) -> None:
        if self._follower is None and task == self.chosen:
            self._entitle(f"stacks of {task}; l shows its log")
            self._pane.clear().write(found)

    def action_stop(self) -> None:
        if self._job is None or not self._job.is_running:
            self.notify("the job has ended")
            return
        self.push_screen(StopQuestion(self.folder.job_id), self._answer)

    def _answer(self, is_yes: bool | None) -> None:
        if is_yes:
            self._threads.must_finish = True
            self._stop()

    @work(thread=True, exclusive=True, group="stop")
    def _stop(self) -> None:
        try:
            text = control.stop(self.folder, order_of("distrun watch"))
        except DistrunError as error:
            text = error_words(error)
        self._threads.must_finish = False
        self.call_from_thread(self.notify, text)


def _row(task: TaskView, rate: str) -> dict[str, str | Text]:
    row = task_row(task)
    known, counted = task.progress, {key for keys in _COUNTS for key in keys}
    rest = {key: value for key, value in known.items() if key not in counted}
    return {
        **row,
        **{keys[0]: "/".join(known[key][:12] for key in keys if key in known) for keys in _COUNTS},
        "HOST": "" if task.state.host == "localhost" else task.state.host,
        "RATE": rate,
        "GPU": row["GPU MEM"],
        "PROGRESS": " ".join(progress_words(rest)),
    }


def _cell(row: dict[str, str | Text], column: Column) -> Text:
    value = row[column.title]
    text = value.copy() if isinstance(value, Text) else Text(printable(value))
    text.justify = "right" if column.right else "left"
    return text

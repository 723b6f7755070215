"""`distrun status`."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.options import job_argument, json_option
from distrun.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from distrun.jobstore import JobFolder

_WATCH_SECONDS = 1.0


@click.command("status", short_help="Show one job's tasks.")
@job_argument()
@json_option
@click.option("-w", "--watch", is_flag=True, help="Redraw every second until the job ends.")
def command(job: str | None, as_json: bool, watch: bool) -> int:
    """Show the state of one job and of each of its tasks; without JOB, of the newest.

    CPU, memory and GPU memory are those of a task's whole process tree.

    \b
      distrun status
      distrun status --watch mnist
      distrun status mnist --json | jq .job.task_states
    """
    from distrun.cli.snapshot import describe
    from distrun.jobstore import JobStore

    if as_json and watch:
        raise UsageError("--json prints once", hint="distrun events -f --json tells what happens")
    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    if as_json:
        console.put_json({"job": describe(folder)})
    elif watch:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(folder)
    else:
        console.rich_console().print(_shown(describe(folder)))
    return 0


def _watch(folder: JobFolder) -> None:
    from rich.live import Live

    from distrun.cli.snapshot import describe

    found = describe(folder)
    screen = console.rich_console()
    with Live(_shown(found), console=screen, auto_refresh=False, transient=False) as live:
        while found["running"]:
            time.sleep(_WATCH_SECONDS)  # nothing is waited for: the picture is drawn anew
            found = describe(folder)
            live.update(_shown(found), refresh=True)


def _shown(job: dict[str, Any]) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Text | Table] = [_headline(job)]
    outcome = job["outcome"]
    if outcome and outcome["result"] != "succeeded":
        whose = outcome["task"] if outcome["origin"] == "task" else "distrun"
        text = f"{outcome['cause']}; exit code {outcome['exit_code']}, {whose}'s"
        parts.append(Text(console.printable(text)))
    if job["task_states"]:
        parts.append(_tasks(job))
    return Group(*parts)


def _headline(job: dict[str, Any]) -> Text:
    from rich.text import Text

    from distrun.cli.styles import styled

    elapsed = (job["ended_at"] or time.time()) - job["created_at"]
    return Text.assemble(
        (job["job_id"], "bold"), "  ", styled(job["state"]),
        f"  {job['strategy']}  {console.span(elapsed)}",
    )  # fmt: skip


def _tasks(job: dict[str, Any]) -> Table:
    """A row a task. Columns that would say nothing are left out: 80 columns are few."""
    from rich.table import Table

    rows = [_row(task) for task in job["task_states"]]
    kept = [title for title in rows[0] if title == "TASK" or any(row[title] for row in rows)]
    if {row["HOST"] for row in rows} == {"localhost"}:
        kept.remove("HOST")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in kept:
        right = title in ("PID", "CPU", "MEM", "GPU MEM", "TIME")
        wraps = title in ("PROGRESS", "HOST")
        table.add_column(title, justify="right" if right else "left", no_wrap=not wraps)
    for row in rows:
        table.add_row(*(row[title] for title in kept))
    return table


def _row(task: dict[str, Any]) -> dict[str, Any]:
    from distrun.cli.screen import progress_words
    from distrun.cli.styles import styled

    usage = task["usage"] or {}
    started, exited = task["started_at"], task["exited_at"]
    code = task["exit_code"]
    gpu = usage.get("gpu_memory_bytes")
    return {
        "TASK": task["task"],
        "STATE": styled(task["state"]),
        "HOST": task["host"],
        "PID": "" if task["pid"] is None else str(task["pid"]),
        "EXIT": task["signal"] or ("" if code is None else str(code)),
        "CPU": f"{usage['cpu_percent']:.0f}%" if usage else "",
        "MEM": console.size(usage["memory_bytes"]) if usage else "",
        "GPU MEM": console.size(gpu) if gpu else "",
        "TIME": "" if started is None else console.span((exited or time.time()) - started),
        "PROGRESS": " ".join(progress_words(task["progress"])),
    }

"""`distrun status`."""

from __future__ import annotations

import time
from typing import Any

import click

from distrun.cli import console
from distrun.cli.options import job_argument, json_option


@click.command("status", short_help="Show one job's tasks.")
@job_argument()
@json_option
def command(job: str | None, as_json: bool) -> int:
    """Show the state of one job and of each of its tasks; without JOB, of the newest.

    \b
      distrun status
      distrun status mnist --json
    """
    from distrun.cli.snapshot import describe
    from distrun.jobstore import JobStore

    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    found = describe(folder)
    if as_json:
        console.put_json({"job": found})
    else:
        _show(found)
    return 0


def _show(job: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from distrun.cli.styles import styled

    screen = console.rich_console()
    ended = job["ended_at"] or time.time()
    line = Text.assemble(
        (job["job_id"], "bold"), "  ", styled(job["state"]), f"  {job['strategy']}  ",
        console.span(ended - job["created_at"]),
    )  # fmt: skip
    screen.print(line)
    if job["outcome"] and job["outcome"]["result"] != "succeeded":
        screen.print(
            f"exit code {job['exit_code']} ({job['origin']}'s): {job['outcome']['cause']}",
            markup=False,
        )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("TASK", "STATE", "HOST", "PID", "EXIT", "CPU", "MEM", "TIME"):
        right = title in ("PID", "CPU", "MEM", "TIME")
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    for task in job["task_states"]:
        table.add_row(*_row(task), style=None)
    screen.print(table)


def _row(task: dict[str, Any]) -> list[Any]:
    from distrun.cli.styles import styled

    usage = task["usage"]
    started, exited = task["started_at"], task["exited_at"]
    end = task["signal"] or ("" if task["exit_code"] is None else str(task["exit_code"]))
    return [
        task["task"],
        styled(task["state"]),
        task["host"],
        "" if task["pid"] is None else str(task["pid"]),
        end,
        "" if usage is None else console.span(usage["cpu_seconds"]),
        "" if usage is None else _size(usage["memory_bytes"]),
        "" if started is None else console.span((exited or time.time()) - started),
    ]


def _size(count: float) -> str:
    """Bytes in words: `670 MB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"

"""`distrun ps`."""

from __future__ import annotations

import time
from typing import Any

import click

from distrun.cli import console
from distrun.cli.options import json_option


@click.command("ps", short_help="List jobs.")
@click.option("-a", "--all", "everything", is_flag=True, help="Those that have ended, too.")
@json_option
def command(everything: bool, as_json: bool) -> int:
    """List the jobs that are running, the newest last; all of them with -a.

    \b
      distrun ps
      distrun ps -a --json
    """
    from distrun.cli.snapshot import summarise
    from distrun.jobstore import JobStore

    store = JobStore.default()
    rows = [summarise(folder) for folder in store.folders()]
    if not everything:
        rows = [row for row in rows if row["running"]]
    if as_json:
        console.put_json({"jobs": rows})
    elif rows:
        _show(rows)
    else:
        console.say("no jobs yet" if everything else "no job is running; -a lists ended ones")
    return 0


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from distrun.cli.styles import styled

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("JOB", "STATE", "TASKS", "STRATEGY", "STARTED", "TIME"):
        table.add_column(title, no_wrap=title in ("JOB", "STATE", "TIME"))
    for row in rows:
        ended = row["ended_at"] or time.time()
        up = row["tasks_running"]
        tasks = f"{up}/{row['tasks']}" if row["running"] else str(row["tasks"])
        table.add_row(
            row["job_id"],
            styled(row["state"]),
            tasks,
            row["strategy"],
            console.clock_time(row["created_at"]),
            console.span(ended - row["created_at"]),
        )
    console.rich_console().print(table)

"""`distrun ps`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.job_faults import tell_problem, tell_record_fault
from distrun.cli.options import json_option, namespace_options
from distrun.spec.units import format_bytes
from distrun.words.formats import age_text, format_duration, format_time, format_used
from distrun.words.progress import progress_words

if TYPE_CHECKING:
    from distrun.job.job import Job

_FAILED = ("failed", "lost")


@click.command("ps")
@click.option("-a", "--all", "everything", is_flag=True, help="List ended jobs, too.")
@click.option(
    "-n",
    "last",
    type=click.IntRange(min=1),
    metavar="N",
    help="List the last N jobs, ended ones too.",
)
@click.option("--failed", is_flag=True, help="List the jobs that failed or were lost.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the ids.")
@json_option
@namespace_options
def command(everything: bool, last: int | None, failed: bool, quiet: bool, as_json: bool) -> int:
    """List the running jobs, the newest last. With -a, list all jobs.

    CAUSE is why a job failed (see `distrun explain`), or what stopped it.
    CPU is the processor time of all its tasks, MEM the highest memory of one of them. LEFT is about
    how long its steps still take. LAST is the progress that a task last reported, SEEN is when.

    \b
      distrun ps
      distrun ps -a --json
      distrun ps --failed -n 5
    """
    from distrun.job.folder import JobStore
    from distrun.job.job import read_jobs
    from distrun.job.json_output import progress_json

    store = JobStore.default()
    everything = everything or failed or last is not None
    folders = store.folders() if everything else store.running()
    folders = folders if failed else folders[-(last or 0) :]
    jobs = read_jobs(folders)
    tell_problem(jobs)
    # Those whose records were removed meanwhile have ended, and are gone.
    jobs = [job for job in jobs if job.is_running or (everything and job.folder.path.exists())]
    if failed:
        jobs = [job for job in jobs if job.phase in _FAILED][-(last or 0) :]
    if quiet and not as_json:
        for job in jobs:
            console.print_text(job.folder.job_id)
        return 0
    rows = [{**job.summary(), "cause": job.cause_word} for job in jobs]
    for silence in filter(None, (job.silence for job in jobs)):
        console.print_message(silence)
    if as_json:
        progress = [{"progress": progress_json(job.progress)} for job in jobs]
        console.print_json({"jobs": [row | its for row, its in zip(rows, progress, strict=True)]})
    elif rows:
        _print_table(rows, [job.progress for job in jobs])
        print_messages(jobs)
    else:
        none = "no jobs yet" if everything else "no job is running; -a lists ended jobs, too"
        console.print_message("no job has failed" if failed else none)
    return 0


def print_messages(jobs: Sequence[Job]) -> None:
    for job in jobs:
        for each in filter(None, (job.behind, *(job.warnings if job.is_running else ()))):
            console.print_message(f"{job.folder.job_id}: {each}")
        if job.is_lost:
            tell_record_fault(job.folder)
        if job.is_lost and job.resume_command is not None:
            what = f"job {job.folder.job_id} is lost; to continue it: {job.resume_command}"
            console.print_message(what)


def _print_table(rows: list[dict[str, Any]], last: list[Mapping[str, str]]) -> None:
    from distrun.words.table import Column, make_table

    columns = (
        Column("JOB"),
        Column("STATE"),
        Column("EXIT", right=True, drop_rank=4),
        Column("CAUSE", drop_rank=1),
        Column("TASKS", right=True, drop_rank=5),
        Column("STRATEGY", drop_rank=7),
        Column("STARTED", drop_rank=6),
        Column("TIME", right=True),
        Column("LEFT", right=True, drop_rank=2),
        Column("CPU", right=True, drop_rank=8),
        Column("MEM", right=True, drop_rank=8),
        Column("SEEN", right=True, drop_rank=4),
        Column("LAST", drop_rank=3),
    )
    width = console.rich_console().width
    for most in (6, 3, 2):  # rather no metrics than no progress
        cells = [
            _cells(row, progress_words(each)[:most]) for row, each in zip(rows, last, strict=True)
        ]
        table = make_table(columns, cells, width)
        if table.columns[-1].header == "LAST":
            break
    console.print_renderable(table)


def _cells(row: dict[str, Any], last: Sequence[str]) -> dict[str, Any]:
    from distrun.words.table import styled

    code, count = row["exit_code"], row["task_count"]
    running = f"{row['running_task_count']}/" if row["running"] else ""
    ended = row["ended_at"] or (time.time() if row["running"] else None)  # None: unknown
    return {
        "JOB": row["job_id"],
        "STATE": styled(row["state"]),
        "EXIT": "" if code is None else str(code),
        "CAUSE": row["cause"] or "",
        "LEFT": "" if row["seconds_left"] is None else format_duration(row["seconds_left"]),
        "LAST": " ".join(last),
        "SEEN": "" if row["progress_at"] is None else age_text(row["progress_at"]),
        "TASKS": "unknown" if count is None else f"{running}{count}",
        "STRATEGY": row["strategy"],
        "STARTED": format_time(row["created_at"]) if row["created_at"] else "",
        "TIME": "" if ended is None else format_duration(ended - row["created_at"]),
        "CPU": _used(row, "cpu_seconds", format_duration),
        "MEM": _used(row, "peak_memory_bytes", format_bytes),
    }


def _used(row: dict[str, Any], name: str, form: Callable[[float], str]) -> str:
    # Of tasks that have just begun, nothing is known yet; without tasks, there is nothing to know.
    is_early = row[name] is None and (row["running"] or row["task_count"] == 0)
    return "" if is_early else format_used(row[name], form)

"""What `status` shows of a job: a headline, how it ended, and a row for each task."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distrun.cli.progress import progress_words
from distrun.cli.table import Column, make_table, styled
from distrun.cli.text_format import format_bytes, format_count, format_duration, printable
from distrun.cli.verdictview import verdict_lines
from distrun.codec import from_json
from distrun.verdict.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group
    from rich.text import Text

_COLUMNS = (
    Column("TASK"),
    Column("STATE"),
    Column("HOST", drop_rank=3),
    Column("PID", right=True, drop_rank=5),
    Column("ATTEMPT", right=True, drop_rank=4),
    Column("EXIT"),
    Column("CPU", right=True, drop_rank=2),
    Column("MEM", right=True, drop_rank=2),
    Column("GPU MEM", right=True, drop_rank=2),
    Column("TIME", right=True, drop_rank=1),
    Column("PROGRESS"),
)
_NO_NEWS = 9
_LEAST_ROWS = 1
_OTHER_ROWS = 2
"""The heading, and what tells of the tasks there is no room for."""


def status_view(job: dict[str, Any], width: int, height: int | None = None) -> Group:
    """One job as :func:`distrun.cli.job_view.describe` tells of it, in so many columns.

    With a height, tasks for which there is no room are counted instead of shown, first those
    that are in the state of most.
    """
    from rich.console import Group

    parts: list[Any] = [_headline(job, width), *map(_plain, _notes(job))]
    tasks = job["task_states"]
    if tasks:
        above = sum(1 + max(0, each.cell_len - 1) // width for each in parts)
        room = len(tasks) if height is None else height - above - _OTHER_ROWS
        shown = _most_telling(tasks, max(_LEAST_ROWS, room))
        parts.append(make_table(_columns(tasks), [_row(task) for task in shown], width))
        if len(shown) < len(tasks):
            left = [task for task in tasks if task not in shown]
            parts.append(_plain(f"and {len(left)} more: {_counted(left)}"))
    return Group(*parts)


def _headline(job: dict[str, Any], width: int) -> Text:
    """The job in one row, if need be without its strategy, which everyone knows."""
    from rich.text import Text

    end = job["ended_at"] or (time.time() if job["running"] else job["created_at"])
    tasks = job["task_states"]
    words = [job["strategy"], _counted(tasks) if len(tasks) > 1 else ""]
    words.append(format_duration(end - job["created_at"]) if end > job["created_at"] else "")
    lines = [
        Text.assemble(
            (job["job_id"], "bold"), "  ", styled(job["state"]),
            *(f"  {printable(word)}" for word in said if word),
        )
        for said in (words, words[1:])
    ]  # fmt: skip
    return lines[0] if lines[0].cell_len <= width else lines[1]


def _counted(tasks: Sequence[dict[str, Any]]) -> str:
    """`62 running, 2 failed`."""
    counts = Counter(task["state"] for task in tasks)
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def _plain(text: str) -> Text:
    from rich.text import Text

    return Text(printable(text))


def _notes(job: dict[str, Any]) -> list[str]:
    notes = []
    outcome = job["outcome"]
    if outcome and outcome["result"] != "succeeded":
        whose = outcome["task"] if outcome["origin"] == "task" else "distrun"
        cause, *more = outcome["cause"].split("\n")
        notes += [f"{cause}; exit code {outcome['exit_code']}, {whose}'s", *more]
    if job["state"] == "lost":
        notes.append("its supervisor died, and its result with it")
    if job["running"]:
        notes += [_lost_link(host) for host in job["hosts"] if host["link_lost"] is not None]
        lost = [host for host in job["hosts"] if host["lost"] is not None]
        notes += [f"{host['name']} is lost: {host['lost']}" for host in lost]
    if job["verdict"]:
        notes += verdict_lines(from_json(Verdict, job["verdict"]))
    if job["restarts"]:
        times = format_count(job["restarts"], "time")
        left = f"; {format_count(job['restarts_left'], 'restart')} left" if job["running"] else ""
        notes.append(f"restarted {times}{left}")
    if job["tensorboard"]:
        notes.append(f"TensorBoard: {job['tensorboard']}")
    return notes


def _lost_link(host: dict[str, Any]) -> str:
    since = format_duration(max(0.0, time.time() - host["link_lost_at"]))
    return f"{host['name']}: the link is lost since {since} ({host['link_lost']})"


def _most_telling(tasks: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """As many as there is room for, in their order; those in a rare state before the others."""
    if len(tasks) <= room:
        return tasks
    counts = Counter(task["state"] for task in tasks)
    ranked = sorted(range(len(tasks)), key=lambda i: (counts[tasks[i]["state"]], i))
    return [tasks[i] for i in sorted(ranked[:room])]


def _columns(tasks: Sequence[dict[str, Any]]) -> list[Column]:
    """First to give way where there is little room: what is no news."""
    no_news = set()
    if {task["host"] for task in tasks} == {"localhost"}:
        no_news.add("HOST")
    if not any(task["attempt"] for task in tasks):
        no_news.add("ATTEMPT")
    return [replace(c, drop_rank=_NO_NEWS) if c.title in no_news else c for c in _COLUMNS]


def _row(task: dict[str, Any]) -> dict[str, str | Text]:
    usage = task["usage"] or {}
    started, exited = task["started_at"], task["exited_at"]
    code = task["exit_code"]
    gpu = usage.get("gpu_memory_bytes")
    end = exited or (None if task["state"] == "lost" else time.time())
    took = None if started is None or end is None else end - started
    if task["seconds"] is not None:
        took = task["seconds"]
    return {
        "TASK": task["task"],
        "STATE": _state(task),
        "HOST": task["host"],
        "PID": "" if task["pid"] is None else str(task["pid"]),
        "ATTEMPT": str(task["attempt"]),
        "EXIT": task["signal"] or ("" if code is None else str(code)),
        "CPU": f"{usage['cpu_percent']:.0f}%" if usage else "",
        "MEM": format_bytes(usage["memory_bytes"]) if usage else "",
        "GPU MEM": format_bytes(gpu) if gpu else "",
        "TIME": "" if took is None else format_duration(took),
        "PROGRESS": " ".join(progress_words(task["progress"])),
    }


def _state(task: dict[str, Any]) -> Text:
    """`restarting in 4 s`, `lost, was running`, or the state alone."""
    if task["state"] == "lost":
        return styled("lost", f"(was {task['last_state']})")
    wait = (task["restarts_at"] or 0.0) - time.time()
    return styled(task["state"], f"in {format_duration(wait)}" if wait > 0 else "")

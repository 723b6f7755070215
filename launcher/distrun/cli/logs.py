"""`distrun logs`."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from distrun.cli.options import Duration, complete_tasks, job_argument
from distrun.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.control import Supervised
    from distrun.jobstore import JobFolder


class Pattern(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A regular expression over bytes, as Python writes them."""

    name = "regex"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[bytes]:
        try:
            return re.compile(value.encode("utf-8", "surrogateescape"))
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


@click.command("logs", short_help="Show tasks' output.")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N.")
@click.option(
    "-t",
    "--task",
    "tasks",
    multiple=True,
    metavar="TASK",
    shell_complete=complete_tasks,
    help="Only that of worker:0, or of all workers with worker. Repeatable.",
)
@click.option("--grep", type=Pattern(), metavar="RE", help="Only lines in which RE is found.")
@click.option("--since", type=Duration(), metavar="D", help="Only what is not older, as 10m.")
@click.option("--timestamps", is_flag=True, help="Begin lines with the time they were written.")
@click.option("--raw", is_flag=True, help="The bytes as they were written, without prefix.")
def command(
    job: str | None,
    follow: bool,
    lines: int | None,
    tasks: tuple[str, ...],
    since: float | None,
    **look: Any,
) -> int:
    """Show the output of a job's tasks, merged by time; without JOB, of the newest.

    \b
      distrun logs -f
      distrun logs mnist -n 50 -t worker:1
      distrun logs mnist --grep 'loss|Error' --since 10m
      distrun logs mnist -t chief --raw > chief.log
    """
    from distrun.control import Supervised
    from distrun.jobstore import JobStore

    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    part = _Part(tasks, lines, None if since is None else time.time() - since)
    with contextlib.suppress(KeyboardInterrupt):
        if not follow:
            _show(folder, part, look)
            return 0
        with contextlib.closing(Supervised(folder)) as supervised:
            _follow(folder, part, look, supervised)
    return 0


@dataclass(frozen=True)
class _Part:
    """Which part of the output is wanted. `since` is Unix time."""

    tasks: tuple[str, ...]
    last: int | None
    since: float | None


def _show(folder: JobFolder, part: _Part, look: dict[str, Any]) -> None:
    from distrun.cli.logview import task_logs, view
    from distrun.logs import merged

    names = list(folder.state().tasks)
    logs = task_logs(folder, _chosen(names, part.tasks))
    shown = view(names, sys.stdout, **look)
    _put(merged(logs, shown, last=part.last, since=part.since))


def _follow(folder: JobFolder, part: _Part, look: dict[str, Any], supervised: Supervised) -> None:
    from distrun.cli.logview import task_logs, view
    from distrun.logs import Follower, line_ends, merged

    names = _planned_tasks(folder, supervised)
    logs = task_logs(folder, _chosen(names, part.tasks))
    shown = view(names, sys.stdout, **look)
    ends = line_ends(logs)
    with contextlib.closing(Follower(logs, shown, starts=ends)) as follower:
        _put(merged(logs, shown, last=part.last, since=part.since, ends=ends))
        _put(follower.until(supervised.has_ended, supervised.descriptor))


def _put(blocks: Iterable[bytes]) -> None:
    for block in blocks:
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _planned_tasks(folder: JobFolder, supervised: Supervised) -> list[str]:
    """The tasks of a job that is being followed, once they are decided."""
    while True:
        ended = supervised.has_ended()
        names = list(folder.state().tasks)
        if names or ended:
            return names
        supervised.wait()


def _chosen(names: list[str], wanted: tuple[str, ...]) -> list[str]:
    """The tasks meant: by name, or all of a role."""
    if not wanted:
        return names
    chosen = set()
    for each in wanted:
        found = [name for name in names if each in (name, name.partition(":")[0])]
        if not found:
            raise UsageError(f"the job has no task {each!r}", hint=f"it has: {', '.join(names)}")
        chosen.update(found)
    return [name for name in names if name in chosen]

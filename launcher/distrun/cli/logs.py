"""`distrun logs`."""

from __future__ import annotations

import contextlib
import select
import sys
from typing import TYPE_CHECKING

import click

from distrun.cli.options import job_argument
from distrun.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.jobstore import JobFolder


@click.command("logs", short_help="Show tasks' output.")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N.")
@click.option(
    "-t", "--task", "tasks", multiple=True, metavar="TASK", help="As worker:0; or a role."
)
@click.option("--raw", is_flag=True, help="The bytes as they were written, without prefix.")
def command(
    job: str | None, follow: bool, lines: int | None, tasks: tuple[str, ...], raw: bool
) -> int:
    """Show the output of a job's tasks, merged by time; without JOB, of the newest.

    \b
      distrun logs -f
      distrun logs mnist -n 50 -t worker:1
      distrun logs mnist -t chief --raw > chief.log
    """
    from distrun.jobstore import JobStore

    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    with contextlib.suppress(KeyboardInterrupt):
        _show(folder, follow=follow, lines=lines, tasks=tasks, raw=raw)
    return 0


def _show(
    folder: JobFolder, *, follow: bool, lines: int | None, tasks: tuple[str, ...], raw: bool
) -> None:
    from distrun.cli.logview import task_logs, view
    from distrun.logs import Follower, line_ends, merged

    with contextlib.closing(_Supervised(folder)) if follow else _nobody() as supervised:
        names = _planned_tasks(folder, supervised)
        logs = task_logs(folder, _chosen(names, tasks))
        look = view(names, sys.stdout, raw=raw)
        if supervised is None:
            _put(merged(logs, look, last=lines))
            return
        ends = line_ends(logs)
        with contextlib.closing(Follower(logs, look, starts=ends)) as follower:
            _put(merged(logs, look, last=lines, ends=ends))
            _put(follower.until(supervised.has_ended, supervised.descriptor))


def _nobody() -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


def _put(blocks: Iterable[bytes]) -> None:
    for block in blocks:
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _planned_tasks(folder: JobFolder, supervised: _Supervised | None) -> list[str]:
    """The job's tasks; where it is being followed, once they are decided."""
    while True:
        ended = supervised is None or supervised.has_ended()
        names = list(folder.state().tasks)
        if names or ended or supervised is None:
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


class _Supervised:
    """Whether a job's supervisor still lives, without looking again and again."""

    def __init__(self, folder: JobFolder) -> None:
        from distrun import control
        from distrun.agent.wire import Watch

        self._channel = control.connect(folder)
        if self._channel is not None:
            self._channel.send(Watch())

    @property
    def descriptor(self) -> int | None:
        """Readable when something has happened to the job."""
        return None if self._channel is None else self._channel.reader

    def has_ended(self) -> bool:
        if self._channel is None:
            return True
        self._channel.receive()
        return self._channel.ended

    def wait(self) -> None:
        """Until something happens to the job."""
        if self._channel is not None:
            select.select([self._channel.reader], [], [])

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

"""`distrun clean`."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.job_faults import tell_problem
from distrun.cli.options import completion_of, duration
from distrun.errors import HostError, UsageError
from distrun.spec.units import format_bytes
from distrun.words.formats import format_count, format_time

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder


@click.command("clean")
@click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=completion_of("jobs", only=""))
@click.option("--all", "everything", is_flag=True, help="Remove all ended jobs without asking.")
@click.option(
    "--older-than",
    type=duration,
    metavar="D",
    help="Remove, without asking, only the jobs that ended more than D ago.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be removed.")
def command(
    jobs: tuple[str, ...], everything: bool, older_than: float | None, dry_run: bool
) -> int:
    """Remove the records and logs of ended jobs. Running jobs are never touched.

    Without JOB, --all or --older-than, it lists what it would remove, and asks. Where it cannot
    ask, because there is no terminal, it removes nothing and exits with 2.

    \b
      distrun clean mnist
      distrun clean --older-than 7d
      distrun clean --all
      distrun clean --dry-run
    """
    if (jobs != ()) + everything + (older_than is not None) > 1:
        raise UsageError("name jobs, or use --all, or --older-than")
    asks = not (jobs or everything or older_than is not None or dry_run)
    found = dict(_ended_jobs(older_than, jobs))
    if asks and not _is_confirmed(found):
        console.print_message("nothing was removed")
        return 0
    count = size = 0
    is_complete = True
    for folder, folder_size in found.items():
        try:
            if not dry_run:
                if asks and _is_in_use(folder):  # it took time to answer
                    continue
                folder.remove()
        except (FileNotFoundError, BlockingIOError):  # another `clean` removes it, or it is resumed
            continue
        except OSError as error:
            is_complete = False
            console.print_error(_unremoved_error(folder, error))
            continue
        count += 1
        size += folder_size
        if not asks:  # the question was below the list of them
            console.print_text(folder.job_id)
    verb = "would remove" if dry_run else "removed"
    console.print_message(f"{verb} {format_count(count, 'job')}, {format_bytes(size)}")
    return 0 if is_complete else HostError.exit_code


def _unremoved_error(folder: JobFolder, error: OSError) -> HostError:
    file = error.filename or str(folder.path)
    what = f"job {folder.job_id} was not removed: {file}: {error.strerror}"
    repairs = {
        errno.EACCES: f"make its folder writable: chmod u+rwx {shlex.quote(os.path.dirname(file))}",
        errno.EBUSY: f"if something is mounted there: umount {shlex.quote(file)}",
    }
    repair = repairs.get(error.errno or 0, "remove what keeps it")
    return HostError(what, hint=f"{repair}; then run `distrun clean` again")


def _ended_jobs(older_than: float | None, names: Sequence[str]) -> Iterator[tuple[JobFolder, int]]:
    """The jobs of these names, or that ended so many seconds ago; and the bytes of their files."""
    from distrun.job import resumption
    from distrun.job.folder import JobStore

    store = JobStore.default()
    named = [store.find(name) for name in names]
    for folder in named or [*store.folders(), *store.unfinished()]:
        if named and folder.supervisor_pid() is not None:
            raise resumption.running_error(folder)
        if _is_in_use(folder):
            if named:
                hint = f"distrun kill {folder.job_id}"
                raise UsageError(f"job {folder.job_id} has not ended", hint=hint)
            continue
        if older_than is not None and folder.last_change() > time.time() - older_than:
            continue
        with contextlib.suppress(FileNotFoundError):  # another `clean` removed it
            yield folder, folder.size()


def _is_confirmed(found: dict[JobFolder, int]) -> bool:
    """List these jobs and ask whether to remove them. Without jobs, the answer is no.

    Raises:
        UsageError: there is no terminal to ask on.
    """
    what = f"{format_count(len(found), 'job')}, {format_bytes(sum(found.values()))}"
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"this would remove {what}, and there is no terminal to ask on; nothing was removed",
            hint="use --all, or --older-than 7d for example; --dry-run lists the jobs",
        )
    if not found:
        return False
    _print_table(found)
    return console.confirm(f"remove {what}?")


def _print_table(found: dict[JobFolder, int]) -> None:
    from distrun.job.job import read_jobs
    from distrun.words.table import Column, make_table, styled

    columns = (
        Column("JOB"),
        Column("STATE"),
        Column("LAST CHANGE", drop_rank=1),
        Column("SIZE", right=True),
    )
    jobs = read_jobs(list(found))
    tell_problem(jobs)
    rows: list[dict[str, Any]] = [
        {
            "JOB": job.folder.job_id,
            "STATE": styled(job.phase),
            "LAST CHANGE": format_time(job.folder.last_change()),
            "SIZE": format_bytes(found[job.folder]),
        }
        for job in jobs
    ]
    console.print_renderable(make_table(columns, rows, console.rich_console().width))


def _is_in_use(folder: JobFolder) -> bool:
    """Whether its supervisor is alive, or has died and left tasks that may still run."""
    from distrun.job import leftovers

    if folder.supervisor_pid() is not None:
        return True
    if folder.is_elsewhere:
        from distrun.job import queued_job

        return queued_job.look(folder).is_active
    job_id, where = folder.job_id, ", ".join(leftovers.places(folder, folder.state()))
    if where:
        remove = f"rm -r {shlex.quote(str(folder.path))}"
        hint = f"distrun kill {job_id}; or, if that cannot be: {remove}"
        console.print_message(f"job {job_id} is kept: its tasks may still run {where}: {hint}")
    return bool(where)

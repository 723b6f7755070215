"""Makes the page of a job's report, and writes it to a file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.linux.syscalls import signal_name
from distrun.cli.output_file import write_file
from distrun.errors import HostError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.bundle.contents import About
    from distrun.jobstore import JobFolder


def make_page(folder: JobFolder, tasks: Sequence[str] = (), about: About | None = None) -> str:
    """Return the page as HTML.

    Args:
        folder: the job's.
        tasks: those to draw, as `-t` names them; empty: all.
        about: the bundle that the job is in, if it is in one.
    """
    from distrun.redaction import Redactor, secret_values
    from distrun.report.page import Report, render

    if tasks:
        from distrun.cli.logs import check_choice, chosen_tasks

        names = list(folder.state().tasks)
        check_choice([names], tuple(tasks))
        tasks = chosen_tasks(names, tuple(tasks))
    redactor = Redactor(() if about is not None else secret_values(folder), mask="***")
    page = render(Report(folder, tasks, about), redactor)
    return page.encode("utf-8", "replace").decode()  # without lone surrogates


def write_page(page: str, path: Path) -> None:
    """Write a page, whole or not at all.

    Raises:
        HostError: it cannot be written.
    """
    with write_file(path) as file:
        file.write(page.encode())


def check_path(name: str) -> None:
    """Check that a page can be written there, before there is one.

    Raises:
        UsageError: it cannot.
    """
    path = Path(name)
    if not path.parent.is_dir():
        raise UsageError(f"--report: there is no folder {path.parent}", hint="create it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        what = f"--report: {path.parent} cannot be written to: {error.strerror}"
        raise UsageError(what, hint="name a file elsewhere") from error


def report_at_end(folder: JobFolder, name: str) -> None:
    """Write the page of a job that has ended. A failure is said; the exit code is the job's."""
    from distrun.cli import console, signals

    if not folder.path.exists():
        return
    try:
        write_page(make_page(folder), Path(name))
    except (HostError, OSError) as error:
        console.print_error(
            HostError(str(error), hint=f"to write it again: distrun report {folder.job_id} -o FILE")
        )
    except signals.ENDED as error:
        signal = signal_name(signals.signal_of(error) or 0)
        console.print_message(f"{signal} came before the report was written")
    else:
        console.print_message(f"wrote {name}")

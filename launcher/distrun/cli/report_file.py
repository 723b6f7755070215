"""Makes the page of a job's report, and writes it to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.errors import HostError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.jobstore import JobFolder


def make_page(folder: JobFolder, tasks: Sequence[str] = ()) -> str:
    """Return the page as HTML.

    Args:
        folder: the job's.
        tasks: those to draw, as `-t` names them; empty: all.
    """
    from distrun.report.page import Report, render

    if tasks:
        from distrun.cli.logs import check_choice, chosen_tasks

        names = list(folder.state().tasks)
        check_choice([names], tuple(tasks))
        tasks = chosen_tasks(names, tuple(tasks))
    return render(Report(folder, tasks))


def write_page(page: str, path: Path) -> None:
    """Write a page, whole or not at all.

    Raises:
        HostError: it cannot be written.
    """
    from distrun.report.page import write

    try:
        write(page, path)
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror}") from error


def check_path(path: Path) -> None:
    """Check that a page can be written there, before there is one.

    Raises:
        UsageError: it cannot.
    """
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"--report: {path} is a folder", hint="name a file")
    if not folder.is_dir():
        raise UsageError(f"--report: there is no folder {folder}", hint="create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--report: {folder} cannot be written to")

"""Makes the page of a job's report, and writes it to a file."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.cli.output_file import write_file
from distrun.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.bundle.contents import About
    from distrun.job.folder import JobFolder
    from distrun.job.history import HistoryReader


def make_page(
    folder: JobFolder,
    tasks: Sequence[str] = (),
    about: About | None = None,
    *,
    samples: HistoryReader | None = None,
    refresh: float | None = None,
    may_stop: bool = False,
) -> str:
    """Return the page as HTML.

    Args:
        folder: the job's.
        tasks: those to draw, as `-t` names them; empty: all.
        about: the bundle that the job is in, if it is in one.
        samples: reads the job's samples.
        refresh: after how many seconds a page that is served asks for the next one.
        may_stop: whether such a page may stop the job.
    """
    from distrun.redaction import Redactor, secret_values
    from distrun.report.page import Report, render

    require("jinja2")

    if tasks:
        from distrun.cli.logs import check_choice, chosen_tasks

        names = list(folder.state().tasks)
        check_choice([names], tuple(tasks))
        tasks = chosen_tasks(names, tuple(tasks))
    redactor = Redactor(() if about is not None else secret_values(folder), mask="***")
    page = render(
        Report(folder, tasks, about, samples), redactor, refresh=refresh, may_stop=may_stop
    )
    return page.encode("utf-8", "replace").decode()  # without lone surrogates


def require(*names: str) -> None:
    """Raise HostError if this interpreter lacks one of these packages."""
    if lacking := [name for name in names if importlib.util.find_spec(name) is None]:
        raise HostError(
            f"a report needs {' and '.join(lacking)}, which {sys.executable} does not have",
            hint=f"{shlex.quote(sys.executable)} -m pip install {' '.join(lacking)}",
        )


def write_page(page: str, path: Path) -> None:
    """Write a page, whole or not at all.

    Raises:
        HostError: it cannot be written.
    """
    with write_file(path) as file:
        file.write(page.encode())

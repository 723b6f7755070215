"""`distrun report`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from distrun.bundle.archive import About, opened
from distrun.cli import console
from distrun.cli.job_faults import find_job, tell_problem
from distrun.cli.options import job_argument, output_option, task_option
from distrun.cli.output_file import write_file
from distrun.cli.stacks import stacks_view, take
from distrun.errors import UsageError
from distrun.job import queued_job
from distrun.job.chosen_logs import check_choice, chosen_tasks
from distrun.job.folder import JobFolder
from distrun.redaction.redactor import Redactor, secret_values
from distrun.report.server import LivePage, PageServer

_POLL_SECONDS = 3600.0
"""A signal ends the wait for a request at once."""
_STACKS_WIDTH = 200


@click.command("report")
@job_argument()
@output_option("The page to write; - is stdout. Default: distrun-JOB.html.", dash=True)
@task_option
@click.option("--serve", is_flag=True, help="Show the page live in a browser, until Ctrl-C.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="With --serve: the port on 127.0.0.1. Default: any free one.",
)
@click.option("--allow-stop", is_flag=True, help="With --serve: the page may stop the job.")
def command(
    job: str | None,
    output: str | None,
    tasks: tuple[str, ...],
    serve: bool,
    port: int | None,
    allow_stop: bool,
) -> int:
    """Write what happened to a job as one HTML page. Default: the running job, else the newest.

    The page has the outcome and its cause, a timeline of the tasks, curves of metrics, processor,
    memory and GPUs over the same time, restarts and what they cost, the tasks that differ from the
    others, hosts, versions, the spec, the ends of the logs and the events. It makes no network
    request, so you can send and keep it. Values that look like secrets are shown as ***.

    JOB can also be an archive of `distrun bundle`, from any machine.

    With --serve, it writes no file and prints an address. Only those who know the address see the
    page, and only on this machine. The page updates itself, and a click shows the stacks of the
    tasks. From another machine, forward its port: ssh -L PORT:127.0.0.1:PORT HOST.

    \b
      distrun report
      distrun report mnist -o mnist.html
      distrun report --serve mnist
      distrun bundle mnist -o mnist.tar.gz && distrun report mnist.tar.gz
    """
    is_bundle = job is not None and job.endswith((".tar.gz", ".tgz"))
    if serve:
        if output is not None or is_bundle:
            raise UsageError("--serve shows a job of this machine, and writes no file")
        return _serve(queued_job.find(job), tasks, port or 0, may_stop=allow_stop)
    if port is not None or allow_stop:
        raise UsageError("--port and --allow-stop are only for --serve")
    if job is not None and is_bundle:
        if not os.path.exists(job):
            raise UsageError(f"{job}: there is no such file", hint="make one: distrun bundle JOB")
        with opened(Path(job)) as (folder, about):
            page = make_page(folder, tasks, about)
    else:
        folder = find_job(job)
        page = make_page(folder, tasks)
    if output == "-":
        sys.stdout.buffer.write(page.encode())
        return 0
    path = Path(output or f"distrun-{folder.job_id}.html")
    with write_file(path) as file:
        file.write(page.encode())
    console.print_message(f"wrote {path}")
    return 0


def _serve(folder: JobFolder, tasks: tuple[str, ...], port: int, *, may_stop: bool) -> int:
    def make(refresh: float) -> str:
        if not folder.path.exists():
            raise UsageError(f"the record of job {folder.job_id} was removed")
        return make_page(folder, tasks, refresh=refresh, may_stop=may_stop)

    live = LivePage(folder, make=make, take_stacks=lambda: _stacks(folder), may_stop=may_stop)
    live.page()  # errors in it are reported here
    with PageServer(live, port) as server, contextlib.suppress(KeyboardInterrupt):
        console.print_text(server.url)
        sys.stdout.flush()
        console.print_message(
            f"this address shows job {folder.job_id} until Ctrl-C; whoever knows it sees the page"
        )
        server.serve_forever(_POLL_SECONDS)
    return 0


def _stacks(folder: JobFolder) -> str:
    shown = io.StringIO()
    Console(file=shown, width=_STACKS_WIDTH).print(stacks_view(take(folder), all_threads=False))
    return shown.getvalue()


def make_page(
    folder: JobFolder,
    tasks: Sequence[str] = (),
    about: About | None = None,
    *,
    refresh: float | None = None,
    may_stop: bool = False,
) -> str:
    """Return the page as HTML; the arguments are those of `Report` and `render`.

    `tasks` are named as with `-t`.
    """
    from distrun.report.page import Report, render

    console.require("a report", "jinja2")
    if tasks:
        names = folder.state().task_names
        check_choice([names], tuple(tasks))
        tasks = chosen_tasks(names, tuple(tasks))
    redactor = Redactor(() if about is not None else secret_values(folder), mask="***")
    report = Report(folder, tasks, about)
    tell_problem([report.job])
    page = render(report, redactor, refresh=refresh, may_stop=may_stop)
    return page.encode("utf-8", "replace").decode()  # without lone surrogates

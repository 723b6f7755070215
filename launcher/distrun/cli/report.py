"""`distrun report`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from distrun.cli import console
from distrun.cli.options import job_argument, task_option


@click.command("report")
@job_argument()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="The page to write; - is stdout. Default: distrun-JOB.html.",
)
@task_option
def command(job: str | None, output: str | None, tasks: tuple[str, ...]) -> int:
    """Write what happened to a job as one HTML page. Default: the running job.

    The page has the outcome and its cause, a timeline of the tasks, curves of metrics, processor,
    memory and GPUs over the same time, restarts and what they cost, the tasks that differ from the
    others, hosts, versions, the spec, the ends of the logs and the events. It makes no request to
    anywhere, so that it can be sent or kept. Values that look like secrets are shown as ***.

    In place of a job, name an archive of `distrun bundle`, of this machine or of another one.

    \b
      distrun report
      distrun report mnist -o mnist.html
      distrun bundle mnist -o mnist.tar.gz && distrun report mnist.tar.gz
    """
    from distrun.cli.job_view import tell_record_fault
    from distrun.cli.report_file import make_page, write_page
    from distrun.jobstore import JobStore

    if job is not None and job.endswith(".tar.gz"):
        from distrun.bundle.reader import opened

        with opened(Path(job)) as (folder, about):
            page = make_page(folder, tasks, about)
    else:
        folder = JobStore.default().find(job)
        tell_record_fault(folder)
        page = make_page(folder, tasks)
    if output == "-":
        sys.stdout.buffer.write(page.encode())
        return 0
    path = Path(output or f"distrun-{folder.job_id}.html")
    write_page(page, path)
    console.print_message(f"wrote {path}")
    return 0

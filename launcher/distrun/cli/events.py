"""`distrun events`."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import job_argument

if TYPE_CHECKING:
    from distrun.cli.event_text import EventFormatter
    from distrun.events import Event
    from distrun.record import EventReader


@click.command("events")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow the events until the job ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(job: str | None, follow: bool, as_json: bool) -> int:
    """Show what happened to a job, in order. Default: the newest job.

    \b
      distrun events mnist
      distrun events -f --json > events.jsonl
    """
    from distrun.cli.event_text import EventFormatter
    from distrun.control import SupervisorWatch
    from distrun.jobstore import JobStore
    from distrun.record import EventReader

    folder = JobStore.default().find(job)
    formatter = EventFormatter()
    record = EventReader(str(folder.events_file))
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = (
            stack.enter_context(contextlib.closing(SupervisorWatch(folder))) if follow else None
        )
        ended = False
        while not ended:
            ended = supervised is None or supervised.has_ended()
            _print_new(record, None if as_json else formatter)
            if supervised is not None and not ended:
                supervised.wait()
    return 0


def _print_new(record: EventReader, formatter: EventFormatter | None) -> None:
    """Print the events since the last call."""
    from distrun.spec.problems import printable

    try:
        found = record.read_new()
    except FileNotFoundError:  # the job is not created yet, or never was
        return
    for event in found:
        if formatter is None:
            console.print_text(_as_json(event))
            continue
        text = formatter.line(event)
        if text is not None:
            console.print_text(text, indent=formatter.indent)
            for line in formatter.details:
                console.print_text(
                    " " * formatter.indent + printable(line), indent=formatter.indent + 9
                )
    sys.stdout.flush()


def _as_json(event: Event) -> str:
    """One line: the event with its causes in words, and the version of this format."""
    from distrun.cli.job_view import output_json

    kind = type(event).__name__
    shown = {"version": console.JSON_VERSION, "event": kind, **output_json(event)}
    return json.dumps(shown)

"""`distrun events`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from distrun.cli import console, streams
from distrun.cli.job_faults import find_job
from distrun.cli.options import job_argument

if TYPE_CHECKING:
    from distrun.job.events import Event
    from distrun.job.record import EventReader
    from distrun.words.events import EventFormatter


@click.command("events")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow the events until the job ends.")
@click.option(
    "-n", "--lines", "last", type=click.IntRange(min=0), metavar="N", help="Show the last N events."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(job: str | None, follow: bool, last: int | None, as_json: bool) -> int:
    """Show what happened to a job, in order. Default: the running job, else the newest.

    \b
      distrun events mnist
      distrun events mnist -n 5
      distrun events -f --json > events.jsonl
    """
    from distrun.job.control import watch
    from distrun.job.record import EventReader
    from distrun.words.events import EventFormatter

    folder = find_job(job, tells=True)
    formatter = EventFormatter()
    record, unsent = (
        EventReader(str(each)) for each in (folder.events_file, folder.unsent_reports_file)
    )
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = stack.enter_context(contextlib.closing(watch(folder))) if follow else None
        if follow:
            streams.end_with_reader()
        ended = False
        while not ended:
            ended = supervised is None or supervised.has_ended()
            # What an agent could not send to a supervisor that died is the last that is known.
            readers = (record, unsent) if ended else (record,)
            shown = _new_events(readers, None if as_json else formatter)
            for lines in shown if last is None else deque(shown, maxlen=min(last, sys.maxsize)):
                for text, indent in lines:
                    console.print_text(text, indent=indent)
            sys.stdout.flush()
            last = None  # what follows is shown as it happens
            if supervised is not None and not ended:
                supervised.wait()
        if supervised is not None:
            supervised.final_state()
    return 0


def _new_events(
    readers: Iterable[EventReader], formatter: EventFormatter | None
) -> Iterator[list[tuple[str, int]]]:
    """Yield the lines of each event since the last call, as JSON without a formatter."""
    for reader in readers:
        found: list[Event] = []
        with contextlib.suppress(FileNotFoundError):  # the job is not created yet, or never was
            found = reader.read_new()
        for event in found:
            if formatter is None:
                yield [(_as_json(event), 0)]
            elif lines := formatter.lines(event):
                yield lines


def _as_json(event: Event) -> str:
    """One line: the event with its causes in words, and the version of this format."""
    from distrun.codec import JSON_VERSION
    from distrun.job.json_output import output_json

    kind = type(event).__name__
    shown = {"version": JSON_VERSION, "event": kind, "at": event.at, **output_json(event)}
    return json.dumps(shown)

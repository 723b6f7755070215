"""`distrun events`."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import job_argument
from distrun.cli.text_format import printable

if TYPE_CHECKING:
    from distrun.cli.event_text import Story
    from distrun.events import Event, EventReader


@click.command("events", short_help="Show what happened to a job.")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow the events until the job ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(job: str | None, follow: bool, as_json: bool) -> int:
    """Show what happened to a job, in order. Default: the newest job.

    \b
      distrun events mnist
      distrun events -f --json > events.jsonl
    """
    from distrun.cli.event_text import Story
    from distrun.control import Supervised
    from distrun.events import EventReader
    from distrun.jobstore import JobStore

    folder = JobStore.default().find(job)
    story = Story()
    record = EventReader(str(folder.events_file))
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = stack.enter_context(contextlib.closing(Supervised(folder))) if follow else None
        ended = False
        while not ended:
            ended = supervised is None or supervised.has_ended()
            _print_new(record, None if as_json else story)
            if supervised is not None and not ended:
                supervised.wait()
    return 0


def _print_new(record: EventReader, story: Story | None) -> None:
    """Print the events since the last call."""
    try:
        found = record.read_new()
    except FileNotFoundError:  # the job is not created yet, or never was
        return
    for event in found:
        if story is None:
            console.print_text(_as_json(event))
            continue
        text = story.tell(event)
        if text is not None:
            console.print_text(text, indent=story.indent)
            for line in story.details:
                console.print_text(" " * story.indent + printable(line), indent=story.indent + 9)
    sys.stdout.flush()


def _as_json(event: Event) -> str:
    """One line: the event as it is in the record, with the version of this format."""
    from distrun.events import encode

    return json.dumps({"version": console.JSON_VERSION, **encode(event)})

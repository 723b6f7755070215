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
    from distrun.cli.event_text import Story
    from distrun.events import Event
    from distrun.record import EventReader


@click.command("events", short_help="Tell what happened to a job.")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(job: str | None, follow: bool, as_json: bool) -> int:
    """Tell what happened to a job, in order; without JOB, to the newest.

    \b
      distrun events mnist
      distrun events -f --json > events.jsonl
    """
    from distrun.cli.event_text import Story
    from distrun.control import Supervised
    from distrun.jobstore import JobStore
    from distrun.record import EventReader

    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    story = Story()
    record = EventReader(str(folder.events_file))
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = stack.enter_context(contextlib.closing(Supervised(folder))) if follow else None
        ended = False
        while not ended:
            ended = supervised is None or supervised.has_ended()
            _put(record, None if as_json else story)
            if supervised is not None and not ended:
                supervised.wait()
    return 0


def _put(record: EventReader, story: Story | None) -> None:
    """What has happened since the last call."""
    try:
        found = record.read_new()
    except FileNotFoundError:  # the job is just being made, or that was as far as it came
        return
    for event in found:
        if story is None:
            console.put(_as_json(event))
            continue
        text = story.tell(event)
        if text is not None:
            console.put(text, indent=story.indent)
            for line in story.details:
                console.put(" " * story.indent + console.printable(line), indent=story.indent + 9)
    sys.stdout.flush()


def _as_json(event: Event) -> str:
    """One line: an event as the record has it, and the version of this form."""
    from distrun.events import encode

    return json.dumps({"version": console.JSON_VERSION, **encode(event)})

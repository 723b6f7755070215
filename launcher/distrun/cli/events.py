"""`distrun events`."""

from __future__ import annotations

import contextlib
import json

import click

from distrun.cli import console
from distrun.cli.options import job_argument


@click.command("events", short_help="Tell what happened to a job.")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(job: str | None, follow: bool, as_json: bool) -> int:
    """Tell what happened to a job, in order; without JOB, to the newest.

    \b
      distrun events mnist
      distrun events -f --json | jq .event
    """
    from distrun import events
    from distrun.cli.story import Story
    from distrun.control import Supervised
    from distrun.jobstore import JobStore

    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    story = Story()
    record = events.EventReader(str(folder.events_file))
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = stack.enter_context(contextlib.closing(Supervised(folder))) if follow else None
        ended = False
        while not ended:
            ended = supervised is None or supervised.has_ended()
            for event in record.read_new():
                text = json.dumps(events.encode(event)) if as_json else story.tell(event)
                console.put(text)
            if supervised is not None and not ended:
                supervised.wait()
    return 0

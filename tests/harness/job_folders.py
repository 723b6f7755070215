"""Folders of jobs whose records have only begun."""

from __future__ import annotations

import os

from distrun.job import events
from distrun.job.folder import JobFolder, JobStore
from distrun.job.record import EventLog
from distrun.spec.model import Timeouts
from distrun.strategies import Success


def add(store: JobStore, name: str, *, order: int = 0) -> JobFolder:
    folder = store.new_folder(name)
    folder.logs.mkdir(parents=True)
    folder.spec_file.write_text("x")
    os.utime(folder.spec_file, ns=(order, order))
    log = EventLog(str(folder.events_file))
    log.append(
        events.JobCreated(
            at=0.0,
            job_id=folder.job_id,
            name=name,
            strategy="default",
            success=Success.ALL,
            spec_file="x",
            supervisor_pid=1,
            timeouts=Timeouts(grace=1.0),
        )
    )
    log.close()
    return folder

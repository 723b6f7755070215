"""An order to stop a job: of a command, in the job's folder, and as the event of its record."""

from __future__ import annotations

import signal as signals
import time

from distrun.agent.protocol import Cause, Code, StopJob
from distrun.codec import decode, encode
from distrun.errors import EXIT_KILLED
from distrun.job.events import StopRequested
from distrun.job.folder import JobFolder, replace_file


def order_of(command: str, signal: int = signals.SIGTERM, grace: float | None = None) -> StopJob:
    """Return what a command asks for. `grace`: seconds to SIGKILL; None: timeouts.grace."""
    return StopJob(Cause(Code.STOPPED_BY_COMMAND, name=command), int(signal), grace, EXIT_KILLED)


def grace_of(order: StopJob, usual: float) -> float:
    return usual if order.grace is None else order.grace


def event_of(order: StopJob, usual_grace: float) -> StopRequested:
    return StopRequested(
        at=time.time(),
        cause=order.cause,
        signal=order.signal,
        grace=grace_of(order, usual_grace),
        exit_code=order.exit_code,
    )


def leave(order: StopJob, folder: JobFolder) -> None:
    """Write it where the batch script, or the supervisor's pod, finds it. Raises OSError."""
    replace_file(folder.stop_file, encode(order))


def left(folder: JobFolder) -> StopJob | None:
    """Return what was left in a job's folder; None: nothing."""
    try:
        return decode(StopJob, folder.stop_file.read_text())
    except (OSError, ValueError):
        return None

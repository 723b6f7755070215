"""An order to stop a job: of a command, for its supervisor, in its folder and in its record."""

from __future__ import annotations

import signal as signals
import time

from distrun.agent.protocol import Cause, Code, StopJob
from distrun.codec import decode, encode
from distrun.errors import EXIT_KILLED
from distrun.frozen import Frozen
from distrun.job.events import StopRequested
from distrun.job.folder import JobFolder, replace_file


class StopOrder(Frozen, kw_only=True):
    """What a command asks for. `grace`: seconds to SIGKILL; None: timeouts.grace of the spec."""

    command: str
    signal: int = int(signals.SIGTERM)
    grace: float | None = None

    @property
    def cause(self) -> Cause:
        return Cause(Code.STOPPED_BY_COMMAND, name=self.command)

    @property
    def message(self) -> StopJob:
        return StopJob(self.cause, self.signal, self.grace, EXIT_KILLED)

    def event(self, usual_grace: float) -> StopRequested:
        """Return the event for the record of a job without a supervisor."""
        return StopRequested(
            at=time.time(),
            cause=self.cause,
            signal=self.signal,
            grace=self.grace_or(usual_grace),
            exit_code=EXIT_KILLED,
        )

    def grace_or(self, usual: float) -> float:
        return usual if self.grace is None else self.grace

    def leave(self, folder: JobFolder) -> None:
        """Write it where the batch script, or the supervisor's pod, finds it. Raises OSError."""
        replace_file(folder.stop_file, encode(self))

    @classmethod
    def left(cls, folder: JobFolder) -> StopOrder | None:
        """Return what was left in a job's folder; None: nothing."""
        try:
            return decode(cls, folder.stop_file.read_text())
        except (OSError, ValueError):
            return None

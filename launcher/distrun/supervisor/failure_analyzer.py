"""Analyzes a job's failures. Errors in the analysis never fail the job."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from typing import TYPE_CHECKING

from distrun.verdict.model import Kind, Verdict

if TYPE_CHECKING:
    from distrun.events import Event
    from distrun.jobstore import JobFolder
    from distrun.lifecycle import JobState
    from distrun.verdict.case import Case
    from distrun.verdict.reading import Tail

_TAIL_BYTES = (64 * 1024, 1024 * 1024)
"""How many bytes of a log's end are read; the second number if the first reaches no line start."""
_MOST_SECONDS = 10.0
"""How long logs are read for one verdict, which must not delay a job's end. It takes some
milliseconds, but a busy machine may stretch them to seconds."""


class FailureAnalyzer:
    """Finds the verdict on each failure of one job, from its events and the ends of its logs."""

    def __init__(self, folder: JobFolder) -> None:
        from distrun.verdict.case import FailureTracker

        self._folder = folder
        self._tracker = FailureTracker()
        self._deadline = 0.0

    def on_event(self, before: JobState, event: Event, after: JobState) -> Verdict | None:
        """Note an event. Returns the verdict on a failure if a restart begins with the event."""
        try:
            case = self._tracker.note(before, event, after)
            return None if case is None else self._judge(case)
        except Exception:  # noqa: BLE001 - an error here must not fail the job
            _log_defect()
            return None

    def on_end(self, state: JobState) -> Verdict | None:
        """Return the verdict on what failed the job; None if nothing did."""
        outcome = state.outcome
        if outcome is None or outcome.result != "failed":
            return None
        try:
            case = self._tracker.last(state)
            return None if case is None else self._judge(case)
        except Exception:  # noqa: BLE001 - see above; the plain cause remains
            _log_defect()
            return Verdict(task=outcome.task, kind=Kind.OTHER, cause=outcome.cause)

    def _judge(self, case: Case) -> Verdict:
        from distrun.verdict.judging import judge

        self._deadline = time.monotonic() + _MOST_SECONDS
        return judge(case, self._tail)

    def _tail(self, task: str) -> Tail:
        from distrun.verdict.reading import Tail

        if time.monotonic() > self._deadline:
            return Tail(b"")
        try:
            with self._folder.log_of(task).open("rb") as file:
                size = file.seek(0, 2)
                tail = Tail(b"")
                for most in _TAIL_BYTES:
                    start = file.seek(max(0, size - most))
                    tail = Tail(file.read(size - start), is_whole=start == 0)
                    if tail.is_enough:
                        break
                return tail
        except OSError:
            return Tail(b"")


def _log_defect() -> None:
    with contextlib.suppress(OSError):
        traceback.print_exc(file=sys.stderr)

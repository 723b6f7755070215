"""Has verdicts found on a job's failures: gives the judge the ends of logs, and never fails it."""

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
"""How much of a log's end is read; the second where the first is no more than one line's end."""
_MOST_SECONDS = 10.0
"""After so long no more logs are read: a verdict must not hold up a job's end. It takes some
milliseconds, but on a busy machine this process may have to wait for seconds amid them."""


class Court:
    def __init__(self, folder: JobFolder) -> None:
        from distrun.verdict.case import FailureTracker

        self._folder = folder
        self._docket = FailureTracker()
        self._deadline = 0.0

    def on_event(self, before: JobState, event: Event, after: JobState) -> Verdict | None:
        """Note an event; a verdict on the failure after which it starts tasks again."""
        try:
            case = self._docket.note(before, event, after)
            return None if case is None else self._judge(case)
        except Exception:  # noqa: BLE001 - nothing that a verdict does may fail a job
            _log_defect()
            return None

    def on_end(self, state: JobState) -> Verdict | None:
        """The verdict on what failed the job; None where nothing did."""
        outcome = state.outcome
        if outcome is None or outcome.result != "failed":
            return None
        try:
            case = self._docket.last(state)
            return None if case is None else self._judge(case)
        except Exception:  # noqa: BLE001 - see above; the plain cause is all that is left
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

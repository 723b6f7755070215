"""What became of tasks whose supervisor died before it could hear: kept beside their logs.

The lines are events as the job's record has them, to be read behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, Iterable

from distrun.agent.protocol import (
    UNSENT_REPORTS,
    Cause,
    Code,
    Report,
    TaskEnded,
    TaskExited,
    TaskNotStarted,
    TaskStarted,
)

_TOLD = (TaskStarted, TaskNotStarted, TaskExited, TaskEnded)
_EXIT_DEFECT = 70  # distrun's own, as sysexits.h's EX_SOFTWARE


def leave(folder: str, unheard: Iterable[Report]) -> None:
    """Write down reports that nobody took; first, why the tasks were ended."""
    told = [_as_event(report) for report in unheard if isinstance(report, _TOLD)]
    if not told:
        return
    lines = [
        {
            "event": "Aborted",
            "at": time.time(),
            "cause": Cause(Code.SUPERVISOR_DIED).to_json(),
            "exit_code": _EXIT_DEFECT,
        },
        *told,
    ]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):  # its folder may be gone, or the disk full
        output = os.open(os.path.join(folder, UNSENT_REPORTS), flags, 0o600)
        os.write(output, text.encode("ascii"))
        os.close(output)


def _as_event(report: Any) -> Dict[str, Any]:
    fields = report._asdict()
    if isinstance(report, TaskNotStarted):
        fields["cause"] = report.cause.to_json()
    return {"event": type(report).__name__, **fields}

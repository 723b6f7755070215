"""Reports of an agent whose supervisor has died, written beside the logs of its tasks.

Each line is an event, as in the job's record. Readers read them after the record.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, Iterable, List

from distrun.agent import protocol
from distrun.agent.linux.regular import open_regular

_RECORDED = (protocol.TaskStarted, protocol.TaskNotStarted, protocol.TaskExited, protocol.TaskEnded)
_EXIT_DEFECT = 70  # distrun's own, as sysexits.h's EX_SOFTWARE


def write(folder: str, unsent: Iterable[protocol.Report]) -> None:
    """Write the reports on tasks, after an event that says why the tasks were ended."""
    found = [report for report in unsent if isinstance(report, _RECORDED)]
    if not found:
        return
    events: List[Dict[str, Any]] = [{"event": type(e).__name__, **e._asdict()} for e in found]
    aborted = {
        "event": "Aborted",
        "at": time.time(),
        "cause": protocol.Cause(protocol.Code.SUPERVISOR_DIED),
        "exit_code": _EXIT_DEFECT,
    }
    lines = [json.dumps(event, separators=(",", ":")) for event in (aborted, *events)]
    text = "".join(line + "\n" for line in lines)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with contextlib.suppress(OSError):  # the folder may be gone, or the disk full
        output = open_regular(os.path.join(folder, protocol.UNSENT_REPORTS), flags)
        os.write(output, text.encode("ascii"))
        os.close(output)

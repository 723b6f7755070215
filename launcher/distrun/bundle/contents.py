"""What is in a bundle, and under which names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.frozen import Frozen
from distrun.job.folder import HISTORY_SUFFIX, LATE_SUFFIX, LOG_SUFFIX

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder

VERSION = 1
MOST_BYTES = 64 << 20
"""Of a file in a bundle. Of a longer one, its beginning is there, up to the end of a line."""
ABOUT, REPORT, README = "bundle.json", "report.html", "README.txt"
TOP = re.compile(r"distrun-([A-Za-z0-9][A-Za-z0-9._-]{0,200})")
_SUFFIXES = "|".join(map(re.escape, (LOG_SUFFIX, LATE_SUFFIX, INDEX_SUFFIX, HISTORY_SUFFIX)))
_TASK_FILE = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,200}}(?:{_SUFFIXES})")


class About(Frozen, kw_only=True):
    """What a bundle says of itself.

    Attributes:
        version: of its form.
        job_id: the job's.
        made_at: Unix time in seconds.
        phase: the job's, as `status` showed it.
        is_running: whether the job had not ended.
        versions: of what is installed where it was made, by the name.
    """

    version: int
    job_id: str
    made_at: float
    phase: str
    is_running: bool
    versions: dict[str, str]


def is_known(name: str, folder: JobFolder) -> bool:
    """Whether a file of that name, relative to the job's folder, belongs to a bundle."""
    place, slash, file = name.rpartition("/")
    if slash:
        is_folder = place in (folder.logs.name, folder.history.name)
        return is_folder and _TASK_FILE.fullmatch(file) is not None
    files = (
        *(folder.spec_file, folder.resolved_spec_file, folder.plan_file, folder.events_file),
        *(folder.supervisor_log, folder.batch_script, folder.batch_log),
    )
    return name in {ABOUT, REPORT, README, *(each.name for each in files)}

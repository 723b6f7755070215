"""Tasks' output: reading logs merged, with a prefix per task, and following them as they grow.

:class:`TaskLog` reads the bytes of a log, and :class:`View` decides how they look. :func:`merged`
reads what has been written, and :class:`Follower` waits for more.
"""

from distrun.logs.follower import Follower
from distrun.logs.merge import merged
from distrun.logs.startup_lines import StartupFilter
from distrun.logs.tail import line_ends
from distrun.logs.task_log import JoinedLog, LatePart, TaskLog
from distrun.logs.view import View

__all__ = [
    "Follower",
    "JoinedLog",
    "LatePart",
    "StartupFilter",
    "TaskLog",
    "View",
    "line_ends",
    "merged",
]

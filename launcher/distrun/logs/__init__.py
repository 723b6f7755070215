"""Tasks' output: reading it back merged, with a prefix per task, and following it as it grows.

The bytes of a log come out of :class:`TaskLog`; :class:`View` decides how they look;
:func:`merged` goes through what is there and :class:`Follower` waits for what comes.
"""

from __future__ import annotations

from distrun.logs.follow import Follower
from distrun.logs.merge import merged
from distrun.logs.tail import line_ends
from distrun.logs.tasklog import TaskLog
from distrun.logs.view import View

__all__ = ["Follower", "TaskLog", "View", "line_ends", "merged"]

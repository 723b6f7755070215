"""Judges before the first task whether a job can run on its hosts.

Pure: the supervisor asks the hosts, and :func:`.judgement.judge` turns their :class:`.Answers` into
checks. Each check has a cause with a code; only the command line puts it into words. The package
itself has only what the record needs.
"""

from distrun.preflight.checks import Check, Grade

__all__ = ["Check", "Grade"]

"""Judges before the first task whether a job can run on its hosts.

Pure: the supervisor asks the hosts, and :func:`judge` turns their answers into checks. Each check
has a cause with a code; only the command line puts it into words.
"""

from distrun.preflight.answers import Answers, HostAnswers
from distrun.preflight.checks import Check, Grade, Subject
from distrun.preflight.judgement import judge

__all__ = ["Answers", "Check", "Grade", "HostAnswers", "Subject", "judge"]

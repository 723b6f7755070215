"""Whether a job can run on its hosts: what was found out there, judged before it starts.

Pure: :mod:`distrun.supervisor.preflight` asks the hosts, and gives what they said to
:func:`judge`.
"""

from distrun.preflight.checks import SUBJECTS, Check, Grade
from distrun.preflight.findings import Findings, HostFindings
from distrun.preflight.judgement import judge

__all__ = ["SUBJECTS", "Check", "Findings", "Grade", "HostFindings", "judge"]

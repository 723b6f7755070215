"""Why Slurm ended a step or a job, and what to ask for next time."""

from __future__ import annotations

import re

from distrun.agent.protocol import Cause, Code

CODES = {
    "TIMEOUT": Code.SLURM_TIME_LIMIT,
    "DEADLINE": Code.SLURM_TIME_LIMIT,
    "OUT_OF_MEMORY": Code.SLURM_OUT_OF_MEMORY,
    "PREEMPTED": Code.SLURM_PREEMPTED,
    "NODE_FAIL": Code.SLURM_NODE_FAILED,
    "BOOT_FAIL": Code.SLURM_NODE_FAILED,
    "CANCELLED": Code.SLURM_CANCELLED,
    "REVOKED": Code.SLURM_CANCELLED,
}
"""Slurm's states of jobs that did not end by themselves."""
_PHRASES = (
    (Code.SLURM_TIME_LIMIT, r"DUE TO TIME LIMIT|DUE TO JOB REACHING DEADLINE"),
    (Code.SLURM_PREEMPTED, r"DUE TO PREEMPTION|DUE TO JOB REQUEUE"),
    (Code.SLURM_NODE_FAILED, r"DUE TO NODE FAILURE|Node failure on|Lost node|node failure"),
    (
        Code.SLURM_OUT_OF_MEMORY,
        r"oom[-_]kill event|Out Of Memory|OOM Killed|[Ee]xceeded (?:step |job )?memory limit",
    ),
    (Code.SLURM_CANCELLED, r"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT"),
)
"""What srun and slurmstepd write to standard error; the first that is found counts."""
_LONGEST = 300


def find(text: str, job: str) -> Cause | None:
    """Return why Slurm ended a step, from the standard error of its srun; None: it did not."""
    for code, pattern in _PHRASES:
        for line in reversed(text.splitlines()):
            if re.search(pattern, line):
                return Cause(code, name=job, text=line.strip()[:_LONGEST])
    return None


def cause(text: str, status: int | None, job: str) -> Cause:
    """Return why a step could not be started, or ended, in srun's own words if need be.

    Args:
        text: the standard error of srun.
        status: how srun exited, as Popen has it; None: it ran for too long.
        job: the job's id.
    """
    found = find(text, job)
    if found is not None:
        return found
    words = last_words(text)
    if status is None:
        return Cause(Code.SRUN_TIMED_OUT, name=job, text=words)
    if status < 0:
        return Cause(Code.SRUN_FAILED, name=job, signal=-status, text=words)
    return Cause(Code.SRUN_FAILED, name=job, status=status, text=words)


def is_from_slurm(text: str) -> bool:
    """Whether Slurm itself complains in a standard error of srun."""
    errors = ("srun: error:", "slurmstepd: error:")
    return any(line.startswith(errors) for line in text.splitlines())


def last_words(text: str) -> str:
    """Return the line of a standard error of srun that says most: the last error, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return (errors or lines or [""])[-1][:_LONGEST]

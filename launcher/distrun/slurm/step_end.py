"""Why Slurm ended a step or a job, and what to ask for next time."""

from __future__ import annotations

import re
import time

from distrun.agent.protocol import Cause, Code
from distrun.job.scheduler import SchedulerError
from distrun.slurm import commands

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
_OF_JOB = re.compile(
    r"has expired|already completing|Invalid job id|[Cc]redential revoked|[Jj]ob .*ending"
)
"""srun's words if the whole job has ended, or is about to."""
_STATE_SECONDS = 5.0
_COMPLETING_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
"""A job whose processes are being ended has its last state only afterwards."""
_WORDS_SECONDS = 0.5
"""After SIGTERM, Slurm's words may come so much later."""
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

    `text`: the standard error of srun. `status`: its exit, as Popen has it; None: it ran too long.
    """
    found, words = find(text, job), last_words(text)
    if found is not None or status is None:
        return found or Cause(Code.SRUN_TIMED_OUT, name=job, text=words)
    if status < 0:
        return Cause(Code.SRUN_FAILED, name=job, signal=-status, text=words)
    return Cause(Code.SRUN_FAILED, name=job, status=status, text=words)


def may_be_of_job(text: str, found: Cause) -> bool:
    """Whether :func:`ask` may know more than what was found in the standard error of srun.

    Of the steps of a preempted job, srun says only that they end.
    """
    is_named = find(text, found.name) is not None
    return found.code is Code.SLURM_CANCELLED or (not is_named and bool(_OF_JOB.search(text)))


def ask(job: str) -> Cause | None:
    """Ask Slurm why it ends the steps of a job; None: it does not, or cannot be asked.

    Takes seconds, at least as long as Slurm's words to a step may need if they are all that tells.
    """
    due = time.monotonic() + _WORDS_SECONDS
    found = of_job(job)
    shown = "" if found else _answer("scontrol", "-o", "show", "job", job)
    if re.search(r" PreemptTime=\d", shown):  # it needs the nodes of the job
        return Cause(Code.SLURM_PREEMPTED, name=job)
    if found is None:
        time.sleep(max(0.0, due - time.monotonic()))
    return found


def joined(words: Cause | None, answer: Cause | None) -> Cause | None:
    """Return why a step ended, by srun's words and by what Slurm says of the job."""
    if words is None or answer is None:
        return words or answer
    is_preempted = answer.code is Code.SLURM_PREEMPTED and words.code is Code.SLURM_CANCELLED
    return words._replace(code=answer.code) if is_preempted else words


def of_job(job: str) -> Cause | None:
    """Return why Slurm ended a job; None: it did not, or cannot be asked."""
    due = time.monotonic() + _COMPLETING_SECONDS
    while (state := _state(job)) == "COMPLETING" and time.monotonic() < due:
        time.sleep(_PAUSE_SECONDS)
    code = CODES.get(state)
    return None if code is None else Cause(code, name=job)


def _state(job: str) -> str:
    """Return a job's state: as slurmctld remembers it, else as the accounting has it; or ''."""
    answer = _answer("scontrol", "-o", "show", "job", job)
    if not answer:
        state = _answer("sacct", "-nPX", "-j", job, "-o", "State")
        return state.partition(" ")[0]  # `CANCELLED by 1000`
    found = re.search(r" JobState=(\w+)", answer)
    return "" if found is None else found[1]


def _answer(*command: str) -> str:
    """Return what a command prints; '': it fails."""
    try:
        return commands.run(*command, limit=_STATE_SECONDS)
    except SchedulerError:
        return ""


def is_from_slurm(text: str) -> bool:
    """Whether Slurm itself complains in a standard error of srun."""
    errors = ("srun: error:", "slurmstepd: error:")
    return any(line.startswith(errors) for line in text.splitlines())


def last_words(text: str) -> str:
    """Return the line of a standard error of srun that says most: the last error, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    line = (errors or lines or [""])[-1]
    return re.sub(r"^(?:srun|slurmstepd\S*): error: ", "", line)[:_LONGEST]

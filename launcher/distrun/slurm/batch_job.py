"""A job in the queue of Slurm: its state by squeue, or by sacct if squeue has forgotten it.

It is a :class:`~distrun.job.queued_job.Scheduler`. All functions but :func:`longest` raise
SchedulerError.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable

from distrun.agent.protocol import Cause, Code
from distrun.job.folder import BatchJob, JobFolder
from distrun.job.scheduler import MissingCommandError, QueueEntry, SchedulerError
from distrun.slurm import commands, step_end

NAME = "Slurm"
SHOW, END = "scontrol show job", "scancel"
_PENDING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""All other states, also those of later versions, are of jobs that wait or run."""
_SQUEUE = "%i|%T|%S|%e|%r"
_SACCT = "JobIDRaw,State,Start,End,Reason"
_UNKNOWN = ("Invalid job id", "Invalid job ID")


def find(batches: Iterable[BatchJob]) -> dict[str, QueueEntry]:
    """Return what Slurm says of jobs, by its ids. Those that it does not know any more lack."""
    wanted = [each for each in dict.fromkeys(batch.id for batch in batches) if each]
    if not wanted:
        return {}
    found = _read("squeue", "-h", "-t", "all", "-j", ",".join(wanted), "-o", _SQUEUE)
    missing = [each for each in wanted if each not in found]
    if missing:
        # Without accounting, sacct fails.
        found |= _read("sacct", "-nPX", "-j", ",".join(missing), "-o", _SACCT, may_fail=True)
    return {each: found[each] for each in wanted if each in found}


def _read(*command: str, may_fail: bool = False) -> dict[str, QueueEntry]:
    try:
        answer = commands.run(*command)
    except (commands.FailedCommandError, MissingCommandError) as error:
        printed = getattr(error, "printed", "")
        if may_fail or any(each in printed for each in _UNKNOWN):
            return {}
        raise
    entries = {}
    for line in answer.splitlines():
        if line.startswith("CLUSTER: "):  # where SLURM_CLUSTERS is set
            continue
        fields = line.split("|", 4)
        if len(fields) != 5 or not fields[0] or not fields[1]:
            raise commands.unexpected(" ".join(command), line)
        number, state, starts, ends, reason = fields
        is_reason = reason not in ("None", "")
        state = state.split()[0].rstrip("+")  # `CANCELLED by 1000`
        code = step_end.CODES.get(state, Code.SLURM_JOB_ENDED)
        text = state if code is Code.SLURM_JOB_ENDED else ""
        entries[number] = QueueEntry(
            id=number,
            scheduler=NAME,
            state=state,
            is_pending=state in _PENDING,
            is_active=state not in _ENDED,
            cause=Cause(code, name=number, text=text) if state in _ENDED else None,
            reason=reason if is_reason else "",
            starts_at=_time(starts),
            ends_at=_time(ends),
        )
    return entries


def refresh(folder: JobFolder, batch: BatchJob, seconds: float | None = None) -> bool:
    """Do nothing: the files of the job are on a file system that all hosts share."""
    del folder, batch, seconds
    return True


def _time(text: str) -> float | None:
    """Return a local time in Slurm's form; None: it is not known."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def python_beside(folder: JobFolder, batch: BatchJob, code: str) -> list[str]:
    """Return a command that runs a program beside the batch script. Its argument is the folder."""
    node = commands.run("squeue", "-h", "-j", batch.id, "-o", "%B")
    options = [f"--jobid={batch.id}", f"--nodelist={node}", *commands.STEP_OPTIONS]
    unset = [f"-u{each}" for each in commands.option_variables()]  # of another job, perhaps
    python = [sys.executable, "-I", "-S", "-c", code, str(folder.path)]
    return ["env", *unset, "srun", *options, *python]


def signal(folder: JobFolder, batch: BatchJob) -> None:  # noqa: ARG001 - all schedulers have it
    """Send SIGTERM to the batch script of a running job."""
    commands.run("scancel", "--batch", "--signal=TERM", batch.id)


def cancel(batch: BatchJob, *, only_pending: bool = False) -> None:
    """Remove a job from the queue, or end it. `only_pending`: not if it has started."""
    commands.run("scancel", *(["--state=PENDING"] if only_pending else []), batch.id)


def requeue(number: str) -> None:
    """Put a running job back into the queue; that ends its batch script."""
    commands.run("scontrol", "requeue", number)


def is_requeued(number: str) -> bool:
    """Whether Slurm, or a person, has put the job of this batch script back into the queue."""
    shown = commands.run("scontrol", "-o", "show", "job", number)
    before = os.environ.get("SLURM_RESTART_COUNT", "0")
    return re.search(rf" Restarts=(?!{before}\b)\d", shown) is not None


def submit(script: str) -> str:
    """Queue a batch script; return Slurm's id of the job."""
    answer = commands.run("sbatch", "--parsable", given=script)
    found = re.findall(r"^([0-9]+)(?:;.*)?$", answer, re.MULTILINE)  # a site's plugins print, too
    if not found:
        raise commands.unexpected("sbatch --parsable", answer)
    number: str = found[-1]
    return number


def try_out(script: str) -> float | None:
    """Have Slurm check a batch script; return when it would start (Unix time), if Slurm says so."""
    answer = commands.run("sbatch", "--test-only", given=script, errors=True)
    found = re.search(r" to start at (\S+)", answer)
    return None if found is None else _time(found[1])


def longest(partition: str | None) -> float | None:
    """Return how many seconds a job may take in a partition, or in the default one, if known.

    Most clusters queue jobs that ask for more, and never start them.
    """
    try:
        answer = commands.run("sinfo", "-h", "-o", "%P|%l")
    except SchedulerError:
        return None
    names = [] if partition is None else partition.split(",")
    limits = []
    for line in answer.splitlines():
        name, _, limit = line.strip().partition("|")
        if name.rstrip("*") in names or (not names and name.endswith("*")):
            limits.append(_seconds(limit))
    known = [each for each in limits if each is not None]
    return max(known) if known and len(known) == len(limits) else None


def _seconds(text: str) -> float | None:
    """Return a time such as `1-02:30:00` or `30:00`; None: it is none."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds

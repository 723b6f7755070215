"""What a job needs to be resumed: the checks before it, and the spec that it had."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from distrun.agent.protocol import Code
from distrun.codec import decode
from distrun.errors import HostError, UsageError
from distrun.frozen import Frozen, replace
from distrun.job import record
from distrun.job.events import Result
from distrun.job.folder import JobFolder
from distrun.lifecycle import JobState
from distrun.spec.model import Spec
from distrun.spec.regular_file import read_regular_file

_LARGEST_SPEC = 64 << 20
"""Bytes."""


class Resumption(Frozen, kw_only=True):
    """A job that is resumed: its folder, its state until now, and what is changed, in words.

    `assumed_dead`: the hosts on which nothing of it runs any more; that is not verified.
    """

    folder: JobFolder
    former: JobState
    changes: tuple[str, ...]
    assumed_dead: tuple[str, ...] = ()


def is_resumable(state: JobState) -> bool:
    """Whether a job that does not run can be resumed: it has not succeeded."""
    return state.outcome is None or state.outcome.result is not Result.SUCCEEDED


def was_interrupted(folder: JobFolder) -> bool:
    """Whether a job was lost, or the shutdown of this machine has ended its supervisor.

    Of a submitted job, that is a matter of its scheduler.
    """
    if folder.batch_job() is not None or folder.supervisor_pid() is not None:
        return False
    state = folder.state()
    if not state.phase.is_final or state.outcome is None:
        return is_resumable(state)
    cause = state.outcome.cause
    is_signalled = any(each.code is Code.SUPERVISOR_SIGNALLED for each in cause.within)
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return is_signalled and (state.ended_at or 0.0) < booted_at


def require_resumable(folder: JobFolder, state: JobState) -> None:
    """Check that a job whose supervisor does not live can be resumed.

    Raises:
        UsageError: it has succeeded.
        HostError: its record is damaged.
    """
    if not is_resumable(state):
        raise UsageError(
            f"job {folder.job_id} has succeeded: there is nothing to resume",
            hint="to run it again, repeat the command that started it",
        )
    if record.fault(str(folder.events_file)) is not None:
        raise unknown_hosts_error(folder, "launch it again")


def unknown_hosts_error(folder: JobFolder, hint: str) -> HostError:
    what = f"the record of job {folder.job_id} is damaged"
    text = f"{what}, so it is not known where its tasks may run"
    return HostError(text, hint=f"{hint}; its record: {folder.path}")


def require_former_hosts(state: JobState, hosts: Sequence[str]) -> None:
    """Check that earlier attempts of a job may run on these hosts.

    Raises:
        UsageError: they cannot.
    """
    # A task's host may be one of an attempt before a resume that failed.
    former = {*state.former_hosts, *state.hosts, *(task.host for task in state.tasks.values())}
    left = ", ".join(sorted(former)) or "no host"
    for host in hosts:
        if host not in former:
            raise UsageError(
                f"--assume-dead {host}: no task of job {state.job_id} is left there to verify",
                hint=f"leave it out; something may be left on {left}",
            )


def running_error(folder: JobFolder) -> UsageError:
    job_id, pid = folder.job_id, folder.supervisor_pid()
    client = folder.connect()
    if pid is None or (client is None and not folder.is_suspended):  # no supervisor has its lock
        what = f"job {job_id} is being ended, resumed or removed by another command"
        return UsageError(what, hint="when that has ended, try again")
    if client is not None:
        client.close()
    how = f"to follow it: distrun logs -f {job_id}"
    if folder.is_suspended:
        how = f"to let it continue: kill -CONT {pid}"
    return UsageError(
        f"job {job_id} is running (supervisor: {folder.supervisor_place})",
        hint=f"{how}; to end it: distrun kill {job_id}",
    )


def recorded_spec(folder: JobFolder) -> Spec:
    """Return the spec with which a job ran last.

    Raises:
        HostError: it cannot be read.
    """
    path = folder.resolved_spec_file
    try:
        return decode(Spec, read_regular_file(str(path), largest=_LARGEST_SPEC) or b"")
    except ValueError as error:
        what = "a damaged spec.json" if os.path.lexists(path) else "no spec.json"
        raise HostError(
            f"job {folder.job_id} has {what}: its disk was full, or it is too old",
            hint="repeat the command that started it; its spec was "
            f"{folder.shown(folder.spec_file)}",
        ) from error


def spec_of(
    folder: JobFolder, changes: Sequence[str] = (), args: Sequence[str] | None = None
) -> Spec:
    """Return the spec with which a job ran last, with further changes, `PATH=VALUE` each.

    `args`: see :func:`.loader.reload`.

    Raises:
        HostError: its spec cannot be read.
        InvalidSpecError: the changed spec is invalid.
        UsageError: a change concerns the job's name.
    """
    spec = recorded_spec(folder)
    allocation = os.environ.get("SLURM_JOB_ID")
    moves = allocation and any(each.slurm and each.slurm.job != allocation for each in spec.hosts)
    is_changed = bool(changes) or args is not None
    if not is_changed and not moves:  # in another allocation: other nodes
        return spec
    from distrun.spec.loader import reload

    changed = reload(spec, changes, args, is_submitted=is_changed and bool(folder.batch_job()))
    if changed.name != spec.name:
        raise UsageError(f"job {folder.job_id} keeps its name, {spec.name!r}")
    return replace(changed, workers=changed.workers or spec.workers)


def require_workdir(folder: JobFolder, changes: Sequence[str]) -> None:
    """Check that the folder of a job's tasks on this machine is there, or is changed.

    Raises:
        UsageError: it is gone.
    """
    spec = recorded_spec(folder)
    workdir = spec.program.workdir
    is_here = any(host.is_local and not host.workdir for host in spec.hosts)
    is_set = any(each.startswith("program.workdir=") for each in changes)
    if is_here and not is_set and not os.path.isdir(workdir):
        raise UsageError(
            f"job {folder.job_id} runs in {workdir}, which is gone",
            hint="if the folder has moved, go to where the spec or the script is now: "
            f"distrun resume {folder.job_id} --set program.workdir=.",
        )

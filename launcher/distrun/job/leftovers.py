"""What is left of a job whose supervisor does not live: on this machine and on its other hosts.

Which processes are the job's is decided by :func:`distrun.agent.linux.job_processes.find`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from distrun.agent.linux import job_processes
from distrun.agent.loop import Loop
from distrun.agent.protocol import KILL_GRACE, Cause, Code, StopJob
from distrun.errors import EXIT_KILLED, DistrunError, HostError
from distrun.frozen import Frozen, replace
from distrun.job import record, resumption
from distrun.job.events import HostCleared, JobEnded, Outcome
from distrun.job.record import EventLog
from distrun.job.stop_order import event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distrun.agent.linux.job_processes import Ended, Traces
    from distrun.job.folder import JobFolder
    from distrun.lifecycle import JobState
    from distrun.supervisor.hosts.former_agents import FormerAgent

_LOCK_SECONDS = 30.0
"""How long another command may take that ends the same job."""
_POLL_SECONDS = 0.1


class Left(Frozen, kw_only=True):
    """What was left of a job, and was ended.

    Attributes:
        state: the job's, now.
        count: how many processes there were on this machine.
        own: the ids of those that run no task, such as an ssh client, and do not end.
        hosts: the other hosts on which nothing is left now, which was not known before.
        errors: what was not ended, or could not be verified.
    """

    state: JobState
    count: int
    own: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    errors: tuple[DistrunError, ...] = ()


def exist_here(folder: JobFolder) -> bool:
    return bool(job_processes.find(folder.traces(folder.state())))


def end_here(known: Traces) -> Ended:
    """End a job's processes on this machine. Returns how many there were.

    Raises:
        HostError: some of its tasks do not end.
    """
    ended = job_processes.end_all(known, KILL_GRACE)
    if ended.left:
        pids = " ".join(str(each.pid) for each in ended.left)
        raise HostError(cause=Cause(Code.PROCESSES_NOT_ENDED, text=pids))
    return ended


def unverified_hosts(state: JobState) -> tuple[str, ...]:
    """Return the hosts where tasks may still run, of a job whose supervisor does not live."""
    hosts = {**state.former_hosts, **state.hosts}
    return tuple(name for name, host in hosts.items() if host.token and not host.has_ended)


def places(folder: JobFolder, state: JobState) -> tuple[str, ...]:
    """Return where processes may run of a job whose supervisor does not live: `here`, and hosts.

    Hosts that were not reached are not among them once their lease is over.
    """
    here = ("here",) if exist_here(folder) else ()
    lease = state.timeouts.link
    may_last = lease is None or folder.last_change() + lease > time.time()
    return here + tuple(f"on {host}" for host in unverified_hosts(state) if may_last)


def end(
    folder: JobFolder,
    cause: Cause,
    on_delay: Callable[[str, Cause], None] = lambda _host, _cause: None,
    *,
    has_just_ended: bool = False,
) -> Left:
    """End what is left of a job whose supervisor does not live, and record that.

    Nothing else may start or resume the job meanwhile.

    Args:
        folder: the job's.
        cause: who asks, for the record.
        on_delay: called with a host that does not answer, and why.
        has_just_ended: whether its supervisor has just ended. Hosts that it could not reach are not
            tried again then.

    Raises:
        UsageError: another command resumes the job.
    """
    with _locked(folder):
        ended, errors = None, list[DistrunError]()
        try:
            ended = end_here(folder.traces(folder.state()))
        except HostError as error:
            errors.append(error)
        state = folder.state()  # agents write reports until they end
        lost = unverified_hosts(state)
        if lost and has_just_ended:
            errors.append(unreached_error(folder, lost))
            lost = ()
        hosts, uncleared = _clear_hosts(folder, state, lost, on_delay)
        errors += uncleared
        file = str(folder.events_file)
        # Without a record, no task has begun.
        is_incomplete = os.path.lexists(file) and record.fault(file) is not None
        if not state.phase.is_final and is_incomplete and _may_use_hosts(folder):
            hint = "they were ended on this machine; look at the others"
            errors.append(resumption.unknown_hosts_error(folder, hint))
        with contextlib.suppress(OSError):  # it cannot be written: nothing is resumed from it
            _record(folder, state, hosts, None if errors else cause)
        state = folder.state()
    return Left(
        state=state,
        count=0 if ended is None else ended.count,
        own=() if ended is None else tuple(each.pid for each in ended.own),
        hosts=tuple(sorted(hosts, key=lambda host: (len(host), host))),
        errors=tuple(errors),
    )


@contextlib.contextmanager
def _locked(folder: JobFolder) -> Iterator[None]:
    """Hold the job's lock: a command that resumes it waits, or is waited for."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder.locked(_LOCK_SECONDS))
        except BlockingIOError:
            raise resumption.running_error(folder) from None
        except OSError:
            pass  # where the lock cannot be written, nothing can be resumed either
        yield


def _may_use_hosts(folder: JobFolder) -> bool:
    """Whether the spec has hosts with agents that can outlive their supervisor."""
    from distrun.supervisor.hosts.former_agents import make_former_reach
    from distrun.supervisor.hosts.reach import Lifetime

    try:
        spec = resumption.spec_of(folder, ())
    except DistrunError:
        return True
    reaches = (make_former_reach(host.name, spec) for host in spec.hosts)
    return any(reach.lifetime is not Lifetime.SUPERVISOR for reach in reaches)


def unreached_error(folder: JobFolder, hosts: tuple[str, ...]) -> HostError:
    names = ", ".join(hosts)
    return HostError(
        f"tasks of job {folder.job_id} may still run on {names}, which could not be reached",
        hint=f"end them there, or try again: distrun kill {folder.job_id}",
    )


def unended_error(folder: JobFolder, state: JobState) -> HostError | None:
    from distrun.words.causes import cause_text  # slow; most jobs need none of it

    for host in state.hosts.values():
        if host.lost is not None and host.lost.code is Code.PROCESSES_NOT_ENDED:
            return HostError(
                f"job {folder.job_id} is not all ended on {host.name}: {cause_text(host.lost)}",
                hint=f"to end them later: distrun kill {folder.job_id}",
            )
    return None


def _clear_hosts(
    folder: JobFolder,
    state: JobState,
    names: tuple[str, ...],
    on_delay: Callable[[str, Cause], None],
) -> tuple[list[str], list[DistrunError]]:
    """End what is left on other hosts. Returns the hosts without anything left, and the errors."""
    if not names:
        return [], []
    # Imported here because few jobs are lost with hosts.
    from distrun.supervisor.hosts.former_agents import FormerAgents, find_former_agents
    from distrun.supervisor.hosts.link import Links

    try:
        spec = resumption.spec_of(folder, ())
    except DistrunError as error:
        reason = HostError(
            f"tasks of job {folder.job_id} may still run on {', '.join(names)}: {error.message}",
            hint="end them there",
        )
        return [], [reason]
    cleared: list[str] = []
    errors: list[DistrunError] = []

    def on_finished(agent: FormerAgent) -> None:
        if agent.error is None:
            cleared.append(agent.name)
        else:
            errors.append(HostError(cause=agent.error))

    hosts = {**state.former_hosts, **state.hosts}
    searched = replace(state, former_hosts={name: hosts[name] for name in names})
    loop = Loop()
    links = Links(loop, folder.job_id)
    found = find_former_agents(links, spec, state, searched, folder)
    # What Slurm started ends with its srun.
    cleared += set(names) - {each.name for each in found}
    agents = FormerAgents(on_finished, lambda agent, cause: on_delay(agent.name, cause))
    agents.clear(found)
    try:
        while agents:
            loop.turn(_POLL_SECONDS)
            links.check_exits()
    finally:
        agents.give_up()
        loop.close()
    return cleared, errors


def _record(folder: JobFolder, state: JobState, hosts: list[str], cause: Cause | None) -> None:
    """Note the hosts on which nothing is left, and that a command has ended a job that was lost.

    Without a cause, the job may not have ended. Raises OSError.
    """
    is_lost = not state.phase.is_final
    if not (hosts or (is_lost and cause)):
        return
    file = str(folder.events_file)
    if record.fault(file) is not None:
        return  # what is added would be taken for the whole
    with contextlib.closing(EventLog(file)) as log:
        if is_lost:
            folder.absorb_unsent_reports(log)
        if is_lost and cause:
            order = StopJob(cause, signal.SIGTERM, KILL_GRACE, EXIT_KILLED)
            log.append(event_of(order, KILL_GRACE))
        for host in hosts:
            log.append(HostCleared(at=time.time(), host=host))
        if is_lost and cause:
            outcome = Outcome.stopped(EXIT_KILLED, cause, Cause(Code.SUPERVISOR_DIED))
            log.append(JobEnded(at=time.time(), outcome=outcome))

"""The supervisor's process: it receives one job from its launch command and runs it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from distrun.agent import protocol
from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.channel import Channel
from distrun.codec import encode, from_json
from distrun.errors import DistrunError, HostError, InternalError, UsageError
from distrun.frozen import replace
from distrun.job import folder as job_folder
from distrun.job import leftovers, resumption
from distrun.job.scheduler import SUBMITTED
from distrun.lifecycle import JobState
from distrun.spec.model import Spec
from distrun.supervisor import forked_process, guard
from distrun.supervisor.clients import Client
from distrun.supervisor.hosts.local import become_supervisor
from distrun.supervisor.supervisor import Supervisor

_OPENING_SECONDS = 60.0


def main() -> NoReturn:
    """Run the job that comes over the descriptor in argv[2]; never returns."""
    descriptor = int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    launch: Client = Channel(descriptor, descriptor, protocol.Request)
    syscalls.become_subreaper()
    become_supervisor()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not ignored, because child processes would inherit that; ssh ends a proxy's command with it.
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    try:
        order, early = _first_messages(launch)
        supervisor = None
        if order is not None:
            _take_job(order.job_id)
            supervisor = _open(launch, order)
    except DistrunError as error:
        _refuse(launch, error)
        os._exit(error.exit_code)
    except BaseException:  # noqa: BLE001 - a defect, before there are tasks
        _end_by_defect()
    if supervisor is None:
        os._exit(0)  # the launch command ended before it sent a job
    try:
        supervisor.run(early)
    except BaseException as error:  # noqa: BLE001 - a defect: the traceback belongs in the log
        _end_by_defect(supervisor, error)
    os._exit(0)


def _end_by_defect(
    supervisor: Supervisor | None = None, error: BaseException | None = None
) -> NoReturn:
    """Print the traceback of the present error, and end with all that is left of the job."""
    try:
        with contextlib.suppress(OSError):
            traceback.print_exc()
        if supervisor is not None and error is not None:
            supervisor.end_after_defect(error)
    except BaseException:  # noqa: BLE001 - also when nothing works any more
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        try:
            guard.end_processes()
        finally:
            os._exit(InternalError.exit_code)


def _take_job(job_id: str) -> None:
    """Live on without the launch command, whose fork this may be, under the job's name."""
    forked_process.set_token("")  # that of a job whose task has launched this one
    if os.environ.get("DISTRUN_JOB_ID") != job_id:
        forked_process.rename(f"distrun: supervisor of {job_id}", job_id)
    syscalls.live_without_parent()


def _open(launch: Client, order: protocol.OpenJob) -> Supervisor:
    spec = _with_context(from_json(Spec, order.spec))
    folder = job_folder.JobFolder(Path(order.folder))
    manifest = None
    if order.files is not None:
        from distrun.sync.manifest import Manifest

        manifest = from_json(Manifest, order.files)
    source = order.source.encode("utf-8", "surrogateescape")
    created = former = None
    try:
        if order.changes is None:
            folder = created = job_folder.create(folder, source)
        else:
            folder, former = _reopen(folder)
        # Everything that this process starts has it, too.
        forked_process.set_token(folder.token)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        log = os.open(folder.supervisor_log, flags, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        supervisor = Supervisor(folder, spec, launch, order, manifest, former)
        _write_spec(folder, spec, is_resumed=former is not None)
    except OSError as error:
        if created is not None:
            with contextlib.suppress(OSError):
                created.remove()
        path, errno = str(folder.path), error.errno or 0
        cause = Cause(Code.JOB_FOLDER_NOT_CREATED, path=path, errno=errno)
        if former is not None:
            path = folder.shown(Path(error.filename or folder.events_file))
            cause = Cause(Code.RECORD_NOT_WRITTEN, path=path, errno=errno, name="DISTRUN_HOME")
        raise HostError(cause=cause) from error
    return supervisor


def _with_context(spec: Spec) -> Spec:
    """Return a spec whose pods stay where they are, whatever context kubectl is given later."""
    settings = spec.kubernetes
    if settings is None or SUBMITTED in os.environ or not any(host.pod for host in spec.hosts):
        return spec
    from distrun.kubernetes import kubectl

    context, namespace = kubectl.pinned(settings.context, settings.namespace)
    return replace(spec, kubernetes=replace(settings, context=context, namespace=namespace))


def _write_spec(folder: job_folder.JobFolder, spec: Spec, *, is_resumed: bool) -> None:
    """Write the spec for a later resume. Raises OSError if a resumed job's cannot be replaced."""
    try:
        job_folder.replace_file(folder.resolved_spec_file, encode(spec))
    except OSError:
        if is_resumed:
            raise  # a new job runs without; its record will say so if the disk is full


def _reopen(folder: job_folder.JobFolder) -> tuple[job_folder.JobFolder, JobState]:
    """Return a job that is resumed, locked, and its state. Raises DistrunError: it cannot be."""
    try:
        opened = job_folder.reopen(folder.path)
    except BlockingIOError:
        raise resumption.running_error(folder) from None
    except PermissionError:
        raise UsageError(
            f"job {folder.job_id} belongs to another user, or other users can change it",
            hint=f"its record: {folder.path}",
        ) from None
    except FileNotFoundError:
        raise UsageError(f"job {folder.job_id} has just been removed") from None
    resumption.require_resumable(opened, opened.state())
    leftovers.end_here(opened.traces(opened.state()))
    state = opened.state()  # agents may have written reports until now
    opened.job_record = job_folder.JobRecord(opened)  # the supervisor needs no event again
    return opened, state


def _first_messages(launch: Client) -> tuple[protocol.OpenJob | None, list[protocol.Request]]:
    """The job, and the requests that arrived with it, such as a stop."""
    deadline = time.monotonic() + _OPENING_SECONDS
    while not launch.ended and time.monotonic() < deadline:
        syscalls.wait_until_ready([launch.reader], (), deadline - time.monotonic())
        messages = [message for _, message in launch.receive()]
        if messages and isinstance(messages[0], protocol.OpenJob):
            return messages[0], messages[1:]
    return None, []


def _refuse(launch: Client, error: DistrunError) -> None:
    launch.send(protocol.Refused(error.as_cause(), error.exit_code))
    launch.drain()


if __name__ == "__main__":
    main()

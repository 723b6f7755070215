"""A submitted job in Kubernetes: a Job whose pod has the supervisor, and the Job of its pods.

The job's folder is in the supervisor's pod, or on its volume. This machine has a copy, which each
command brings up to date. It is a :class:`~distrun.job.queued_job.Scheduler`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.causes import CauseError
from distrun.frozen import replace
from distrun.job import held_package
from distrun.job.folder import NOT_COPIED, BatchJob, JobFolder, JobStore, create, replace_file
from distrun.job.scheduler import MissingCommandError, QueueEntry, RefusedError, SchedulerError
from distrun.kubernetes import kubectl, manifest, pods

NAME = "Kubernetes"
SHOW, END = "kubectl describe job", "kubectl delete job"
_ANSWER_SECONDS = 15.0
"""How long the pod may be silent."""
_ADOPT_SECONDS = 5.0
_MOST_BYTES, _LONGEST_HEADER = 1 << 28, 1 << 20
"""Of a part of a file, and of the line before it. The pod may send anything."""
_RETRY_SECONDS = 2.0
_WRONG = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""What a wrong answer leads to."""
_NAME_CHARACTERS = 50
_JOB_ID = re.compile(r"[a-z0-9][-a-z0-9]{0,99}")
_COPIED = re.compile(r"(?:(?:logs|history)/)?[^/.][^/]*|results(?:/(?!\.\.?(?:/|\Z))[^/]+)+")


def words(batch: BatchJob) -> list[str]:
    """Return kubectl with a job's context and namespace. Raises MissingCommandError."""
    try:
        return kubectl.words(batch.context, batch.namespace)
    except CauseError as error:
        raise MissingCommandError(cause=error.cause) from None


def run(command: list[str], *given: Any, read: Any = None, **options: Any) -> Any:
    """Return what a kubectl prints, or what `read` makes of it. Raises SchedulerError: it fails."""
    try:
        return (read or kubectl.run)(command, *given, **options)
    except CauseError as error:
        kind = RefusedError if kubectl.is_refused(error.cause) else SchedulerError
        raise kind(cause=error.cause) from None


def in_pod(batch: BatchJob, what: str, *args: str) -> list[str]:
    """Return a command that does something in the supervisor's pod, see :mod:`.in_pod`."""
    code = held_package.read(str(Path(__file__).with_name("in_pod.py"))).decode()
    return _python(batch, code, what, *args)


def python_beside(folder: JobFolder, batch: BatchJob, code: str) -> list[str]:
    """Return a command that runs a program in the supervisor's pod. Its argument is the folder."""
    return _python(batch, code, folder_in_pod(folder.job_id))


def _python(batch: BatchJob, code: str, *args: str) -> list[str]:
    options = ["--pod-running-timeout=1s", "-i", "-c", pods.CONTAINER, f"job/{batch.id}"]
    return [*words(batch), "exec", *options, "--", "python3", "-I", "-S", "-c", code, *args]


def folder_in_pod(job_id: str) -> str:
    return f"{manifest.base_of(job_id)}/home/jobs/{job_id}"


# What Kubernetes says of it ----------------------------------------------------------------


def find(batches: Iterable[BatchJob]) -> dict[str, QueueEntry]:
    """Return what Kubernetes says of jobs of one namespace. Those of which nothing is left lack."""
    wanted = {each.id: each for each in batches}
    found = objects(next(iter(wanted.values())))
    return {each: _entry(each, found[each]) for each in wanted if each in found}


def objects(batch: BatchJob) -> dict[str, list[dict[str, Any]]]:
    """Return the Jobs and pods of the submitted jobs of a namespace, by their Jobs' names."""
    command = [*words(batch), "get", "jobs,pods", "-l", manifest.LABEL, "-o", "json"]
    found: dict[str, list[dict[str, Any]]] = {}
    for each in run(command, read=kubectl.items):
        if each["kind"] == "Job" or not (pods.is_ending(each) and pods.has_ended(each)):
            found.setdefault(each["metadata"]["labels"][manifest.LABEL], []).append(each)
    return found


def _entry(name: str, items: list[dict[str, Any]]) -> QueueEntry:
    own = _job(items, name)
    tasks = [each for each in items if each["kind"] == "Job" and each is not own]
    if own is None:
        return QueueEntry(id=name, scheduler=NAME, state="ending")
    conditions = own.get("status", {}).get("conditions", ())
    ended = [each for each in conditions if each["type"] in ("Complete", "Failed")]
    found = _pods(items, name)
    supervisors = [each for each in found if not (pods.is_ending(each) and pods.is_over(each))]
    if ended:
        causes = [pods.end(each, pods.name_of(each)) for each in supervisors]
        # A pod without the files of the one that it has replaced completes.
        lost = Cause(Code.POD_DELETED, name="of its supervisor")
        said = (each for each in causes if each and (each.status or each.code != Code.POD_ENDED))
        cause = next(said, lost)
        state = ended[0]["type"].lower()
        return QueueEntry(id=name, scheduler=NAME, state=state, is_active=False, cause=cause)
    if "deletionTimestamp" in own["metadata"]:
        return QueueEntry(id=name, scheduler=NAME, state="ending")
    state, why = "running", ""
    if own["spec"].get("suspend"):
        state, why = "suspended", "the Job of its supervisor is not admitted"
    elif any(pods.has_ended(each) and not _is_replaced(each, own) for each in supervisors):
        return QueueEntry(id=name, scheduler=NAME, state="ending")
    elif not any(map(pods.is_running, supervisors)):
        state = "pending"
        obstacles = [pods.obstacle(each)[0] for each in supervisors if not pods.is_ending(each)]
        why = next((each.text for each in obstacles), "")
    elif tasks:
        queue = pods.queue_of(tasks[0])
        where = f"queue {queue}" if queue else "its queue"
        waiting = [each for job in tasks for each in _pods(items, job["metadata"]["name"])]
        has_begun = any(each["status"].get("phase") != "Pending" for each in waiting)
        has_begun = has_begun or any(each["status"].get("failed") for each in tasks)
        if any(each["spec"].get("suspend") for each in tasks):
            state, why = "suspended", f"{where} has not admitted its pods"
        elif queue and not has_begun:
            state, why = "admitted", f"{where} has admitted its pods, and none runs yet"
    return QueueEntry(
        id=name, scheduler=NAME, state=state, reason=why, is_pending=state != "running"
    )


def _is_replaced(pod: pods.Pod, job: dict[str, Any]) -> bool:
    return bool(job["spec"].get("backoffLimit")) and pod["status"].get("phase") != "Succeeded"


def _job(items: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    jobs = (each for each in items if each["kind"] == "Job")
    return next((each for each in jobs if each["metadata"]["name"] == name), None)


def _pods(items: list[dict[str, Any]], job: str) -> list[pods.Pod]:
    found = (each for each in items if each["kind"] == "Pod")
    return [each for each in found if each["metadata"]["labels"].get("job-name") == job]


def adopt(store: JobStore, namespace: str, context: str) -> None:
    """Make a folder for each submitted job of a namespace that has none here."""
    context = kubectl.pinned(context, namespace)[0] or ""
    for name, items in objects(BatchJob(id="", namespace=namespace, context=context)).items():
        own = _job(items, name)
        job_id = "" if own is None else own["metadata"].get("annotations", {}).get("distrun/job")
        folder = JobFolder(store.jobs / str(job_id))
        if own is None or not _JOB_ID.fullmatch(str(job_id)):
            continue
        known = folder.batch_job()
        if known is not None and known.is_released and not known.is_own:  # perhaps it was resumed
            folder.note_batch_job(batch := replace(known, is_released=False))
            refresh(folder, batch, _ADOPT_SECONDS)
        if folder.path.exists():
            continue
        created = create(folder, b"")
        volumes = own["spec"]["template"]["spec"].get("volumes", ())
        is_kept = any("persistentVolumeClaim" in each for each in volumes[:1])
        batch = BatchJob(
            id=name, namespace=namespace, context=context, requeues=is_kept, is_own=False
        )
        created.note_batch_job(batch)
        created.release_lock()
        refresh(folder, batch, _ADOPT_SECONDS)


# Its end -----------------------------------------------------------------------------------


def signal(folder: JobFolder, batch: BatchJob) -> None:
    place = (manifest.base_of(folder.job_id), folder_in_pod(folder.job_id))
    run(in_pod(batch, "stop", *place), folder.stop_file.read_text())


def cancel(batch: BatchJob, *, only_pending: bool = False) -> None:  # noqa: ARG001 - as for Slurm
    """Delete the Jobs, with all that belongs to them. One whose pods wait loses nothing by it."""
    options = ("--ignore-not-found", "--wait=false", f"-l{manifest.LABEL}={batch.id}")
    run([*words(batch), "delete", "jobs", *options])


# The copy of its folder --------------------------------------------------------------------


class _Source:
    """A process in the supervisor's pod that sends what is new in the job's folder."""

    def __init__(self, folder: JobFolder, batch: BatchJob) -> None:
        place = (manifest.base_of(folder.job_id), folder_in_pod(folder.job_id))
        # Here, it is the one that the job was submitted with.
        self.kept = [*NOT_COPIED, *([folder.resolved_spec_file.name] if batch.is_own else [])]
        command = in_pod(batch, "send", *place, folder.events_file.name, *self.kept)
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_ANSWER_SECONDS)
        with theirs, contextlib.ExitStack() as undo, syscalls.blocked():
            undo.callback(self._socket.close)
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            atexit.register(self._process.kill)
            undo.pop_all()
        self._answers = self._socket.makefile("rb")

    def ask(self, known: dict[str, list[int]]) -> None:
        self._socket.sendall(json.dumps(known).encode() + b"\n")

    def read(self, size: int | None = None) -> bytes:
        """Return so many bytes, or a line. Raises OSError, EOFError, ValueError: there are none."""
        if size is None:
            found = self._answers.readline(_LONGEST_HEADER)
            is_whole = found.endswith(b"\n")
        elif 0 <= size <= _MOST_BYTES:
            found = self._answers.read(size)
            is_whole = len(found) == size
        else:
            raise ValueError(size)
        if not is_whole:
            raise EOFError
        return found

    def close(self) -> None:
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._answers.close()
        self._socket.close()
        self._process.wait()


_sources: dict[str, _Source | float] = {}
"""By the job's id; a number: when the next one may be tried."""


def refresh(folder: JobFolder, batch: BatchJob, seconds: float | None = None) -> bool:
    """Bring the copy of the job's folder up to date, as far as that goes in so many seconds.

    Once it has all, the Job is deleted, if it was submitted from here. Return False if nothing
    could come.
    """
    source = _sources.get(folder.job_id, 0.0)
    if batch.is_released or (isinstance(source, float) and time.monotonic() < source):
        return batch.is_released
    try:
        lock = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # it has just been removed
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if seconds is None else fcntl.LOCK_NB))
        if isinstance(source, float):
            _sources[folder.job_id] = source = _Source(folder, batch)
        has_ended = _copy(folder, source, seconds)
    except (OSError, EOFError, *_WRONG):
        if isinstance(source, _Source):
            source.close()
        _sources[folder.job_id] = time.monotonic() + _RETRY_SECONDS
        return False
    finally:
        os.close(lock)
    if has_ended:
        if batch.is_own:
            try:
                cancel(batch)
            except SchedulerError:  # without the right to, have the pod complete
                run(in_pod(batch, "end"))
        folder.note_batch_job(replace(batch, is_released=True))
    return True


def _copy(folder: JobFolder, source: _Source, seconds: float | None) -> bool:
    """Copy what is new; return whether that is all there will be. Raises OSError, ValueError..."""
    due = time.monotonic() + (float("inf") if seconds is None else seconds)
    known: dict[str, list[int]] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(folder.mirror_file.read_text())
    while True:
        before = dict(known)
        source.ask(known)
        while True:
            header, size = json.loads(source.read())
            if "name" not in header:
                break
            data, name = source.read(size), header["name"]
            if not _COPIED.fullmatch(name) or name in source.kept:
                raise ValueError(name)
            path = folder.supervisor_log.parent / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _apply(path, header["start"], data, header["state"]):
                known[name] = header["state"]
            else:
                known.pop(name, None)
        if header["more"] and known == before:
            raise ValueError(header)  # it would never end
        if known != before:
            replace_file(folder.mirror_file, json.dumps(known))
        has_more = header["more"] or not before.keys() <= known.keys()  # what is sent again
        if not has_more or time.monotonic() > due:
            return bool(header["ended"] and not has_more)


def _apply(path: Path, start: int, data: bytes, state: list[int]) -> bool:
    """Write a part of a file. Returns False if the copy does not end where the part begins."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    written = path if start else path.with_name(f".new-{path.name[:_NAME_CHARACTERS]}")
    if not start:
        written.unlink(missing_ok=True)
    with open(os.open(written, flags, 0o600), "wb") as file:
        if os.fstat(file.fileno()).st_size != start:
            return False
        file.write(data)
        file.flush()
        os.utime(file.fileno(), ns=(state[2], state[2]))
    if not start:
        written.replace(path)  # readers see the old one, or the whole new one
    return True

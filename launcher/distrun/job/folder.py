"""The files of a job. No other module joins their paths.

`$DISTRUN_HOME/jobs/<id>/`, mode 0700, holds `spec.yaml` (as written), `spec.json` (as it was read,
for a resume), `plan.json`, `events.jsonl`, `logs/<role>-<index>.log` with an index beside each, and
output that arrived too late for its place there in `*.late`, `history/<role>-<index>.jsonl` with
what the task has used, `supervisor.log`, the lock that a living supervisor holds, its control
socket, and `token`, by which its processes are recognized. A job that was submitted to Slurm has
its batch script, `batch.sh`, what that printed, `batch.log`, and `batch.json`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distrun import lifecycle
from distrun.agent.linux import peers, private_dir, processes
from distrun.agent.linux.facts import pid_namespace
from distrun.agent.linux.job_processes import Traces
from distrun.agent.linux.regular import closing
from distrun.agent.protocol import INDEX_SUFFIX, UNSENT_REPORTS, Cause, Code
from distrun.codec import decode, encode
from distrun.errors import HostError, UsageError
from distrun.frozen import Frozen, replace
from distrun.job import events, record
from distrun.job.scheduler import SUBMITTED
from distrun.spec.problems import nearest
from distrun.spec.regular_file import open_regular_file, read_regular_file

_ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # without look-alikes
_ID_LETTERS = 6
_UNFINISHED_SECONDS = 600.0
_BEGINNING_SECONDS = 60.0
"""So long after its creation, a job's record may still have no event while its lock is held."""
_LOCK_SECONDS = 0.1
"""How often a lock is tried that another process holds."""
_LARGEST_BATCH_FILE = 1 << 16
_TOKEN_BYTES = 16
_TOKEN = re.compile(rb"[0-9a-f]{32}")
_LOCK_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_FILES = {
    *("spec.yaml", "plan.json", "events.jsonl", "logs", "control.sock", "history", "profile.json"),
    *("supervisor.log", "supervisor.lock", "spec.json", "token"),
    *("batch.sh", "batch.log", "batch.json", "stop.json", "mirror.json", "results"),
}
NOT_COPIED = (
    *("token", "supervisor.lock", "control.sock", "batch.sh", "batch.json", "stop.json"),
    "mirror.json",
)
"""Those that a copy of a job's folder on another machine has of its own, or lacks."""
LOG_SUFFIX, HISTORY_SUFFIX = ".log", ".jsonl"
LATE_SUFFIX = ".late"
_LATE_NAME = re.compile(r"(.+)\.(\d{1,19})-(\d{1,30})\.late", re.ASCII)
_UNFINISHED = (".new-", ".gone-")
"""How the names of folders begin whose creation or removal has not ended."""


def late_log_name(log: str, offset: int, at: int) -> str:
    """Return the name of the file for output that arrives too late for its place in a log.

    Args:
        log: the name of the log.
        offset: where the output belongs in it, in bytes.
        at: when its host was lost, in nanoseconds.
    """
    return f"{log.removesuffix(LOG_SUFFIX)}.{offset}-{at}{LATE_SUFFIX}"


def log_name(task: str) -> str:
    return task.replace(":", "-") + LOG_SUFFIX


def task_of_log(log: str) -> str:
    return ":".join(log.removesuffix(LOG_SUFFIX).rsplit("-", 1))


class BatchJob(Frozen, kw_only=True):
    """A job that Slurm or Kubernetes holds.

    `runs_in`: the machine of its supervisor, by `pid_namespace()`, if known.
    """

    id: str
    runs_in: str = ""
    requeues: bool = False
    """Whether it is queued again after the time limit, for example."""
    namespace: str = ""
    """Of Kubernetes, where `id` is the name of its Job; empty: it is in Slurm."""
    context: str = ""
    """Of kubectl; empty: the current one."""
    is_own: bool = True
    """Whether it was submitted from here: then its Job is removed once its record is here."""
    is_released: bool = False
    """Whether its record is here to the end."""


class JobRecord:
    """What happened to a job, and its state by that. Nothing of the file is read twice."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._reader = record.EventReader(str(folder.events_file))
        self._events: list[events.Event] = []
        self._state = lifecycle.JobState()

    def read(self) -> tuple[list[events.Event], lifecycle.JobState]:
        """Return both, with what an agent could not send to a supervisor that died.

        Without a record, the job is in preparation: it is being created or removed, its creation
        failed, or another user owns the record.
        """
        folder, found, state = self._folder, list[events.Event](), lifecycle.JobState()
        with contextlib.suppress(FileNotFoundError, PermissionError):
            new = self._reader.read_new()
            self._events += new
            self._state = lifecycle.replay(new, self._state)
            unsent = record.read(str(folder.unsent_reports_file))
            found, state = [*self._events, *unsent], lifecycle.replay(unsent, self._state)
        if self._reader.has_skipped:
            state = replace(state, lacks_events=True)
        if not state.created_at:  # the record lost its beginning
            state = replace(state, job_id=folder.job_id, created_at=folder.created_ns / 1e9)
        return found, state


class JobFolder:
    """One job's folder: its paths, its record and its lock.

    Args:
        opened: another path of the same folder, which stays right if the folder is renamed; the
            files are used by it. Default: `path`.
    """

    def __init__(self, path: Path, opened: Path | None = None) -> None:
        self.path = path
        self.job_id = path.name
        self._opened = opened = opened or path
        self.spec_file = opened / "spec.yaml"
        self.resolved_spec_file = opened / "spec.json"
        self.plan_file = opened / "plan.json"
        self.events_file = opened / "events.jsonl"
        self.logs = opened / "logs"
        self.unsent_reports_file = self.logs / UNSENT_REPORTS
        self.history = opened / "history"
        self.profile_file = opened / "profile.json"
        self.supervisor_log = opened / "supervisor.log"
        self.batch_script = opened / "batch.sh"
        self.batch_log = opened / "batch.log"
        self.batch_file = opened / "batch.json"
        self.stop_file = opened / "stop.json"
        self.mirror_file = opened / "mirror.json"
        self.results = opened / "results"
        """Of a job whose supervisor is in a pod: what came back from other pods."""
        self.job_record = JobRecord(self)
        self.samples_read: dict[str, tuple[int, int, list[Any]]] = {}
        """Of each task: the inode of its `history`, how much of that was read, and what it has."""
        self._token_file = opened / "token"
        self._lock_file = opened / "supervisor.lock"

    def lasting_files(self) -> tuple[str, ...]:
        """Return the files that a resume needs, and the folders that have their names."""
        files = (self.spec_file, self.resolved_spec_file, self.plan_file, self.events_file)
        return (*map(str, (*files, self._token_file, self._opened, self.path.parent)),)

    @property
    def descriptor(self) -> int | None:
        """The descriptor by which the files are used; None: they are used by their path."""
        return None if self._opened is self.path else int(self._opened.name)

    @property
    def is_a_job(self) -> bool:
        """Whether it has a job's lock, or nothing but files of a job.

        A folder named `jobs` may hold other things, too.
        """
        try:
            if self._lock_file.exists() or self.job_id.startswith(_UNFINISHED):
                return True
            return _FILES.issuperset(os.listdir(self.path))
        except OSError:
            return False  # it has just been removed, or belongs to somebody else

    def shown(self, file: Path) -> str:
        """Return the path of one of its files as users know it; that of any other as it is."""
        if not file.is_relative_to(self._opened):
            return str(file)
        return str(self.path / file.relative_to(self._opened))

    @property
    def token(self) -> str:
        """The token that the job's agents and tasks have in their environment.

        Empty if it cannot be read, or if an earlier version of distrun launched the job.
        """
        found = read_regular_file(str(self._token_file), largest=1000, follow_link=False) or b""
        return found.decode("ascii") if _TOKEN.fullmatch(found) else ""

    def create_token(self) -> None:
        if not self.token:
            self._token_file.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(self._token_file, flags, 0o600), "wb") as file:
                file.write(os.urandom(_TOKEN_BYTES).hex().encode("ascii"))

    @property
    def created_ns(self) -> int:
        """When the job was created, in nanoseconds, for sorting: `spec.yaml` is written once."""
        try:
            return self.spec_file.stat().st_mtime_ns
        except OSError:
            return 0

    def log_of(self, task: str) -> Path:
        return self.logs / log_name(task)

    def history_of(self, task: str) -> Path:
        """Return the path of the samples of what a task has used, see :mod:`.history`."""
        return self.history / log_name(task).replace(LOG_SUFFIX, HISTORY_SUFFIX)

    def size_of_log(self, task: str) -> int:
        try:
            return self.log_of(task).lstat().st_size
        except OSError:
            return 0

    def last_output(self, task: str) -> float | None:
        """Return when a task's log was written last, in Unix seconds; None: nothing is in it."""
        try:
            status = self.log_of(task).lstat()
        except OSError:
            return None
        return status.st_mtime if status.st_size else None

    def end_line(self, task: str) -> int:
        """End an unfinished last line of a task's log. Returns the log's size in bytes."""
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError), closing(os.open(self.log_of(task), flags)) as log:
            size = os.fstat(log).st_size
            if size and os.pread(log, 1, size - 1) != b"\n":
                os.write(log, b"\n")
        return self.size_of_log(task)

    def index_of(self, task: str) -> Path:
        return self.log_of(task).with_suffix(INDEX_SUFFIX)

    def late_logs(self) -> dict[Path, list[tuple[int, Path, Path]]]:
        """Return the files with output that arrived late, and their indexes, by the task's log.

        The numbers are the offsets in that log where they belong, in ascending order.
        """
        files = self.logs.glob(f"*{LATE_SUFFIX}")
        matches = ((file, _LATE_NAME.fullmatch(file.name)) for file in files)
        found = [(int(m[2]), int(m[3]), m[1], file) for file, m in matches if m is not None]
        late: dict[Path, list[tuple[int, Path, Path]]] = {}
        for offset, _, stem, file in sorted(found):
            parts = late.setdefault(self.logs / f"{stem}.log", [])
            parts.append((offset, file, file.with_suffix(INDEX_SUFFIX)))
        return late

    def state(self) -> lifecycle.JobState:
        """Return the job's state by its record. Without a record, the job is in preparation."""
        return self.job_record.read()[1]

    def traces(self, state: lifecycle.JobState, host: str | None = None) -> Traces:
        """Return what the job's processes on a host are recognized by; None: on this machine."""
        own, hosts = pid_namespace(), {**state.former_hosts, **state.hosts}
        here = [each.name for each in hosts.values() if each.pid_namespace == own]
        first = {
            task.pid: (task.name, task.attempt, task.started_at)
            for task in state.tasks.values()
            if task.host in (here if host is None else (host,))
            and task.pid is not None
            and task.started_at is not None
        }
        if host is not None:
            own = hosts[host].pid_namespace if host in hosts else ""
        return Traces(self.token, own, first, self.job_id)

    def logged_tasks(self) -> list[str]:
        """Return the tasks that have logs, for a record that has lost the plan."""
        return [task_of_log(each) for each in sorted(log.name for log in self.logs.glob("*-*.log"))]

    def record_fault(self) -> str | None:
        """Say why the record does not show the job; None if it does, or is just being begun."""
        fault = record.beginning_fault(str(self.events_file))
        is_new = fault is not None and time.time() - self.created_ns / 1e9 < _BEGINNING_SECONDS
        return None if is_new and self.is_locked else fault

    def absorb_unsent_reports(self, log: record.EventLog) -> None:
        """Move what an agent reported after its supervisor's death into the record.

        Readers would otherwise add it to later attempts. Raises OSError if that fails.
        """
        for event in record.read(str(self.unsent_reports_file)):
            log.append(event)
        self.unsent_reports_file.unlink(missing_ok=True)

    def name(self) -> str | None:
        """Return the job's name from the first event of its record; None if it cannot be read."""
        try:
            first = record.first(str(self.events_file))
        except OSError:
            return None
        return first.name if isinstance(first, (events.JobCreated, events.JobQueued)) else None

    def batch_job(self) -> BatchJob | None:
        """Return what it is to Slurm; None if it was not submitted.

        `submit` may have died before it noted that: then the record or its batch script shows it.
        Without an id, it is not known whether Slurm has queued it.
        """
        try:
            with open_regular_file(self.batch_file) as file:
                return decode(BatchJob, file.read(_LARGEST_BATCH_FILE))
        except (OSError, ValueError):
            if not os.path.lexists(self.batch_script):
                return None
        return BatchJob(id=self.state().batch_id, requeues=True)

    def note_batch_job(self, batch: BatchJob) -> None:
        """Write what it is to Slurm. Raises OSError."""
        replace_file(self.batch_file, encode(batch))

    @property
    def is_elsewhere(self) -> bool:
        """Whether its supervisor is a matter of a scheduler, and not of this machine.

        Neither a lock nor a socket on a shared file system says anything about another machine.
        """
        batch = self.batch_job()
        if batch is None:
            return False
        return batch.runs_in != pid_namespace() or self._lock_holder() is None

    def supervisor_pid(self) -> int | None:
        """Return the process that holds the lock: the supervisor.

        None if it does not live, or lives on another machine; 0 or less if its id is not known,
        because it is in another process namespace.
        """
        return None if self.is_elsewhere else self._lock_holder()

    @property
    def supervisor_place(self) -> str:
        """Which process its supervisor is, and whether that is suspended."""
        pid = self.supervisor_pid()
        if pid is None:
            return "which has ended"
        if pid <= 0:  # what the kernel says of a process that this one does not see
            return "in another process namespace"
        return f"process {pid}{', suspended' if self.is_suspended else ''}"

    @property
    def is_suspended(self) -> bool:
        """Whether its supervisor is known to be suspended (SIGSTOP): SIGCONT lets it continue."""
        pid = self.supervisor_pid()
        process = processes.find(pid) if pid is not None and pid > 0 else None
        return process is not None and process.state == "T"  # not "t": a debugger holds it

    @property
    def is_locked(self) -> bool:
        """Whether some process holds the lock, as far as the file system knows of it."""
        return self._lock_holder() is not None

    def _lock_holder(self) -> int | None:
        try:
            with closing(os.open(self._lock_file, _LOCK_FLAGS)) as file:
                query = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))
        except OSError:
            return None
        return None if kind == fcntl.F_UNLCK else pid

    def acquire_lock(self) -> int:
        """Lock the job until the returned descriptor is closed, or this process ends.

        Raises BlockingIOError if another process holds it.
        """
        descriptor = os.open(self._lock_file, _LOCK_FLAGS | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    @contextlib.contextmanager
    def locked(self, seconds: float = 0.0) -> Iterator[None]:
        """Hold the lock. Another process that holds it is waited for, for so many seconds.

        Raises BlockingIOError if that still holds it.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                lock = self.acquire_lock()
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_SECONDS)
        with closing(lock):
            yield

    def release_lock(self) -> None:
        """Release the lock: closing any descriptor of its file does that. See fcntl(2)."""
        with contextlib.suppress(OSError):
            os.close(os.open(self._lock_file, _LOCK_FLAGS))

    def listen(self) -> socket.socket:
        """Create the control socket, on which the supervisor listens."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._short_path() as path:
            server.bind(path)
        server.listen(64)
        server.setblocking(False)
        return server

    def stop_listening(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._opened / "control.sock")

    def connect(self) -> socket.socket | None:
        """Connect to the job's supervisor. Returns None if none listens, or accepts, now."""
        if self.is_elsewhere:
            return None
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.setblocking(False)
        try:
            with self._short_path() as path:
                client.connect(path)
            if peers.of_connection(client).is_same_user:
                return client
        except OSError:
            pass  # nobody listens, or the queue of a suspended supervisor is full
        client.close()
        return None

    @contextlib.contextmanager
    def _short_path(self) -> Iterator[str]:
        """Yield a path of the socket through /proc: a socket's path must fit in 108 bytes."""
        require_proc()
        with closing(os.open(self._opened, os.O_RDONLY | os.O_DIRECTORY)) as folder:
            yield f"/proc/self/fd/{folder}/control.sock"

    def last_change(self) -> float:
        for path in (self.events_file, self.path):
            with contextlib.suppress(OSError):
                return path.stat().st_mtime
        return 0.0

    def size(self) -> int:
        return sum(
            each.stat(follow_symlinks=False).st_size
            for each in _entries(self.path)
            if not each.is_dir(follow_symlinks=False)
        )

    def remove(self) -> None:
        """Rename the folder, so that the job is gone at once; then remove it from the disk.

        Raises:
            BlockingIOError: it runs, or another process removes it just now.
            OSError: a file cannot be removed; `filename` is its path. The job is listed again.
        """
        renamed = self.path.with_name(f".gone-{self.path.name.removeprefix('.gone-')}")
        # It may just be resumed.
        lock = self.acquire_lock() if self._lock_file.exists() else None
        try:
            os.rename(self.path, renamed)
        finally:
            if lock is not None:
                os.close(lock)
        try:
            private_dir.remove_tree(str(renamed))
        except FileNotFoundError:
            raise  # another process removes it, too
        except OSError as error:
            # rmtree gives the name without the folder.
            name = Path(error.filename or "").name
            found = (each.path for each in _entries(renamed) if each.name == name)
            file = Path(next(found, renamed))
            error.filename = str(self.path / file.relative_to(renamed))
            os.rename(renamed, self.path)
            raise


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
            for each in found:
                if each.is_dir(follow_symlinks=False):
                    waiting.append(each.path)
                yield each


class JobStore:
    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"

    @classmethod
    def default(cls) -> JobStore:
        """Return the store in `$DISTRUN_HOME`, or in the user's state folder.

        Raises:
            UsageError: other users can change it, or there is none.
        """
        home = os.environ.get("DISTRUN_HOME") or private_dir.state_folder()
        if not home:
            what = f"there is no place for jobs: user {os.getuid()} has no home"
            raise UsageError(what, hint="set DISTRUN_HOME to a folder of your own")
        home = os.path.expanduser(home)
        if not os.path.isabs(home):
            what = f"DISTRUN_HOME is a relative path: {home!r}"
            raise UsageError(what, hint=f"write DISTRUN_HOME={os.path.abspath(home)}")
        store = cls(Path(home))
        if SUBMITTED not in os.environ:  # a pod has no other users
            store.check()
        return store

    def check(self) -> None:
        """Raise UsageError if other users can change the folders, and so exchange jobs' files.

        The two folders may not be writable by others at all. Those above them, and symbolic links,
        may not be exchangeable by others.
        """
        for path in (self.jobs.parent, self.jobs):
            changeable = private_dir.changeable_by_others(str(path))
            if changeable is not None:
                raise _changeable_error(Path(changeable))
            try:
                status = path.stat()
            except OSError:
                return  # it does not exist yet, or whoever needs it says why it cannot be used
            if private_dir.is_foreign(status) or private_dir.is_writable_by_others(status):
                raise _changeable_error(path)

    def new_folder(self, name: str) -> JobFolder:
        """Return a folder for a new job. The job's id contains the letters of its name."""
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"
        token = "".join(_ID_ALPHABET[byte % len(_ID_ALPHABET)] for byte in os.urandom(_ID_LETTERS))
        return JobFolder(self.jobs / f"{slug}-{token}")

    def folders(self) -> list[JobFolder]:
        try:
            with os.scandir(self.jobs) as found:
                names = [each.name for each in found if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HostError(f"the jobs in {self.jobs} cannot be read: {error.strerror}") from error
        shown = (name for name in names if name.isprintable() and not name.startswith("."))
        folders = (JobFolder(self.jobs / name) for name in shown)
        return sorted((each for each in folders if each.is_a_job), key=lambda each: each.created_ns)

    def unfinished(self) -> list[JobFolder]:
        """Return folders whose creation or removal was interrupted, by a crash for example."""
        found = []
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(self.jobs) if name.startswith(_UNFINISHED)]
            found = [JobFolder(self.jobs / name) for name in names if name.isprintable()]
        return [each for each in found if each.last_change() < time.time() - _UNFINISHED_SECONDS]

    def find(self, query: str) -> JobFolder:
        """Return the job with that id, the newest of that name, or the one with that prefix.

        Raises:
            UsageError: there is no such job, or the prefix fits several.
        """
        if not query:  # it would be the prefix of every id
            raise UsageError("the name of a job cannot be empty")
        folders = self.folders()
        for folder in folders:
            if folder.job_id == query:
                return folder
        for folder in reversed(folders):
            if folder.name() == query:
                return folder
        matches = [folder for folder in folders if folder.job_id.startswith(query)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(f"{query!r} fits several jobs: {_joined_ids(matches)}")
        there = f"there are: {_joined_ids(folders)}" if folders else "there are no jobs yet"
        names = [name for each in folders if (name := each.name())]
        name = re.sub(r"\.(ya?ml|py)$", "", os.path.basename(query))  # of a file: its job's name
        near = nearest(name, [*(each.job_id for each in folders), *names])
        hint = f"did you mean {near!r}? {there}" if near else there
        raise UsageError(f"there is no job {query!r}", hint=hint)

    def newest(self) -> JobFolder:
        """Return the job that was launched last. Raises UsageError if there are no jobs."""
        folders = self.folders()
        if not folders:
            raise UsageError("there are no jobs yet", hint="start one with: distrun run SCRIPT")
        return folders[-1]

    def running(self) -> list[JobFolder]:
        """Return the jobs with a supervisor, and those in Slurm whose record has no end."""
        return [
            each
            for each in self.folders()
            if each.supervisor_pid() is not None
            or (each.is_elsewhere and not each.state().phase.is_final)
        ]


def replace_file(file: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    temporary = file.with_name(f".{file.name}")
    try:
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # never through a link
        with open(os.open(temporary, flags, 0o600), "wb") as new:
            new.write(content if isinstance(content, bytes) else content.encode())
        os.replace(temporary, file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def require_proc() -> None:
    """Raise HostError if this machine shows no processes: they could not be found and ended."""
    if not os.path.exists("/proc/self/fd"):
        raise HostError(cause=Cause(Code.PROC_MISSING))


def reopen(path: Path) -> JobFolder:
    """Lock the folder of an ended job, for the supervisor that continues it.

    Raises:
        BlockingIOError: another supervisor has it.
        OSError: it cannot be opened, another user can change it, or it is being removed.
    """
    require_proc()
    descriptor = private_dir.open_checked(str(path))
    opened = os.fstat(descriptor)
    if opened.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
    folder = JobFolder(path, Path(private_dir.path_of(descriptor)))
    folder.acquire_lock()
    if not os.path.samestat(opened, os.stat(path)):  # it was removed meanwhile
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    folder.create_token()
    folder.stop_listening()
    return folder


def create(folder: JobFolder, spec_source: bytes) -> JobFolder:
    """Create a job's folder and lock it; it appears complete and locked, or not at all.

    The job's supervisor calls this. The folder that it returns stays the same one, whatever is
    renamed or put at its path later. Raises OSError if the folder cannot be created, or if other
    users can change those around it.
    """
    require_proc()
    around = folder.path.parent
    private_dir.create(str(around))
    # Both may be symbolic links.
    with (
        closing(private_dir.open_checked(str(around.parent), follow=True)) as home,
        closing(private_dir.open_checked(around.name, home, follow=True)) as jobs,
    ):
        name = f".new-{folder.job_id}"
        os.mkdir(name, 0o700, dir_fd=jobs)
        try:
            descriptor = private_dir.open_checked(name, jobs)
            created = JobFolder(folder.path, Path(private_dir.path_of(descriptor)))
            os.mkdir(created.logs, 0o700)
            replace_file(created.spec_file, spec_source)
            created.create_token()
            created.acquire_lock()
            os.rename(name, folder.job_id, src_dir_fd=jobs, dst_dir_fd=jobs)
        except OSError:
            import shutil  # it is slow, and this is rare

            shutil.rmtree(f"{private_dir.path_of(jobs)}/{name}", ignore_errors=True)
            raise
    return created


def _changeable_error(path: Path) -> UsageError:
    status = path.lstat()
    own = "set DISTRUN_HOME to a folder of your own"
    if private_dir.is_foreign(status):
        return UsageError(
            f"{path} belongs to another user ({_user_name(status.st_uid)}), who could change the "
            "files of your jobs",
            hint=own,
        )
    import shlex

    # A path like /tmp or /dev/null is meant for everybody, and not a folder for jobs.
    is_shared = not stat.S_ISDIR(status.st_mode) or (
        bool(status.st_mode & stat.S_ISVTX) and bool({*os.listdir(path)} - {"jobs"})
    )
    can_change = os.geteuid() in (0, status.st_uid) and not is_shared
    repair = f"run `chmod go-w {shlex.quote(str(path))}`, or " if can_change else ""
    text = f"other users can write to {path}, and so change the files of your jobs"
    return UsageError(text, hint=repair + own)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _joined_ids(folders: list[JobFolder]) -> str:
    names = [folder.job_id for folder in folders[-8:]]
    return ", ".join(names) + (" and older ones" if len(folders) > 8 else "")

"""Where a job's files are. No other module joins those paths.

`$DISTRUN_HOME/jobs/<id>/`, mode 0700, holds `spec.yaml` (as written), `plan.json`,
`events.jsonl`, `logs/<role>-<index>.log` with an index beside each, `supervisor.log`, the lock
that tells whether a supervisor lives, and its control socket.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

from distrun import events, lifecycle, record
from distrun.agent.protocol import UNSENT_REPORTS
from distrun.errors import HostError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # without look-alikes
_ID_LETTERS = 6
_UNFINISHED_SECONDS = 600.0
_LOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux


class JobFolder:
    """One job's folder, and what can be told from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job_id = path.name
        self.spec_file = path / "spec.yaml"
        self.plan_file = path / "plan.json"
        self.events_file = path / "events.jsonl"
        self.logs = path / "logs"
        self.supervisor_log = path / "supervisor.log"
        self._lock_file = path / "supervisor.lock"

    @property
    def created_ns(self) -> int:
        """When it was made, to sort by: `spec.yaml` is written once."""
        try:
            return self.spec_file.stat().st_mtime_ns
        except OSError:
            return 0

    def log_of(self, task: str) -> Path:
        """The output of a task, `worker:0` for one."""
        return self.logs / f"{task.replace(':', '-')}.log"

    def index_of(self, task: str) -> Path:
        return self.log_of(task).with_suffix(".idx")

    def state(self) -> lifecycle.JobState:
        """The job's state by its record; that of a job in preparation where there is none."""
        try:
            return lifecycle.replay([*record.read(str(self.events_file)), *self._unsent_reports()])
        except FileNotFoundError:
            # It is just being made, or that was as far as it came, or it is just being removed.
            return lifecycle.JobState(job_id=self.job_id, created_at=self.created_ns / 1e9)

    def _unsent_reports(self) -> list[events.Event]:
        """What became of its tasks after its supervisor's death, where an agent could tell."""
        try:
            return record.read(str(self.logs / UNSENT_REPORTS))
        except OSError:
            return []

    def name(self) -> str | None:
        """What the job is called by its record's beginning; None where there is none to read."""
        try:
            first = record.first(str(self.events_file))
        except OSError:
            return None
        return first.name if isinstance(first, events.JobCreated) else None

    def supervisor_pid(self) -> int | None:
        """Who holds the lock: a living supervisor, or None. Never told by the record."""
        try:
            with self._lock_file.open("rb+") as file:
                query = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))
        except OSError:
            return None
        return None if kind == fcntl.F_UNLCK else pid

    def take_lock(self) -> None:
        """Lock it for this process, until that ends. Raises OSError where another has it."""
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release_lock(self) -> None:
        """Give up this process's lock: it ends with any descriptor of its file. See fcntl(2)."""
        with contextlib.suppress(OSError):
            os.close(os.open(self._lock_file, os.O_RDWR | os.O_CLOEXEC))

    def listen(self) -> socket.socket:
        """The supervisor's end of the control socket."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._short_path() as path:
            server.bind(path)
        server.listen(64)
        server.setblocking(False)
        return server

    def stop_listening(self) -> None:
        """Take the control socket away, at the job's end."""
        with contextlib.suppress(OSError):
            os.unlink(self.path / "control.sock")

    def connect(self) -> socket.socket | None:
        """A connection to the job's supervisor; None where none is there any more."""
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._short_path() as path:
                client.connect(path)
        except OSError:
            client.close()
            return None
        return client

    @contextlib.contextmanager
    def _short_path(self) -> Iterator[str]:
        """The socket's path by way of a descriptor: one of any length fits in 108 bytes."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/control.sock"
        finally:
            os.close(folder)

    def last_change(self) -> float:
        """When its record was last written, Unix seconds."""
        for path in (self.events_file, self.path):
            with contextlib.suppress(OSError):
                return path.stat().st_mtime
        return 0.0

    def size(self) -> int:
        """Bytes of all its files."""
        return sum(each.lstat().st_size for each in self.path.rglob("*") if not each.is_dir())

    def remove(self) -> None:
        """Remove it from sight at once, then from the disk."""
        going = self.path.with_name(f".gone-{self.path.name.removeprefix('.gone-')}")
        os.rename(self.path, going)
        shutil.rmtree(going)


class JobStore:
    """All jobs of one user."""

    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"

    @classmethod
    def default(cls) -> JobStore:
        """`$DISTRUN_HOME`, or the user's state folder."""
        home = os.environ.get("DISTRUN_HOME")
        if home:
            return cls(Path(home).absolute())
        import platformdirs

        return cls(Path(platformdirs.user_state_dir("distrun")))

    def new_folder(self, name: str) -> JobFolder:
        """Where a new job of that name will be. The name only names: it is no path."""
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"
        token = "".join(_ID_ALPHABET[byte % len(_ID_ALPHABET)] for byte in os.urandom(_ID_LETTERS))
        return JobFolder(self.jobs / f"{slug}-{token}")

    def folders(self) -> list[JobFolder]:
        """Every job, the oldest first."""
        try:
            with os.scandir(self.jobs) as found:
                entries = [each for each in found if not each.name.startswith(".")]
            names = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HostError(f"the jobs in {self.jobs} cannot be read: {error.strerror}") from error
        return sorted((JobFolder(self.jobs / name) for name in names), key=lambda f: f.created_ns)

    def unfinished(self) -> list[JobFolder]:
        """What was left by a death while a job's folder was made or removed."""
        found = []
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(self.jobs) if name.startswith(".")]
            found = [JobFolder(self.jobs / name) for name in names]
        return [each for each in found if each.last_change() < time.time() - _UNFINISHED_SECONDS]

    def find(self, query: str | None) -> JobFolder:
        """The job with that id, the newest of that name, or the one with that prefix.

        None finds the newest job.

        Raises:
            UsageError: there is none, or the prefix fits several.
        """
        if query is None:
            return self.newest()
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
            raise UsageError(f"{query!r} fits several jobs: {_listed(matches)}")
        there = f"there are: {_listed(folders)}" if folders else "there are no jobs yet"
        raise UsageError(f"there is no job {query!r}", hint=there)

    def newest(self) -> JobFolder:
        """The job that was launched last. Raises UsageError where there is none."""
        folders = self.folders()
        if not folders:
            raise UsageError("there are no jobs yet", hint="start one with: distrun launch SPEC")
        return folders[-1]

    def running(self) -> list[JobFolder]:
        return [folder for folder in self.folders() if folder.supervisor_pid() is not None]


def create(folder: JobFolder, spec_source: bytes) -> JobFolder:
    """Make a job's folder and lock it; it appears whole and locked, or not at all.

    To be called by the job's supervisor. Raises OSError where it cannot be made.
    """
    os.makedirs(folder.path.parent, mode=0o700, exist_ok=True)
    temporary = JobFolder(folder.path.with_name(f".new-{folder.job_id}"))
    os.mkdir(temporary.path, 0o700)
    try:
        os.mkdir(temporary.logs, 0o700)
        temporary.spec_file.write_bytes(spec_source)
        temporary.take_lock()
        os.rename(temporary.path, folder.path)
    except OSError:
        shutil.rmtree(temporary.path, ignore_errors=True)
        raise
    return folder


def _listed(folders: list[JobFolder]) -> str:
    names = [folder.job_id for folder in folders[-8:]]
    return ", ".join(names) + (" and older ones" if len(folders) > 8 else "")

"""Writes a bundle: the files of a job, redacted, with its report."""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import os
import platform
import socket
import tarfile
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from distrun import events, record
from distrun.agent.protocol import INDEX_RECORD
from distrun.bundle.contents import ABOUT, README, REPORT, VERSION, About, job_files
from distrun.codec import from_json, to_json
from distrun.frozen import Frozen
from distrun.jobstore import JobFolder
from distrun.logs import TaskLog
from distrun.logs.tail import line_start
from distrun.redaction import Redactor, secret_values
from distrun.regular_file import open_regular_file
from distrun.spec.model import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MOST_LOG_BYTES = 1 << 20
"""Of each log: its end."""
_MOST_BYTES_OF_ALL_LOGS = 64 << 20
_MOST_BYTES = 64 << 20
"""Of any other file: its beginning, up to the end of a line."""


class Part(Frozen, kw_only=True):
    """A file in a bundle.

    `size`: its bytes. `left_out`: how many bytes of the job's file are not in it.
    """

    name: str
    size: int
    left_out: int = 0


class BundleWriter:
    """Writes one bundle.

    Args:
        folder: the job's.
        tasks: the names of the tasks whose logs and samples it has.
        redactor: replaces secrets and names.
        phase: how `status` shows the job.
        is_running: whether it has not ended.
        versions: of what is installed here.
    """

    def __init__(
        self,
        folder: JobFolder,
        tasks: Iterable[str],
        redactor: Redactor,
        *,
        phase: str,
        is_running: bool,
        versions: Mapping[str, str],
    ) -> None:
        self._folder, self._tasks, self._redactor = folder, list(tasks), redactor
        self._about = About(
            version=VERSION,
            job_id=folder.job_id,
            made_at=time.time(),
            phase=phase,
            is_running=is_running,
            versions={**versions, "Python": platform.python_version(), "system": _system()},
        )
        self.parts: list[Part] = []
        """What has been written."""

    def write(self, file: IO[bytes], make_report: Callable[[JobFolder, About], str]) -> None:
        """Write the archive; raises OSError.

        Args:
            file: where to.
            make_report: makes the page of a job's folder, which has been redacted.
        """
        with (
            tempfile.TemporaryDirectory(prefix="distrun-bundle-") as temporary,
            tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive,
        ):
            copy = JobFolder(Path(temporary) / "jobs" / self._folder.job_id)
            copy.logs.mkdir(parents=True)
            copy.history.mkdir()
            self._copy(copy)
            about = json.dumps(to_json(self._about), indent=2) + "\n"
            self._add(copy, ABOUT, self._redactor.lines(about))
            self._add(copy, REPORT, make_report(copy, self._about))
            self._add(copy, README, self._readme())
            for part in self.parts:
                _archive(archive, f"distrun-{copy.job_id}/{part.name}", copy.path / part.name)

    def _copy(self, copy: JobFolder) -> None:
        for source, target in zip(job_files(self._folder), job_files(copy), strict=True):
            is_json = target in (copy.events_file, copy.plan_file, copy.resolved_spec_file)
            self._copy_text(source, target, copy, is_json=is_json)
        for task in self._tasks:
            history = self._folder.history_of(task)
            self._copy_text(history, copy.history_of(task), copy, is_json=True)
            self._copy_log(task, copy)

    def _add(self, copy: JobFolder, name: str, text: str, left_out: int = 0) -> None:
        content = text.encode("utf-8", "surrogateescape")
        (copy.path / name).write_bytes(content)
        self.parts.append(Part(name=name, size=len(content), left_out=left_out))

    def _copy_text(self, source: Path, target: Path, copy: JobFolder, *, is_json: bool) -> None:
        try:
            with open_regular_file(source) as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(_MOST_BYTES)
        except OSError:
            return
        if len(content) < size:
            content = content[: content.rfind(b"\n") + 1]
        text = content.decode("utf-8", "surrogateescape")
        redact = self._redactor.json if is_json else self._redactor.line
        lines = "\n".join(map(redact, text.split("\n")))
        name = str(target.relative_to(copy.path))
        self._add(copy, name, lines, max(0, size - len(content)))

    def _copy_log(self, task: str, copy: JobFolder) -> None:
        """Copy the end of a log, and write its index anew: the offsets are others."""
        log = TaskLog(task, str(self._folder.log_of(task)), str(self._folder.index_of(task)))
        most = min(_MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS // max(1, len(self._tasks)))
        try:
            size = log.extent().size
            if not size:
                return
            start = line_start(log, size - most) if size > most else 0
            start, content = log.read_kept(max(start, size - 2 * most), size)
        except OSError:
            return
        index = io.BytesIO()
        shown: list[bytes] = []
        old, new = start, 0
        growth = log.growth(start)
        when, grown = next(growth, (0.0, 0))
        for line in content.splitlines(keepends=True):
            text = self._redactor.line(line.decode("utf-8", "surrogateescape"))
            shown.append(text.encode("utf-8", "surrogateescape"))
            # An offset within the line becomes one within the line that replaces it.
            while when and grown <= old + len(line):
                within = len(shown[-1]) if grown == old + len(line) else grown - old
                index.write(INDEX_RECORD.pack(when, new + min(within, len(shown[-1]))))
                when, grown = next(growth, (0.0, 0))
            old, new = old + len(line), new + len(shown[-1])
        name = str(copy.log_of(task).relative_to(copy.path))
        self._add(copy, name, b"".join(shown).decode("utf-8", "surrogateescape"), start)
        copy.index_of(task).write_bytes(index.getvalue())
        index_name = str(copy.index_of(task).relative_to(copy.path))
        self.parts.append(Part(name=index_name, size=len(index.getvalue())))

    def _readme(self) -> str:
        listed = "\n".join(f"  {each.name}{_cut(each)}" for each in self.parts)
        return (
            f"This is the job {self._folder.job_id} of distrun, for a bug report.\n\n"
            f"To read it: open {REPORT} in a browser, or, with distrun, make the page again:\n"
            f"  distrun report distrun-{self._folder.job_id}.tar.gz\n\n"
            f"Replaced everywhere alike: {replaced_text(self._redactor)}.\n"
            "What is a secret can only be guessed: look through it before you send it.\n\n"
            f"Files:\n{listed}\n"
        )


def _archive(archive: tarfile.TarFile, name: str, path: Path) -> None:
    """Add a file without its owner, whose name the archive would have."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = path.stat().st_size, 0o644
    member.mtime = int(path.stat().st_mtime)
    with path.open("rb") as file:
        archive.addfile(member, file)


def _cut(part: Part) -> str:
    return f" (without {part.left_out:,} bytes of the job's)" if part.left_out else ""


def _system() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def replaced_text(redactor: Redactor) -> str:
    """Return how much was replaced: `2 host names, 1 user name, 3 secrets`."""
    kinds = [name.partition("-")[0] for name in set(redactor.names.values())]
    counts = {
        "host name": kinds.count("host"),
        "user name": kinds.count("user"),
        "address": len(redactor.addresses),
        "secret": len(set(redactor.secrets.values())),
    }
    plurals = {"address": "addresses"}
    words = [
        f"{count} {noun if count == 1 else plurals.get(noun, f'{noun}s')}"
        for noun, count in counts.items()
        if count
    ]
    return ", ".join(words) or "nothing"


def make_redactor(folder: JobFolder, *, keep_names: bool) -> Redactor:
    """Return what replaces the secrets of a job and, unless they are to be kept, the names."""
    secrets = secret_values(folder)
    if keep_names:
        return Redactor(secrets)
    users, hosts = _own_names()
    with contextlib.suppress(OSError):
        for event in record.read(str(folder.events_file)):
            if isinstance(event, events.HostReady):
                hosts += [event.host, event.hostname, event.address or ""]
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        spec = from_json(Spec, json.loads(folder.resolved_spec_file.read_text("utf-8")))
        users.append(spec.ssh.user or "")
        for each in spec.hosts:
            hosts += [each.name, each.address or ""]
    for host in hosts:
        user, sign, _ = host.rpartition("@")
        users += [user] if sign else []
    hosts = [host.rpartition("@")[2] for host in hosts]
    return Redactor(secrets, dict.fromkeys(users), dict.fromkeys(hosts))


def _own_names() -> tuple[list[str], list[str]]:
    """Return the names of this user and this machine."""
    users = [Path.home().name]
    with contextlib.suppress(OSError, KeyError):
        users.insert(0, getpass.getuser())
    return users, [socket.gethostname(), socket.getfqdn()]

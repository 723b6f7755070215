"""Bundles: the files of a job in one archive, without secrets and names, for a bug report.

One that is read may come from anybody: it is unpacked only if it has files that belong there, and
none that is too large.
"""

from __future__ import annotations

import contextlib
import getpass
import gzip
import io
import math
import os
import platform
import re
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.codec import decode, encode
from distrun.errors import HostError, UsageError
from distrun.frozen import Frozen
from distrun.job import installed
from distrun.job.folder import LATE_SUFFIX, LOG_SUFFIX, JobFolder
from distrun.job.job import Job
from distrun.job.resumption import recorded_spec
from distrun.redaction.redactor import Redactor, secret_values
from distrun.spec.machine import own_names
from distrun.spec.problems import printable
from distrun.spec.regular_file import data_start, open_regular_file, read_regular_file

_VERSION = 1
_ABOUT = "bundle.json"
_FILE = re.compile(
    r"bundle\.json|spec\.yaml|(?:spec|plan)\.json|events\.jsonl|supervisor\.log|batch\.(?:sh|log)"
    r"|(?:logs|history)/[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.(?:log|late|idx|jsonl)"
)
"""The files that belong to a bundle: those of a job's folder that say what happened."""
_MEMBER = re.compile(rf"distrun-([A-Za-z0-9][A-Za-z0-9._-]{{0,200}})/({_FILE.pattern})")
_MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS = 1 << 20, 64 << 20
"""Of each log, its end is written."""
_MOST_FILE_BYTES = 64 << 20
"""Of a file in a bundle. Of a longer one, half of that: what replaces a name may be longer."""
_BYTES_OF_A_FILE, _MOST_BYTES = 1 << 14, 1 << 30
"""On the disk, beside what is in it; and of all files of a bundle."""
_DAMAGE = (ValueError, FileExistsError, ArithmeticError, LookupError, TypeError, AttributeError,
           RecursionError, tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)  # fmt: skip


class About(Frozen, kw_only=True):
    """What a bundle says of itself: when it was made, and what `status` said of the job then.

    `versions`: of what is installed where it was made, by the name.
    """

    version: int
    job_id: str
    made_at: float
    phase: str
    is_running: bool
    versions: dict[str, str]


def make_redactor(job: Job, *, keep_names: bool) -> Redactor:
    """Return what replaces the secrets of a job and, unless they are to be kept, the names."""
    if keep_names:
        return Redactor(secret_values(job.folder))
    users = [os.path.basename(os.path.expanduser("~"))]
    with contextlib.suppress(KeyError, OSError):
        users.append(getpass.getuser())
    hosts = [os.uname().nodename, *sorted(own_names())]
    for event in job.history:
        found = (getattr(event, each, "") or "" for each in ("host", "hostname", "address"))
        # TensorBoard's is a URL.
        hosts += (each.rpartition("@")[2] for each in found if "/" not in each)
    with contextlib.suppress(HostError):
        spec = recorded_spec(job.folder)
        users.append(spec.ssh.user or "")
        for host in spec.hosts:
            user, _, name = host.name.rpartition("@")
            users.append(user)
            hosts += (name, host.address or "")
        addresses = (each for role in spec.roles for each in role.addresses)
        hosts += (each.rpartition(":")[0].strip("[]") for each in addresses)
    return Redactor(secret_values(job.folder), users, hosts)


def write_bundle(file: IO[bytes], job: Job, redactor: Redactor) -> list[tuple[str, int, int]]:
    """Write an archive of a job. Raises OSError.

    Returns its files: the name, the bytes, and how many bytes of the job's file are left out.
    """
    # The id contains the job's name, which may be that of a user.
    job_id = re.sub(r"[^A-Za-z0-9._-]", "", redactor(job.folder.job_id)).lstrip("._-") or "job"
    about = About(
        version=_VERSION,
        job_id=job_id,
        made_at=time.time(),
        phase=job.phase,
        is_running=job.is_running,
        versions=installed.here()
        | {"Python": platform.python_version(), "system": platform.platform()},
    )
    parts = []
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:

        def add(name: str, text: str, changed_at: float, left_out: int = 0) -> None:
            content = text.encode("utf-8", "surrogateescape")
            member = tarfile.TarInfo(f"distrun-{job_id}/{name}")  # has no owner's name
            member.size, member.mtime = len(content), math.ceil(changed_at)
            archive.addfile(member, io.BytesIO(content))
            parts.append((name, len(content), left_out))

        for name, content, found in _contents(job.folder):
            text = content.decode("utf-8", "surrogateescape")
            if name.endswith((".json", ".jsonl")):
                text = "\n".join(map(redactor.json, text.split("\n")))
            elif not name.endswith(INDEX_SUFFIX):  # that has times and offsets in the whole log
                text = redactor(text)
            add(name, text, found.st_mtime, max(0, found.st_size - len(content)))
        add(_ABOUT, redactor.json(encode(about)), about.made_at // 1)  # tar warns of the future
    return parts


def _contents(folder: JobFolder) -> Iterator[tuple[str, bytes, os.stat_result]]:
    top = folder.events_file.parent
    found_files = (*top.iterdir(), *folder.logs.glob("*"), *folder.history.glob("*"))
    files = sorted(each for each in found_files if _FILE.fullmatch(str(each.relative_to(top))))
    logs = [each for each in files if each.suffix in (LOG_SUFFIX, LATE_SUFFIX)]
    most = min(_MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS // max(1, len(logs)))
    for path in files:
        try:
            with open_regular_file(path) as file:
                found = os.fstat(file.fileno())
                # Of a log its end, after what was dropped (`logs.max_size`).
                start = max(data_start(file.fileno()), found.st_size - most) if path in logs else 0
                content = os.pread(file.fileno(), _MOST_FILE_BYTES // 2, start)
        except OSError:
            continue
        # A part of a line could be that of a secret, which nothing would recognize.
        if start:
            content = b"".join(re.split(rb"[\r\n]", content, maxsplit=1)[1:])
        elif len(content) < found.st_size:
            content = content[: content.rfind(b"\n") + 1]
        yield str(path.relative_to(top)), content, found


class _Member(tarfile.TarInfo):
    """A plain file. What tar has beside those would be read into memory, however long it is."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member: _Member = super().frombuf(buf, encoding, errors)
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ValueError(f"{printable(member.name[:200])!r} is not a plain file")
        return member


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[JobFolder, About]]:
    """Unpack a bundle into a private folder, which the end of the context removes.

    Raises:
        UsageError: it is no bundle, it is damaged, or it has what no bundle has.
        OSError: it cannot be read, or not be unpacked.
    """
    try:
        with (
            tempfile.TemporaryDirectory(prefix="distrun-bundle-") as temporary,
            open_regular_file(path, follow_link=True) as packed,
            gzip.GzipFile(fileobj=packed) as archive,
        ):
            folder = _unpack(archive, Path(temporary))
            said = read_regular_file(str(folder.path / _ABOUT), largest=1 << 20)
            if said is None:
                raise ValueError(f"it has no {_ABOUT}, or one that is too large")
            about = decode(About, said)
            if about.version != _VERSION:
                raise ValueError(f"it is of version {about.version}, not of {_VERSION}")
            yield folder, about
    except _DAMAGE as error:  # also where each file can be read, but they do not fit together
        raise UsageError(
            f"{path} is not a bundle of distrun, or it is damaged: {error}",
            hint="make it again with this version of distrun: distrun bundle JOB",
        ) from error


def _unpack(archive: gzip.GzipFile, temporary: Path) -> JobFolder:
    """Unpack an archive. Raises ValueError if it is no bundle."""
    folder = JobFolder(temporary / "jobs" / "none")
    size = 0
    # A stream is read from its beginning to its end: no member can be somewhere else.
    with tarfile.open(fileobj=archive, mode="r|", tarinfo=_Member) as members:
        for count, member in enumerate(members):
            found = _MEMBER.fullmatch(member.name)
            if found is not None and not count:
                folder = JobFolder(temporary / "jobs" / found[1])
                folder.logs.mkdir(parents=True)
                folder.history.mkdir()
            if found is None or found[1] != folder.job_id:
                raise ValueError(f"it has {printable(member.name[:200])!r}")
            size += member.size + _BYTES_OF_A_FILE
            if member.size > _MOST_FILE_BYTES or size > _MOST_BYTES:
                most = f"{_MOST_FILE_BYTES:,} bytes a file, {_MOST_BYTES:,} bytes in all"
                raise ValueError(f"{found[2]} is beyond the limits: {most}")
            with (folder.path / found[2]).open("xb") as file:  # not if it has that twice
                content = members.extractfile(member)
                file.write(b"" if content is None else content.read())
            os.utime(file.name, (member.mtime, member.mtime))
    # To its end, where its length and its checksum are.
    if archive.read(1 << 20).strip(b"\0") or archive.read(1):
        raise ValueError("there is something behind its end")
    return folder

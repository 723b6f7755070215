"""Reads a bundle, which may come from anybody: only files that belong there, and not too large."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.codec import decode
from distrun.errors import UsageError
from distrun.frozen import Frozen
from distrun.job.folder import HISTORY_SUFFIX, LATE_SUFFIX, LOG_SUFFIX, JobFolder
from distrun.spec.problems import printable
from distrun.spec.regular_file import open_regular_file, read_regular_file

VERSION = 1
MOST_BYTES = 64 << 20
"""Of a file in a bundle. Of a longer one, its beginning is there, up to the end of a line."""
ABOUT = "bundle.json"
_NAME = re.compile(r"distrun-([A-Za-z0-9][A-Za-z0-9._-]{0,200})/(.+)")
_SUFFIXES = "|".join(map(re.escape, (LOG_SUFFIX, LATE_SUFFIX, INDEX_SUFFIX, HISTORY_SUFFIX)))
_TASK_FILE = re.compile(rf"(?:logs|history)/[A-Za-z0-9_][A-Za-z0-9_.-]{{0,200}}(?:{_SUFFIXES})")
_MOST_FILES = 20_000
_MOST_BYTES = 1 << 30
"""Of all files together, once they are unpacked."""
_SHORTEST_LINE = 40
"""Bytes that a line of events or of samples has at least, on average: each is read as JSON."""
_LATEST_TIME = 4e10
"""Later than any clock: the header is damaged."""
_DAMAGE = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError,
           tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)  # fmt: skip


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


def is_known(name: str, folder: JobFolder) -> bool:
    """Whether a file of that name, relative to the job's folder, belongs to a bundle."""
    if _TASK_FILE.fullmatch(name):
        return True
    files = (
        *(folder.spec_file, folder.resolved_spec_file, folder.plan_file, folder.events_file),
        *(folder.supervisor_log, folder.batch_script, folder.batch_log),
    )
    return name in {ABOUT, *(each.name for each in files)}


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
            said = read_regular_file(str(folder.path / ABOUT), largest=1 << 20)
            if said is None:
                raise ValueError(f"it has no {ABOUT}, or one that is too large")
            about = decode(About, said)
            if about.version != VERSION:
                raise ValueError(f"it is of version {about.version}, not of {VERSION}")
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
            found = _NAME.fullmatch(member.name)
            if found is not None and not count:
                folder = JobFolder(temporary / "jobs" / found[1])
                folder.logs.mkdir(parents=True)
                folder.history.mkdir()
            if (
                found is None
                or found[1] != folder.job_id
                or not is_known(found[2], folder)
                or (folder.path / found[2]).exists()  # it has that twice
            ):
                raise ValueError(f"it has {printable(member.name[:200])!r}")
            path = folder.path / found[2]
            size += member.size
            if member.size > MOST_BYTES or count >= _MOST_FILES or size > _MOST_BYTES:
                most = f"{MOST_BYTES:,} bytes a file, {_MOST_BYTES:,} bytes, {_MOST_FILES:,} files"
                raise ValueError(f"its {found[2]} is beyond the limits: {most}")
            content = members.extractfile(member)
            text = b"" if content is None else content.read()
            has_json_lines = path == folder.events_file or path.parent == folder.history
            if has_json_lines and text.count(b"\n") > 1000 + len(text) // _SHORTEST_LINE:
                raise ValueError(f"most lines of its {found[2]} are none of a job")
            path.write_bytes(text)
            if 0 <= member.mtime < _LATEST_TIME:
                os.utime(path, (member.mtime, member.mtime))
    # To its end, where its length and its checksum are.
    if archive.read(1 << 20).strip(b"\0") or archive.read(1):
        raise ValueError("there is something behind its end")
    return folder

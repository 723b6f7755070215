"""Reads a bundle, which may come from anybody: only files that belong there, and not too large."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.codec import from_json
from distrun.errors import UsageError
from distrun.frozen import Frozen
from distrun.job.folder import HISTORY_SUFFIX, LATE_SUFFIX, LOG_SUFFIX, JobFolder
from distrun.spec.problems import printable
from distrun.spec.regular_file import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1
MOST_BYTES = 64 << 20
"""Of a file in a bundle. Of a longer one, its beginning is there, up to the end of a line."""
ABOUT, REPORT, README = "bundle.json", "report.html", "README.txt"
TOP = re.compile(r"distrun-([A-Za-z0-9][A-Za-z0-9._-]{0,200})")
_SUFFIXES = "|".join(map(re.escape, (LOG_SUFFIX, LATE_SUFFIX, INDEX_SUFFIX, HISTORY_SUFFIX)))
_TASK_FILE = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,200}}(?:{_SUFFIXES})")
_MOST_FILES = 20_000
_MOST_BYTES = 1 << 30
"""Of all files together, once they are unpacked."""
_BLOCK = 1 << 20
_LATEST_TIME = 4e10
"""Later than any clock: the header is damaged."""
_ODD_VALUES = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)


class About(Frozen, kw_only=True):
    """What a bundle says of itself.

    Attributes:
        version: of its form.
        job_id: the job's.
        made_at: Unix time in seconds.
        phase: the job's, as `status` showed it.
        is_running: whether the job had not ended.
        versions: of what is installed where it was made, by the name.
    """

    version: int
    job_id: str
    made_at: float
    phase: str
    is_running: bool
    versions: dict[str, str]


def is_known(name: str, folder: JobFolder) -> bool:
    """Whether a file of that name, relative to the job's folder, belongs to a bundle."""
    place, slash, file = name.rpartition("/")
    if slash:
        is_folder = place in (folder.logs.name, folder.history.name)
        return is_folder and _TASK_FILE.fullmatch(file) is not None
    files = (
        *(folder.spec_file, folder.resolved_spec_file, folder.plan_file, folder.events_file),
        *(folder.supervisor_log, folder.batch_script, folder.batch_log),
    )
    return name in {ABOUT, REPORT, README, *(each.name for each in files)}


class _Member(tarfile.TarInfo):
    """A plain file. What tar has beside those would be read into memory, however long it is."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Read a header.

        Raises:
            ValueError: it is damaged or missing, which `tarfile` would take for the archive's end.
            tarfile.HeaderError: it is the end.
        """
        try:
            member: _Member = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):
                raise
            raise ValueError(str(error)) from error
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ValueError(f"{printable(member.name[:200])!r} is no plain file")
        return member


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is removed also where a signal ends its removal."""

    def cleanup(self) -> None:
        try:
            super().cleanup()
        except BaseException:
            shutil.rmtree(self.name, ignore_errors=True)
            raise


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[JobFolder, About]]:
    """Unpack a bundle into a private folder, which the end of the context removes.

    Raises:
        UsageError: it is no bundle, it is damaged, or it has what no bundle has.
        OSError: it cannot be read, or not be unpacked.
    """
    with TemporaryFolder(prefix="distrun-bundle-") as temporary:
        try:
            with (
                open_regular_file(path, follow_link=True) as packed,
                gzip.GzipFile(fileobj=packed) as archive,
            ):
                folder = _unpack(archive, Path(temporary))
            about = _about(folder)
        except (tarfile.TarError, EOFError, zlib.error, ValueError, gzip.BadGzipFile) as error:
            raise _damaged(path, str(error)) from error
        if about.version != VERSION:
            raise UsageError(
                f"{path}: a bundle of version {about.version}, and this distrun reads {VERSION}",
                hint="use the distrun that made it",
            )
        try:
            yield folder, about
        except _ODD_VALUES as error:  # each file can be read, but they do not fit together
            raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _unpack(archive: gzip.GzipFile, temporary: Path) -> JobFolder:
    """Unpack an archive. Raises ValueError if it is no bundle."""
    folder: JobFolder | None = None
    size = 0
    # A stream is read from its beginning to its end: no member can be somewhere else.
    with tarfile.open(fileobj=archive, mode="r|", tarinfo=_Member) as members:
        for count, member in enumerate(members):
            top, _, name = member.name.partition("/")
            found = TOP.fullmatch(top)
            if folder is None and found is not None:
                folder = JobFolder(temporary / "jobs" / found[1])
                folder.logs.mkdir(parents=True)
                folder.history.mkdir()
            is_of_job = folder is not None and found is not None and found[1] == folder.job_id
            if folder is None or not is_of_job or not is_known(name, folder):
                raise ValueError(f"it has {printable(member.name[:200])!r}")
            if member.size > MOST_BYTES:
                raise ValueError(f"its {name} has more than {MOST_BYTES:,} bytes")
            size += member.size
            if count >= _MOST_FILES or size > _MOST_BYTES:
                most = f"{_MOST_FILES:,} files or {_MOST_BYTES:,} bytes"
                raise ValueError(f"it has more than {most}")
            _write(members, member, folder.path / name)
    if folder is None:
        raise ValueError("it is empty")
    # To its end, where its length and its checksum are.
    if len(archive.read(_BLOCK)) == _BLOCK:
        raise ValueError("there is something behind its end")
    return folder


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = members.extractfile(member)
    try:
        target = path.open("xb")
    except FileExistsError:
        raise ValueError(f"it has {path.name} twice") from None
    with target:
        while source is not None and (block := source.read(_BLOCK)):
            target.write(block)
    if 0 <= member.mtime < _LATEST_TIME:
        os.utime(path, (member.mtime, member.mtime))


def _about(folder: JobFolder) -> About:
    """Return what it says of itself. Raises ValueError."""
    try:
        with open_regular_file(folder.path / ABOUT) as file:
            return from_json(About, json.loads(file.read(_BLOCK)))
    except (OSError, *_ODD_VALUES) as error:
        raise ValueError(f"its {ABOUT} cannot be read") from error


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is no bundle of distrun, or it is damaged: {why}",
        hint="make it again: distrun bundle JOB",
    )

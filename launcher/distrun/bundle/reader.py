"""Reads a bundle, which may come from anybody: only files that belong there, and not too large."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.bundle.contents import ABOUT, MOST_BYTES, TOP, VERSION, About, is_known
from distrun.codec import from_json
from distrun.errors import UsageError
from distrun.job.folder import JobFolder
from distrun.spec.problems import printable
from distrun.spec.regular_file import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_FILES = 20_000
_MOST_BYTES = 1 << 30
"""Of all files together, once they are unpacked."""
_BLOCK = 1 << 20
_LATEST_TIME = 4e10
"""Later than any clock: the header is damaged."""
_ODD_VALUES = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)


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


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[JobFolder, About]]:
    """Unpack a bundle into a private folder, which the end of the context removes.

    Raises:
        UsageError: it is no bundle, it is damaged, or it has what no bundle has.
        OSError: it cannot be read, or not be unpacked.
    """
    with tempfile.TemporaryDirectory(prefix="distrun-bundle-") as temporary:
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

"""Reads a bundle, which may come from anybody: only files that belong there, and not too large."""

from __future__ import annotations

import contextlib
import json
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.bundle.contents import ABOUT, TOP, VERSION, About, is_known
from distrun.codec import from_json
from distrun.errors import UsageError
from distrun.jobstore import JobFolder
from distrun.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_FILES = 20_000
_MOST_BYTES = 1 << 30
"""Of all files together, once they are unpacked."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[JobFolder, About]]:
    """Unpack a bundle into a private folder, which the end of the context removes.

    Raises:
        UsageError: it is no bundle, it is damaged, or it has what no bundle has.
        OSError: it cannot be read, or not be unpacked.
    """
    with tempfile.TemporaryDirectory(prefix="distrun-bundle-") as temporary:
        try:
            with tarfile.open(path, mode="r|gz") as archive:
                folder = _unpack(archive, Path(temporary), path)
        except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
            raise _damaged(path, str(error)) from error
        yield folder, _about(folder, path)


def _unpack(archive: tarfile.TarFile, temporary: Path, path: Path) -> JobFolder:
    folder: JobFolder | None = None
    size = 0
    for count, member in enumerate(archive):
        top, _, name = member.name.partition("/")
        found = TOP.fullmatch(top)
        if found is None:
            raise _damaged(path, f"it has {printable(member.name[:200])!r}")
        if folder is None:
            folder = JobFolder(temporary / "jobs" / found[1])
            folder.logs.mkdir(parents=True)
            folder.history.mkdir()
        size += member.size
        is_plain = member.isreg() and member.size >= 0 and found[1] == folder.job_id
        if not is_plain or not is_known(name, folder) or (folder.path / name).exists():
            raise _damaged(path, f"it has {printable(member.name[:200])!r}")
        if count >= _MOST_FILES or size > _MOST_BYTES:
            raise _damaged(path, f"it has more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes")
        source = archive.extractfile(member)
        with (folder.path / name).open("xb") as target:
            while source is not None and (block := source.read(1 << 20)):
                target.write(block)
    if folder is None:
        raise _damaged(path, "it is empty")
    return folder


def _about(folder: JobFolder, path: Path) -> About:
    try:
        about = from_json(About, json.loads((folder.path / ABOUT).read_text("utf-8")))
    except FileNotFoundError:
        raise _damaged(path, f"it has no {ABOUT}") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"its {ABOUT} cannot be read") from error
    if about.version != VERSION:
        raise UsageError(
            f"{path}: a bundle of version {about.version}, and this distrun reads {VERSION}",
            hint="use the distrun that made it",
        )
    return about


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is no bundle of distrun, or it is damaged: {why}",
        hint="make it again: distrun bundle JOB",
    )

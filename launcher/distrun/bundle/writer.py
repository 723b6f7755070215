"""Writes a bundle: the files of a job, redacted, with its report."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import tarfile
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.bundle.contents import ABOUT, MOST_BYTES, README, REPORT, VERSION, About, is_known
from distrun.codec import to_json
from distrun.frozen import Frozen
from distrun.job.folder import LATE_SUFFIX, LOG_SUFFIX, JobFolder
from distrun.spec.regular_file import data_start, open_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distrun.redaction import Redactor

_MOST_LOG_BYTES = 1 << 20
"""Of each log: its end."""
_MOST_BYTES_OF_ALL_LOGS = 64 << 20
_MADE = (ABOUT, REPORT, README)


class Part(Frozen, kw_only=True):
    """A file in a bundle.

    `size`: its bytes. `left_out`: how many bytes of the job's file are not in it.
    """

    name: str
    size: int
    left_out: int = 0


def write_bundle(
    file: IO[bytes],
    folder: JobFolder,
    redactor: Redactor,
    make_report: Callable[[JobFolder, About], str],
    *,
    phase: str,
    is_running: bool,
    versions: Mapping[str, str],
) -> list[Part]:
    """Write an archive; return what is in it. Raises OSError.

    Args:
        file: where to.
        folder: the job's.
        redactor: replaces secrets and names.
        make_report: makes the page of a job's folder, which has been redacted.
        phase: how `status` shows the job.
        is_running: whether it has not ended.
        versions: of what is installed here.
    """
    # The id contains the job's name, which may be that of a user.
    job_id = re.sub(r"[^A-Za-z0-9._-]", "", redactor(folder.job_id)).lstrip("._-") or "job"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    about = About(
        version=VERSION,
        job_id=job_id,
        made_at=time.time(),
        phase=phase,
        is_running=is_running,
        versions={**versions, "Python": platform.python_version(), "system": system},
    )
    with (
        tempfile.TemporaryDirectory(prefix="distrun-bundle-") as temporary,
        tarfile.open(fileobj=file, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive,
    ):
        copy = JobFolder(Path(temporary) / "jobs" / job_id)
        copy.logs.mkdir(parents=True)
        copy.history.mkdir()
        parts = _copy(folder, copy, redactor)
        text = redactor(json.dumps(to_json(about), indent=2) + "\n")
        parts.append(_write(copy, ABOUT, text.encode()))
        parts.append(_write(copy, REPORT, make_report(copy, about).encode("utf-8", "replace")))
        parts.append(_write(copy, README, _readme(job_id, parts, redactor).encode()))
        for part in parts:
            path = copy.path / part.name
            member = tarfile.TarInfo(f"distrun-{job_id}/{part.name}")  # has no owner's name
            member.size, member.mode = part.size, 0o644
            member.mtime = math.ceil(path.stat().st_mtime)
            with path.open("rb") as content:
                archive.addfile(member, content)
    return parts


def _copy(folder: JobFolder, copy: JobFolder, redactor: Redactor) -> list[Part]:
    """Copy the files that belong to a bundle, without what must not be shown."""
    top = folder.events_file.parent
    files = sorted([*top.iterdir(), *folder.logs.glob("*"), *folder.history.glob("*")])
    names = [str(each.relative_to(top)) for each in files]
    names = [each for each in names if is_known(each, folder) and each not in _MADE]
    logs = {each for each in names if "/" in each and each.endswith((LOG_SUFFIX, LATE_SUFFIX))}
    most = min(_MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS // max(1, len(logs)))
    parts = []
    for name in names:
        try:
            with open_regular_file(top / name) as file:
                found = os.fstat(file.fileno())
                content = _end(file, most) if name in logs else file.read(MOST_BYTES)
        except OSError:
            continue
        if name not in logs and len(content) < found.st_size:
            content = content[: content.rfind(b"\n") + 1]
        left_out = max(0, found.st_size - len(content))
        if not name.endswith(INDEX_SUFFIX):  # that has times and offsets in the whole log
            text = content.decode("utf-8", "surrogateescape")
            is_json = name.endswith((".json", ".jsonl"))
            redact = redactor.json if is_json else redactor
            lines = text.split("\n") if is_json else [text]
            content = "\n".join(map(redact, lines)).encode("utf-8", "surrogateescape")
        parts.append(_write(copy, name, content, left_out))
        os.utime(copy.path / name, (found.st_mtime, found.st_mtime))
    return parts


def _end(log: BinaryIO, most: int) -> bytes:
    """Return the whole lines at the end of a log, after what was dropped (`logs.max_size`)."""
    size = os.fstat(log.fileno()).st_size
    start = max(data_start(log.fileno()), size - most)
    log.seek(start)
    content = log.read(most)
    if not start:
        return content
    # A part of a line could be the second half of a secret, which nothing would recognize.
    end = re.search(rb"[\r\n]", content)
    return b"" if end is None else content[end.end() :]


def _write(copy: JobFolder, name: str, content: bytes, left_out: int = 0) -> Part:
    if len(content) > MOST_BYTES:  # replacements may be longer than what they replace
        whole = content.rfind(b"\n", 0, MOST_BYTES) + 1
        left_out += len(content) - whole
        content = content[:whole]
    (copy.path / name).write_bytes(content)
    return Part(name=name, size=len(content), left_out=left_out)


def _readme(job_id: str, parts: list[Part], redactor: Redactor) -> str:
    listed = "\n".join(f"  {each.name}{_cut(each)}" for each in parts)
    return (
        f"This is the job {job_id} of distrun, for a bug report.\n\n"
        f"To read it: open {REPORT} in a browser, or, with distrun, make the page again:\n"
        f"  distrun report distrun-{job_id}.tar.gz\n\n"
        f"Replaced everywhere alike: {replaced_text(redactor)}.\n"
        "What is a secret can only be guessed: look through it before you send it.\n\n"
        f"Files:\n{listed}\n"
    )


def _cut(part: Part) -> str:
    return f" (without {part.left_out:,} bytes of the job's)" if part.left_out else ""


def replaced_text(redactor: Redactor) -> str:
    """Return how much was replaced: `2 host names, 1 user name, 3 secrets`."""
    kinds = [name.partition("-")[0] for name in set(redactor.names.values())]
    counts = {
        "host name": kinds.count("host"),
        "user name": kinds.count("user"),
        "address": kinds.count("address"),
        "secret": len(set(redactor.secrets.values())),
    }
    plurals = {"address": "addresses"}
    words = [
        f"{count} {noun if count == 1 else plurals.get(noun, f'{noun}s')}"
        for noun, count in counts.items()
        if count
    ]
    return ", ".join(words) or "nothing"

"""Writes a bundle: the files of a job, redacted, with its report."""

from __future__ import annotations

import bisect
import json
import math
import os
import platform
import re
import tarfile
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from distrun.agent.protocol import INDEX_RECORD
from distrun.bundle.contents import (
    ABOUT,
    MOST_BYTES,
    README,
    REPORT,
    VERSION,
    About,
    is_known,
    job_files,
)
from distrun.codec import to_json
from distrun.frozen import Frozen
from distrun.jobstore import HISTORY_SUFFIX, LOG_SUFFIX, JobFolder, task_of_log
from distrun.logs import TaskLog
from distrun.logs.tail import line_start
from distrun.redaction import Redactor
from distrun.regular_file import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MOST_LOG_BYTES = 1 << 20
"""Of each log: its end."""
_MOST_BYTES_OF_ALL_LOGS = 64 << 20


class Part(Frozen, kw_only=True):
    """A file in a bundle.

    `size`: its bytes. `left_out`: how many bytes of the job's file are not in it.
    """

    name: str
    size: int
    left_out: int = 0


class _Offsets:
    """Offsets in a log, and in the copy whose lines have other lengths: where lines begin."""

    def __init__(self, old: list[int], new: list[int]) -> None:
        self.old, self._new = old, new

    def add(self, old_length: int, new_length: int) -> None:
        """Add a line."""
        self.old.append(self.old[-1] + old_length)
        self._new.append(self._new[-1] + new_length)

    def new(self, offset: int) -> int:
        """Return the offset in the copy: one within a line stays within that line."""
        at = max(0, bisect.bisect_right(self.old, offset) - 1)
        if at + 1 == len(self.old):
            return self._new[at]
        within = max(0, offset - self.old[at])
        return min(self._new[at] + within, self._new[at + 1])


class BundleWriter:
    """Writes one bundle.

    Args:
        folder: the job's.
        tasks: the names of the job's tasks. Others that have files are in the bundle, too.
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
        self._folder, self._redactor = folder, redactor
        self._tasks = list(dict.fromkeys([*tasks, *_tasks_with_files(folder)]))
        self._most_of_log = min(
            _MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS // max(1, len(self._tasks))
        )
        self._job_id = _plain(redactor(folder.job_id))
        """It contains the job's name, which may be that of a user."""
        self._about = About(
            version=VERSION,
            job_id=self._job_id,
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
            tarfile.open(fileobj=file, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive,
        ):
            copy = JobFolder(Path(temporary) / "jobs" / self._job_id)
            copy.logs.mkdir(parents=True)
            copy.history.mkdir()
            self._copy(copy)
            about = json.dumps(to_json(self._about), indent=2) + "\n"
            self._add(copy, ABOUT, self._redactor(about))
            self._add(copy, REPORT, make_report(copy, self._about))
            self._add(copy, README, self._readme())
            for part in self.parts:
                _archive(archive, f"distrun-{copy.job_id}/{part.name}", copy.path / part.name)

    def _copy(self, copy: JobFolder) -> None:
        for source, target in zip(job_files(self._folder), job_files(copy), strict=True):
            is_json = target in (copy.events_file, copy.plan_file, copy.resolved_spec_file)
            self._copy_text(source, target, copy, is_json=is_json)
        reports = self._folder.unsent_reports_file
        self._copy_text(reports, copy.unsent_reports_file, copy, is_json=True)
        late = self._folder.late_logs()
        for task in self._tasks:
            history = self._folder.history_of(task)
            self._copy_text(history, copy.history_of(task), copy, is_json=True)
            log, index = self._folder.log_of(task), self._folder.index_of(task)
            offsets = self._copy_log(log, index, copy.log_of(task), copy)
            for offset, part, part_index in late.get(log, ()):
                name = part.name.replace(f".{offset}-", f".{offsets.new(offset)}-", 1)
                self._copy_log(part, part_index, copy.logs / name, copy)

    def _add(
        self,
        copy: JobFolder,
        name: str,
        text: str,
        *,
        left_out: int = 0,
        written: float | None = None,
    ) -> None:
        content = text.encode("utf-8", "surrogateescape")
        if len(content) > MOST_BYTES:  # replacements may be longer than what they replace
            whole = content.rfind(b"\n", 0, MOST_BYTES) + 1
            left_out += len(content) - whole
            content = content[:whole]
        (copy.path / name).write_bytes(content)
        if written is not None:
            os.utime(copy.path / name, (written, written))
        self.parts.append(Part(name=name, size=len(content), left_out=left_out))

    def _copy_text(self, source: Path, target: Path, copy: JobFolder, *, is_json: bool) -> None:
        try:
            with open_regular_file(source) as file:
                found = os.fstat(file.fileno())
                content = file.read(MOST_BYTES)
        except OSError:
            return
        if len(content) < found.st_size:
            content = content[: content.rfind(b"\n") + 1]
        text = content.decode("utf-8", "surrogateescape")
        if is_json:
            text = "\n".join(map(self._redactor.json, text.split("\n")))
        else:
            text = self._redactor(text)
        name = str(target.relative_to(copy.path))
        left_out = max(0, found.st_size - len(content))
        self._add(copy, name, text, left_out=left_out, written=found.st_mtime)

    def _copy_log(self, source: Path, index: Path, target: Path, copy: JobFolder) -> _Offsets:
        """Copy the end of a log, and write its index anew: the offsets are others."""
        log = TaskLog("", str(source), str(index))
        most = self._most_of_log
        try:
            size, written = log.extent()
            if not size:
                return _Offsets([0], [0])
            start = line_start(log, size - most) if size > most else 0
            start, content = log.read_kept(max(start, size - 2 * most), 2 * most)
        except OSError:
            return _Offsets([0], [0])
        text = self._redactor(content.decode("utf-8", "surrogateescape"))
        offsets = _Offsets([start], [0])
        shown = text.encode("utf-8", "surrogateescape")
        lines, new_lines = (each.splitlines(keepends=True) for each in (content, shown))
        for line, new in zip(lines, new_lines, strict=True):
            offsets.add(len(line), len(new))
        times = [
            INDEX_RECORD.pack(when, offsets.new(grown))
            for when, grown in log.growth(start)
            if grown <= offsets.old[-1]
        ]
        name = str(target.relative_to(copy.path))
        self._add(copy, name, text, left_out=start, written=written)
        new_index = target.with_suffix(index.suffix)
        new_index.write_bytes(b"".join(times))
        index_name = str(new_index.relative_to(copy.path))
        self.parts.append(Part(name=index_name, size=len(times) * INDEX_RECORD.size))
        return offsets

    def _readme(self) -> str:
        listed = "\n".join(f"  {each.name}{_cut(each)}" for each in self.parts)
        return (
            f"This is the job {self._job_id} of distrun, for a bug report.\n\n"
            f"To read it: open {REPORT} in a browser, or, with distrun, make the page again:\n"
            f"  distrun report distrun-{self._job_id}.tar.gz\n\n"
            f"Replaced everywhere alike: {replaced_text(self._redactor)}.\n"
            "What is a secret can only be guessed: look through it before you send it.\n\n"
            f"Files:\n{listed}\n"
        )


def _archive(archive: tarfile.TarFile, name: str, path: Path) -> None:
    """Add a file without its owner, whose name the archive would have."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = path.stat().st_size, 0o644
    member.mtime = math.ceil(path.stat().st_mtime)
    with path.open("rb") as file:
        archive.addfile(member, file)


def _tasks_with_files(folder: JobFolder) -> list[str]:
    """Return the tasks with a log or samples: a damaged record may not name them."""
    places = ((folder.logs, LOG_SUFFIX), (folder.history, HISTORY_SUFFIX))
    return [
        task_of_log(file.name.removesuffix(suffix) + LOG_SUFFIX)
        for place, suffix in places
        for file in sorted(place.glob(f"*-*{suffix}"))
        if is_known(f"{place.name}/{file.name}", folder)
    ]


def _plain(text: str) -> str:
    """Return a text that can be the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "", text).lstrip("._-") or "job"


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

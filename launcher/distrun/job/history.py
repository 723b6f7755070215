"""What the tasks of a job have used and reported over time: a file of samples for each task.

Agents sample their tasks; the supervisor writes the samples. A file has one JSON object a line. It
keeps at most 1,000 samples of a task, however long the job runs: when there are more, those that
follow each other soonest are dropped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.linux.regular import open_to_append
from distrun.codec import decode, encode, field_names
from distrun.frozen import Frozen, field
from distrun.job.folder import JobFolder, replace_file
from distrun.spec.regular_file import open_regular_file

if TYPE_CHECKING:
    from distrun.lifecycle import TaskState

MOST_SAMPLES = 1000
"""Of each task."""
_LONGEST_LINE = 4096
"""Bytes. A task may report 32 values."""
_MOST_BYTES = 16 << 20
"""Of a file that is read: ten times what a supervisor writes."""


class Sample(Frozen, kw_only=True):
    """What the processes of a task used at one moment, and the progress that it had reported.

    Attributes:
        at: Unix time in seconds, by the clock of the launching machine.
        cpu_seconds: the processor time that the attempt had used by then. This and the next five
            are None where they are unknown: another user runs a process of the task.
        memory_bytes: the resident memory (RSS) of all its processes; what they share is counted for
            each.
        peak_memory_bytes: the highest `memory_bytes` of the attempt so far that was seen.
        read_bytes, written_bytes: by read and write calls, of files, pipes and terminals.
        gpu_memory_bytes: None if the host has no nvidia-smi, or it does not report it.
        gpu_percent: the mean load of the GPUs that they use; None: none, or not known.
        host_idle_seconds: how long nobody used the cores of the task's host, in all.
        progress: the numbers that the task had reported or printed last, such as STEP and LOSS.
        suspended_pid: one of its processes that is suspended (SIGSTOP); None: none is.
        ends_at: when its work will be complete, as estimated from its progress; None: unknown.
    """

    at: float
    attempt: int
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    peak_memory_bytes: int | None = None
    processes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    gpu_percent: float | None = None
    host_idle_seconds: float | None = None
    progress: dict[str, float] = field(default_factory=dict)
    suspended_pid: int | None = None
    ends_at: float | None = None


class Usage(Frozen):
    """The sum over a task's process tree at the moment `at` (Unix time). None: unknown.

    Memory is resident memory, in bytes. `cpu_seconds` is that of its present attempt.
    """

    at: float
    cpu_percent: float | None
    """Since the sample before, or since the task has started."""
    cpu_seconds: float | None
    memory_bytes: int | None
    gpu_memory_bytes: int | None
    """None also if the machine has no nvidia-smi."""
    processes: int | None
    suspended_pid: int | None = None


class HistoryLog:
    """Writes the samples of one job's tasks. Only its supervisor does.

    A disk that is full loses samples, never the job.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._counts: dict[str, int] = {}
        """The lines of each task's file."""

    def append(self, task: str, sample: Sample) -> None:
        path = self._folder.history_of(task)
        with contextlib.suppress(OSError):
            if task not in self._counts:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                self._counts[task] = _complete(path)
            if self._counts[task] >= MOST_SAMPLES:
                self._counts[task] = _thin(path)
            _append(path, f"{encode(sample)}\n")
            self._counts[task] += 1


def last(folder: JobFolder, task: str, count: int) -> list[Sample]:
    """Return the last samples of a task, without reading the others."""
    try:
        with open_regular_file(folder.history_of(task)) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - count * _LONGEST_LINE)
            lines = os.pread(file.fileno(), size - start, start).split(b"\n")
    except OSError:
        return []
    return _decoded(lines[-count - 1 : -1])


def sampled(folder: JobFolder, task: TaskState) -> Usage | None:
    """The usage of a task when it was sampled last.

    None if its present attempt was not sampled yet.
    """
    samples = [each for each in last(folder, task.name, 2) if each.attempt == task.attempt]
    if not samples:
        return None
    first, now = samples[0], samples[-1]
    at, used = (first.at, first.cpu_seconds) if len(samples) > 1 else (task.started_at, 0.0)
    percent = None
    if used is not None and now.cpu_seconds is not None:
        seconds = max(0.1, now.at - (at or now.at))
        percent = round(100 * max(0.0, now.cpu_seconds - used) / seconds, 1)
    same = {name: getattr(now, name) for name in field_names(Usage) if name != "cpu_percent"}
    return Usage(cpu_percent=percent, **same)


def read(folder: JobFolder, tasks: Iterable[str]) -> dict[str, list[Sample]]:
    """Read samples, in the order of time; again, only those that are new. Skips damaged lines."""
    found = {task: _read(folder, task) for task in tasks}
    return {task: sorted(each, key=lambda one: one.at) for task, each in found.items() if each}


def _read(folder: JobFolder, task: str) -> list[Sample]:
    try:
        with open_regular_file(folder.history_of(task)) as file:
            status = os.fstat(file.fileno())
            inode, offset, samples = folder.samples_read.get(task, (0, 0, []))
            if inode != status.st_ino or status.st_size < offset:  # it was thinned
                offset, samples = 0, []
            file.seek(offset)
            text = file.read(_MOST_BYTES)
    except OSError:
        return []
    text = text[: text.rfind(b"\n") + 1]
    samples = [*samples, *_decoded(text.splitlines())]
    folder.samples_read[task] = (status.st_ino, offset + len(text), samples)
    return samples


def _decoded(lines: list[bytes]) -> list[Sample]:
    samples = []
    for line in lines:
        with contextlib.suppress(ValueError):
            samples.append(decode(Sample, line))
    return samples


def _complete(path: Path) -> int:
    """End a line that an earlier supervisor could not complete; returns how many there are."""
    try:
        with open_regular_file(path) as file:
            text = file.read()
    except FileNotFoundError:
        return 0
    if text and not text.endswith(b"\n"):
        _append(path, "\n")
    return text.count(b"\n")


def _thin(path: Path) -> int:
    """Drop half of a file's samples, where they are densest; returns how many are left.

    The last one of each attempt is kept.
    """
    with open_regular_file(path) as file:
        samples = _decoded(file.read(_MOST_BYTES).splitlines())
    spacing = (samples[-1].at - samples[0].at) / (MOST_SAMPLES // 2) if samples else 0.0
    kept: list[Sample] = []
    for sample, after in zip(samples, [*samples[1:], None], strict=True):
        is_last = after is None or after.attempt != sample.attempt
        if is_last or not kept or sample.at - kept[-1].at >= spacing:
            kept.append(sample)
    if len(kept) > MOST_SAMPLES * 3 // 4:  # hundreds of attempts of a moment each
        kept = kept[-MOST_SAMPLES // 2 :]
    replace_file(path, "".join(f"{encode(each)}\n" for each in kept))
    return len(kept)


def _append(path: Path, line: str) -> None:
    with open_to_append(path) as file:
        file.write(line.encode("ascii"))

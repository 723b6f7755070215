"""The messages that send the program's files to other hosts."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, List, Sequence

from distrun.agent.protocol import Notice, Order, Report
from distrun.agent.protocol.causes import Cause

# From supervisor to agent ------------------------------------------------------------------


class FileList(Order):
    """A part of the list of the program's files.

    `files` are [path, mode, size, SHA-256], `links` are [path, target]; paths are relative to the
    top of the tree. `last`: the list is complete.
    """

    files: List[List[Any]]
    links: List[List[str]]
    folders: List[str]
    last: bool


class FileData(Order):
    """A part of the file with that number in the list, from `offset` on."""

    number: int
    offset: int
    data: bytes


class ReadFile(Order):
    """Send the first `size` bytes of a file of the working folder with that number.

    From `offset` on; or only their digest.
    """

    folder: int
    path: str
    offset: int
    size: int
    digest: bool


# From agent to supervisor ------------------------------------------------------------------


class FilesRequested(Report):
    """The numbers of the files that this host lacks, the first of them from `offset` on.

    Sent once the list is complete, and again on each new link until all files have arrived.
    """

    numbers: List[int]
    offset: int


class FileDataReceived(Report):
    """A part of so many bytes has been written; another may be sent."""

    size: int


class FilesReady(Report):
    """The host has all files."""

    at: float


class FilesRefused(Report):
    """The host cannot have the files; none of them is left on it."""

    cause: Cause
    at: float


class FilesPreserved(Report):
    """Files that tasks wrote among the program's files stay in `folder`.

    It is empty if the host's disk ends with the job.
    """

    folder: str
    files: int
    size: int
    at: float


# From the supervisor to the commands -------------------------------------------------------


class TransferProgress(Notice):
    """How many bytes of files have been sent to all hosts together, or have come from them."""

    done: int
    total: int
    hosts: int


class FilesWritten(Report):
    """A part of what tasks have written in the working folder with that number.

    `files` are [path, size, time of the last change in ns, bytes on the disk, mode]. `left_out`
    are [path, why]. `last`: there is no further part for any folder.
    """

    folder: int
    files: List[List[Any]]
    left_out: List[List[str]]
    last: bool


class FileRead(Report):
    """A part of the file that was ordered first. Between two parts there are zeros.

    Without data, it is a sign of life while a digest is made.
    """

    offset: int
    data: bytes


class FileReadEnd(Report):
    """All of the file that was ordered first was sent.

    `size` and `changed` (ns): of the file now. `digest`: the SHA-256 of what is not zero, if that
    was ordered. `errno`: why it could not be read; 0: it could.
    """

    size: int
    changed: int
    digest: str
    errno: int


def is_match(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path, or a folder above it, matches one of the patterns; without one, all do."""
    parts = path.split("/")
    above = ("/".join(parts[: count + 1]) for count in range(len(parts)))
    return not patterns or any(fnmatchcase(each, one) for each in above for one in patterns)

"""The part of the protocol that is about sending the program's files to other hosts."""

from __future__ import annotations

from typing import Any, ClassVar, List

from distrun.agent.protocol.causes import Cause
from distrun.agent.protocol.messages import Notice, Order, Report

# From supervisor to agent ------------------------------------------------------------------


class FileList(Order):
    """Part of the list of the program's files that this host is to have a copy of.

    `files` are [path, mode, size, SHA-256], `links` are [path, target]; paths are relative to the
    copy's top. With `last` the list is whole.
    """

    files: List[List[Any]]
    links: List[List[str]]
    folders: List[str]
    last: bool


class FileData(Order):
    """A part of the file of that number in the list, from `offset` on."""

    number: int
    offset: int
    data: bytes


# From agent to supervisor ------------------------------------------------------------------


class FilesRequested(Report):
    """The numbers of the files that this host lacks, the first of them from `offset` on.

    Sent once the whole list has come, and again on each new link until all have.
    """

    numbers: List[int]
    offset: int


class FileDataReceived(Report):
    """A part of so many bytes has been written down; another may come."""

    size: int


class FilesReady(Report):
    """The host has its copy, whole."""

    at: float


class FilesRefused(Report):
    """The host cannot have its copy; nothing of it is left."""

    parts: ClassVar = (("cause", Cause.from_json),)
    cause: Cause
    at: float


class FilesPreserved(Report):
    """What tasks have written in the copy, which is otherwise gone, is kept in `folder`."""

    folder: str
    files: int
    size: int
    at: float


# From the supervisor to the commands -------------------------------------------------------


class TransferProgress(Notice):
    """How far the sending of files to all hosts together has come, in bytes."""

    done: int
    total: int
    hosts: int
    """How many hosts are being sent any."""

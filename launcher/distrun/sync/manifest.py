"""The manifest: every file to send to the hosts. The launch command passes it to the supervisor."""

from __future__ import annotations

from distrun.frozen import Frozen


class FileEntry(Frozen, kw_only=True):
    """One file: the first `size` bytes at `path`, and their SHA-256."""

    path: str
    mode: int
    size: int
    digest: str


class LinkEntry(Frozen, kw_only=True):
    """A symbolic link to something else that is sent."""

    path: str
    target: str


class Manifest(Frozen, kw_only=True):
    """Everything that is sent. Paths are relative to `base`, in UTF-8 with `surrogateescape`."""

    base: str
    files: tuple[FileEntry, ...]
    links: tuple[LinkEntry, ...] = ()
    folders: tuple[str, ...] = ()
    """The folders without files, which would be missing otherwise."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

"""What is sent to a host, file by file, as launch command and supervisor tell each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file: the first `size` bytes of what is at `path`, of which `digest` is the SHA-256."""

    path: str
    mode: int
    size: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class LinkEntry:
    """A symbolic link that stays within what is sent."""

    path: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that is sent. Paths are relative to `base`, and in UTF-8 with `surrogateescape`."""

    base: str
    files: tuple[FileEntry, ...]
    links: tuple[LinkEntry, ...] = ()
    folders: tuple[str, ...] = ()
    """Those that would be missing, having no file in them."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

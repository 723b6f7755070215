"""Selects the files to send to other hosts, and computes their digests."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TypeAlias

from distrun.errors import InvalidSpecError
from distrun.spec.model import ProgramSpec, Spec, Sync
from distrun.spec.resources import bundled_jobs
from distrun.spec.units import format_bytes
from distrun.sync.gitignore import IgnoreRules
from distrun.sync.manifest import FileEntry, LinkEntry, Manifest

MOST_BYTES = 100_000_000
"""The limit for the script's folder. It does not apply if the spec lists paths."""
MOST_FILES = 100_000
_BLOCK = 1 << 20
_SHOWN_PARTS = 4
_SHOWN_SHARE = 0.01
_INSTEAD = (
    "list what the tasks need (sync: [train.py, src]), leave the rest out with a .gitignore, or "
    "write sync: off where the hosts see the same files as this machine"
)
_RESULTS = "what program.results has brought is sent, too, unless a .gitignore names it"


def select_files(spec: Spec, exclude: Sequence[str] = ()) -> FileSelection:
    """Find the files to send to other hosts, without reading them. `exclude`: folders never sent.

    Raises InvalidSpecError: they are too many or too large, or cannot be read.
    """
    program = spec.program
    try:
        found = FileSelection(program.sync_base, _roots(spec), exclude)
    except RecursionError:
        raise InvalidSpecError(
            f"program.sync: folders in {program.sync_base} are too deep in each other to be sent",
            hint=_INSTEAD,
        ) from None
    if program.sync is Sync.SCRIPT and found.size > MOST_BYTES:
        limit, size = format_bytes(MOST_BYTES), format_bytes(found.size)
        if size == limit:
            size = f"{found.size:,} bytes"
        raise InvalidSpecError(
            f"program.sync: the files of {sent_folders(program)} are {size}, and no more than "
            f"{limit} are sent: {found.largest_parts}",
            hint=f"{_INSTEAD}; {_RESULTS}" if program.results else _INSTEAD,
        )
    if _is_inside(os.fsencode(program.workdir), os.fsencode(program.sync_base)):
        found.add_folder(os.fsencode(program.workdir))
    return found


def sent_folders(program: ProgramSpec) -> str:
    if program.sync is Sync.SCRIPT and program.sync_paths:
        return " and ".join(program.sync_paths)
    return program.sync_base


def _roots(spec: Spec) -> list[str]:
    roots = list(spec.program.sync_paths)
    if spec.program.sync is Sync.SCRIPT and not roots:
        roots.append(spec.program.sync_base)
    for script in spec.scripts:
        # A script is always sent. A bundled job is sent whole: users cannot list its parts.
        is_bundled = script in map(str, bundled_jobs().values())
        roots.append(os.path.dirname(script) if is_bundled else script)
    return roots


_Within: TypeAlias = "tuple[bytes, ...]"
"""Real paths of the folders around the current one. A link to one of them would be endless."""


class FileSelection:
    """The files below some paths. `failures`: why git did not say which files it keeps."""

    def __init__(self, base: str, roots: Sequence[str], exclude: Sequence[str] = ()) -> None:
        self._base = os.fsencode(base)
        self._roots = [os.path.normpath(os.fsencode(root)) for root in roots]
        self._never = {os.path.realpath(os.fsencode(each)) for each in exclude}
        self.failures: list[str] = []
        self._files: dict[bytes, os.stat_result] = {}
        self._folders: set[bytes] = set()
        self._links: dict[bytes, bytes] = {}
        """The links that stay links, and the path to which each leads."""
        self._undecided: dict[bytes, tuple[IgnoreRules, _Within]] = {}
        """The other links so far: the target of a link may be found after it."""
        self._found_links: set[bytes] = set()
        self._resolved_folders: dict[bytes, bytes] = {}
        for root in self._roots:
            self._add_root(root)
        while self._undecided:
            self._decide_links()
        self._resolve_kept_links()

    @property
    def size(self) -> int:
        return sum(status.st_size for status in self._files.values())

    @property
    def count(self) -> int:
        return len(self._files)

    def has(self, path: bytes) -> bool:
        """Whether the hosts have a file of this path in the end."""
        name = os.path.basename(path)
        kept = os.path.join(self._resolve_folder(os.path.dirname(path)), name)
        return not self._files.keys().isdisjoint({path, kept}) or kept in self._links

    @property
    def largest_parts(self) -> str:
        """`data 3.0 GB, runs 20 MB`: the largest entries of the top folder."""
        parts: Counter[bytes] = Counter()
        for path, status in self._files.items():
            parts[self._relative(path).partition(b"/")[0]] += status.st_size
        largest = [
            (name, size)
            for name, size in parts.most_common(_SHOWN_PARTS)
            if size >= self.size * _SHOWN_SHARE
        ]
        return ", ".join(f"{_shown(name)} {format_bytes(size)}" for name, size in largest)

    def add_folder(self, path: bytes) -> None:
        self._folders.add(self._resolve_folder(path))

    def manifest(self, on_read: Callable[[int], None] = lambda _: None) -> Manifest:
        """The manifest with each file's digest. Raises InvalidSpecError: a file cannot be read."""
        read = [
            self._file_entry(path, status, on_read) for path, status in sorted(self._files.items())
        ]
        files = [entry for entry in read if entry is not None]
        taken = {os.path.dirname(path) for path in [*self._files, *self._links]}
        alone = sorted(path for path in self._folders - taken if path != self._base)
        return Manifest(
            base=_text(self._base),
            files=tuple(files),
            links=tuple(
                LinkEntry(
                    path=_text(self._relative(path)),
                    target=_text(os.path.relpath(place, os.path.dirname(path))),
                )
                for path, place in sorted(self._links.items())
            ),
            folders=tuple(_text(self._relative(path)) for path in alone),
        )

    def _file_entry(
        self, path: bytes, status: os.stat_result, on_read: Callable[[int], None]
    ) -> FileEntry | None:
        """The entry of a file, limited to its size at selection; None if the file is gone."""
        import hashlib  # slow, and jobs on this machine alone send no file

        digest = hashlib.sha256()
        size = 0
        try:
            with open(path, "rb", buffering=0) as file:
                while block := file.read(min(_BLOCK, status.st_size - size)):
                    digest.update(block)
                    size += len(block)
                    on_read(len(block))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, error) from error
        return FileEntry(
            path=_text(self._relative(path)),
            mode=stat.S_IMODE(status.st_mode) & 0o777,
            size=size,
            digest=digest.hexdigest(),
        )

    # The walk ------------------------------------------------------------------------------

    def _add_root(self, root: bytes) -> None:
        try:
            status = os.stat(root)
            if os.path.islink(root) and root != self._base:
                self._add_link(root, IgnoreRules.for_folder(root, self.failures))
            elif stat.S_ISDIR(status.st_mode):
                rules = IgnoreRules.for_folder(root, self.failures)
                self._walk(root, rules, os.path.realpath(root))
            else:
                self._add_file(root, status)
        except OSError as error:
            raise self._unreadable(root, error) from error

    def _walk(self, folder: bytes, rules: IgnoreRules, real: bytes, within: _Within = ()) -> None:
        """Add everything in a folder. `real` is its real path."""
        if real in within or real in self._never:
            return
        within = (*within, real)
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except FileNotFoundError:
            return  # the folder is gone
        except OSError as error:
            raise self._unreadable(folder, error) from error
        self._folders.add(folder)
        for entry in found:
            # For git, a link to a folder is not a folder.
            is_folder = entry.is_dir(follow_symlinks=False)
            inner = os.path.join(real, entry.name)
            if rules.excludes(entry.path, inner, is_folder=is_folder):
                continue
            if entry.is_symlink():
                self._add_link(entry.path, rules.within(entry.path), within)
            elif is_folder:
                self._walk(entry.path, rules.within(entry.path), inner, within)
            else:
                # An editor's temporary file may be gone already.
                with contextlib.suppress(FileNotFoundError):
                    self._add_file(entry.path, entry.stat(follow_symlinks=False))

    def _add_file(self, path: bytes, status: os.stat_result) -> None:
        """Add a regular file. Sockets and pipes cannot be sent."""
        if stat.S_ISREG(status.st_mode):
            self._files[path] = status
        if len(self._files) > MOST_FILES:
            raise InvalidSpecError(
                f"program.sync: there are more than {MOST_FILES:,} files in {_shown(self._base)}",
                hint=_INSTEAD,
            )

    # Links ---------------------------------------------------------------------------------

    def _add_link(self, path: bytes, rules: IgnoreRules, within: _Within = ()) -> None:
        """Add a link. `rules` apply to the entries of its target, if that is a folder."""
        if path not in self._found_links:
            self._found_links.add(path)
            self._undecided[path] = rules, within

    def _decide_links(self) -> None:
        """Keep links to files that are sent. For all others, send the target instead."""
        found, self._undecided = self._undecided, {}
        sent = self._files.keys() | self._folders
        roots = [(root, os.path.realpath(root)) for root in self._roots]
        others = []
        for path in found:
            try:
                place = self._sent_target(path, roots, sent)
            except FileNotFoundError:
                continue  # the link is gone
            except OSError as error:
                raise self._unreadable(path, error) from error
            if place is None:
                others.append(path)
            else:
                self._links[path] = place
        for path in others:
            self._replace_link(path, *found[path])

    def _sent_target(
        self, path: bytes, roots: Iterable[tuple[bytes, bytes]], sent: Container[bytes]
    ) -> bytes | None:
        """The path under which the target of a link is sent; None if it is not sent.

        A broken link stays broken on the host. Raises OSError if the link cannot be read. `roots`
        are sent with everything below them, each with its real path; `sent` was found below them.
        """
        target = os.readlink(path)
        by_name = os.path.normpath(os.path.join(os.path.dirname(path), target))
        is_by_name = not os.path.isabs(target) and _is_inside(by_name, self._base)
        if not os.path.exists(path):
            return by_name if is_by_name else None
        is_found = is_by_name and (by_name in self._found_links or by_name in sent)
        # If `a` is a link, `a/../b` need not be `b`.
        if is_found and os.path.exists(by_name) and os.path.samefile(path, by_name):
            return by_name
        real = os.path.realpath(path)
        for root, real_root in roots:
            if _is_inside(real, real_root):
                place = os.path.normpath(os.path.join(root, os.path.relpath(real, real_root)))
                # A root may itself be a link, even this one.
                if place in sent and place not in self._found_links and not _is_inside(place, path):
                    return place
        return None

    def _replace_link(self, path: bytes, rules: IgnoreRules, within: _Within) -> None:
        real = os.path.realpath(path)
        if any(_is_inside(real, folder) for folder in self._never):
            return
        try:
            status = os.stat(path)
        except OSError:
            return  # the link is broken
        if stat.S_ISDIR(status.st_mode):
            self._walk(path, rules.for_target(real), real, within)
        else:
            self._add_file(path, status)

    def _resolve_kept_links(self) -> None:
        """Send files found through a kept link under the path of the link's target."""
        links: dict[bytes, bytes] = {}
        for path in sorted(self._links, key=lambda path: self._resolve_path(path) != path):
            links.setdefault(self._resolve_path(path), self._links[path])
        files = {self._resolve_path(path): status for path, status in self._files.items()}
        self._folders = {self._resolve_folder(folder) for folder in self._folders}
        self._files = {path: status for path, status in files.items() if path not in links}
        self._links = links

    def _resolve_path(self, path: bytes) -> bytes:
        folder, name = os.path.split(path)
        return os.path.join(self._resolve_folder(folder), name)

    def _resolve_folder(self, folder: bytes) -> bytes:
        if folder in (self._base, os.path.dirname(folder)):
            return folder
        known = self._resolved_folders.get(folder)
        if known is None:
            known = self._resolve_path(folder)
            place = self._links.get(folder) or self._links.get(known)
            known = known if place is None else self._resolve_folder(place)
            self._resolved_folders[folder] = known
        return known

    def _relative(self, path: bytes) -> bytes:
        return path[len(self._base.rstrip(b"/")) + 1 :]

    def _unreadable(self, path: bytes, error: OSError) -> InvalidSpecError:
        """The error for a path that cannot be read. The OSError may name a part of it."""
        if isinstance(error.filename, (bytes, str)):
            path = os.fsencode(error.filename)
        return InvalidSpecError(
            f"program.sync: {_shown(path)} cannot be sent: {error.strerror}",
            hint="leave it out with a .gitignore, or list what the tasks need in program.sync",
        )


def _is_inside(path: bytes, folder: bytes) -> bool:
    """Whether a path is that folder or below it. Compares names only."""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")

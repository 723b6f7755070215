"""Chooses the files that other hosts are sent, and reads what identifies them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from distrun.errors import InvalidSpecError
from distrun.resources import bundled_jobs
from distrun.spec.model import ProgramKind, Sync
from distrun.sync.ignore import Rules
from distrun.sync.links import is_inside, place_of_target
from distrun.sync.manifest import FileEntry, LinkEntry, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distrun.spec.model import ProgramSpec, Spec

MOST_BYTES = 100_000_000
"""So much is sent without being asked for; who lists paths knows what is in them."""
MOST_FILES = 100_000
_BLOCK = 1 << 20
_SHOWN_PARTS = 4
_SHOWN_SHARE = 0.01
_INSTEAD = (
    "list what the tasks need (sync: [train.py, src]), leave the rest out with a .gitignore, or "
    "write sync: off where the hosts see the same files as this machine"
)


def survey(spec: Spec, leave_out: Sequence[str] = ()) -> Survey:
    """Find the files that other hosts are sent; their contents are not read yet.

    Args:
        spec: one that `sends_files`.
        leave_out: folders that are not sent, wherever they are.

    Raises:
        InvalidSpecError: they are too many or too large, or cannot be read.
    """
    program = spec.program
    try:
        found = Survey(program.sync_base, _roots(program), leave_out)
    except RecursionError:
        raise InvalidSpecError(
            f"program.sync: folders in {program.sync_base} are too deep in each other to be sent",
            hint=_INSTEAD,
        ) from None
    if program.sync is Sync.SCRIPT and found.size > MOST_BYTES:
        limit, size = _size(MOST_BYTES), _size(found.size)
        if size == limit:
            size = f"{found.size:,} bytes"
        raise InvalidSpecError(
            f"program.sync: the files of {place_of(program)} are {size}, and no more than {limit} "
            f"are sent: {found.largest_parts}",
            hint=_INSTEAD,
        )
    if is_inside(os.fsencode(program.workdir), os.fsencode(program.sync_base)):
        found.add_folder(os.fsencode(program.workdir))
    return found


def place_of(program: ProgramSpec) -> str:
    """The folders that are sent, for people."""
    if program.sync is Sync.SCRIPT and program.sync_paths:
        return " and ".join(program.sync_paths)
    return program.sync_base


def _roots(program: ProgramSpec) -> list[str]:
    roots = list(program.sync_paths)
    if program.sync is Sync.SCRIPT and not roots:
        roots.append(program.sync_base)
    if program.kind is ProgramKind.SCRIPT:
        # What runs is always sent; of a bundled job, whose parts nobody can list, all.
        is_bundled = program.target in map(str, bundled_jobs().values())
        roots.append(os.path.dirname(program.target) if is_bundled else program.target)
    return roots


_Within: TypeAlias = "tuple[bytes, ...]"
"""Real paths of the folders that a walk is in: a link to one of them has no end."""


class Survey:
    """The files below some paths, as a walk finds them."""

    def __init__(self, base: str, roots: Sequence[str], leave_out: Sequence[str] = ()) -> None:
        self._base = os.fsencode(base)
        self._roots = [os.path.normpath(os.fsencode(root)) for root in roots]
        self._never = {os.path.realpath(os.fsencode(each)) for each in leave_out}
        self._files: dict[bytes, os.stat_result] = {}
        self._folders: set[bytes] = set()
        self._links: dict[bytes, bytes] = {}
        """Those that stay links, and which path each leads to."""
        self._undecided: dict[bytes, tuple[Rules, _Within]] = {}
        """Other links; what a link leads to may be found after it."""
        self._found_links: set[bytes] = set()
        self._paths_there: dict[bytes, bytes] = {}
        for root in self._roots:
            self._add_root(root)
        while self._undecided:
            self._decide_links()
        self._follow_kept_links()

    @property
    def size(self) -> int:
        return sum(status.st_size for status in self._files.values())

    @property
    def count(self) -> int:
        return len(self._files)

    @property
    def largest_parts(self) -> str:
        """`data 3.0 GB, runs 20 MB`: what of the top folder takes most."""
        parts: Counter[bytes] = Counter()
        for path, status in self._files.items():
            parts[self._relative(path).partition(b"/")[0]] += status.st_size
        largest = [
            (name, size)
            for name, size in parts.most_common(_SHOWN_PARTS)
            if size >= self.size * _SHOWN_SHARE
        ]
        return ", ".join(f"{_shown(name)} {_size(size)}" for name, size in largest)

    def add_folder(self, path: bytes) -> None:
        """Have this folder there, if only as an empty one."""
        self._folders.add(self._folder_there(path))

    def manifest(self, on_read: Callable[[int], None] = lambda _: None) -> Manifest:
        """All of it with what identifies each file; `on_read` is told of bytes as they are read.

        Raises:
            InvalidSpecError: a file cannot be read.
        """
        read = [
            self._identify(path, status, on_read) for path, status in sorted(self._files.items())
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

    def _identify(
        self, path: bytes, status: os.stat_result, on_read: Callable[[int], None]
    ) -> FileEntry | None:
        """What grows meanwhile, a log for one, is taken as far as it had come; None: it is gone."""
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
                self._add_link(root, Rules.of(root))
            elif stat.S_ISDIR(status.st_mode):
                self._walk(root, Rules.of(root), os.path.realpath(root))
            else:
                self._add_file(root, status)
        except OSError as error:
            raise self._unreadable(root, error) from error

    def _walk(self, folder: bytes, rules: Rules, real: bytes, within: _Within = ()) -> None:
        """`real` is the folder's path without links."""
        if real in within or real in self._never:
            return
        within = (*within, real)
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except FileNotFoundError:
            return  # it is gone again by now
        except OSError as error:
            raise self._unreadable(folder, error) from error
        self._folders.add(folder)
        for entry in found:
            # As git has it, a link to a folder is no folder.
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules.leave_out(entry.path, is_folder=is_folder):
                continue
            if entry.is_symlink():
                self._add_link(entry.path, rules.within(entry.path), within)
            elif is_folder:
                inner = os.path.join(real, entry.name)
                self._walk(entry.path, rules.within(entry.path), inner, within)
            else:
                with contextlib.suppress(FileNotFoundError):  # an editor's, gone again by now
                    self._add_file(entry.path, entry.stat(follow_symlinks=False))

    def _add_file(self, path: bytes, status: os.stat_result) -> None:
        """A socket or a pipe is nothing that could be sent."""
        if stat.S_ISREG(status.st_mode):
            self._files[path] = status
        if len(self._files) > MOST_FILES:
            raise InvalidSpecError(
                f"program.sync: there are more than {MOST_FILES:,} files in {_shown(self._base)}",
                hint=_INSTEAD,
            )

    # Links ---------------------------------------------------------------------------------

    def _add_link(self, path: bytes, rules: Rules, within: _Within = ()) -> None:
        """`rules` are for what is in the folder to which it may lead."""
        if path not in self._found_links:
            self._found_links.add(path)
            self._undecided[path] = rules, within

    def _decide_links(self) -> None:
        """A link to what is sent stays one; of any other, what it leads to is sent."""
        found, self._undecided = self._undecided, {}
        sent = self._files.keys() | self._folders
        roots = [(root, os.path.realpath(root)) for root in self._roots]
        others = []
        for path in found:
            try:
                place = place_of_target(path, self._base, roots, self._found_links, sent)
            except FileNotFoundError:
                continue  # it is gone again by now
            except OSError as error:
                raise self._unreadable(path, error) from error
            if place is None:
                others.append(path)
            else:
                self._links[path] = place
        for path in others:
            self._replace_link(path, *found[path])

    def _replace_link(self, path: bytes, rules: Rules, within: _Within) -> None:
        real = os.path.realpath(path)
        if any(is_inside(real, folder) for folder in self._never):
            return
        try:
            status = os.stat(path)
        except OSError:
            return  # it leads nowhere
        if stat.S_ISDIR(status.st_mode):
            self._walk(path, rules, real, within)
        else:
            self._add_file(path, status)

    def _follow_kept_links(self) -> None:
        """What was found by way of a link that stays one is sent where that leads to."""
        links: dict[bytes, bytes] = {}
        for path in sorted(self._links, key=lambda path: self._path_there(path) != path):
            links.setdefault(self._path_there(path), self._links[path])
        files = {self._path_there(path): status for path, status in self._files.items()}
        self._folders = {self._folder_there(folder) for folder in self._folders}
        self._files = {path: status for path, status in files.items() if path not in links}
        self._links = links

    def _path_there(self, path: bytes) -> bytes:
        folder, name = os.path.split(path)
        return os.path.join(self._folder_there(folder), name)

    def _folder_there(self, folder: bytes) -> bytes:
        if folder in (self._base, os.path.dirname(folder)):
            return folder
        known = self._paths_there.get(folder)
        if known is None:
            known = self._path_there(folder)
            place = self._links.get(folder) or self._links.get(known)
            known = known if place is None else self._folder_there(place)
            self._paths_there[folder] = known
        return known

    def _relative(self, path: bytes) -> bytes:
        return path[len(self._base.rstrip(b"/")) + 1 :]

    def _unreadable(self, path: bytes, error: OSError) -> InvalidSpecError:
        """`path` is what was being looked at; the error knows better which part of it."""
        if isinstance(error.filename, (bytes, str)):
            path = os.fsencode(error.filename)
        return InvalidSpecError(
            f"program.sync: {_shown(path)} cannot be sent: {error.strerror}",
            hint="leave it out with a .gitignore, or list what the tasks need in program.sync",
        )


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"

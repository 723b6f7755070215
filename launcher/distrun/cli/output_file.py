"""Files that commands write where users say, perhaps into folders that others can change."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from typing import IO

from distrun.errors import HostError, UsageError
from distrun.spec.problems import printable

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})", re.ASCII)
"""What this process has open: the name that a shell gives for `>(command)`."""
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


@contextlib.contextmanager
def write_file(path: str | os.PathLike[str], *, replaces: bool = True) -> Iterator[IO[bytes]]:
    """Write a file, whole or not at all. A device, an own pipe or a descriptor is written to.

    The new file is only used by its descriptor, and never through a link: whoever can change the
    folder may put something else in its place at any time.

    Raises:
        UsageError: there is one, and it may not be replaced; or it is `-`.
        HostError: it cannot be written.
    """
    if os.fspath(path) == "-":
        raise UsageError("the result is written to a file only", hint="name one in place of -")
    try:
        if replaces and (opened := _opened(path)) is not None:
            with opened:
                yield opened
            return
        parent, name = os.path.split(os.fspath(path))
        folder = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _new_file(folder, name, replaces=replaces) as file:
                yield file
        finally:
            os.close(folder)
    except OSError as error:
        if isinstance(error, FileExistsError) and not replaces:
            hint = "choose another file, or use --force"
            raise UsageError(f"{printable(os.fspath(path))} exists already", hint=hint) from None
        name = str(error.filename)  # of what goes into it, if that cannot be read
        why = f"{name}: {error.strerror}" if os.path.isabs(name) else error.strerror
        raise HostError(f"{os.fspath(path)} cannot be written: {why}") from error


@contextlib.contextmanager
def _new_file(folder: int, name: str, *, replaces: bool) -> Iterator[IO[bytes]]:
    temporary = f".distrun-{os.urandom(8).hex()}" if replaces else name
    # The kernel applies the mask of the user's shell.
    file = os.fdopen(os.open(temporary, _NEW, 0o666, dir_fd=folder), "wb")
    written = os.fstat(file.fileno())
    try:
        with file:
            yield file
        _require_same(written, folder, temporary)
        if replaces:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            temporary = name
            _require_same(written, folder, name)
    except BaseException:
        if (temporary != name or not replaces) and _is_same(written, folder, temporary):
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        raise


def _require_same(written: os.stat_result, folder: int, name: str) -> None:
    if not _is_same(written, folder, name):
        raise HostError(
            "another user has put something else in the place of the new file",
            hint="name a file in a folder that nobody else can change",
        )


def _is_same(written: os.stat_result, folder: int, name: str) -> bool:
    try:
        return os.path.samestat(written, os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _opened(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """Return what is written to and not replaced: a device, a pipe of this user, a descriptor."""
    name = os.path.abspath(path)
    number = _DESCRIPTOR.fullmatch(name)
    if number is not None or name in _STANDARD:
        return os.fdopen(os.dup(_STANDARD[name] if number is None else int(number[1])), "wb")
    try:
        found = os.stat(path)
    except OSError:
        return None
    is_own_pipe = stat.S_ISFIFO(found.st_mode) and found.st_uid == os.geteuid()
    return open(path, "wb") if stat.S_ISCHR(found.st_mode) or is_own_pipe else None

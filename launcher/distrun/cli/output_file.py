"""Files that commands write where users say."""

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
_TEMPORARY = ".distrun-"
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})", re.ASCII)
"""What this process has open: the name that a shell gives for `>(command)`."""
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


@contextlib.contextmanager
def write_file(path: str | os.PathLike[str], *, replaces: bool = True) -> Iterator[IO[bytes]]:
    """Write a file, whole or not at all. A device, an own pipe or a descriptor is written to.

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
        with _new_file(os.fspath(path), replaces=replaces) as file:
            yield file
    except OSError as error:
        if isinstance(error, FileExistsError) and not replaces:
            hint = "choose another file, or use --force"
            raise UsageError(f"{printable(os.fspath(path))} exists already", hint=hint) from None
        name = str(error.filename)  # of what goes into it, if that cannot be read
        is_new = name == os.fspath(path) or os.path.basename(name).startswith(_TEMPORARY)
        is_other = os.path.isabs(name) and not is_new
        why = f"{name}: {error.strerror}" if is_other else error.strerror
        raise HostError(f"{os.fspath(path)} cannot be written: {why}") from error


@contextlib.contextmanager
def _new_file(path: str, *, replaces: bool) -> Iterator[IO[bytes]]:
    name = os.path.join(os.path.dirname(path), f"{_TEMPORARY}{os.urandom(8).hex()}")
    name = name if replaces else path
    mode = 0o666  # the kernel applies the mask of the user's shell
    with contextlib.suppress(OSError):
        mode &= os.lstat(path).st_mode  # a private file is replaced by a private one
    file = os.fdopen(os.open(name, _NEW, mode), "wb")
    try:
        with file:
            yield file
        if replaces:
            os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


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

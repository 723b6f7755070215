"""The agent's private folder on a host that is not the launching one."""

from __future__ import annotations

import contextlib
import os
import time
from typing import List, Optional

from distrun.agent.protocol import Cause, Code

_AGENTS = "agents"
_LONGEST_NAME = 48
_OLD_SECONDS = 7 * 86400.0
_TRIAL = b"\0" * 4096


class NoRoomError(Exception):
    """There is no place to write on this host; the cause says what was tried and why not."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


def settle(job_id: str, host: str) -> str:
    """Make a folder for one job's agent: new, mode 0700, on a disk with room.

    In the user's state folder, or in a temporary one where that cannot be written. Its name
    tells host and job, for a home folder may be shared by many hosts.

    Raises:
        NoRoomError: nowhere.
    """
    prefix = "{}-{}-".format(_plain(job_id), _plain(host))
    problems: List[Cause] = []
    for place in _places():
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            folder = os.path.join(place, prefix + os.urandom(6).hex())
            os.mkdir(folder, 0o700)
        except OSError as error:
            problems.append(Cause(Code.PATH_NOT_WRITABLE, path=place, errno=error.errno or 0))
            continue
        try:
            _try_writing(folder)
        except OSError as error:
            _remove(folder)
            problems.append(Cause(Code.PATH_NOT_WRITABLE, path=place, errno=error.errno or 0))
            continue
        return folder
    raise NoRoomError(Cause(Code.AGENT_DIR_NOT_CREATED, within=tuple(problems)))


def leave(folder: str) -> None:
    """Remove the folder, and what others have left there long ago."""
    _remove(folder)
    place = os.path.dirname(folder)
    if not _lasts(place):
        return
    try:
        for name in os.listdir(place):
            path = os.path.join(place, name)
            if os.lstat(path).st_mtime < time.time() - _OLD_SECONDS:
                _remove(path)
        os.rmdir(place)
    except OSError:
        return  # others are there, or it is being removed by one of them


def stay(folder: str) -> None:
    """Say that the folder is in use: one that nobody has touched for long is removed."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def copy_of(folder: str) -> str:
    """Where a copy of the program's files is in an agent's folder, once it is whole."""
    return os.path.join(folder, "files")


def store_of(folder: str) -> Optional[str]:
    """Where what later jobs may use again is kept; None where nothing lasts."""
    place = os.path.dirname(folder)
    return os.path.join(os.path.dirname(place), "files") if _lasts(place) else None


def keep(folder: str, path: str) -> str:
    """Move what is the user's out of a folder that is going to be removed; returns where to."""
    place, name = os.path.split(folder)
    kept = os.path.join(os.path.dirname(place), "left") if _lasts(place) else place
    os.makedirs(kept, mode=0o700, exist_ok=True)
    target = os.path.join(kept, name if _lasts(place) else name + "-left")
    os.rename(path, target)
    return target


def _lasts(place: str) -> bool:
    return os.path.basename(place) == _AGENTS


def _places() -> List[str]:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    places = [os.path.join(state, "distrun", _AGENTS)]
    temporary = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - for new folders
    places += [place for place in temporary if os.path.isdir(place)]
    return [place for place in dict.fromkeys(places) if os.path.isabs(place)]


def _plain(name: str) -> str:
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in name)[
        :_LONGEST_NAME
    ]


def _remove(folder: str) -> None:
    """It mostly holds files only, and an agent starts faster without shutil."""
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _try_writing(folder: str) -> None:
    """A folder can often be made on a full disk; a file with something in it cannot."""
    path = os.path.join(folder, "trial")
    with open(path, "wb", buffering=0) as file:
        file.write(_TRIAL)
    os.unlink(path)

"""The agent's private folder on a host that is not the launching one."""

from __future__ import annotations

import contextlib
import os
import time
from typing import List

_LONGEST_NAME = 48
_OLD_SECONDS = 7 * 86400.0
_TRIAL = b"\0" * 4096


class NoRoomError(Exception):
    """There is no place to write on this host; the text says what was tried and why not."""


def settle(job_id: str, host: str) -> str:
    """Make a folder for one job's agent: new, mode 0700, on a disk with room.

    In the user's state folder, or in a temporary one where that cannot be written. Its name
    tells host and job, for a home folder may be shared by many hosts.

    Raises:
        NoRoomError: nowhere.
    """
    prefix = "{}-{}-".format(_plain(job_id), _plain(host))
    problems: List[str] = []
    for place in _places():
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            folder = os.path.join(place, prefix + os.urandom(6).hex())
            os.mkdir(folder, 0o700)
        except OSError as error:
            problems.append("{}: {}".format(place, error.strerror))
            continue
        try:
            _try_writing(folder)
        except OSError as error:
            _remove(folder)
            problems.append("{}: {}".format(place, error.strerror))
            continue
        return folder
    raise NoRoomError("; ".join(problems))


def leave(folder: str) -> None:
    """Remove the folder, and what others have left there long ago."""
    _remove(folder)
    place = os.path.dirname(folder)
    if os.path.basename(place) != "agents":
        return
    try:
        for name in os.listdir(place):
            path = os.path.join(place, name)
            if os.lstat(path).st_mtime < time.time() - _OLD_SECONDS:
                _remove(path)
        os.rmdir(place)
    except OSError:
        return  # others are there, or it is being removed by one of them


def _places() -> List[str]:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    places = [os.path.join(state, "distrun", "agents")]
    temporary = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - for new folders
    places += [place for place in temporary if os.path.isdir(place)]
    return [place for place in dict.fromkeys(places) if os.path.isabs(place)]


def _plain(name: str) -> str:
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in name)[
        :_LONGEST_NAME
    ]


def _remove(folder: str) -> None:
    """It holds files only. Less than shutil has in it starts an agent faster."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def _try_writing(folder: str) -> None:
    """A folder can often be made on a full disk; a file with something in it cannot."""
    path = os.path.join(folder, "trial")
    with open(path, "wb", buffering=0) as file:
        file.write(_TRIAL)
    os.unlink(path)

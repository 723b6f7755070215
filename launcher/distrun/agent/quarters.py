"""The agent's private folder on a host that is not the launching one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
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
            folder = tempfile.mkdtemp(prefix=prefix, dir=place)
        except OSError as error:
            problems.append("{}: {}".format(place, error.strerror))
            continue
        try:
            _try_writing(folder)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            problems.append("{}: {}".format(place, error.strerror))
            continue
        return folder
    raise NoRoomError("; ".join(problems))


def leave(folder: str) -> None:
    """Remove the folder, and what others have left there long ago."""
    shutil.rmtree(folder, ignore_errors=True)
    place = os.path.dirname(folder)
    if os.path.basename(place) != "agents":
        return
    try:
        for name in os.listdir(place):
            path = os.path.join(place, name)
            if os.lstat(path).st_mtime < time.time() - _OLD_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        os.rmdir(place)
    except OSError:
        return  # others are there, or it is being removed by one of them


def _places() -> List[str]:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    places = [os.path.join(state, "distrun", "agents")]
    temporary = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - mkdtemp's
    places += [place for place in temporary if os.path.isdir(place)]
    return [place for place in dict.fromkeys(places) if os.path.isabs(place)]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:_LONGEST_NAME]


def _try_writing(folder: str) -> None:
    """A folder can often be made on a full disk; a file with something in it cannot."""
    path = os.path.join(folder, "trial")
    with open(path, "wb", buffering=0) as file:
        file.write(_TRIAL)
    os.unlink(path)

"""Small files by which hosts find out whether they see the same folders.

Each host writes one into every folder that is to be shared, and looks for that of another host. A
folder that does not exist yet is represented by its nearest parent that does: tasks would create it
there. Call these functions in a forked child: the folders may be on a network disk.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Iterator, List, Optional, Tuple

from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.probe_messages import MARK_PREFIX, Listen, StoppedListening
from distrun.agent.tasks import program

LONGEST_WAIT = 3.0
"""Seconds in which a file must be seen that another host has written: network disks cache."""
_INTERVAL = 0.2
_MAY_PASS = (errno.ENOENT, errno.ESTALE)
"""What a host may see for a while where another has just created or removed the folder."""
_OLD = 3600.0
"""Seconds after which a file is one that a killed agent has left."""


def write(order: Listen) -> List[Cause]:
    """Write this host's file into each folder; return why that failed, for each that it did."""
    causes = []
    for folder, place in _places(order):
        try:
            path = os.path.join(place, order.mark)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
            _remove_old(place, os.stat(path).st_mtime)
        except OSError as error:
            causes.append(Cause(Code.FOLDER_NOT_USABLE, path=folder, errno=error.errno or 0))
    return causes


def unseen(order: Listen, mark: str) -> List[Cause]:
    """Return a cause for each folder in which another host's file is not, or cannot be read."""
    due, causes = time.monotonic() + LONGEST_WAIT, []
    for folder, place in _places(order):
        number = _read(place, mark)
        while number in _MAY_PASS and time.monotonic() < due:
            time.sleep(_INTERVAL)
            number = _read(_place(order, folder), mark)
        if number is not None:
            is_absent = number == errno.ENOENT
            code = Code.FOLDER_NOT_SHARED if is_absent else Code.FOLDER_NOT_USABLE
            causes.append(Cause(code, path=folder, errno=0 if is_absent else number))
    return causes


def remove(order: Listen) -> StoppedListening:
    for _, place in _places(order):
        # The folder may have been made since: the file is in one above then.
        above = place
        while not _remove(os.path.join(above, order.mark)) and os.path.dirname(above) != above:
            above = os.path.dirname(above)
    return StoppedListening()


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False  # it was not written, or the disk is gone: a later check removes it
    return True


def _places(order: Listen) -> Iterator[Tuple[str, str]]:
    for folder in order.folders if order.mark else ():
        yield folder, _place(order, folder)


def _place(order: Listen, folder: str) -> str:
    place = os.path.realpath(os.path.join(program.workdir(order), os.path.expanduser(folder)))
    while not os.path.isdir(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    return place


def _read(place: str, mark: str) -> Optional[int]:
    """Read another host's file; return the number of the error, or None."""
    try:
        os.listdir(place)  # NFS asks its server again when a folder is opened
        with open(os.path.join(place, mark), "rb"):
            return None
    except OSError as error:
        return error.errno or errno.EIO


def _remove_old(place: str, now: float) -> None:
    """Remove what agents have left that were killed. `now`: by the clock of the file system."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        try:
            if name.startswith(MARK_PREFIX) and now - os.lstat(path).st_mtime > _OLD:
                os.unlink(path)
        except OSError:
            continue  # another host has removed it

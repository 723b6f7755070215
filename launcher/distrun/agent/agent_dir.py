"""The agent's private folder on a host whose files the launching side does not see."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import List, Optional

from distrun.agent.files import staged_tree
from distrun.agent.linux import private_dir
from distrun.agent.linux.regular import closing
from distrun.agent.protocol import Cause, CauseError, Code

_AGENTS = "agents"
_LONGEST_NAME = 48
_OLD_SECONDS = 7 * 86400.0
TOUCH_SECONDS = 86400.0
_TRIAL = b"\0" * 4096


class AgentDir:
    """A private folder, as :func:`create` returns it. `path`: an absolute path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files_path = os.path.join(path, staged_tree.TREE)
        """Where the program's files are, once all have arrived."""
        self._lock: Optional[int] = None
        self._parent = os.path.dirname(path)
        self._is_lasting = os.path.basename(self._parent) == _AGENTS

    @property
    def cache_path(self) -> Optional[str]:
        """Where to cache files for later jobs; None in a temporary folder."""
        if not self._is_lasting:
            return None
        return os.path.join(os.path.dirname(self._parent), "files")

    def touch(self) -> None:
        """Update the folder's time: other agents remove folders that are old."""
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def lock(self) -> None:
        """Hold the folder while this process lives: others then see that it is in use."""
        self._lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # some network disks have no locks on folders
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def remove(self) -> None:
        """Remove the folder, and old ones beside it, all but what tasks wrote."""
        now = 0.0
        with contextlib.suppress(OSError):
            os.utime(self.path)
            now = os.stat(self.path).st_mtime  # by the clock of the file system
        if self._lock is not None:
            os.close(self._lock)
        _remove(self.path)
        if not self._is_lasting:
            return
        try:
            for name in os.listdir(self._parent):
                path = os.path.join(self._parent, name)
                # A clock that was set makes all folders old.
                if os.lstat(path).st_mtime < now - _OLD_SECONDS and not _is_locked(path):
                    _remove(path)
            os.rmdir(self._parent)
        except OSError:
            return  # other agents use it, or one of them is removing it


def create(job_id: str, host: str) -> AgentDir:
    """Create the folder of one job's agent: new, mode 0700, on a disk with room.

    It is in the user's state folder, or in a temporary one if that cannot be written. Many hosts
    may share a home folder. Raises CauseError, with a reason for each place.
    """
    prefix = "{}-{}-".format(_plain(job_id), _plain(host))
    problems: List[Cause] = []
    for place in _places():
        try:
            private_dir.create(place)
            changeable = private_dir.changeable_by_others(place)
            if changeable is not None:
                problems.append(Cause(Code.PATH_CHANGEABLE, path=changeable))
                continue
            path = os.path.join(place, prefix + os.urandom(6).hex())
            os.mkdir(path, 0o700)
            created = AgentDir(path)
            try:
                _try_writing(path)
                created.lock()
            except OSError:
                _remove(path)
                raise
        except OSError as error:
            problems.append(Cause(Code.PATH_NOT_WRITABLE, path=place, errno=error.errno or 0))
            continue
        return created
    raise CauseError(Cause(Code.AGENT_DIR_NOT_CREATED, within=tuple(problems)))


def _places() -> List[str]:
    places = [os.path.join(private_dir.state_folder(), _AGENTS)]
    temporary = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - for new folders
    places += [place for place in temporary if os.path.isdir(place)]
    return [place for place in dict.fromkeys(places) if os.path.isabs(place)]


def _plain(name: str) -> str:
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in name)[
        :_LONGEST_NAME
    ]


def _is_locked(path: str) -> bool:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with closing(os.open(path, flags)) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _remove(path: str) -> None:
    """Remove a folder, all but what tasks wrote among the program's files."""
    if os.path.lexists(os.path.join(path, staged_tree.MARK)):
        staged_tree.remove_sent(path, lambda: None)
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            is_tree, inner = name == staged_tree.TREE, os.path.join(path, name)
            try:
                (os.rmdir if is_tree else os.unlink)(inner)
            except OSError:
                if not is_tree:
                    private_dir.remove_tree(inner, ignore_errors=True)
        os.rmdir(path)


def _try_writing(folder: str) -> None:
    """Raise OSError if the disk is full: it may still have room for an empty folder."""
    path = os.path.join(folder, "trial")
    with open(path, "wb", buffering=0) as file:
        file.write(_TRIAL)
    os.unlink(path)

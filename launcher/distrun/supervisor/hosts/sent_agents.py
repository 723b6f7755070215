"""Which hosts have kept the agent's modules, so that they need not be sent again.

The file `sent-agents` in distrun's folder has a line for each: a key, and the path on the host; no
path: the copy is gone. Nothing depends on the file: a host that lacks the modules says so.
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache

from distrun.agent.linux import private_dir
from distrun.agent.linux.regular import closing
from distrun.supervisor.hosts import bootstrap

_NAME = "sent-agents"
_MOST_BYTES = 1000 * 1000
"""A longer file is started again: it has lines of hosts and versions that nobody uses any more."""
_LONGEST_PATH = 4096


class SentAgents:
    """The copies that hosts have of the present agent. `home`: distrun's folder."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._paths: dict[str, str] | None = None

    def key(self, host: str, settings: object) -> str:
        """Return the key of a host. `settings`: its value names how ssh reaches the host."""
        import hashlib  # 4 MB that jobs on this machine do not need

        text = repr((host, settings, bootstrap.digest()))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def path(self, key: str) -> str:
        """Return where a host has its copy; empty if it is not known to have one."""
        if self._paths is None:
            lines = self._read().decode("utf-8", "replace").split("\n")[:-1]
            self._paths = {key: path for key, _, path in (line.partition(" ") for line in lines)}
        return self._paths.get(key, "")

    def remember(self, key: str, path: str) -> None:
        """Remember where a host says that it has kept the modules."""
        is_plain = path.isprintable() and os.path.isabs(path) and len(path) <= _LONGEST_PATH
        if is_plain and os.path.basename(path) == bootstrap.digest() and path != self.path(key):
            self._set(key, path)

    def forget(self, key: str) -> bool:
        """Remember that a host has no copy any more. Returns whether it was known to have one."""
        was_known = self.path(key) != ""
        if was_known:
            self._set(key, "")
        return was_known

    def _set(self, key: str, path: str) -> None:
        if self._paths is not None:
            self._paths[key] = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with contextlib.suppress(OSError), closing(self._open(flags)) as file:
            if os.fstat(file).st_size > _MOST_BYTES:
                os.ftruncate(file, 0)
            os.write(file, f"{key} {path}\n".encode())

    def _read(self) -> bytes:
        with contextlib.suppress(OSError), closing(self._open(os.O_RDONLY)) as file:
            return os.read(file, 2 * _MOST_BYTES)
        return b""

    def _open(self, flags: int) -> int:
        with closing(private_dir.open_checked(self._home, follow=True)) as home:
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return os.open(_NAME, flags, 0o600, dir_fd=home)


@lru_cache(maxsize=1)
def sent_agents() -> SentAgents:
    """Return what is known in `$DISTRUN_HOME`, or in the user's state folder."""
    own = os.path.expanduser(os.environ.get("DISTRUN_HOME", ""))
    return SentAgents(own or private_dir.state_folder())

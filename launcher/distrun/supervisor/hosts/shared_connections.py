"""Connections that the user's ssh keeps for other logins as well (ControlPersist).

The job's own are none. That of a jump host becomes one where ~/.ssh/config says so, for the ssh
that goes there is called by ssh. Others may come to use it, so it does not end with the job.
"""

from __future__ import annotations

import os


def is_shared(pid: int) -> bool:
    """Whether a process is such a connection, by the title that ssh gives it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            title = file.read().rstrip(b"\0 ")
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    return (
        title.startswith(b"ssh: ")
        and title.endswith(b" [mux]")
        and os.path.basename(program) == "ssh"
    )

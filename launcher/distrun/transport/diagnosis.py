"""Why a host could not be reached, and what to try: from what ssh said and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from distrun.agent.kernel import signal_name
from distrun.transport.payload import EXIT_TOO_OLD

_LAST_LINES = 3
_SSH_FAILED = 255
_NOT_FOUND = 127


@dataclass(frozen=True)
class Diagnosis:
    """What went wrong, in words that follow a host's name, and what to try."""

    reason: str
    hint: str


_CLOSED = (
    ("Connection closed by", "Connection reset by", "closed by remote host"),
    "its sshd closes the connection",
    "its log (journalctl -u ssh) says why; MaxStartups or AllowUsers in sshd_config may",
)
_KNOWN = (
    (
        ("REMOTE HOST IDENTIFICATION HAS CHANGED", "differs from the key for the IP"),
        "its host key is not the one in known_hosts",
        (
            "if it was set up anew, `ssh-keygen -R {name}` and `ssh {name}` take the new key; "
            "if not, somebody may be in between"
        ),
    ),
    (
        ("Host key verification failed", "host key is known for"),
        "its host key is not known",
        "log in once by hand, `ssh {name}`, and compare the key it shows",
    ),
    (
        ("Permission denied", "Too many authentication failures"),
        "the login is refused",
        (
            "`ssh {name} true` must work without asking: ssh-copy-id puts your key there, ssh-add "
            "unlocks it, ssh.user and ssh.identity_file say whose"
        ),
    ),
    (
        ("Could not resolve hostname",),
        "its name cannot be resolved",
        "correct it under hosts, or name it in ~/.ssh/config",
    ),
    (
        ("Connection refused",),
        "nothing listens at its ssh port",
        "is sshd running there, and at the port in ssh.port?",
    ),
    (
        ("No route to host", "Network is unreachable", "Host is down"),
        "there is no way to it",
        "is it switched on, and the network (VPN) up?",
    ),
    (
        ("timed out", "Operation timed out"),
        "it does not answer",
        "is it switched on, and no firewall in between? ssh.connect_timeout waits longer",
    ),
    _CLOSED,
    (
        ("No space left on device",),
        "a disk there is full",
        "make room on it",
    ),
)
_NO_PYTHON = Diagnosis("there is no python3 on it", "install Python 3.8 or newer there")


def diagnose(name: str, status: int | None, said: str, noise: bytes, seconds: float) -> Diagnosis:
    """What kept the link to the host `name` from beginning.

    Args:
        name: the host's.
        status: how ssh exited; None: it still ran after `seconds`.
        said: what came on its standard error.
        noise: what came on its standard output.
        seconds: how long was waited at most.
    """
    last = _last_lines(said) or _last_lines(noise.decode("utf-8", "replace"))
    if status is None:
        said_last = f"; it printed: {last}" if last else ""
        return Diagnosis(
            f"its login did not come to an end within {seconds:g} s{said_last}",
            f"does `ssh {name} true` end at once? A shell profile there may wait for something",
        )
    if status == EXIT_TOO_OLD:
        return Diagnosis(
            f"{last.rpartition('distrun: its ')[2]}, too old for distrun's agent",
            "make a Python 3.8 or newer the first python3 in its PATH",
        )
    if status == _NOT_FOUND or ("python3" in said and "not found" in said.lower()):
        return Diagnosis(f"{_NO_PYTHON.reason} ({last})" if last else _NO_PYTHON.reason,
                         _NO_PYTHON.hint)  # fmt: skip
    how = f"killed by {signal_name(-status)}" if status < 0 else f"exit code {status}"
    shown = f"ssh: {last}, {how}" if last else f"ssh: {how}"
    known = _known(said)
    if known is not None:
        _, reason, hint = known
        return Diagnosis(f"{reason} ({shown})", hint.format(name=name))
    if status == _SSH_FAILED:
        return Diagnosis(f"ssh failed ({shown})", f"try `ssh {name} true`")
    return Diagnosis(
        f"the agent could not start there ({shown})",
        f"try `ssh {name} python3 --version`",
    )


def may_pass(status: int, said: str) -> bool:
    """Whether sshd may have closed the connection because many came at once (MaxStartups)."""
    return status == _SSH_FAILED and _known(said) is _CLOSED


def _known(said: str) -> tuple[tuple[str, ...], str, str] | None:
    """Signs, reason and hint of what ssh complains of."""
    return next((each for each in _KNOWN if any(sign in said for sign in each[0])), None)


def _last_lines(text: str) -> str:
    """The last lines in one, without the frames that ssh draws around warnings."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and set(line) != {"@"}]
    return " / ".join(telling[-_LAST_LINES:]).removeprefix("ssh: ")

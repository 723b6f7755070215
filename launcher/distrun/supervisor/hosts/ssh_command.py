"""The command lines of the system's OpenSSH client."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache

from distrun.spec.host_spec import SshSpec
from distrun.spec.machine import ask_ssh, ssh_options
from distrun.supervisor.hosts.bootstrap import COMMAND

_ALIVE_PROBES = 3
_OPTIONS = (
    "BatchMode=yes",  # fail instead of asking
    "RequestTTY=no",
    "EscapeChar=none",
    "RemoteCommand=none",
    "ClearAllForwardings=yes",  # the first host would take the ports that logins forward
    "ControlMaster=no",  # a master would outlive the job
)
"""Options that the link depends on; the spec's own cannot change them."""
_SYSTEM_CONFIG = "/etc/ssh/ssh_config"
_OPTIONS_SINCE_8_7 = ("ForkAfterAuthentication=no", "StdinNull=no", "SessionType=default")
"""More of them. An older ssh refuses to start with options that it does not know."""


def link_command(
    host: str,
    settings: SshSpec,
    alive_interval: int,
    connect_timeout: float,
    *,
    is_separate: bool = False,
) -> list[str]:
    """Return the command that opens a link to a host.

    `host`: its name, or user@name. `alive_interval`: seconds of silence after which ssh probes the
    other side. `is_separate`: do not use connections that the user shares among logins.
    """
    config_file = _separate_config(settings.config_file) if is_separate else settings.config_file
    words = ["ssh", "-T", "-x", *_settings_words(settings, host, config_file)]
    # If an option is given twice, ssh uses the first.
    options = [*_OPTIONS, *(_OPTIONS_SINCE_8_7 if _version() >= (8, 7) else ())]
    options += ["ControlPath=none"] if is_separate else []
    options += [f"{name}={value}" for name, value in settings.options.items()]
    options += [
        f"ConnectTimeout={max(1, round(connect_timeout))}",
        f"ServerAliveInterval={alive_interval}",
        f"ServerAliveCountMax={_ALIVE_PROBES}",
        "LogLevel=INFO",  # the level at which ssh says why a connection has ended
    ]
    for option in options:
        words += ["-o", option]
    return [*words, "--", host, COMMAND]


def login_command(host: str, settings: SshSpec) -> str:
    options = [f"-o{name}={value}" for name, value in settings.options.items()]
    return shlex.join(
        ["ssh", *_settings_words(settings, host, settings.config_file), *options, host]
    )


def shared_connection(host: str, settings: SshSpec) -> tuple[str, str]:
    """Return a host on the way to `host` whose connection ssh shares, and its socket; or ''."""
    for current, found in _configurations(host, settings):
        path = found.get("controlpath", "none")
        if path != "none" and os.path.exists(path):
            return current, path
    return "", ""


def _configurations(host: str, settings: SshSpec) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ssh's options, in lower case, for a host and its jump hosts, each with its name.

    The name is without the port that a jump host may have.
    """
    waiting, seen = [host], set()
    while waiting:
        current = waiting.pop()
        seen.add(current)
        # `ssh -G` takes neither a port with the name nor the brackets of an IPv6 address.
        match = re.fullmatch(r"(.*\]|[^:]+):(\d+)", current)
        name, port = match.groups() if match else (current, "")
        name = re.sub(r"[][]", "", name)
        words = _settings_words(settings, name, settings.config_file)
        found = ssh_options(name, [*(["-p", port] if port else []), *words])
        yield name, found
        jumps = found.get("proxyjump", "none").split(",")
        waiting += [each for each in jumps if each != "none" and each not in seen]


@lru_cache(maxsize=1)
def _separate_config(config_file: str | None) -> str:
    """Return the path of a configuration that has the user's, but shares no connection.

    ssh passes its path on to the ssh of each jump host, unlike options.
    """
    files = [config_file] if config_file is not None else ["~/.ssh/config", _SYSTEM_CONFIG]
    lines = ["ControlPath none", *(f'Include "{glob.escape(each)}"' for each in files)]
    descriptor = os.memfd_create("ssh_config")
    os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _settings_words(settings: SshSpec, host: str, config_file: str | None) -> list[str]:
    words = []
    if config_file is not None:
        words += ["-F", config_file]
    if settings.port is not None:
        words += ["-p", str(settings.port)]
    if settings.user is not None and "@" not in host:
        words += ["-l", settings.user]
    if settings.identity_file is not None:
        words += ["-i", settings.identity_file]
    return words


@lru_cache(maxsize=1)
def _version() -> tuple[int, int]:
    """The client's version; (0, 0) if it is unknown."""
    found = re.match(r"OpenSSH_(\d+)\.(\d+)", ask_ssh(["-V"], 5.0)[1])
    return (int(found[1]), int(found[2])) if found else (0, 0)

"""Recognizes names and addresses of this machine, and asks ssh for its options."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from functools import lru_cache

from distrun.spec.addresses import LOOPBACK_NAMES, is_loopback_ipv4

STARTER = "/usr/bin/env"
"""Executes a client. A process waits until its child has executed something, and the client's disk
may hang; so may the working folder, which a shell would look at."""
_SSH_SECONDS = 10.0


def is_this_machine(host: str) -> bool:
    """Whether `host` is this machine. Names are looked up only in /etc/hosts, never in DNS."""
    host = host.lower().rstrip(".")
    if host in LOOPBACK_NAMES or is_loopback_ipv4(host):
        return True
    import socket

    name = socket.gethostname().lower()
    if host in (name, name.partition(".")[0]):
        return True
    return host in _own_addresses() or host in own_names()


@lru_cache(maxsize=1)
def _own_addresses() -> frozenset[str]:
    import socket

    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    return frozenset(
        address.address.partition("%")[0].lower()
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family in families
    )


@lru_cache(maxsize=1)
def own_names() -> frozenset[str]:
    """Return the names of this machine in /etc/hosts, in small letters."""
    names: set[str] = set()
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 20).splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        address, *aliases = line.partition("#")[0].lower().split() or [""]
        if is_loopback_ipv4(address) or address in _own_addresses():
            names.update(aliases)
    return frozenset(names)


def ssh_options(host: str, words: Sequence[str]) -> dict[str, str]:
    """Ssh's options for a host, by their names in lower case; none if it fails.

    `words` are those of the command line before the host. `ssh -G` only reads ssh's configuration:
    it connects to nothing.
    """
    answer = ask_ssh(["-G", *words, "--", host], _SSH_SECONDS)[0]
    lines = (line.partition(" ") for line in answer.splitlines())
    return {name: value for name, _, value in lines}


def ask_ssh(words: Sequence[str], seconds: float) -> tuple[str, str]:
    """What ssh prints on standard output and standard error; nothing if it does not answer."""
    import subprocess  # few specs need it

    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [STARTER, "ssh", *words],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
        )
    except OSError:
        return "", ""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return "", ""
    finally:
        if process.returncode is None:
            process.kill()
            process.returncode = -signal.SIGKILL  # it is not waited for: its disk may hang
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()

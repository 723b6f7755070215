"""The names and addresses of users and hosts, and what stands for them."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from typing import TYPE_CHECKING

from distrun.spec.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

_SAID = (
    r"(?<![^\W_])(?=[\w:])(?:(?<![\w.+-])(?P<user>[A-Za-z_][\w.+-]{0,63})@(?P<host>[A-Za-z][\w-]+(?:\.[\w-]+)*)"
    r"|(?:(?<=/home/)|(?<=/Users/))(?P<home>[\w.-]{1,64})"
    r"|(?<![\d.])(?P<v4>(?:\d{1,3}\.){3}\d{1,3})(?![\d.]\d)"
    r"|(?<![\w:.])(?P<v6>[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]*[0-9a-fA-F:])(?!\w)"
)
"""Where a text says itself what is a user, a host or an address."""
_NO_NAMES = {
    *("root", "user", "host", "address", "home", "users", "nonexistent"),
    *("app", "data", "tmp", "work", "workspace"),
}
"""Words that name nobody: some homes, as of containers, have such names."""


class Names:
    """Replaces names where they are words, alike everywhere.

    Args:
        users, hosts: the known ones. An address may be among the hosts.
        own: words that are replaced only where the text says what they are, in small letters.

    Attributes:
        kept: those of the given names that are such words.
        replaced: what stands for each name and address that was found.
    """

    def __init__(self, users: Iterable[str], hosts: Iterable[str], own: AbstractSet[str]) -> None:
        given = [("user", each.lower()) for each in users]
        given += [("host", each.lower().rstrip(".")) for each in hosts]
        self._own, self._taken = own, {name for _, name in given}
        self._counts = dict.fromkeys(("user", "host", "address"), 0)
        self._labels: dict[str, str] = {}
        self.kept = [*dict.fromkeys(name for _, name in given if name in own)]
        self.replaced: dict[str, str] = {}
        for kind, name in given:
            if _address(name) is not None:
                self._label("address", name)
            elif self._is_name(name):
                short = name if kind == "user" else name.partition(".")[0]
                # Only its own short name is another one of the same host.
                known = self._labels.get(short) if short in self._taken else None
                label = self._labels.setdefault(name, known or self._next(kind))
                if self._is_name(short):
                    self._labels.setdefault(short, label)
                series = name.rstrip("0123456789")
                if series != name and kind == "host":  # as in `gpu-[01-16]`
                    self._labels.setdefault(f"{series}[", "host-[")
        longest_first = sorted(map(re.escape, self._labels), key=len, reverse=True)
        ends = (each if each.endswith("[") else rf"{each}(?![^\W_])" for each in longest_first)
        known_names = rf"|(?P<known>{'|'.join(ends)})" if longest_first else ""
        self._pattern = re.compile(f"{_SAID}{known_names})", re.IGNORECASE)

    def _is_name(self, name: str) -> bool:
        is_word = name in self._own or name in _NO_NAMES
        return not (is_word or len(name) < 2 or name.isdigit() or is_loopback(name))

    def _next(self, kind: str) -> str:
        while True:
            self._counts[kind] += 1
            label = f"{kind}-{self._counts[kind]}"
            if label not in self._taken:  # one would not know which is meant
                return label

    def replace(self, text: str) -> str:
        """Return a text with the names and addresses replaced."""
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, found: re.Match[str]) -> str:
        whole, kind = found[0], found.lastgroup
        if kind == "host" and found["host"].lower() not in ("sha256", "latest"):
            return f"{self._label('user', found['user'])}@{self._label('host', found['host'])}"
        if kind in ("home", "known"):
            return self._label("user", whole)
        for text in (whole, whole.rstrip("."), whole.removesuffix(":"), whole.rstrip(".:")):
            address = _address(text)
            if address is not None and not address.is_unspecified:
                return self._label("address", text) + whole[len(text) :]
        return whole

    def _label(self, kind: str, name: str) -> str:
        """Return what stands for a name that was found."""
        address = _address(name)
        key = (
            name.lower() if address is None else str(getattr(address, "ipv4_mapped", 0) or address)
        )
        if key == "root" or is_loopback(key):
            return name
        if key not in self._labels:
            self._labels[key] = self._next(kind)
        return self.replaced.setdefault(key, self._labels[key])


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(text)
    return None

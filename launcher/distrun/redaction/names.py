"""The names and addresses of users and hosts, and what stands for them."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from distrun.spec.addresses import is_loopback
from distrun.spec.hostnames import HostSetError, host_set

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

_SHORTEST = 2
"""Characters of a name that is replaced wherever it stands."""
_PART = re.compile(r"[^\W_]+")
_WORD = re.compile(r"[^\W_]+(?:[._-]+[^\W_]+)*")
_LONGEST_NAME = 64
_USER_AT_HOST = re.compile(
    r"(?<![\w.+-])(?P<user>[A-Za-z_][\w.+-]{0,63})@(?P<host>[A-Za-z][\w-]{1,62}(?:\.[\w-]{1,63})*)"
)
_HOME = re.compile(r"(?<=/home/)(?P<home>[\w.-]{1,64})|(?<=/Users/)(?P<user>[\w.-]{1,64})")
_HOST_SET = re.compile(
    r"(?<![\w.-])[A-Za-z0-9_.-]{1,80}(?:\[[0-9, -]{1,80}\][A-Za-z0-9_.-]{0,80}){1,4}"
)
_MOST_OF_A_SET = 4096
_V4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]\d)")
_V6 = re.compile(r"(?<![\w:.])(?=[0-9a-fA-F]{0,4}:)[0-9a-fA-F:.]{2,45}(?![\w:])")
_NO_HOSTS = {"sha256", "latest"}
"""What follows an @ without being a host."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Names:
    """Replaces names where they are words, alike everywhere.

    Also replaced are users and hosts that are not known where the text says what they are: in
    `user@host`, and in paths of home folders.

    Args:
        users, hosts: the known ones. An address may be among the hosts.
        kept: words that are never replaced, in small letters.
    """

    def __init__(self, users: Iterable[str], hosts: Iterable[str], kept: AbstractSet[str]) -> None:
        self.addresses: dict[str, str] = {}
        """What stands for each address."""
        self.kept: list[str] = []
        """The given names that are replaced only where the text says what they are."""
        self._counts = {"user": 0, "host": 0}
        self._known: dict[str, str] = {}
        self.replaced: dict[str, str] = {}
        """What stands for each name that was found."""
        self._from_context: dict[tuple[str, str], str] = {}
        users, hosts = list(dict.fromkeys(users)), list(dict.fromkeys(hosts))
        self._taken = {name.lower() for name in (*users, *hosts)}
        """A replacement that is also a name would be replaced again."""
        for name in users:
            self._add("user", name.lower(), kept)
        full: set[str] = set()
        for name in hosts:
            self._add_host(name.lower().rstrip("."), kept, full)
        odd = [name for name in self._known if _WORD.fullmatch(name) is None]
        self._odd = re.compile(
            "|".join(rf"(?<!\w){re.escape(e)}(?!\w)" for e in sorted(odd, key=len, reverse=True)),
            re.IGNORECASE,
        )
        self._has_odd = bool(odd)
        self._first_parts = {_PART.findall(each)[0] for each in self._known if _PART.search(each)}
        self._most_parts = max((len(_PART.findall(each)) for each in self._known), default=0)

    def _next(self, kind: str) -> str:
        while True:
            self._counts[kind] += 1
            name = f"{kind}-{self._counts[kind]}"
            if name not in self._taken:
                return name

    def _add(self, kind: str, name: str, kept: AbstractSet[str]) -> None:
        if not name or name in self._known or name == "root" or is_loopback(name):
            return
        if name in kept or len(name) < _SHORTEST or name.isdigit():
            self.kept += [name] if name not in self.kept else []
        else:
            self._known[name] = self._next(kind)

    def _add_host(self, name: str, kept: AbstractSet[str], full: set[str]) -> None:
        """Add a host. `full`: the short names that stand for longer ones."""
        if _address(name) is not None:
            self._address(name)
            return
        short, dot, _ = name.partition(".")
        if dot and name not in self._known and short in self._known and short not in full:
            self._known[name] = self._known[short]  # two names of one host
        else:
            self._add("host", name, kept)
        if not dot or name not in self._known:
            return
        if short not in kept and len(short) >= _SHORTEST and not short.isdigit():
            self._known.setdefault(short, self._known[name])
            full.add(short)

    def replace(self, text: str) -> str:
        """Return a text with the names and addresses replaced."""
        if text.count(".") > 2:
            text = _V4.sub(lambda found: self._address(found[0]), text)
        if text.count(":") > 1:
            text = _V6.sub(lambda found: self._address(found[0]), text)
        if "@" in text:
            text = _USER_AT_HOST.sub(self._user_at_host, text)
        if "/home/" in text or "/Users/" in text:
            text = _HOME.sub(lambda found: self._in_context("user", found[0]), text)
        if "[" in text:
            text = _HOST_SET.sub(lambda found: self._host_set(found[0]), text)
        if self._has_odd:
            text = self._odd.sub(lambda found: self._note(found[0].lower()), text)
        if self._first_parts.isdisjoint(_PART.findall(text.lower())):
            return text
        return _WORD.sub(lambda found: self._word(found[0]), text)

    def _word(self, word: str) -> str:
        """Return a word with the names in it replaced: at each place the longest one."""
        spans = [found.span() for found in _PART.finditer(word)]
        shown, done, first = "", 0, 0
        while first < len(spans):
            start = spans[first][0]
            step = 1
            for last in range(min(first + self._most_parts, len(spans)) - 1, first - 1, -1):
                name = word[start : spans[last][1]].lower()
                if name in self._known:
                    shown += word[done:start] + self._note(name)
                    done, step = spans[last][1], last - first + 1
                    break
            first += step
        return shown + word[done:]

    def _note(self, name: str) -> str:
        return self.replaced.setdefault(name, self._known[name])

    def _user_at_host(self, found: re.Match[str]) -> str:
        user, host = found["user"], found["host"]
        if host.lower() in _NO_HOSTS:
            return found[0]
        return f"{self._in_context('user', user)}@{self._in_context('host', host)}"

    def _in_context(self, kind: str, name: str) -> str:
        """Return what stands for a name of which the text says what it is.

        Known ones are replaced later, with all others.
        """
        lowered = name.lower()
        if lowered in self._known or lowered == "root" or is_loopback(lowered):
            return name
        if re.fullmatch(rf"{kind}-\d+", name):
            return name
        if (kind, lowered) not in self._from_context:
            self._from_context[kind, lowered] = self._next(kind)
            self.replaced[f"{kind} {lowered}"] = self._from_context[kind, lowered]
        return self._from_context[kind, lowered]

    def _host_set(self, text: str) -> str:
        """Return a set such as `gpu-[01-16]` by its first and last host, if these are known."""
        try:
            found = host_set(text)
        except HostSetError:
            return text
        if found.count > _MOST_OF_A_SET:
            return text
        names = [name.lower() for name in found.names()]
        first, last = self._known.get(names[0]), self._known.get(names[-1])
        return text if first is None or last is None else f"{first}-to-{last}"

    def _address(self, text: str) -> str:
        bare = text.rstrip(".") if _address(text) is None else text
        bare = bare if _address(bare) is not None else bare.removesuffix(":")
        address = _address(bare)
        if address is None or address.is_unspecified or is_loopback(str(address)):
            return text
        number = f"address-{len(self.addresses) + 1}"
        return self.addresses.setdefault(str(address), number) + text[len(bare) :]


def _address(text: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None

"""Who else can connect to the ports of this host: other people with access to it, and networks."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Dict, List

from distrun.agent.linux.regular import content

_MOST = 100
"""Users and addresses that are returned at most."""
_NO_LOGIN = ("/nologin", "/false")
_IPV4_ADDRESS = re.compile(r"\|-- (\S+)\n +/32 host LOCAL")


def other_users() -> List[str]:
    """People other than this user who can log in here by /etc/passwd, or have processes."""
    names: Dict[int, str] = {}
    users = set()
    for line in _read("/etc/passwd").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdigit():
            names[int(fields[2])] = fields[0]
            if not fields[6].endswith(_NO_LOGIN):
                users.add(int(fields[2]))
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                users.add(os.stat("/proc/" + name).st_uid)
    people = sorted(uid for uid in users if _is_person(uid) and uid != os.geteuid())
    return [names.get(uid, str(uid)) for uid in people[:_MOST]]


def _is_person(uid: int) -> bool:
    """Whether it is no number of the system or of a service: see UIDS-GIDS.md of systemd."""
    return uid >= 1000 and not 61184 <= uid <= 65535


def addresses() -> List[str]:
    """The addresses by which other machines may reach this host, in no order."""
    found = dict.fromkeys(_IPV4_ADDRESS.findall(_read("/proc/net/fib_trie")))
    for line in _read("/proc/net/if_inet6").splitlines():
        digits, _, _, scope = line.split()[:4]
        if scope == "00":  # global, see ip-address(8)
            found[":".join(digits[at : at + 4] for at in range(0, 32, 4))] = None
    return [address for address in found if not address.startswith("127.")][:_MOST]


def _read(path: str) -> str:
    return content(path).decode("utf-8", "replace")

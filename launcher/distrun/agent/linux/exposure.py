"""Who else can connect to the ports of this host: other people with access to it, and networks."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Dict, List

from distrun.agent.linux import processes
from distrun.agent.linux.regular import lines

_MOST = 100
_NO_LOGIN = ("/nologin", "/false")
_IPV4_ADDRESS = re.compile(r"\|-- (\S+)\n +/32 host LOCAL")


def other_users() -> List[str]:
    """People other than this user who can log in here by /etc/passwd, or have processes."""
    names: Dict[int, str] = {}
    users = set()
    for line in lines("/etc/passwd"):
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdigit():
            names[int(fields[2])] = fields[0]
            if not fields[6].endswith(_NO_LOGIN):
                users.add(int(fields[2]))
    for pid in processes.every_pid():
        with contextlib.suppress(OSError):  # it has ended
            users.add(os.stat("/proc/{}".format(pid)).st_uid)
    # Not those of the system and of services: see UIDS-GIDS.md of systemd.
    people = sorted(uid for uid in users - {os.geteuid()} if 1000 <= uid < 61184 or uid > 65535)
    return [names.get(uid, str(uid)) for uid in people[:_MOST]]


def addresses() -> List[str]:
    """The addresses by which other machines may reach this host, in no order."""
    ipv4 = "\n".join(lines("/proc/net/fib_trie"))
    found = dict.fromkeys(_IPV4_ADDRESS.findall(ipv4))
    for line in lines("/proc/net/if_inet6"):
        digits, _, _, scope = line.split()[:4]
        if scope == "00":  # global, see ip-address(8)
            found[":".join(digits[at : at + 4] for at in range(0, 32, 4))] = None
    return [address for address in found if not address.startswith("127.")][:_MOST]

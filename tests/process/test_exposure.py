"""`distrun doctor` tells who else can connect to TensorFlow's servers."""

from __future__ import annotations

import json
import signal
import socket

import pytest

from distrun.agent.linux import exposure
from harness.command import Distrun
from harness.strangers import Stranger

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
service:x:998:998::/srv:/bin/sh
alice:x:1000:1000:Alice:/home/alice:/bin/bash
robot:x:1001:1001::/home/robot:/usr/sbin/nologin
other:x:1002:1002::/home/other:/bin/false
nobody:x:65534:65534:nobody:/nonexistent:/bin/sh
bob:x:200000:200000:Bob:/home/bob:
a broken line
"""
FIB_TRIE = """\
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 10.0.0.0/24 2 0 2
           |-- 10.0.0.0
              /24 link UNICAST
           |-- 10.0.0.5
              /32 host LOCAL
           |-- 10.0.0.255
              /32 link BROADCAST
"""
IF_INET6 = """\
fd000000000000000000000000000002 04 40 00 82     eth0
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
"""
FILES = {"/etc/passwd": PASSWD, "/proc/net/fib_trie": FIB_TRIE, "/proc/net/if_inet6": IF_INET6}


def wait(report: object) -> None:
    report("here")  # type: ignore[operator]
    signal.pause()


def test_people_who_can_log_in_are_users_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "_read", FILES.__getitem__)
    monkeypatch.setattr("os.listdir", lambda _: [])
    assert exposure.other_users() == ["alice", "bob"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert exposure.other_users() == ["bob"]


def test_addresses_are_those_that_other_machines_can_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for address in exposure.addresses():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as bound:
            bound.bind((address, 0))  # fails where it is not an address of this machine
    monkeypatch.setattr(exposure, "_read", FILES.__getitem__)
    assert exposure.addresses() == ["10.0.0.5", "fd00:0000:0000:0000:0000:0000:0000:0002"]


def test_doctor_tells_of_other_users_where_the_strategy_has_servers(distrun: Distrun) -> None:
    spec = distrun.write_spec("exit 0")
    with Stranger(wait) as stranger:
        assert stranger.report() == "here"
        launched = distrun("launch", spec)
        checks = json.loads(distrun("doctor", spec, "--json").stdout)["doctor"]["checks"]
        alone = distrun("doctor", distrun.write_spec("exit 0", 1, strategy="mirrored"))
    assert alone.returncode == launched.returncode == 0, alone.stderr
    notes = [check for check in checks if check["subject"] == "security"]
    assert {check["grade"] for check in notes} == {"note"}
    assert len([check for check in notes if "other users" in check["cause"]]) == 1
    assert "security" not in launched.stderr
    assert "security" not in alone.stdout, "one process has no server"

"""By which address each host is dialled, from what ssh and the hosts said."""

import socket

import pytest

from harness.agents import local_address
from harness.messages import hello
from harness.parts.agent import Loop, connection_addresses
from harness.parts.hosts import Lifetime, Orders, addresses, login_address, own_address
from harness.parts.nodes import is_loopback
from harness.parts.protocol import Code, Hello

HERE = socket.gethostname()


LOCAL = hello(HERE)
TUNNEL = hello("gpu1", "127.0.0.1", "127.0.0.1")
PIPE = hello("gpu2")
TOLD = hello("gpu3", "198.18.0.3", "198.18.0.9")


def dialled(**hellos: Hello) -> dict[str, str | None]:
    own = own_address(hellos.values()) if len(hellos) > 1 else None
    return {
        name: local_address(said, len(hellos), own)
        if name == "local"
        else login_address(said, len(hellos), own)
        for name, said in hellos.items()
    }


BESIDE_ANOTHER: list[tuple[Hello, str | None]] = [
    # It is what it calls itself at a tunnel's end, in place of an address that depends on a link,
    # and where sshd knows no address of it.
    *((hello("gpu1", each, each), "gpu1") for each in ("127.0.0.5", "::1", "::ffff:127.0.0.1")),
    *(
        (hello("gpu1", each, "198.18.0.9"), "gpu1")
        for each in ("fe80::1%eth0", "169.254.169.254", "::ffff:169.254.1.1")
    ),
    (PIPE, "gpu2"),
    (hello("127.0.0.a"), "127.0.0.a"),
    # These are no names of a host.
    *((hello(name), None) for name in ("localhost", "x$(id)", "-x", "a b", "(none)", "a:b")),
]


@pytest.mark.parametrize(("said", "address"), BESIDE_ANOTHER)
def test_a_host_is_dialled_by_what_others_can_reach(said: Hello, address: str | None) -> None:
    assert dialled(a=said, b=TOLD) == {"a": address, "b": "198.18.0.3"}


def test_a_job_on_one_host_stays_there() -> None:
    assert dialled(local=LOCAL) == {"local": None}
    link = hello("gpu1", "fe80::1%eth0", "198.18.0.9")
    for said, address in ((TUNNEL, "127.0.0.1"), (PIPE, "localhost"), (link, "localhost")):
        assert dialled(a=said) == {"a": address}


@pytest.mark.parametrize("has_route", [True, False])
@pytest.mark.parametrize("other", [TUNNEL, PIPE], ids=["tunnel", "pipe"])
def test_never_localhost(other: Hello, has_route: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = dialled(local=LOCAL, other=other)
    own = found["local"]
    if not has_route:
        monkeypatch.setattr(addresses, "_source_address", lambda _: None)
        monkeypatch.setattr(socket, "gethostname", lambda: "the-name")
        own = own_address([LOCAL, other])
    assert own is not None
    assert not is_loopback(own)
    assert has_route or own == "the-name"
    assert found["other"] == other.hostname


@pytest.mark.parametrize("seen_from", ["224.0.0.1", "::", "127.0.0.1", "fe80::1%lo", "192.0.2.7"])
def test_hosts_cannot_choose_our_address(seen_from: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, route = addresses._source_address, {"198.18.0.3": "10.1.1.1"}
    monkeypatch.setattr(addresses, "_source_address", lambda to: route.get(to) or real(to))
    assert own_address([hello("gpu1", "198.18.0.3", seen_from)]) == "10.1.1.1"
    monkeypatch.setattr(addresses, "_is_own", lambda address: address == "10.9.9.9")
    assert own_address([hello("gpu1", "198.18.0.3", "10.9.9.9")]) == "10.9.9.9"


NO_ADDRESS = ("gpu1", "10.0.0.1 ", "10.0.0.1%$(id)", "fd00::1%;id")
ODD_NETWORKS = ("", "100.64.0.1", "127.0.0.1", "fe80::1%eth0", "169.254.3.4", "::ffff:10.0.0.1")


@pytest.mark.parametrize("address", [*NO_ADDRESS, *ODD_NETWORKS])
@pytest.mark.parametrize("field", ["address", "seen_from"])
def test_what_is_no_address_is_a_fault(field: str, address: str) -> None:
    said = hello("gpu1")._replace(pid=7, **{field: address})
    fault = Orders(Loop(), None, Lifetime.LEASE, print).check(said)
    assert (fault is None) is (address in ODD_NETWORKS)
    assert fault is None or (fault.code is Code.REPORT_INVALID and f"{field} is " in fault.text)


def test_only_addresses_are_taken_from_sshd() -> None:
    said = "fe80::9%eth0 5022 fe80::1%eth0 22"
    assert connection_addresses(said) == ("fe80::9%eth0", "fe80::1%eth0")
    assert connection_addresses("10.0.0.9 5022 UNKNOWN 65535") == ("10.0.0.9", "")
    assert connection_addresses("10.0.0.9 5022") == connection_addresses("") == ("", "")


def test_another_name_of_this_machine_is_dialled_as_this_machine_is() -> None:
    found = dialled(local=LOCAL, again=hello(HERE, "127.0.0.1", "127.0.0.1"), told=TOLD)
    assert found["again"] == found["local"]

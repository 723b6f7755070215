"""What is measured over ssh: starting on many hosts, and the failure of one task.

The hosts are those of tests/ssh: network namespaces of this machine, each with an sshd in its
default configuration. All share the machine's cores, so much of the time goes to key exchanges,
which every launcher needs.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import measures
from launchers import SCRIPT, Launcher

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness import network as networks  # noqa: E402

COUNTS = (8, 32)
_FAILING = 8


def why_not() -> str | None:
    """Why this cannot be measured here; None where it can."""
    return networks.why_not()


def plain_loop() -> Launcher:
    """Return a shell's loop over ssh, which no launcher can be faster than."""

    def over_ssh(hosts: list[str], config: Path, folder: Path) -> list[str]:
        ssh = f"ssh -F {shlex.quote(str(config))} -o BatchMode=yes"
        loop = f'for host in {" ".join(hosts)}; do {ssh} "$host" sh {folder / SCRIPT} & done; wait'
        return ["bash", "-c", loop]

    return Launcher("ssh in a loop", ["true"], "", lambda _count, _folder: ["true"], over_ssh)


@contextlib.contextmanager
def rows() -> Iterator[list[measures.Row]]:
    """The rows of the table, while there are hosts."""
    network = networks.Network(set())
    try:
        hosts = [host.name for host in network.hosts(max(*COUNTS, _FAILING))]
        yield [
            *(
                measures.Row(f"{n} hosts over ssh, ms", _start(hosts[:n], network.ssh_config),
                             measures.number_text)
                for n in COUNTS
            ),
            measures.Row(
                f"one of {_FAILING} fails over ssh: until the launcher (all) has ended, ms",
                _failure(hosts[:_FAILING], network.ssh_config),
                measures.ends_text,
            ),
        ]  # fmt: skip
    finally:
        network.close()


def _start(hosts: list[str], config: Path) -> measures.Measure:
    def measure(launcher: Launcher, folder: Path) -> measures.Figures:
        return measures.start_of(launcher, _command(launcher, hosts, config, folder), folder)

    return measure


def _failure(hosts: list[str], config: Path) -> measures.Measure:
    def measure(launcher: Launcher, folder: Path) -> measures.Figures:
        argv = _command(launcher, hosts, config, folder)
        return measures.failure_of(launcher, argv, len(hosts), folder)

    return measure


def _command(launcher: Launcher, hosts: list[str], config: Path, folder: Path) -> list[str]:
    assert launcher.over_ssh is not None
    return launcher.over_ssh(hosts, config, folder)

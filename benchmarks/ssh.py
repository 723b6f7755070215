"""What is measured over ssh: starting on many hosts, and the failure of one task.

The hosts are those of tests/ssh: network namespaces of this machine, each with an sshd in its
default configuration. All share the machine's cores, so much of the time goes to key exchanges,
which every launcher needs.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import measures
from launchers import SCRIPT, Launcher, Network

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness import network as networks  # noqa: E402

COUNTS = (8, 32)
_FAILING = 8


def why_not() -> str | None:
    """Why this cannot be measured here; None where it can."""
    return networks.why_not()


def plain_loops() -> list[Launcher]:
    """Return shell loops over ssh: no launcher is faster, and none with an agent in Python."""
    return [_loop("ssh in a loop", "sh"), _loop("ssh in a loop, python3 on each", _PYTHON)]


def _loop(name: str, program: str) -> Launcher:
    def over_ssh(hosts: list[str], network: Network, folder: Path) -> list[str]:
        ssh = f"ssh -F {shlex.quote(str(network.config))} -o BatchMode=yes"
        command = shlex.quote(f"{program} {folder / SCRIPT}")
        loop = f'for host in {" ".join(hosts)}; do {ssh} "$host" {command} & done; wait'
        return ["bash", "-c", loop]

    return Launcher(name, ["true"], "", lambda _count, _folder: ["true"], over_ssh)


_CPU_OF = """\
import ctypes, os, resource, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become children of this
code = subprocess.call(sys.argv[2:])
try:
    while True:
        os.wait()
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    file.write(str(used.ru_utime + used.ru_stime))
sys.exit(code)
"""
"""Runs a command, and writes how many seconds of CPU it used, with all that it started."""
_PYTHON = 'python3 -I -S -c \'import os, sys; os.execvp("sh", ["sh", sys.argv[1]])\''


@dataclass(frozen=True)
class Hosts:
    """The hosts, and how they are reached."""

    names: list[str]
    network: Network

    def rows(self) -> list[measures.Row]:
        """The rows of the table."""
        starts = [
            measures.Row(f"{count} hosts over ssh, ms", self._start(count), measures.number_text)
            for count in COUNTS
        ]
        cpu = measures.Row(
            f"{COUNTS[-1]} hosts over ssh: CPU of the machine that launches, ms",
            self._launching_cpu,
            measures.number_text,
        )
        title = f"one of {_FAILING} fails over ssh: until the launcher (all) has ended, ms"
        return [*starts, cpu, measures.Row(title, self._failure, measures.ends_text)]

    def phases(self, launchers: Mapping[str, Launcher], rounds: int) -> dict[str, dict[str, float]]:
        """When the parts of a launch on all hosts were done, in ms after its start; medians.

        The launchers run in turn, in rounds after one that does not count.
        """
        turns = [
            {name: self._phases_of_one(each) for name, each in launchers.items()}
            for _ in range(rounds + 1)
        ]
        return {
            name: {
                part: statistics.median(turn[name][part] for turn in turns[1:])
                for part in turns[0][name]
            }
            for name in launchers
        }

    def _phases_of_one(self, launcher: Launcher) -> dict[str, float]:
        with measures.new_folder() as folder:
            argv = self._command(launcher, len(self.names), folder)
            began = time.time()
            total = measures.start_of(launcher, argv, folder)[0]
            record = next((folder / "home" / "jobs").glob("*/events.jsonl"))
            times: dict[str, list[float]] = {}
            for event in map(json.loads, record.read_text().splitlines()):
                times.setdefault(event["event"], []).append((event["at"] - began) * 1000)
        return {
            "the job is created": times["JobCreated"][0],
            "the first host is ready": min(times["HostReady"]),
            "all hosts are ready": max(times["HostReady"]),
            "the preflight has passed, and the plan is made": times["JobPlanned"][0],
            "all tasks run": max(times["TaskStarted"]),
            "all tasks have ended": max(times["TaskEnded"]),
            "all agents have ended": times["JobEnded"][0],
            "the launch has ended": total or 0.0,
        }

    def _start(self, count: int) -> measures.Measure:
        def measure(launcher: Launcher, folder: Path) -> measures.Figures:
            argv = self._command(launcher, count, folder)
            return measures.start_of(launcher, argv, folder)

        return measure

    def _launching_cpu(self, launcher: Launcher, folder: Path) -> measures.Figures:
        """What processes on the hosts use does not count."""
        used = folder / "cpu"
        argv = self._command(launcher, COUNTS[-1], folder)
        measures.start_of(launcher, [sys.executable, "-c", _CPU_OF, str(used), *argv], folder)
        return (float(used.read_text()) * 1000,)

    def _failure(self, launcher: Launcher, folder: Path) -> measures.Figures:
        argv = self._command(launcher, _FAILING, folder)
        return measures.failure_of(launcher, argv, _FAILING, folder)

    def _command(self, launcher: Launcher, count: int, folder: Path) -> list[str]:
        assert launcher.over_ssh is not None
        return launcher.over_ssh(self.names[:count], self.network, folder)


@contextlib.contextmanager
def hosts() -> Iterator[Hosts]:
    """The hosts, as long as they are needed."""
    network = networks.Network(set())
    try:
        found = network.hosts(max(*COUNTS, _FAILING))
        for host in found:
            _fill_neighbour_table(host, found)
        yield Hosts([host.name for host in found], Network(network.ssh_config, network.gateway))
    finally:
        network.close()


def _fill_neighbour_table(host: networks.Host, others: list[networks.Host]) -> None:
    """Enter the addresses of the other hosts' network cards.

    32 hosts would ask for 992 of them, and the kernel keeps about 1,000 for all namespaces.
    """
    lines = [
        f"neigh replace {each.address} lladdr {each.card} dev eth0 nud permanent"
        for each in others
        if each is not host
    ]
    host.run("ip", "-batch", "-", given="\n".join(lines))

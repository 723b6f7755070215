"""Measures `distrun launch` of `true` on many hosts, next to clush, pdsh and plain ssh.

    sudo python benchmarks/ssh.py --hosts 16 --rounds 9

The hosts are those of tests/ssh: network namespaces of this machine, each with an sshd in its
default configuration. All share the machine's cores, so much of the time goes to key exchanges,
which every launcher needs. All contestants run in turn, in rounds. Only the ratio within one run
counts.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness import network as networks  # noqa: E402

PEERS = ("clush", "pdsh")


@dataclass(frozen=True)
class Contestant:
    """A command that runs `true` on every host."""

    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)

    def seconds(self) -> float:
        """Seconds of one run. Ends the benchmark if it fails."""
        began = time.perf_counter()
        done = subprocess.run(
            self.argv,
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        took = time.perf_counter() - began
        if done.returncode != 0:
            sys.exit(f"{self.name} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return took


def main() -> int:
    options = _options()
    why_not = networks.why_not()
    missing = [name for name in PEERS if shutil.which(name) is None]
    if why_not is not None or missing:
        print(why_not or f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    network = networks.Network(set())
    try:
        with tempfile.TemporaryDirectory(prefix="distrun-ssh-") as folder:
            hosts = [host.name for host in network.hosts(options.hosts)]
            them = contestants(hosts, network.ssh_config, Path(folder))
            found = measure(them, options.rounds)
    finally:
        network.close()
    print(table(found, options))
    return 0


def contestants(hosts: list[str], ssh_config: Path, folder: Path) -> list[Contestant]:
    """All contestants, with the same ssh, configuration and hosts."""
    names = ",".join(hosts)
    spec = folder / "true.yaml"
    spec.write_text(
        "strategy: multi_worker_mirrored\n"
        f"cluster: {{worker: {len(hosts)}}}\n"
        f"hosts: [{names}]\n"
        f"ssh: {{config_file: {ssh_config}}}\n"
        'program: {command: ["true"], sync: "off"}\n'
    )
    ssh = f"ssh -F {shlex.quote(str(ssh_config))} -o BatchMode=yes"
    loop = f'for host in {" ".join(hosts)}; do {ssh} "$host" true & done; wait'
    return [
        Contestant("ssh in a bash loop", ["bash", "-c", loop]),
        Contestant("clush", ["clush", "-o", f"-F {ssh_config}", "-w", names, "true"]),
        Contestant(
            "pdsh",
            ["pdsh", "-R", "ssh", "-w", names, "true"],
            {"PDSH_SSH_ARGS_APPEND": f"-F {ssh_config}"},
        ),
        Contestant(
            "distrun launch",
            [sys.executable, "-m", "distrun", "launch", str(spec)],
            {"DISTRUN_HOME": str(folder / "home")},
        ),
    ]


def measure(all_of_them: list[Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run by contestant, after one round that does not count."""
    found: dict[str, list[float]] = {each.name: [] for each in all_of_them}
    for number in range(rounds + 1):
        # Who comes first changes from round to round.
        shift = number % len(all_of_them)
        for each in all_of_them[shift:] + all_of_them[:shift]:
            seconds = each.seconds()
            if number:
                found[each.name].append(seconds)
    return found


def table(found: dict[str, list[float]], options: argparse.Namespace) -> str:
    slower = max((statistics.median(found[name]), name) for name in PEERS)
    lines = [
        f"{options.hosts} hosts, {os.cpu_count()} cores, {options.rounds} rounds:",
        "",
        f"| | median | fastest | slowest | of {slower[1]}'s |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, times in found.items():
        median = statistics.median(times)
        lines.append(
            f"| {name} | {median:.2f} s | {min(times):.2f} s | {max(times):.2f} s"
            f" | {median / slower[0]:.2f} |"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=16, metavar="N")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

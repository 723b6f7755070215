"""How distrun and its peers run a shell script as tasks, on this machine and over ssh."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from peers import Peers

SCRIPT = "task.sh"


@dataclass(frozen=True)
class Network:
    """How hosts are reached: a client's configuration, and the address that they have of us."""

    config: Path
    address: str


@dataclass(frozen=True)
class Launcher:
    """A launcher.

    Attributes:
        help: the command that prints its help.
        version: its version.
        here: returns the command that runs the script of a folder as so many tasks, and prefixes
            their output.
        over_ssh: the same on hosts of a network, a task each; None: it cannot.
        variables: what its environment has besides this process's.
    """

    name: str
    help: list[str]
    version: str
    here: Callable[[int, Path], list[str]]
    over_ssh: Callable[[list[str], Network, Path], list[str]] | None = None
    variables: dict[str, str] = field(default_factory=dict)

    def start(
        self, argv: list[str], folder: Path, stdout: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start one of its commands in a folder, as the leader of a session."""
        unset = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "DISTRUN_HOME"}
        return subprocess.Popen(
            argv,
            env={
                **{name: value for name, value in os.environ.items() if name not in unset},
                "DISTRUN_HOME": str(folder / "home"),
                **self.variables,
            },
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )


def distrun(
    name: str, argv: list[str], variables: dict[str, str], *options: str, lines: str = ""
) -> Launcher:
    """Return distrun, started by a command with options. `lines`: more of the spec."""
    from distrun import __version__

    def spec(count: int, folder: Path, *more: str) -> list[str]:
        path, script = folder / "job.yaml", folder / SCRIPT
        written = (
            "strategy: multi_worker_mirrored",
            f"cluster: {{worker: {count}}}",
            "timeouts: {grace: 5s}",
            f'program: {{command: [sh, {script}], sync: "off"}}',
            lines,
            *more,
        )
        path.write_text("\n".join(written) + "\n")
        return [*argv, "launch", *options, str(path)]

    def over_ssh(hosts: list[str], network: Network, folder: Path) -> list[str]:
        ssh = f"ssh: {{config_file: {network.config}}}"
        return spec(len(hosts), folder, f"hosts: [{', '.join(hosts)}]", ssh)

    return Launcher(name, [*argv, "--help"], __version__, spec, over_ssh, variables)


def installed() -> Launcher:
    """Return the distrun that is installed beside this interpreter."""
    return distrun("distrun", [str(Path(sys.executable).with_name("distrun"))], {})


def without_preflight() -> Launcher:
    """Return the same without the preflight, which no peer has."""
    path = str(Path(sys.executable).with_name("distrun"))
    return distrun("distrun --no-preflight", [path], {}, "--no-preflight")


def peers_of(peers: Peers) -> list[Launcher]:
    """Return the peers that are installed, in the order of the table."""
    made = {
        "honcho": _honcho,
        "torchrun": _torchrun,
        "mpirun.openmpi": _open_mpi,
        "mpiexec.hydra": _hydra,
        "parallel": _parallel,
        "clush": _clush,
    }
    paths = {name: peers.program(name) for name in made}
    return [make(path, peers) for name, make in made.items() if (path := paths[name])]


def _honcho(path: str, peers: Peers) -> Launcher:
    def here(count: int, folder: Path) -> list[str]:
        lines = [f"t{number}: exec sh {folder / SCRIPT}\n" for number in range(count)]
        (folder / "Procfile").write_text("".join(lines))
        return [path, "start"]

    return Launcher("honcho", [path, "--help"], peers.version([path, "version"]), here)


def _torchrun(path: str, peers: Peers) -> Launcher:
    def here(count: int, folder: Path) -> list[str]:
        how = ["--standalone", "--no-python", "--tee=3", f"--nproc-per-node={count}"]
        return [path, *how, "sh", str(folder / SCRIPT)]

    python = str(Path(path).with_name("python"))
    version = peers.version([python, "-c", "import torch; print(torch.__version__)"])
    return Launcher("torchrun", [path, "--help"], version, here)


def _open_mpi(path: str, peers: Peers) -> Launcher:
    base = [path, "--allow-run-as-root", "--oversubscribe", "--tag-output"]

    def here(count: int, folder: Path) -> list[str]:
        return [*base, "-n", str(count), "sh", str(folder / SCRIPT)]

    def over_ssh(hosts: list[str], network: Network, folder: Path) -> list[str]:
        agent = shlex.join([*_env(peers), str(peers.root / "usr" / "bin" / "orted")])
        ways = {
            "plm_rsh_agent": f"ssh -F {network.config}",
            "plm_rsh_no_tree_spawn": "1",
            "orte_launch_agent": agent,
        }
        chosen = [word for name, value in ways.items() for word in ("--mca", name, value)]
        return [*base, *chosen, "--host", ",".join(hosts), "sh", str(folder / SCRIPT)]

    version = peers.version([path, "--version"])
    return Launcher("Open MPI", [path, "--help"], version, here, over_ssh, peers.variables)


def _hydra(path: str, peers: Peers) -> Launcher:
    def here(count: int, folder: Path) -> list[str]:
        return [path, "-prepend-rank", "-n", str(count), "sh", str(folder / SCRIPT)]

    def over_ssh(hosts: list[str], network: Network, folder: Path) -> list[str]:
        login = folder / "login.sh"
        login.write_text(
            '#!/bin/sh\n[ "$1" = -x ] && shift\nhost=$1\nshift\n'
            f'exec ssh -F {network.config} -x "$host" {shlex.join(_env(peers))} "$@"\n'
        )
        login.chmod(0o755)
        where = ["-launcher", "ssh", "-launcher-exec", str(login), "-hosts", ",".join(hosts)]
        return [
            path,
            *where,
            "-localhost",
            network.address,
            "-prepend-rank",
            "-ppn",
            "1",
            "sh",
            str(folder / SCRIPT),
        ]

    version = peers.version([path, "--version"])
    return Launcher("Hydra", [path, "--help"], version, here, over_ssh, peers.variables)


def _parallel(path: str, peers: Peers) -> Launcher:
    base = [path, "--will-cite", "--halt", "now,fail=1", "--line-buffer", "--tag"]

    def here(count: int, folder: Path) -> list[str]:
        numbers = [str(number) for number in range(count)]
        return [*base, "-j", str(count), "-N0", "sh", str(folder / SCRIPT), ":::", *numbers]

    def over_ssh(hosts: list[str], network: Network, folder: Path) -> list[str]:
        ssh = [
            "--ssh",
            f"ssh -F {network.config}",
            "--sshlogin",
            ",".join(f"1/{host}" for host in hosts),
        ]
        return [*base, *ssh, "-N0", "sh", str(folder / SCRIPT), ":::", *hosts]

    version = peers.version([path, "--version"])
    return Launcher("GNU parallel", [path, "--help"], version, here, over_ssh)


def _clush(path: str, peers: Peers) -> Launcher:
    def here(count: int, folder: Path) -> list[str]:
        how = ["-R", "exec", "-f", str(count), "-w", f"t[1-{count}]"]
        return [path, *how, "sh", str(folder / SCRIPT)]

    def over_ssh(hosts: list[str], network: Network, folder: Path) -> list[str]:
        return [
            path,
            "-o",
            f"-F {network.config}",
            "-w",
            ",".join(hosts),
            "sh",
            str(folder / SCRIPT),
        ]

    return Launcher("clush", [path, "--help"], peers.version([path, "--version"]), here, over_ssh)


def _env(peers: Peers) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in peers.variables.items())]

"""What is measured on the nodes of a Slurm allocation: `true`, by distrun and by srun.

The cluster is that of tests/slurm: network namespaces of this machine, each with a slurmd and an
sshd. All share the machine's cores. distrun reaches the same nodes once by srun and once by ssh.
Beside them are bare srun, as one step for all nodes and as a step for each node, and srun of the
command that starts distrun's agent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import launchers
import measures
from launchers import Launcher

from ssh import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from harness import slurm as clusters

_PYTHON = ("python3", "-I", "-S", "-c", "pass")


def measure(rounds: int, nodes: int) -> dict[str, Any] | None:
    """The number of nodes, and milliseconds by contestant; None where there is no Slurm."""
    why_not = clusters.why_not()
    if why_not is not None:
        print(f"nothing is measured on Slurm: {why_not}", file=sys.stderr)
        return None
    cluster = clusters.Cluster(set(), nodes)
    os.environ.update(cluster.variables)
    try:
        cluster.run("salloc", "--no-shell", "--quiet", f"--nodes={nodes}")
        job = cluster.run("squeue", "-h", "-o", "%i")
        row = measures.Row(f"{nodes} nodes, ms", partial(_start, nodes), measures.number_text)
        found = measures.in_rounds(row, _contestants(cluster, job), rounds)
        cluster.run("scancel", job)
    finally:
        cluster.close()
        for name in cluster.variables:
            os.environ.pop(name, None)
    return {"nodes": nodes, "ms": {name: each and each[0] for name, each in found.items()}}


def _start(nodes: int, launcher: Launcher, folder: Path) -> measures.Figures:
    return measures.start_of(launcher, launcher.here(nodes, folder), folder)


def _contestants(cluster: clusters.Cluster, job: str) -> list[Launcher]:
    """All contestants, with the same nodes and the same allocation."""
    names = [node.name for node in cluster.nodes]
    step = ["srun", f"--jobid={job}", "--overlap", "--mem=0"]
    all_nodes = [f"--nodes={len(names)}", f"--ntasks={len(names)}"]
    one = " ".join([*step, "--nodes=1", "--ntasks=1"])
    loop = f'for node in {" ".join(names)}; do {one} -w "$node" true & done; wait'
    hosts = {
        "srun": ("hosts: slurm", {"SLURM_JOB_ID": job}),
        "ssh": (
            f"hosts: [{', '.join(names)}]\nssh: {{config_file: {cluster.network.ssh_config}}}",
            {},
        ),
    }
    return [
        _plain("srun, one step", [*step, *all_nodes, "true"]),
        _plain("srun, a step for each node", ["bash", "-c", loop]),
        _plain("srun of python3, one step", [*step, *all_nodes, *_PYTHON]),
        *(
            launchers.distrun(
                f"distrun by {way}", launchers.installed().help[:1], variables, lines=lines
            )
            for way, (lines, variables) in hosts.items()
        ),
    ]


def _plain(name: str, argv: list[str]) -> Launcher:
    here: Callable[[int, Path], list[str]] = lambda _count, _folder: argv  # noqa: E731
    return Launcher(name, ["true"], "", here)

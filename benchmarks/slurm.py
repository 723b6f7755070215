"""Measures `distrun launch` of `true` on the nodes of a Slurm allocation, next to srun and ssh.

    sudo python benchmarks/slurm.py --nodes 4 --rounds 9

The cluster is that of tests/slurm: network namespaces of this machine, each with a slurmd and an
sshd. All share the machine's cores. distrun reaches the same nodes once by srun and once by ssh.
Beside them are bare srun, as one step for all nodes and as a step for each node, and srun of the
command that starts distrun's agent. All contestants run in turn, in rounds. Only the ratio within
one run counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from ssh import ROOT, Contestant, measure

sys.path.insert(0, str(ROOT / "tests"))

from harness import slurm as clusters

PYTHON = ("python3", "-I", "-S", "-c", "pass")


def main() -> int:
    options = _options()
    why_not = clusters.why_not()
    if why_not is not None:
        print(why_not, file=sys.stderr)
        return 2
    cluster = clusters.Cluster(set(), options.nodes)
    os.environ.update(cluster.variables)
    try:
        with tempfile.TemporaryDirectory(prefix="distrun-slurm-") as folder:
            asked = ("--no-shell", "--quiet", f"--nodes={options.nodes}")
            cluster.run("salloc", *asked)
            job = cluster.run("squeue", "-h", "-o", "%i")
            them = contestants(cluster, job, Path(folder))
            found = measure(them, options.rounds)
            cluster.run("scancel", job)
    finally:
        cluster.close()
    print(table(found, options))
    return 0


def contestants(cluster: clusters.Cluster, job: str, folder: Path) -> list[Contestant]:
    """All contestants, with the same nodes and the same allocation."""
    names = [node.name for node in cluster.nodes]
    step = ["srun", f"--jobid={job}", "--overlap", "--mem=0"]
    all_nodes = [f"--nodes={len(names)}", f"--ntasks={len(names)}"]
    one = " ".join([*step, "--nodes=1", "--ntasks=1"])
    loop = f'for node in {" ".join(names)}; do {one} -w "$node" true & done; wait'
    ssh_config = cluster.network.ssh_config
    by_ssh = f"hosts: [{','.join(names)}]\nssh: {{config_file: {ssh_config}}}\n"
    ways = {"srun": ("hosts: slurm\n", {"SLURM_JOB_ID": job}), "ssh": (by_ssh, {})}
    found = [
        Contestant("srun, one step", [*step, *all_nodes, "true"]),
        Contestant("srun, a step for each node", ["bash", "-c", loop]),
        Contestant("srun of python3, one step", [*step, *all_nodes, *PYTHON]),
    ]
    for name, (hosts, variables) in ways.items():
        spec = folder / f"{name}.yaml"
        spec.write_text(
            "strategy: multi_worker_mirrored\n"
            f"cluster: {{worker: {len(names)}}}\n{hosts}"
            'program: {command: ["true"], sync: "off"}\n'
        )
        argv = [sys.executable, "-m", "distrun", "launch", str(spec)]
        home = {"DISTRUN_HOME": str(folder / "home")}
        found.append(Contestant(f"distrun launch by {name}", argv, {**home, **variables}))
    return found


def table(found: dict[str, list[float]], options: argparse.Namespace) -> str:
    by_ssh = statistics.median(found["distrun launch by ssh"])
    lines = [
        f"{options.nodes} nodes, {os.cpu_count()} cores, {options.rounds} rounds:",
        "",
        "| | median | fastest | slowest | of distrun's by ssh |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, times in found.items():
        median = statistics.median(times)
        lines.append(
            f"| {name} | {median:.2f} s | {min(times):.2f} s | {max(times):.2f} s"
            f" | {median / by_ssh:.2f} |"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=4, metavar="N")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

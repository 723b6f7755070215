"""The Slurm allocation that this process is in: its nodes, and what Slurm gave on each."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from distrun.errors import UsageError
from distrun.slurm import commands
from distrun.spec.host_spec import HostSpec, SlurmNode

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_DETAIL = re.compile(r" Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+)(?: GRES=(\S*))?")
"""What `scontrol show job -d` says of nodes that were given the same; Mem is in MiB."""
_GPU = re.compile(
    r"gpu(?::[^:(),]+(?=:)|:\D[^:(),]*)?(?::(\d+))?(?:\((?:IDX|CNT):([^)]*)\))?(?=,|$)"
)
"""An entry of GRES: `gpu:tesla:2(IDX:0-1)`, `gpu:2`, `gpu(IDX:0)`; the type and count may lack."""


def current(environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    """Return the nodes of the allocation that a process with this environment is in, if any.

    Raises UsageError: it is a part of a heterogeneous job, or one of several processes of a step;
    and SchedulerError.
    """
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job:
        return ()
    if int(environ.get("SLURM_HET_SIZE", "0") or "0") > 1:
        raise UsageError(
            f"job {job} is a heterogeneous Slurm job, which distrun does not support",
            hint="use one component: with salloc or sbatch, write the options once, without ':'",
        )
    count = int(environ.get("SLURM_STEP_NUM_TASKS", "1") or "1")
    if count > 1:
        raise UsageError(
            f"srun has started distrun {count} times: each would run the whole job on all nodes",
            hint="leave out srun: distrun starts the tasks on the nodes itself",
        )
    return of_job(job)


def of_job(job: str) -> tuple[HostSpec, ...]:
    """Return the nodes of a running job, in Slurm's order. Raises SchedulerError."""
    command = ("scontrol", "-o", "show", "job", "-d", job)
    answer = commands.run(*command)
    listed = re.search(r" NodeList=(\S+)", answer)
    if listed is None or listed[1] == "(null)":
        raise commands.unexpected(" ".join(command), answer)
    names = expand(listed[1])
    described = commands.run("scontrol", "-o", "show", "node", listed[1])
    addresses, with_gpus = _addresses(described)
    given: dict[str, SlurmNode] = {}
    for nodes, cpus, memory, gres in _DETAIL.findall(answer):
        for name in expand(nodes):
            given[name] = SlurmNode(
                job=job,
                cores=_count(cpus),
                memory=int(memory) * _UNITS["M"] or None,
                gpus=_gpus(gres) if gres or name in with_gpus else None,
            )
    if missing := [name for name in names if name not in given]:
        raise commands.unexpected(f"{' '.join(command)} (no CPU_IDs for {missing[0]})", answer)
    return tuple(
        HostSpec(
            name=name,
            address=addresses.get(name),
            # Else tasks would see all GPUs of a node on which Slurm hides none from its jobs.
            gpus=() if given[name].gpus == 0 else None,
            slurm=given[name],
        )
        for name in names
    )


@functools.cache
def expand(nodes: str) -> Sequence[str]:
    """Return the names of a node list such as `n[1-3,7]`, in Slurm's order."""
    if "[" not in nodes:
        return nodes.split(",")
    names = commands.run("scontrol", "show", "hostnames", nodes).split()
    if not names:
        raise commands.unexpected(f"scontrol show hostnames {nodes}", "")
    return names


def _addresses(described: str) -> tuple[dict[str, str], set[str]]:
    """Return the addresses that nodes have beside names, and which have GPUs that Slurm counts."""
    addresses = {}
    with_gpus = set()
    for line in described.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        name = fields.get("NodeName", "")
        address = fields.get("NodeAddr", "")
        if address not in ("", name):
            addresses[name] = address
        if re.search(r"(?:^|,)gpu\b", fields.get("Gres", "")):
            with_gpus.add(name)
    return addresses, with_gpus


def _gpus(gres: str) -> int:
    """Return how many GPUs an entry such as `gpu:2(IDX:0-1),license:1` counts."""
    counts = (
        int(count) if count else _count(indices) if indices and indices != "N/A" else 1
        for count, indices in _GPU.findall(gres)
    )
    return sum(counts)


def _count(ranges: str) -> int:
    """Return how many numbers ranges such as `0-1,4` have."""
    total = 0
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        if not (first + (last or first)).isdigit():
            raise commands.unexpected("scontrol -o show job -d", ranges)
        total += int(last or first) - int(first) + 1
    return total

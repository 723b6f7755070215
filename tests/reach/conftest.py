"""The fixtures of tests on every way to reach hosts."""

from harness.host_fixtures import network, ssh
from harness.pods import kubernetes, pod_spec, pods
from harness.reaches import in_kubernetes, in_local, in_srun, in_ssh, reach, way
from harness.slurm_fixtures import cluster, in_allocation, slurm, slurm_spec

__all__ = [
    "cluster",
    "in_allocation",
    "in_kubernetes",
    "in_local",
    "in_srun",
    "in_ssh",
    "kubernetes",
    "network",
    "pod_spec",
    "pods",
    "reach",
    "slurm",
    "slurm_spec",
    "ssh",
    "way",
]

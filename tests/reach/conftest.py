"""The fixtures of tests on every way to reach hosts."""

from harness.host_fixtures import network, ssh  # noqa: F401
from harness.pods import kubernetes, pod_spec, pods  # noqa: F401
from harness.reaches import in_kubernetes, in_local, in_srun, in_ssh, reach, way  # noqa: F401
from harness.slurm_fixtures import cluster, in_allocation, slurm, slurm_spec  # noqa: F401

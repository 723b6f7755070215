"""The fixtures of tests on a Slurm cluster."""

from harness.slurm_fixtures import cluster, in_allocation, slurm, slurm_spec, submit  # noqa: F401

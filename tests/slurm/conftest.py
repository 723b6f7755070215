"""The fixtures of tests on a Slurm cluster."""

from harness.slurm_fixtures import cluster, in_allocation, slurm, slurm_spec, submit

__all__ = ["cluster", "in_allocation", "slurm", "slurm_spec", "submit"]

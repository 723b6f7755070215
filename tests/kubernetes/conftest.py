"""The fixtures of tests on Kubernetes."""

import pytest

from harness.command import Distrun
from harness.pods import kubernetes, pod_spec, pods  # noqa: F401


@pytest.fixture(autouse=True)
def _asked_by_processes(distrun: Distrun) -> None:
    """What reads from a pod starts a process that ends with the command."""
    distrun.asks_here = False

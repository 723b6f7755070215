"""What a job in pods survives, and that nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil

from harness.command import Distrun
from harness.kubernetes import Cluster
from harness.waiting import wait_until

COUNTS = (
    'i=0; while [ $i -lt {steps} ]; do echo "step $i of attempt $DISTRUN_ATTEMPT"; '
    "i=$((i+1)); sleep 0.2; done"
)
"""A program that takes a fifth of a second a step."""


def _launch(distrun: Distrun, spec: Path) -> str:
    started = distrun("launch", "-d", spec)
    assert started.returncode == 0, started.stderr
    job: str = started.stdout.strip()
    wait_until(lambda: distrun("logs", job).stdout.count("step 2 ") == 2, what="both are at work")
    return job


def _events(distrun: Distrun, job: str) -> str:
    printed: str = distrun("events", job).stdout
    return printed


def _ends_well(distrun: Distrun, job: str) -> str:
    """Wait for the job's success; returns its events."""
    waited = distrun("wait", job, "--timeout", "150s", timeout=180)
    assert waited.returncode == 0, waited.stderr + _events(distrun, job)
    return _events(distrun, job)


def _links(distrun: Distrun) -> list[psutil.Process]:
    """The processes on this machine that carry the links of a job."""
    supervisor = psutil.Process(distrun.status()["supervisor_pid"])
    below = supervisor.children(recursive=True)
    return [each for each in below if "exec" in each.cmdline()]


def test_a_pod_that_is_deleted_is_replaced_and_the_group_restarts(
    pods: Cluster, distrun: Distrun, pod_spec: Callable[..., Path]
) -> None:
    job = _launch(distrun, pod_spec(COUNTS.format(steps=20), restart={"max": 1}))
    lost = pods.pod_of(0)
    pods.kubectl("delete", "pod", lost, "--wait=false")

    events = _ends_well(distrun, job)

    assert f"pod {lost} was deleted" in events
    assert distrun("logs", job).stdout.count("step 19 of attempt 1") == 2
    wait_until(lambda: not pods.objects(), what="no object of the job is left")


def test_links_that_are_lost_are_restored(
    pods: Cluster, distrun: Distrun, pod_spec: Callable[..., Path]
) -> None:
    """kubectl is killed, then the API server: all links end, with exit 0 and no word."""
    job = _launch(distrun, pod_spec(COUNTS.format(steps=60)))
    for each in _links(distrun):
        each.kill()
    wait_until(lambda: "is restored" in _events(distrun, job), what="the links are restored")
    pods.kill_api_server()
    wait_until(lambda: _events(distrun, job).count("lost") > 2, what="the links are lost")
    pods.start_api_server()

    _ends_well(distrun, job)

    assert distrun("logs", job).stdout.count("step 59 of attempt 0") == 2

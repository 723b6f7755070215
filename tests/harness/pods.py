"""Fixtures of tests on Kubernetes: one cluster for all of them."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import kubernetes as clusters
from harness.command import write_spec
from harness.requirements import shared
from harness.waiting import wait_until

PodSpec = Callable[..., Path]
"""Writes a spec of `workers` in pods that run a shell script; more keys as keywords."""
PAGE = Path(__file__).resolve().parents[2] / "docs/kubernetes.md"


def page_manifests(heading: str) -> list[dict[str, Any]]:
    """The manifests under a heading of docs/kubernetes.md."""
    page = PAGE.read_text()
    blocks = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].split("```yaml\n")[1:]
    texts = (each.partition("```")[0] for each in blocks)
    return [one for text in texts for one in yaml.safe_load_all(text) if "kind" in one]


@pytest.fixture(scope="package")  # in tests/kubernetes, which is none: to the end of the session
def kubernetes(kept_processes: set[int]) -> Iterator[clusters.Cluster]:
    yield from shared(clusters.Cluster, kept_processes, clusters.why_not())


@pytest.fixture
def pods(
    kubernetes: clusters.Cluster, distrun_home: object, monkeypatch: pytest.MonkeyPatch
) -> Iterator[clusters.Cluster]:
    """The cluster, as new; kubectl finds it. What a test leaves there fails the test."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
    yield kubernetes
    with contextlib.suppress(AssertionError):  # once a supervisor is dead, another process does it
        wait_until(lambda: not kubernetes.objects(), 120.0)
    left = kubernetes.mend()
    if left:
        pytest.fail(f"left in the cluster by this test: {', '.join(left)}")


@pytest.fixture
def pod_spec(pods: clusters.Cluster, tmp_path: Path) -> PodSpec:
    def write(script: str, workers: int = 2, **keys: Any) -> Path:
        own = {"image": "local/host:1", "pod": clusters.overlay(), **keys.pop("kubernetes", {})}
        program = {"command": ["sh", "-c", script], "sync": "off", "workdir": "/tmp"}
        pods = {"hosts": "kubernetes", "kubernetes": own, "program": program}
        return write_spec(tmp_path, script, workers, **{**pods, **keys})

    return write

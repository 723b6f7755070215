"""What is measured on Kubernetes: from the launch of a job in pods until all its tasks run.

The cluster is that of tests/kubernetes: two nodes, which are network namespaces of this machine.
All share the machine's cores. Beside distrun is a bare Job, applied and waited for with kubectl,
and distrun over ssh on as many namespaces of the same kind.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launchers

from ssh import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from harness import kubernetes as clusters
from harness.waiting import wait_until

COUNTS = (2, 8)
_SCRIPT = "echo running; exec sleep 600"
_SECONDS = 120.0


def measure(rounds: int) -> dict[str, Any] | None:
    """Milliseconds by contestant and number of pods; None where there can be no cluster.

    A first round does not count. Who comes first changes from round to round.
    """
    why_not = clusters.why_not()
    if why_not is not None:
        print(f"nothing is measured on Kubernetes: {why_not}", file=sys.stderr)
        return None
    cluster = clusters.Cluster(set())
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    hosts = [host.name for host in cluster.network.hosts(max(COUNTS))]
    ssh = f"ssh: {{config_file: {cluster.network.ssh_config}}}"
    contestants: dict[str, Callable[[int], float]] = {
        "distrun, pods": lambda count: _distrun(
            count, "hosts: kubernetes\nkubernetes: {image: 'local/host:1'}"
        ),
        "kubectl apply of a Job, and wait": lambda count: _bare_job(cluster, count),
        "distrun, ssh": lambda count: _distrun(
            count, f"hosts: [{', '.join(hosts[:count])}]\n{ssh}"
        ),
    }
    found: dict[str, dict[str, float]] = {name: {} for name in contestants}
    try:
        for count in COUNTS:
            times: dict[str, list[float]] = {name: [] for name in contestants}
            for number in range(rounds + 1):
                names = [*contestants]
                names = names[number % len(names) :] + names[: number % len(names)]
                for name in names:
                    times[name].append(contestants[name](count))
                    wait_until(lambda: not cluster.objects(), _SECONDS, "the pods are gone")
            for name, each in times.items():
                found[name][str(count)] = statistics.median(each[1:])
    finally:
        os.environ.pop("KUBECONFIG")
        cluster.close()
    return {"counts": list(COUNTS), "ms": found}


def _distrun(count: int, lines: str) -> float:
    """Launch so many tasks; the milliseconds until the last has printed its line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / launchers.SCRIPT).write_text(_SCRIPT)
        (folder / "job.yaml").write_text(
            "strategy: multi_worker_mirrored\n"
            f"cluster: {{worker: {count}}}\n"
            f"program: {{command: [sh, -c, {json.dumps(_SCRIPT)}], sync: 'off', workdir: /}}\n"
            f"{lines}\n"
        )
        start = time.monotonic()
        argv = [*launchers.installed().help[:1], "launch", "job.yaml"]
        launch = launchers.installed().start(argv, folder, subprocess.PIPE)
        assert launch.stdout is not None
        left = count
        while left:
            line = launch.stdout.readline()
            if not line:
                raise RuntimeError("a launch has failed")
            left -= line.endswith(b"running\n")
        seconds = time.monotonic() - start
        launch.send_signal(signal.SIGINT)
        launch.communicate(timeout=_SECONDS)
        return seconds * 1000


def _bare_job(cluster: clusters.Cluster, count: int) -> float:
    container = {"name": "c", "image": "local/pause:1", "imagePullPolicy": "Never"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container],
                         "terminationGracePeriodSeconds": 0}}  # fmt: skip
    spec = {"parallelism": count, "completions": count, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bare"}, "spec": spec}
    start = time.monotonic()
    cluster.kubectl("apply", "-f", "-", given=json.dumps(job))
    wait = ("wait", "--for=condition=Ready", "pod", "-l", "job-name=bare", "--timeout=120s")
    wait_until(lambda: cluster.kubectl(*wait, check=False).count("met") == count, _SECONDS)
    seconds = time.monotonic() - start
    cluster.kubectl("delete", "job", "bare")
    return seconds * 1000

"""`distrun submit` to Kubernetes: the supervisor is in a pod, and other machines see the job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.kubernetes import Cluster
from harness.waiting import wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs/kubernetes.md"
COUNTS = (
    'i=0; while [ $i -lt {steps} ]; do echo "step $i of $DISTRUN_TASK, $DISTRUN_ATTEMPT"; '
    "i=$((i+1)); sleep 0.2; done"
)


@pytest.fixture
def account(pods: Cluster) -> None:
    """The service account and the Role of docs/kubernetes.md."""
    for kind in ("Role", "ServiceAccount"):
        found = re.search(
            rf"```yaml\n((?:apiVersion: \S+\n)kind: {kind}\n.*?)```", DOCS.read_text(), re.DOTALL
        )
        assert found is not None
        pods.kubectl("apply", "-f", "-", given=found[1])


def _status(distrun: Distrun, job: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(distrun("status", job, "--json").stdout)["job"]
    return shown


def _submit(distrun: Distrun, spec: Path, *options: str) -> str:
    done = distrun("submit", spec, *options, timeout=120)
    assert done.returncode == 0, done.stderr
    job: str = done.stdout.strip()
    return job


@pytest.mark.usefixtures("account")
def test_a_submitted_job_is_seen_from_anywhere_and_leaves_nothing(
    pods: Cluster,
    distrun: Distrun,
    pod_spec: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its files come with it; its record is read to the end, and then all of it is removed."""
    (tmp_path / "my files").mkdir()
    script = tmp_path / "my files/it's.sh"
    script.write_text("#!/bin/sh\ncat beside.txt; " + COUNTS.format(steps=15))
    script.chmod(0o755)
    script.with_name("beside.txt").write_text("sent with it\n")
    program = {"command": ["./it's.sh"], "sync": ["."], "workdir": "."}
    spec = pod_spec("", program=program)
    spec = spec.rename(script.with_name("job.yaml"))
    job = _submit(distrun, spec)

    followed = distrun.start("logs", "-f", job, stdout=-1, text=True)
    waited = distrun("wait", job, timeout=120)
    lines = followed.communicate(timeout=60)[0].splitlines()

    assert waited.returncode == 0, waited.stderr
    assert sum("sent with it" in line for line in lines) == 2
    for task in ("worker:0", "worker:1"):
        own = [line for line in lines if line.startswith(task) and " step " in line]
        assert own == [f"{task} | step {n} of {task}, 0" for n in range(15)]
    assert _status(distrun, job)["state"] == "succeeded"
    report = tmp_path / "report.html"
    assert distrun("report", job, "-o", report).returncode == 0
    wait_until(lambda: not pods.objects(), what="no object of the job is left")

    # From another machine: it finds the job by its namespace, and ends it.
    job = _submit(distrun, pod_spec(COUNTS.format(steps=900)))
    monkeypatch.setenv("DISTRUN_HOME", str(tmp_path / "elsewhere"))
    listed = distrun("ps", "--namespace", "default")
    assert job in listed.stdout, listed.stderr
    wait_until(lambda: "step 3 " in distrun("logs", job).stdout, what="its logs are seen")
    assert _status(distrun, job)["kubernetes"]["namespace"] == "default"
    killed = distrun("kill", job, timeout=60)
    assert killed.returncode == 0, killed.stderr
    assert (_status(distrun, job)["state"], _status(distrun, job)["exit_code"]) == ("stopped", 137)
    wait_until(lambda: not pods.objects(), what="no object of the job is left")

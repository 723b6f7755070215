"""TensorFlow in pods on two nodes, by the commands of docs/kubernetes.md."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.kubernetes import Cluster
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
EPOCH = re.compile(r"^worker:0 \| 10/10 - .*?(loss: .* - val_accuracy: [\d.]+)", re.MULTILINE)


def commands() -> list[list[str]]:
    """The three first commands of the page, with an image that the nodes have."""
    first = (ROOT / "docs/kubernetes.md").read_text().partition("```sh\n")[2].partition("```")[0]
    words = [shlex.split(line) for line in first.splitlines()]
    assert [each[:2] for each in words] == [["distrun", each] for each in ("run", "logs", "kill")]
    image = words[0].index("--image") + 1
    words[0][image] = "local/tensorflow:1"
    return [each[1:] for each in words]


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_a_pod_that_is_deleted_in_mid_epoch_does_not_change_the_accuracy(
    pods: Cluster, tmp_path_factory: pytest.TempPathFactory, distrun: Distrun
) -> None:
    """The program is an example of this repository, whose pods share a folder for checkpoints."""
    shutil.copy(ROOT / "jobs/examples/keras_fit.py", distrun.cwd / "train.py")
    shared = tmp_path_factory.mktemp("shared")  # not among the program's files
    volume = {"name": "shared", "hostPath": {"path": str(shared)}}
    own = [{"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}]
    others = {"matchLabels": {"app.kubernetes.io/managed-by": "distrun"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": others}
    spread = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod = {"spec": {"containers": own, "volumes": [volume], "affinity": spread}}
    run, follow, kill = commands()
    # After a SIGTERM, TensorFlow trains on, perhaps to the end.
    values = (f"kubernetes.pod={json.dumps(pod)}", "restart.max=1", "timeouts.grace=1s")
    options = [word for value in values for word in ("--set", value)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def start(name: str) -> subprocess.Popen[str]:
        own = ("--synthetic", "--steps-per-epoch", "10", "--checkpoint-dir", f"/shared/{name}")
        return distrun.start(run[0], "--name", name, *options, *run[1:], *own, **pipes)

    launched = start("a")
    wait_until(lambda: distrun("status", "a").returncode == 0, what="the job is there")
    followed = distrun(*follow, timeout=240)
    printed, said = launched.communicate(timeout=60)
    assert launched.returncode == 0, said
    undisturbed = EPOCH.findall(printed)
    assert len(undisturbed) == 3
    assert EPOCH.findall(followed.stdout) == undisturbed

    launched = start("b")
    at_work = "worker:0 | Epoch 2/3"
    wait_until(lambda: at_work in distrun("logs", "b").stdout, 180, "the second epoch has begun")
    pods.kubectl("delete", "pod", pods.pod_of(0), "--wait=false")
    printed, said = launched.communicate(timeout=240)
    assert launched.returncode == 0, said
    assert "was deleted" in said
    _, again = printed.split("--- attempt 1", 1)
    assert "worker:0 | Epoch 1/3" not in again  # it resumes from its checkpoint
    assert EPOCH.findall(printed) == undisturbed

    killed = distrun.start(run[0], "--name", "c", *run[1:], "--synthetic", **pipes)
    wait_until(lambda: distrun("status", "c").stdout.count("  running") > 1, 120, "the job runs")
    distrun.checked(*kill)
    killed.communicate(timeout=60)
    assert killed.returncode == 137

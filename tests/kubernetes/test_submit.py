"""`distrun submit` to Kubernetes: the supervisor is in a pod, and other machines see the job."""

from pathlib import Path

import pytest
import yaml

from harness.command import Distrun, write_program
from harness.kubernetes import Cluster
from harness.pods import PodSpec, page_manifests
from harness.values import not_none
from harness.waiting import wait_until

COUNTS = (
    'i=0; while [ $i -lt {steps} ]; do echo "step $i of $DISTRUN_TASK, $DISTRUN_ATTEMPT"; '
    "i=$((i+1)); sleep 0.2; done"
)


@pytest.fixture
def account(pods: Cluster) -> None:
    """The service account and the Role of docs/kubernetes.md."""
    given = yaml.safe_dump_all(page_manifests("The rights"))
    pods.kubectl("apply", "-f", "-", given=given)


def _submit(distrun: Distrun, spec: Path, *options: str) -> str:
    return str(distrun.checked("submit", spec, *options, timeout=120).stdout.strip())


@pytest.mark.usefixtures("account")
def test_a_submitted_job_is_seen_from_anywhere_and_leaves_nothing(
    pods: Cluster, pod_spec: PodSpec, monkeypatch: pytest.MonkeyPatch, distrun: Distrun
) -> None:
    """Its files come with it; its record is read to the end, and then all of it is removed."""
    (distrun.cwd / "my files").mkdir()
    words = "#!/bin/sh\nmkdir -p out; echo result > out/$DISTRUN_TASK; cat beside.txt; "
    script = distrun.cwd / "my files/it's.sh"
    write_program(script, f"{words}{COUNTS.format(steps=15)}")
    script.with_name("beside.txt").write_text("sent with it\n")
    program = {"command": ["./it's.sh"], "sync": ["."], "workdir": ".", "results": ["out"]}
    spec = pod_spec("", program=program)
    job = _submit(distrun, spec.rename(script.with_name("job.yaml")))

    followed = distrun.start("logs", "-f", job, stdout=-1, text=True)
    waited = distrun("wait", job, timeout=120)
    lines = followed.communicate(timeout=60)[0].splitlines()

    assert waited.returncode == 0, waited.stderr
    assert sum("sent with it" in line for line in lines) == 2
    for task in ("worker:0", "worker:1"):
        own = [line for line in lines if line.startswith(task) and " step " in line]
        assert own == [f"{task} | step {n} of {task}, 0" for n in range(15)]
    assert distrun.status(job)["state"] == "succeeded"
    report = distrun.cwd / "report.html"
    distrun.checked("report", job, "-o", report)
    wait_until(lambda: not pods.objects(), what="no object of the job is left")

    # What came back from the pods came with the record.
    distrun.checked("fetch", job, "-o", distrun.cwd / "fetched")
    kept = sorted(each.name for each in (distrun.cwd / "fetched/out").iterdir())
    assert kept == ["worker:0", "worker:1"]

    # From another machine: it finds the job by its namespace, and ends it.
    job = _submit(distrun, pod_spec(COUNTS.format(steps=900)))
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "elsewhere"))
    listed = distrun("ps", "--namespace", "default")
    assert job in listed.stdout, listed.stderr
    _wait_for_tasks(distrun, job)
    assert distrun.status(job)["kubernetes"]["namespace"] == "default"
    attached = distrun.start("attach", job, stdout=-1, text=True)
    # py-spy came with the job.
    assert "it is not a Python program" in distrun("stacks", job).stdout
    assert " | step " in not_none(attached.stdout).readline()
    distrun.checked("kill", job, timeout=120)
    attached.communicate(timeout=60)
    assert attached.returncode == 137
    for home in (distrun.cwd / "elsewhere", distrun.home):
        monkeypatch.setenv("DISTRUN_HOME", str(home))
        ended = distrun.status(job)
        assert (ended["state"], ended["exit_code"]) == ("stopped", 137)
    # It goes on: the other machine sees it again.
    distrun.checked("resume", job, "--set=timeouts.grace=1s", timeout=120)
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "elsewhere"))
    assert job in distrun("ps", "--namespace", "default").stdout
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.home))
    distrun.checked("kill", job, timeout=120)


VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteMany], storageClassName: "",
  hostPath: {{path: {path}}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: jobs}}
spec: {{accessModes: [ReadWriteMany], storageClassName: "", volumeName: {name},
  resources: {{requests: {{storage: 1Gi}}}}}}
"""


def _delete_supervisor(pods: Cluster, *options: str) -> None:
    found = [each["metadata"]["name"] for each in pods.objects("pods")]
    own = next(each for each in found if "-pods-" not in each)
    pods.kubectl("delete", "pod", own, "--wait=false", *options)


def _wait_for_tasks(distrun: Distrun, job: str) -> None:
    """Wait until its tasks are at work: its pod has unpacked kubectl and all the rest by then."""
    wait_until(lambda: "step 3 " in distrun("logs", job).stdout, 180, "its tasks are at work")


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("account")
def test_a_supervisor_whose_pod_is_lost(pods: Cluster, pod_spec: PodSpec, distrun: Distrun) -> None:
    (distrun.cwd / "volume").mkdir()
    # A volume is no object of the namespace: each has a name of its own.
    name = f"jobs{distrun.cwd.stat().st_ino}"
    pods.kubectl("create", "-f", "-", given=VOLUME.format(name=name, path=distrun.cwd / "volume"))
    steps = "$((DISTRUN_ATTEMPT ? 30 : 900))"
    spec = pod_spec(COUNTS.format(steps=steps), kubernetes={"volume_claim": "jobs"})
    job = _submit(distrun, spec)
    _wait_for_tasks(distrun, job)
    _delete_supervisor(pods)

    waited = distrun("wait", job, timeout=240)

    assert waited.returncode == 0, waited.stderr + distrun("events", job).stdout
    assert distrun("logs", job).stdout.count("step 29 ") >= 2
    assert "resumed after" in distrun("events", job).stdout

    job = _submit(distrun, pod_spec(COUNTS.format(steps=900)))
    _wait_for_tasks(distrun, job)
    _delete_supervisor(pods, "--force", "--grace-period=0")
    waited = distrun("wait", job, timeout=240)
    assert waited.returncode == 69
    assert "pod of its supervisor was deleted" in waited.stderr
    assert "had already failed" in distrun.checked("kill", job, timeout=120).stderr
    assert not pods.objects(), "`kill` has returned, and pods of the tasks are left"
    # It can be continued, with what is known of it here.
    distrun.checked("resume", job)
    assert distrun.status(job)["running"]
    distrun.checked("kill", job)
    pods.kubectl("delete", "pv", name, "--wait=false")


@pytest.mark.usefixtures("account")
def test_why_a_supervisor_has_no_pod(pods: Cluster, distrun: Distrun, pod_spec: PodSpec) -> None:
    spec = pod_spec("true")

    def refusal(*options: str) -> str:
        done = distrun("submit", spec, *(f"--set={each}" for each in options), timeout=120)
        assert (done.returncode, done.stdout) == (69, ""), done.stderr
        wait_until(lambda: not pods.objects(), what="no object of the job is left")
        return str(done.stderr)

    soon = "timeouts.start=10s"
    assert 'serviceaccounts "nosuch" not found' in refusal("kubernetes.service_account=nosuch")
    assert "may not create jobs, get jobs" in refusal("kubernetes.service_account=default")
    assert "is unschedulable" in refusal("kubernetes.pod.spec.nodeSelector={pool: gpu}", soon)
    assert 'context "nosuch" does not exist' in refusal("kubernetes.context=nosuch")
    passed = distrun("submit", spec, "--set=program.pass_env=[HOME]")
    assert passed.returncode == 2
    assert "keep it in a Secret" in passed.stderr
    assert distrun("ps", "-a", "--json").stdout.count("job_id") == 0

    # Its manifests are valid.
    printed = distrun("submit", spec, "--dry-run", "--set=kubernetes.queue=team").stdout
    said = pods.kubectl("apply", "--dry-run=server", "--validate=true", "-f", "-", given=printed)
    assert said.count("created (server dry run)") == 2

    # Killed in the middle of it.
    submitting = distrun.start("submit", spec, stdout=-1, stderr=-1, text=True)
    wait_until(pods.objects, what="the Job is created")
    submitting.kill()
    submitting.communicate()

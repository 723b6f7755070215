"""What a job in pods survives, and that nothing of it is left."""

import contextlib

import psutil
import pytest

from harness.command import Distrun
from harness.kubernetes import Cluster
from harness.network import processes_on
from harness.pods import PodSpec
from harness.waiting import wait_until


def _wait_for_step(distrun: Distrun, attempt: int) -> None:
    """Wait until both tasks are at work in an attempt."""
    line = f"step 2 of attempt {attempt}\n"
    wait_until(lambda: distrun("logs").stdout.count(line) == 2, what=f"both print {line}")


def _ends_well(distrun: Distrun) -> str:
    """Wait for the job's success; returns its events."""
    waited = distrun("wait", "--timeout", "150s", timeout=180)
    events: str = distrun("events").stdout
    assert waited.returncode == 0, waited.stderr + events
    return events


OUT_OF_MEMORY_AT_FIRST = """\
if [ $DISTRUN_ATTEMPT = 0 ] && [ $DISTRUN_TASK = worker:1 ]; then
    sleep 1; dd if=/dev/zero of=/dev/shm/x bs=1M count=1024; exit
fi
"""
# In its attempt 2, a task notices whether it is told to end more than once.
WAITS_IN_ATTEMPT_2 = """\
[ $DISTRUN_ATTEMPT != 2 ] || exec python3 -uc 'import signal as s; s.pthread_sigmask(0, [15])
print("step 2 of attempt 2"); s.sigwait([15])
print(s.sigtimedwait([15], 1) and "told twice")'
"""
UNTIL_ATTEMPT = """\
i=0; while [ $i -lt 3 ] || [ $DISTRUN_ATTEMPT -lt {last} ]; do
    echo "step $i of attempt $DISTRUN_ATTEMPT"; i=$((i + 1)); sleep 0.2
done
"""


def test_what_kubernetes_does_to_pods(pods: Cluster, distrun: Distrun, pod_spec: PodSpec) -> None:
    """A pod's /dev/shm takes all its memory, which counts; a pod is deleted; a node is drained.

    This Kubernetes does not write why a node's pods go: the test does, as later ones do.
    """
    memory = {"memory": "256Mi"}
    script = OUT_OF_MEMORY_AT_FIRST + WAITS_IN_ATTEMPT_2 + UNTIL_ATTEMPT.format(last=3)
    spec = pod_spec(script, kubernetes=memory, restart={"max": 1, "backoff": "10ms"})
    distrun.checked("launch", "-d", spec)
    _wait_for_step(distrun, 1)
    deleted = pods.pod_of(0)
    pods.kubectl("delete", "pod", deleted, "--wait=false")
    _wait_for_step(distrun, 2)
    drained = pods.pod_of(1) if pods.pod_of(1) != deleted else pods.pod_of(0)
    pods.add_condition(
        drained, "DisruptionTarget", "EvictionByEvictionAPI", "Eviction API: evicting"
    )
    options = ("--force", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=60s")
    pods.kubectl("drain", pods.nodes[1].name, *options)

    events = _ends_well(distrun)

    assert "needed more memory than it may have (OOMKilled) (host_memory)" in events
    assert f"pod {deleted} was deleted" in events
    assert f"took pod {drained} from its node: EvictionByEvictionAPI: Eviction API" in events
    assert events.count("worker:0, worker:1 start again") == 3
    assert "told twice" not in distrun("logs").stdout


def test_a_node_that_is_cut_off(pods: Cluster, distrun: Distrun, pod_spec: PodSpec) -> None:
    keys = {"restart": {"max": 1}, "timeouts": {"link": "8s", "grace": "1s"}}
    distrun.checked("launch", "-d", pod_spec(UNTIL_ATTEMPT.format(last=1), **keys))
    _wait_for_step(distrun, 0)
    pods.nodes[1].cut()

    events = _ends_well(distrun)

    assert "is lost: no sign of life for 8 s (timeouts.link)" in events
    assert distrun("logs").stdout.count("step 2 of attempt 1\n") == 2
    wait_until(lambda: not pods.objects(), what="no object of the job is left")


# The last one: after an outage of all nodes, this Kubernetes replaces no pod of a lost node.
@pytest.mark.timeout(600)
def test_links_are_restored(pods: Cluster, distrun: Distrun, pod_spec: PodSpec) -> None:
    """The API server is killed, kubectl hangs; then this machine sleeps, and its network is away.

    It gets new pods when it wakes: the former ones have completed.
    """

    def wait_until_restored(count: int) -> None:
        wait_until(
            lambda: distrun("events").stdout.count("is restored") == count,
            what=f"{count} links are restored",
        )

    spec = pod_spec(UNTIL_ATTEMPT.format(last=1), restart={"max": 1, "backoff": "10ms"})
    distrun.checked("launch", "-d", spec)
    _wait_for_step(distrun, 0)
    supervisor = psutil.Process(distrun.status()["supervisor_pid"])
    pods._control["apiserver"].kill()
    pods._control["apiserver"].wait()
    wait_until(lambda: "lost" in distrun("events").stdout, what="the links are lost")
    pods.start_api_server()
    wait_until_restored(2)
    for each in supervisor.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # others come and go
            each.suspend() if "exec" in each.cmdline() else None
    wait_until_restored(4)
    wait_until(
        lambda: all(processes_on(node, "python3") for node in pods.nodes), what="its agents run"
    )
    frozen = [supervisor, *supervisor.children(recursive=True)]
    for each in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.suspend()
    for node in pods.nodes:
        node.cut()
    wait_until(
        lambda: not any(processes_on(node, "python3") for node in pods.nodes),
        150,
        "nothing of the job runs in its pods",
    )
    for node in pods.nodes:
        node.mend()
    for each in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.resume()

    events = _ends_well(distrun)

    assert events.count("worker:0, worker:1 start again") == 1
    assert distrun("logs").stdout.count("step 2 of attempt 1\n") == 2

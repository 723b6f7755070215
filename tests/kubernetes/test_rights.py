"""The Role of docs/kubernetes.md is enough, a right that lacks is named, and so is a lost login."""

import base64
from collections.abc import Callable

import psutil
import pytest
import yaml

from harness.command import Distrun
from harness.kubernetes import Cluster
from harness.pods import PodSpec, page_manifests
from harness.waiting import wait_until


@pytest.fixture
def account(pods: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Have distrun use a service account with the page's Role, less one verb; its secret."""

    def make(name: str, resource: str = "", verb: str = "") -> str:
        role, service_account, binding = page_manifests("The rights")
        for rule in role["rules"]:
            if resource in rule["resources"]:
                rule["verbs"].remove(verb)
        for each in (role, service_account, binding):
            each["metadata"]["name"] = name
        binding["subjects"][0] |= {"name": name, "namespace": "default"}
        binding["roleRef"]["name"] = name
        pods.kubectl("apply", "-f", "-", given=yaml.safe_dump_all([role, service_account, binding]))
        of_account = ("get", "serviceaccount", name, "-o", "jsonpath={.secrets[0].name}")
        secret = wait_until(lambda: pods.kubectl(*of_account), what="it has a secret")
        token = pods.kubectl("get", "secret", secret, "-o", "jsonpath={.data.token}")
        path = pods.write_kubeconfig(name, base64.b64decode(token).decode())
        monkeypatch.setenv("KUBECONFIG", str(path))
        return secret

    return make


def test_the_role_of_the_page_is_enough_until_its_login_is_lost(
    pods: Cluster, distrun: Distrun, pod_spec: PodSpec, account: Callable[..., str]
) -> None:
    """After that, the job ends with the lease, and its pods by themselves."""
    secret = account("enough")
    program = "import time; print('began', flush=True); time.sleep(300)"
    spec = pod_spec(f'exec python3 -c "{program}"', timeouts={"link": "8s", "grace": "1s"})
    for words in ("doctor", "plan", "launch -d"):
        distrun.checked(*words.split(), spec)
    wait_until(lambda: distrun("logs").stdout.count("began") == 2, what="both have begun")
    for words in ("status", "stacks", "report -o page.html"):
        distrun.checked(*words.split())
    pods.kubectl("delete", "secret", secret)
    asked = (f"--kubeconfig={pods.folder / 'enough.kubeconfig'}", "auth", "can-i", "list", "pods")
    wait_until(lambda: "yes" not in pods.kubectl(*asked, check=False), 60, "it is logged out")
    supervisor = psutil.Process(distrun.status()["supervisor_pid"])
    for each in supervisor.children():
        if "exec" in each.cmdline():
            each.kill()

    waited = distrun("wait", timeout=120)

    assert waited.returncode == 69
    status = distrun("status").stdout
    assert "You must be logged in" in status
    assert "log in to the cluster again" in status
    wait_until(lambda: not pods.objects(), 60, "no object of the job is left")


@pytest.mark.parametrize(
    ("resource", "verb"), [("jobs", "create"), ("pods", "list"), ("pods/exec", "create")]
)
def test_a_right_that_lacks_is_named_in_the_words_of_the_server(
    resource: str, verb: str, distrun: Distrun, pod_spec: PodSpec, account: Callable[..., str]
) -> None:
    account(f"lacks-{verb}-{resource.replace('/', '-')}", resource, verb)
    done = distrun("launch", pod_spec("true"))
    assert done.returncode == 69
    assert f'cannot {verb} resource "{resource}"' in done.stderr
    assert "docs/kubernetes.md" in done.stderr


def test_a_job_that_may_not_be_deleted_goes_by_itself(
    pods: Cluster, distrun: Distrun, pod_spec: PodSpec, account: Callable[..., str]
) -> None:
    account("lacks-delete", "jobs", "delete")
    distrun.checked("launch", pod_spec("true", workers=1))
    wait_until(lambda: not pods.objects(), what="Kubernetes has removed the Job")


def test_the_network_policies_of_the_page_are_valid(pods: Cluster) -> None:
    """endPort is newer than this Kubernetes, and has no plugin here that heeds policies."""
    policies = page_manifests("Network policies")
    options = ("--dry-run=server", "--validate=false", "-f", "-")
    assert pods.kubectl("apply", *options, given=yaml.safe_dump_all(policies)).count("created") == 3

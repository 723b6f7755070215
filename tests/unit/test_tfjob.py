"""A TFJob becomes a spec, with what was guessed and dropped in comments, or is refused."""

from typing import Any

import pytest
import yaml

from harness.parts.kubernetes import convert
from harness.parts.spec import load_mapping
from harness.parts.top import InvalidSpecError, Role, Workers

Json = dict[str, Any]


def replicas(count: Any = 1, policy: str = "OnFailure", **container: Any) -> Json:
    own = {"name": "tensorflow", "image": "i:1", "command": ["python", "/t.py"], **container}
    template = {"spec": {"containers": [own]}}
    return {"replicas": count, "restartPolicy": policy, "template": template}


def tfjob(roles: Any, version: str = "kubeflow.org/v1", **spec: Any) -> str:
    metadata = {"name": "mnist", "namespace": "team"}
    about = {"apiVersion": version, "kind": "TFJob", "metadata": metadata}
    return yaml.safe_dump({**about, "spec": {"tfReplicaSpecs": roles, **spec}})


def converted(text: str) -> tuple[Json, str]:
    result = convert(text, name="mnist")
    load_mapping(yaml.safe_load(result))
    comments = "\n".join(line for line in result.splitlines() if line.startswith("#"))
    return yaml.safe_load(result), comments


def test_each_field_has_its_place() -> None:
    worker = replicas(
        2, "ExitCode", args=["--steps", "$(STEPS)", "$$(HOME)", "{rank}", "$(hostname)"],
        env=[
            {"name": "STEPS", "value": "100"}, {"name": "KEY", "value": "of an earlier item"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "URL", "value": "$$(X) $(KEY)@$(STEPS)"},
            {"name": "LAST", "value": "step-$(STEPS)"},
        ],
        workingDir="/code", resources={"limits": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1}},
        volumeMounts=[{"name": "data", "mountPath": "/data"}], ports=[{"containerPort": 2222}],
    )  # fmt: skip
    volumes = [{"name": "data", "emptyDir": {}}]
    worker["template"]["spec"] |= {"volumes": volumes, "nodeSelector": {"pool": "gpu"}}
    scheduling = {"queue": "q", "priorityClass": "low", "scheduleTimeoutSeconds": 60}
    policy: Json = {"backoffLimit": 4, "activeDeadlineSeconds": 3600, "cleanPodPolicy": "All"}
    policy["schedulingPolicy"] = scheduling
    spec, comments = converted(tfjob({"Worker": worker}, runPolicy=policy))
    assert spec["kubernetes"] == {
        "namespace": "team", "image": "i:1", "cpus": "4", "memory": "8Gi", "gpus": 1,
        "pod": {"spec": {
            "nodeSelector": {"pool": "gpu"}, "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [{
                "env": [{"name": "KEY",
                         "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        {"name": "URL", "value": "$$(X) $(KEY)@100"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
        }},
        "queue": "q", "priority_class": "low",
    }  # fmt: skip
    words = ["python", "/t.py", "--steps", "100", "$(HOME)", "{{rank}}", "$(hostname)"]
    env = {"STEPS": "100", "LAST": "step-100"}
    program = {"command": words, "sync": "off", "workdir": "/code", "env": env}
    assert spec["program"] == program
    assert spec["restart"] == {"max": 4, "never_on": ["1-127"]}
    assert (spec["timeouts"], spec["success"]) == ({"start": "60s", "run": "3600s"}, "worker0")
    assert (spec["strategy"], spec["cluster"]) == ("multi_worker_mirrored", {"worker": 2})
    assert "guessed: strategy multi_worker_mirrored" in comments
    assert "spec.runPolicy.cleanPodPolicy: dropped" in comments
    assert "schedulingPolicy.queue: guessed: a local queue of Kueue" in comments
    assert "spec.tfReplicaSpecs.Worker.template.spec.containers[tensorflow].ports" in comments


def test_roles_keep_their_own_arguments_variables_and_policies() -> None:
    roles = {"Master": replicas(1, "Never"), "PS": replicas(1), "Evaluator": replicas(1)}
    roles["Worker"] = replicas(2, "ExitCode", args=["--fast"], env=[{"name": "A", "value": "1"}])
    for role, grace in (("Master", 60), ("Worker", 120)):
        roles[role]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    spec, comments = converted(tfjob(roles, successPolicy="AllWorkers"))
    worker = {"count": 2, "args": ["--fast"], "env": {"A": "1"}}
    chief, other = ({"count": 1, "restart": r} for r in ("never", {"never_on": [], "max": 100}))
    assert spec["cluster"] == {"chief": chief, "worker": worker, "ps": other, "evaluator": other}
    kind = [spec[key] for key in ("strategy", "workers", "success")]
    assert kind == ["parameter_server", "independent", "chief"]
    restart = {"max": 100, "never_on": ["1-127"]}
    assert (spec["restart"], spec["timeouts"]) == (restart, {"grace": "120s"})
    assert spec["kubernetes"] == {"namespace": "team", "image": "i:1", "pods": 5}
    assert "Worker.template.spec.terminationGracePeriodSeconds: holds for all roles" in comments
    assert "Master: is the role chief" in comments
    assert "spec.runPolicy.backoffLimit" in comments or "spec.backoffLimit" in comments


def test_what_a_cluster_has_beside_it_is_told_and_its_queue_is_kept() -> None:
    """A manifest as `kubectl get -o yaml` prints it, in one file with a claim."""
    resources = {"limits": {"cpu": 4}, "requests": {"cpu": 1}, "claims": [{"name": "c"}]}
    worker, empty = replicas(resources=resources, envFrom=[{}], args=["$(cat x) ${Y}"]), replicas(0)
    worker["template"]["spec"] |= {"restartPolicy": "Always", "volumes": None}
    worker["template"]["metadata"] = {"labels": {"a": "tf-job-name"}, "name": "x"}
    document = yaml.safe_load(tfjob({"Worker": worker, "PS": empty}))
    document["spec"]["runPolicy"] = {"schedulingPolicy": {"queue": "q"}, "suspend": True}
    document["status"] = {"conditions": []}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    document["metadata"] |= {"uid": "1", "labels": labels, "annotations": {"a": "b"}}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    other = {"kind": "Values", "metadata": ["a"]}  # of another tool
    listed = {"kind": "List", "items": [document, claim]}
    more = {**document, "metadata": {"name": "other"}}
    spec, comments = converted(f"%YAML 1.2\n---\n{yaml.safe_dump_all([listed, more, other])}---")
    assert "TFJob other" not in comments
    assert spec["kubernetes"]["queue"] == "team"
    assert spec["program"]["command"][-1] == "$(cat x) ${Y}"
    # As written: more may be used than is asked.
    own = {"containers": [{"resources": resources, "envFrom": [{}]}]}
    assert spec["kubernetes"]["pod"] == {"metadata": {"labels": {"a": "tf-job-name"}}, "spec": own}
    at = "spec.tfReplicaSpecs."
    for path in (
        *("status", "metadata.uid", "metadata.annotations", "spec.runPolicy.suspend", f"{at}PS"),
        *(f"{at}Worker.template.spec.restartPolicy", f"{at}Worker.template.metadata.name"),
        *("PersistentVolumeClaim data", "Values", "spec.runPolicy.schedulingPolicy.queue"),
    ):
        assert f"# {path}: " in comments
    assert "# spec.tfReplicaSpecs: it names tf-job-name, a label that distrun's" in comments
    assert "metadata.labels" not in comments.replace("template.metadata.labels", "")


def test_roles_have_the_pods_of_their_own_templates() -> None:
    """Merged in this order, those of the job and of the role are what is written."""
    gpus: Json = {"resources": {"limits": {"nvidia.com/gpu": 1}}, "imagePullPolicy": "Always"}
    roles = {"Worker": replicas(2, **gpus), "PS": replicas(image="cpu:1", imagePullPolicy="Always")}
    for pool, role in zip(({}, {"pool": "b"}), roles.values(), strict=True):
        role["template"]["spec"] |= {"nodeSelector": {"zone": "a", **pool}}
    spec, comments = converted(tfjob(roles))
    pod = {"nodeSelector": {"zone": "a"}, "containers": [{"imagePullPolicy": "Always"}]}
    assert spec["kubernetes"] == {"namespace": "team", "image": "i:1", "pod": {"spec": pod}}
    own = {"nodeSelector": {"pool": "b"}, "containers": [{"image": "cpu:1"}]}
    limits = {"containers": [{"image": "i:1", "resources": gpus["resources"]}]}
    assert spec["cluster"]["worker"]["pod"] == {"spec": limits}
    assert spec["cluster"]["ps"]["pod"] == {"spec": own}
    assert "template:" not in comments


def test_yaml_is_read_as_kubectl_reads_it() -> None:
    """A text that it would read as a number or a boolean has quotes."""
    own: Json = {"t": ["12e4567", "1e-3", "08", "0o644", "Y", "on"], "mode": 0o644, "once": True}
    fields = f"<<: {{mode: 0644, once: On, t: {own['t']}}}"
    text = tfjob({"Worker": replicas(x="y")}).replace("x: y", fields)
    text = f"kind: A\n...\n%YAML 1.2\n---\n{text}"
    assert converted(text)[0]["kubernetes"]["pod"] == {"spec": {"containers": [own]}}
    assert [each for each in own["t"] if f"- '{each}'\n" not in convert(text)] == []


def test_parameter_servers_without_a_chief_have_independent_workers_also_on_this_machine() -> None:
    roles = {"PS": replicas(1), "Worker": replicas(2)}
    text = convert(tfjob(roles, version="kubeflow.org/v1beta2", successPolicy="AllWorkers"))
    spec = load_mapping(yaml.safe_load(text), overrides=["hosts=[localhost]"])
    assert (spec.workers, spec.success) == (Workers.INDEPENDENT, "all")
    assert {role.role for role in spec.roles} == {Role.PS, Role.WORKER}
    assert [host.name for host in spec.hosts] == ["localhost"]


def test_a_chief_that_trains_alone_is_a_worker() -> None:
    roles = {"Chief": replicas(), "Evaluator": replicas()}
    spec, comments = converted(tfjob(roles, successPolicy="AllWorkers"))  # not the evaluator
    assert (spec["cluster"], spec["success"]) == ({"worker": 1, "evaluator": 1}, "strategy")
    assert "# spec.tfReplicaSpecs.Chief: is the role worker" in comments


def test_the_entry_point_of_an_image_can_be_given() -> None:
    spec = yaml.safe_load(convert(tfjob({"Worker": NO_COMMAND}), ["python", "/m.py"]))
    assert spec["program"]["command"] == ["python", "/m.py", "--steps=1"]
    assert spec["kubernetes"] == {"namespace": "team", "image": "i:1", "cpus": "2"}


ALIASES = "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 12))
NO_COMMAND = replicas(args=["--steps=1"], resources={"limits": {"cpu": 2}, "requests": {"cpu": 2}})
del NO_COMMAND["template"]["spec"]["containers"][0]["command"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not valid YAML"), ("- &a [*a]\n", "contains itself"),
        (ALIASES, "aliases counted in full"),
        ("kind: PyTorchJob\nmetadata: {name: a}", "no TFJob is in it: PyTorchJob a"),
        ("kind: TfJob\napiVersion: a\nspec: {replicaSpecs: []}", "item of spec.replicaSpecs under"),
        ("kind: TFJob\nspec: {}\nspec: {}", "TFJOB:3:1: the key 'spec' is given twice"),
        ("# A\n---\nkind: A\n---\nname: {{ .Release.Name }}", "TFJOB:5:8: a key must be text"),
        ("kind: TFJob\n---\nkind: A\n---\nkind: TFJob\n", "2 TFJobs are in it: TFJob, TFJobchoose"),
        ("kind: Experiment\nspec: {trialSpec: {kind: TFJob}}", "into a file of its own"),
        (tfjob({"Worker": replicas()}, version="kubeflow.org/v1beta1"), "only apiVersion changes"),
        (tfjob({"Worker": replicas()}, enableDynamicWorker=True), "spec.enableDynamicWorker"),
        (tfjob({"Worker": replicas()}, runPolicy={"managedBy": "kueue"}), "managedBy"),
        (tfjob({"Worker": replicas("two"), "Boss": replicas()}, activeDeadlineSeconds=0),
         ("spec.tfReplicaSpecs.Boss: a TFJob has Chief, Master, Worker, PS and Evaluator\nspec.tf"
          "ReplicaSpecs.Worker.replicas: it must be a whole number of 0 or more, not 'two'\ns")),
        (tfjob(dict.fromkeys(("Chief", "Master", "WORKER", "Worker"), replicas())),
         "a second chief\nspec.tfReplicaSpecs.Worker: it is a second worker"),
        (tfjob({"Worker": replicas(), "Chief": replicas(workingDir="/")}), "different folders"),
        (tfjob({"Worker": replicas(command="python t.py")}), "lists of words"),
        (tfjob({"Worker": replicas()}).replace("name: mnist", "name: $(n)"), "metadata.name: it"),
        (tfjob({"Worker": replicas()}).replace("name: mnist", "name: 17"), "a name, not 17"),
        (tfjob({"Worker": NO_COMMAND}), "containers[tensorflow].command"),
        (tfjob({"Worker": replicas(env=[{"name": True}])}), "env[0].name: it must be a text"),
        (tfjob({"Worker": replicas(name="main")}), "the name tensorflowrename the one"),
        (tfjob({"Worker": replicas(name="distrun")}), "containers[distrun]: distrun's own"),
        (tfjob({"Worker": replicas(args=["$(NO)"], envFrom=[{}])}), "$(NO)"),
        (tfjob({"Worker": replicas(args=["$(A)"], env=[{"name": "A", "valueFrom": {}}])}), " $A "),
        (tfjob({"Worker": replicas(0)}), "no role has replicas"),
        (tfjob({"Worker": replicas(), "PS": replicas(command=["sh"])}), "different programs"),
        (tfjob({"Worker": replicas("2", policy="Sometimes")}), "restartPolicy: Sometimes is"),
        (tfjob({"Worker": {"replicas": 1}}), "Worker.template: it is missing"),
        (tfjob({"Worker": replicas(image="-x")}), "containers[tensorflow].image must"),
        (tfjob({"PS": replicas()}), "spec.tfReplicaSpecs: it has no Worker"),
        (tfjob({"Worker": replicas(), "Evaluator": replicas(2)}), "tfReplicaSpecs.Evaluator: "),
        (tfjob({"Worker": replicas()}, activeDeadlineSeconds=0), "spec.activeDeadlineSeconds: it"),
        (tfjob({"Worker": replicas(args=["-l", 0.1])}), "[tensorflow].args[1]: it must be a text"),
        (tfjob({"Worker": replicas(args=["$(TF_CONFIG)"])}), "$(TF_CONFIG) is known in"),
        (tfjob([]), "spec.tfReplicaSpecs"),
        (tfjob({"Worker": replicas(env=["A=1"])}), "not the form"),
        (tfjob({"Worker": replicas(resources={"limits": {"nvidia.com/gpu": "two"}})}), "/gpu: it"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        convert(text)
    assert said in f"{refused.value}{refused.value.message}{refused.value.hint}"

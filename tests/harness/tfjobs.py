"""A TFJob like Kubeflow's examples, whose program needs no TensorFlow."""

from typing import Any

import yaml

_PROGRAM = """\
import json, os, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
host, _, port = config["cluster"]["ps"][index].rpartition(":")
if role == "ps":
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", int(port)))
    server.listen()
    while True:  # as TensorFlow's servers do
        server.accept()
for _ in range(600):
    try:
        socket.create_connection((host, int(port)), 10).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
print(role, index, "of", len(config["cluster"]["worker"]), *sys.argv[1:], os.environ["DATA"])
"""
OUTPUT = [f"worker:{index} | worker {index} of 2 --steps=3 $(HOME) /data" for index in (0, 1)]
"""What it prints, sorted."""


def manifest(image: str) -> str:
    """Two parameter servers, which never end, and two workers, of which both must succeed.

    The template of both is one, by an alias of YAML.
    """
    container: dict[str, Any] = {
        "name": "tensorflow", "image": image, "imagePullPolicy": "Never",
        "command": ["python3", "-c", _PROGRAM], "args": ["--steps=$(STEPS)", "$$(HOME)"],
        "env": [{"name": "STEPS", "value": "3"}, {"name": "DATA", "value": "/data"}],
        "ports": [{"containerPort": 2222}],
    }  # fmt: skip
    role = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return yaml.safe_dump(
        {
            "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "dist"},
            "spec": {
                "successPolicy": "AllWorkers",
                "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 2},
                "tfReplicaSpecs": {each: {"replicas": 2, **role} for each in ("PS", "Worker")},
            },
        }
    )  # fmt: skip

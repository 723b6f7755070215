"""Tasks that listen on ports that they were not given, with real processes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from harness.command import Distrun, recorded_events

SERVER = """
import json, os, socket, sys, time
{preamble}
config = json.loads(os.environ["TF_CONFIG"])
address = config["cluster"]["worker"][config["task"]["index"]]
name = os.environ["DISTRUN_TASK"]

def listen(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", port))
    server.listen()
    return server

def wait_for(task, what):
    while not os.path.exists(f"{{task}} {{what}}"):
        time.sleep(0.02)

def serve():
    server = listen(int(address.rpartition(":")[2]))
    if "silent" not in sys.argv:
        print("Started server with target: grpc://" + address, flush=True)
    return server

print("begun", flush=True)
{body}
time.sleep(600)
"""
SWAPPED = """
own = json.loads(os.environ["TF_CONFIG"])
own["task"]["index"] = 1 - own["task"]["index"]
os.environ["TF_CONFIG"] = json.dumps(own)
"""
SAME_INDEX = SWAPPED.replace("1 - own", "0 * own")
FIXED = """
own = {{"cluster": {{"worker": ["localhost:{port}", "localhost:1"]}}, "task": {{"index": 0}}}}

os.environ["TF_CONFIG"] = json.dumps(own)
"""
SETTER = 6
"""The line of the program that sets TF_CONFIG."""


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def launch(distrun: Distrun) -> Callable[..., Any]:
    """Launch workers with a server each; `preamble` comes before they read TF_CONFIG."""

    def run(preamble: str, body: str, *args: str, workers: int = 2, **keys: Any) -> Any:
        (distrun.cwd / "train.py").write_text(SERVER.format(preamble=preamble, body=body))
        program = {"script": "train.py", "args": args, **keys}
        return distrun.launch("", workers, program=program, restart={"max": 3})

    return run


@pytest.mark.parametrize("preamble", [SWAPPED, SAME_INDEX, FIXED])
@pytest.mark.parametrize("log", ["talks", "silent"])
def test_a_server_at_anothers_port_fails_the_job_and_is_explained(
    distrun: Distrun, launch: Any, preamble: str, log: str, free_port: int
) -> None:
    done = launch(preamble.format(port=free_port), "server = serve()", log)
    assert done.returncode == 75, done.stderr
    job = distrun.status()
    verdict = job["verdict"]
    assert verdict["kind"] == "cluster_mismatch"
    blamed = next(each for each in job["tasks"] if each["task"] == verdict["task"])
    (other,) = {"worker:0", "worker:1"} - {blamed["task"]}
    cause = verdict["cause"]
    assert f"{blamed['task']} served at " in cause
    assert f"instead of {blamed['address']}, with a port that {other} has: " in cause
    assert f"the program sets TF_CONFIG, at train.py:{SETTER}" in cause
    assert "leave TF_CONFIG to distrun" in verdict["advice"]
    said = "listens on port" if log == "silent" else "Started server"
    assert said in verdict["evidence"][0]["text"]
    assert not [each for each in recorded_events(distrun) if each["event"] == "RestartPlanned"]


AFTER_THE_OTHERS = """
if name == "worker:2":
    wait_for("worker:0", "listens")
    wait_for("worker:1", "listens")
    address = config["cluster"]["worker"][0]
    server = serve()
else:
    others = [listen({port})]
    {before}
    open(f"{{name}} listens", "w").close()
"""


@pytest.mark.parametrize("before", ["pass", "others.append(serve())"])
def test_other_listeners_of_a_task_are_its_own_affair(
    distrun: Distrun, launch: Any, before: str, free_port: int
) -> None:
    """Two tasks share a port that is not the job's. When it fails for the third, they were seen."""
    body = AFTER_THE_OTHERS.format(port=free_port, before=before)
    preamble = """
if "TF_CONFIG" not in os.environ:
    os.environ["TF_CONFIG"] = ""
"""
    done = launch(preamble, body, workers=3)
    assert done.returncode == 75, done.stderr
    assert distrun.status()["verdict"]["task"] == "worker:2"


def test_with_a_tf_config_of_its_own_a_program_may_choose_its_ports(
    distrun: Distrun, launch: Any, free_port: int
) -> None:
    """Not one port for two tasks, though: the third serves where the second does."""
    own = f"""
port = {free_port} + min(1, int(os.environ["DISTRUN_TASK"][-1]))
own = {{"cluster": {{"worker": [f"localhost:{{port}}"]}}, "task": {{"index": 0}}}}
os.environ["TF_CONFIG"] = json.dumps(own)
"""
    done = launch(own, "server = serve()", workers=3, tf_config="mine")
    assert done.returncode == 75, done.stderr
    verdict = distrun.status()["verdict"]
    assert {verdict["task"]} < {"worker:1", "worker:2"}
    assert "worker:0" not in verdict["cause"]

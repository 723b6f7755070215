"""Tasks that listen on ports that they were not given, with real processes."""

from __future__ import annotations

import socket

import pytest

from harness.command import Distrun, recorded_events

SERVER = """
import json, os, socket, sys, time
{preamble}
config = json.loads(os.environ["TF_CONFIG"])
address = config["cluster"]["worker"][config["task"]["index"]]

server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(("", int(address.rpartition(":")[2])))
server.listen()
if "silent" not in sys.argv:
    print("Started server with target: grpc://" + address, flush=True)
time.sleep(600)
"""
SAME_INDEX = """
own = json.loads(os.environ["TF_CONFIG"])
own["task"]["index"] = 0
os.environ["TF_CONFIG"] = json.dumps(own)
"""
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


@pytest.mark.parametrize(("preamble", "log"), [(FIXED, "talks"), (SAME_INDEX, "silent")])
def test_a_server_at_anothers_port_fails_the_job_and_is_explained(
    distrun: Distrun, preamble: str, log: str, free_port: int
) -> None:
    script = SERVER.format(preamble=preamble.format(port=free_port))
    (distrun.cwd / "train.py").write_text(script)
    program = {"script": "train.py", "args": [log]}
    done = distrun.launch("", program=program, restart={"max": 3})
    assert done.returncode == 75, done.stderr
    job = distrun.status()
    verdict = job["verdict"]
    assert verdict["kind"] == "cluster_mismatch"
    blamed = next(each for each in job["tasks"] if each["task"] == verdict["task"])
    (other,) = {"worker:0", "worker:1"} - {blamed["task"]}
    cause = verdict["cause"]
    assert f"instead of {blamed['address']}, with a port that {other} has: " in cause
    assert f"the program sets TF_CONFIG, at train.py:{SETTER}" in cause
    said = "listens on port" if log == "silent" else "Started server"
    assert said in verdict["evidence"][0]["text"]
    assert not [each for each in recorded_events(distrun) if each["event"] == "RestartPlanned"]

"""Tasks that listen on ports that they were not given, with real processes."""

from __future__ import annotations

from harness.command import Distrun, recorded_events

SERVER = """
import json, os, socket, time

own = json.loads(os.environ["TF_CONFIG"])
own["task"]["index"] = 0
os.environ["TF_CONFIG"] = json.dumps(own)
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(("", int(own["cluster"]["worker"][0].rpartition(":")[2])))
server.listen()
time.sleep(600)
"""


def test_a_server_at_anothers_port_fails_the_job_and_is_explained(distrun: Distrun) -> None:
    """A server that says so is among the cases of tests/corpus."""
    (distrun.cwd / "train.py").write_text(SERVER)
    done = distrun.launch("", program={"script": "train.py"}, restart={"max": 3})
    assert done.returncode == 75, done.stderr
    job = distrun.status()
    verdict = job["verdict"]
    assert (verdict["kind"], verdict["task"]) == ("cluster_mismatch", "worker:1")
    blamed = next(each for each in job["tasks"] if each["task"] == "worker:1")
    cause = verdict["cause"]
    assert f"instead of {blamed['address']}, with a port that worker:0 has: " in cause
    assert "the program sets TF_CONFIG, at train.py:6" in cause
    assert "listens on port" in verdict["evidence"][0]["text"]
    assert not [each for each in recorded_events(distrun) if each["event"] == "RestartPlanned"]

"""What strategies and clusters mean to a launch: success, ranks, ports, who listens where."""

import pytest

from harness import tfjobs
from harness.command import Distrun, recorded_events
from harness.tables import read_program

# The workers exit 0 as soon as they have "trained"; those that decide wait for them, and save.
TRAINS = """
case $DISTRUN_TASK in
    ps:*) exec sleep 600 ;;
    {decides}) while ! test -e worker:1.done; do sleep 0.02; done; sleep 0.3; touch saved ;;
    *) touch $DISTRUN_TASK.done ;;
esac
"""


@pytest.mark.parametrize("decides", ["chief:0", "worker:0"])
def test_independent_workers_that_exit_0_have_finished(distrun: Distrun, decides: str) -> None:
    spec = distrun.write_spec(
        TRAINS.format(decides=decides),
        strategy="parameter_server",
        cluster={"worker": 2, "ps": 1, **({"chief": 1} if decides == "chief:0" else {})},
        restart={"max": 3, "backoff": "10ms"},
    )
    distrun.checked("launch", spec, "--set", "workers=independent")
    assert (distrun.cwd / "saved").exists(), "stopped before it had saved"
    found = {each["task"]: (each["state"], each["attempt"]) for each in distrun.status()["tasks"]}
    assert found.pop("ps:0") == ("stopped", 0)
    assert set(found.values()) == {("succeeded", 0)}


def test_a_tfjob_runs_on_this_machine_and_its_servers_end_with_it(distrun: Distrun) -> None:
    (distrun.cwd / "tfjob.yaml").write_text(tfjobs.manifest("i:1"))
    distrun.checked("import", "tfjob.yaml", "-o", "job.yaml")
    done = distrun.checked("launch", "job.yaml", "--set", "hosts=[localhost]")
    assert sorted(done.stdout.splitlines()) == tfjobs.OUTPUT


RENDEZVOUS = read_program("rendezvous.py")
TORCHRUN = """
env = os.environ
assert int(env["LOCAL_RANK"]) < int(env["LOCAL_WORLD_SIZE"])
meet(env["MASTER_ADDR"], int(env["MASTER_PORT"]), int(env["RANK"]), int(env["WORLD_SIZE"]))
"""
OWN_ADDRESS = """
addresses = json.loads(os.environ["DISTRUN_ADDRESSES"])
host, _, port = addresses["chief"][0].rpartition(":")
rank = int(os.environ["DISTRUN_RANK"])
assert rank > 0 or os.environ["DISTRUN_ADDRESS"] == f"{host}:{port}"
meet(host, int(port), rank, int(os.environ["DISTRUN_WORLD_SIZE"]))
"""
CLUSTER = {"chief": 1, "worker": 2}


def test_a_program_meets_at_the_master_port_and_again_after_a_restart(distrun: Distrun) -> None:
    fail = "if env['DISTRUN_ATTEMPT'] != '1': sys.exit(3)\n"
    # After a restart, connections of the first attempt keep the port for a minute.
    option = "server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)"
    meeting = RENDEZVOUS.replace("server.bind", f"{option}\n        server.bind")
    (distrun.cwd / "train.py").write_text(meeting + TORCHRUN + fail)
    program = {"script": "train.py", "env_style": "torchrun"}
    restart = {"max": 1, "backoff": "10ms"}
    done = distrun.launch("", cluster=CLUSTER, program=program, restart=restart)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("chief:0  | met ['1', '2']\n") == 2


def test_a_program_binds_the_port_of_its_address_if_the_spec_says_so(distrun: Distrun) -> None:
    (distrun.cwd / "train.py").write_text(RENDEZVOUS + OWN_ADDRESS)
    program = {"script": "train.py"}
    spec = distrun.write_spec("", cluster=CLUSTER, program=program)
    done = distrun.checked("launch", spec, "--set", "program.binds_port=true")
    assert done.stdout == "chief:0  | met ['1', '2']\n"
    assert "warning" not in done.stderr
    asked = distrun("validate", spec)
    assert "train.py:28:31: warning: the program uses DISTRUN_ADDRESS, and" in asked.stderr
    assert "program.binds_port: true" in asked.stderr


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

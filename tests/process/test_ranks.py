"""Programs that need ranks: their variables, their placeholders, and ports that they can bind."""

from __future__ import annotations

import json
import re

import pytest

from harness.command import Distrun

RENDEZVOUS = """
import json, os, socket, sys, time

def meet(host, port, rank, size):
    if rank == 0:
        server = socket.socket()  # no option that would let it share a port
        server.bind(("", port))
        server.listen()
        others = [server.accept()[0] for _ in range(size - 1)]
        print("met", sorted(other.recv(9).decode() for other in others))
        for other in others:
            other.sendall(b"done")
        return
    deadline = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection((host, port))
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    peer.sendall(str(rank).encode())
    assert peer.recv(9) == b"done"
"""
TORCHRUN = """
env = os.environ
assert int(env["LOCAL_RANK"]) < int(env["LOCAL_WORLD_SIZE"])
meet(env["MASTER_ADDR"], int(env["MASTER_PORT"]), int(env["RANK"]), int(env["WORLD_SIZE"]))
"""
ARGUMENTS = """
_, rank, size, host, address, *_ = sys.argv
meet(host, int(address.rpartition(":")[2]), int(rank), int(size))
"""
OWN_ADDRESS = """
addresses = json.loads(os.environ["DISTRUN_ADDRESSES"])
host, _, port = addresses["chief"][0].rpartition(":")
rank = int(os.environ["DISTRUN_RANK"])
assert rank > 0 or os.environ["DISTRUN_ADDRESS"] == f"{host}:{port}"
meet(host, int(port), rank, int(os.environ["DISTRUN_WORLD_SIZE"]))
"""
CLUSTER = {"chief": 1, "worker": 2}


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_program_meets_at_the_master_port(distrun: Distrun, attempts: int) -> None:
    fail = f"if env['DISTRUN_ATTEMPT'] != '{attempts - 1}': sys.exit(3)\n"
    # After a restart, connections of the first attempt keep the port for a minute.
    option = "server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)"
    meeting = RENDEZVOUS
    if attempts > 1:
        meeting = meeting.replace("server.bind", f"{option}\n        server.bind")
    (distrun.cwd / "train.py").write_text(meeting + TORCHRUN + fail)
    spec = distrun.write_spec(
        "",
        cluster=CLUSTER,
        program={"script": "train.py", "env_style": "torchrun"},
        restart={"max": 1, "backoff": "10ms"},
    )
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("chief:0  | met ['1', '2']\n") == attempts


def test_a_program_meets_at_a_port_in_its_arguments(distrun: Distrun) -> None:
    (distrun.cwd / "train.py").write_text(RENDEZVOUS + ARGUMENTS)
    args = ["{rank}", 3, "{host}", "{address:chief:0}", "--mine", "{port}"]
    spec = distrun.write_spec("", cluster=CLUSTER, program={"script": "train.py", "args": args})
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "chief:0  | met ['1', '2']\n"


def test_every_task_has_ranks(distrun: Distrun) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "ADDRESS", "ADDRESSES")
    show = "; ".join(f"echo $DISTRUN_TASK {name} ${{DISTRUN_{name}-none}}" for name in names)
    proxy = {"command": ["sh", "-c", f"{show}; touch up-$DISTRUN_TASK; exec sleep 600"]}
    spec = distrun.write_spec(
        f"{show}; touch up-$DISTRUN_TASK; [ $DISTRUN_TASK = chief:0 ] || exec sleep 600; "
        "while [ $(ls up-* | wc -l) -lt 7 ]; do sleep 0.02; done",
        strategy="parameter_server",
        cluster={**CLUSTER, "ps": 2, "evaluator": 1, "proxy": proxy},
        timeouts={"grace": "100ms"},
    )
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"\| (\w+:\d) (\w+) (.*)", done.stdout)
    shown = {(task, name): value for task, name, value in lines}
    ranks = {task: (shown[task, "RANK"], shown[task, "WORLD_SIZE"]) for task, _ in shown}
    assert ranks == {
        "chief:0": ("0", "3"),
        "worker:0": ("1", "3"),
        "worker:1": ("2", "3"),
        "ps:0": ("0", "2"),
        "ps:1": ("1", "2"),
        "evaluator:0": ("0", "1"),
        "proxy:0": ("0", "1"),
    }
    assert all(shown[task, "LOCAL_RANK"] == rank for task, (rank, _) in ranks.items())
    (text,) = {value for (_, name), value in shown.items() if name == "ADDRESSES"}
    addresses = json.loads(text)
    assert list(addresses) == ["chief", "worker", "ps", "proxy"]
    assert shown["worker:1", "ADDRESS"] == addresses["worker"][1]
    assert shown["evaluator:0", "ADDRESS"] == "none"


def test_placeholders_are_replaced_and_other_braces_stay(distrun: Distrun) -> None:
    args = ['{"a": {"rank": {rank}}}', "{name}", "{{rank}}", "{role}-{index}", "{ rank }", "{}"]
    spec = distrun.write_spec(
        "",
        cluster=CLUSTER,
        program={
            "command": ["sh", "-c", 'printf "%s\\n" "$@" "$WHO"', "sh", "at {rank}"],
            "args": args,
            "env": {"WHO": "{role} {index} of {host}"},
        },
    )
    done = distrun("launch", spec, "--", "last {rank}")
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("worker:1 | ") for line in done.stdout.splitlines()]
    expected = [
        *("at 2", '{"a": {"rank": 2}}', "{name}", "{rank}", "worker-1", "{ rank }", "{}"),
        *("last 2", "worker 1 of localhost"),
    ]
    assert [line for line in lines if line in expected] == expected


def test_a_program_binds_the_port_of_its_address_if_the_spec_says_so(distrun: Distrun) -> None:
    (distrun.cwd / "train.py").write_text(RENDEZVOUS + OWN_ADDRESS)
    program = {"script": "train.py"}
    spec = distrun.write_spec("", cluster={**CLUSTER, "evaluator": 0}, program=program)
    done = distrun("launch", spec, "--set", "program.binds_port=true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "chief:0  | met ['1', '2']\n"
    assert "warning" not in done.stderr

    done = distrun("launch", spec)
    assert done.returncode == 1
    assert (
        "train.py:29:31: warning: the program uses DISTRUN_ADDRESS, and distrun keeps"
        in done.stderr
    )
    assert "or write `program.binds_port: true`" in done.stderr
    asked = distrun("validate", spec, "--set", "program.binds_port=false")
    assert "warning" not in asked.stderr

    # A comment decides nothing, and a command is no Python.
    (distrun.cwd / "train.py").write_text("# DISTRUN_ADDRESS\nprint('DISTRUN_ADDRESSES')\n")
    assert "warning" not in distrun("validate", spec).stderr
    command = ["sh", "-c", "nc -l $DISTRUN_ADDRESS"]
    spec = distrun.write_spec("", cluster=CLUSTER, program={"command": command})
    warned = distrun("validate", spec).stderr
    assert warned.startswith("program.command: warning: the program uses DISTRUN_ADDRESS")
    assert "binds_port: true" in warned


def test_every_task_has_a_port_that_it_binds(distrun: Distrun) -> None:
    shown = "echo ${DISTRUN_ADDRESS-none}"
    program = {"command": ["sh", "-c", shown], "binds_port": True}
    for keys in (
        {"strategy": "mirrored", "cluster": {"worker": 1}},
        {"cluster": {"worker": 1, "evaluator": 1}},
    ):
        done = distrun("launch", distrun.write_spec("", program=program, **keys))
        assert done.returncode == 0, done.stderr
        assert re.search(r"localhost:\d+", done.stdout)
        assert "none" not in done.stdout

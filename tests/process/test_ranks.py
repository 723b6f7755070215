"""Programs that need ranks: their variables, and ports that they can bind."""

from __future__ import annotations

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
    done = distrun("launch", spec, "--set", "program.binds_port=true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "chief:0  | met ['1', '2']\n"
    assert "warning" not in done.stderr
    asked = distrun("validate", spec)
    assert "train.py:29:31: warning: the program uses DISTRUN_ADDRESS, and" in asked.stderr
    assert "program.binds_port: true" in asked.stderr

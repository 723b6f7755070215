"""What another host shows of a failure there: a limit, who has a port, and who listens where."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.command import Distrun
from harness.network import Hosts, RemoteSpec
from harness.waiting import wait_until

SERVER = """\
import json, os, socket, sys, time
address = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][1]
where, port = sys.argv[1], int(sys.argv[2]) or int(address.rpartition(":")[2])
if os.environ["DISTRUN_TASK"] == "worker:1":
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, not int(sys.argv[2]))
    server.bind((where, port))
    server.listen()
    print("it listens", flush=True)
    time.sleep(300)
time.sleep(300 if int(sys.argv[2]) else 3)
socket.create_connection((address.rpartition(":")[0], port), 10)
sys.exit("reached")
"""
FILES = "import os; kept = [open(os.devnull) for _ in range(99)]"


def test_the_host_of_the_task_shows_it(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    on = hosts(2)
    (tmp_path / "server.py").write_text(SERVER)
    run = f"exec {sys.executable} {tmp_path / 'server.py'}"

    def told(script: str) -> str:
        done = distrun("launch", remote_spec(script, on))
        assert done.returncode
        return str(done.stderr)

    said = told(f"{run} 127.0.1.1 0")
    assert "worker:1 listens at 127.0.1.1:" in said
    assert " only, and the others look for it at " in said
    assert "reached" not in said

    said = told(f'ulimit -n 60; exec {sys.executable} -c "{FILES}"')
    assert "Too many open files: '/dev/null'; `ulimit -n` is 60 (limit)" in said

    done = distrun("launch", "-d", remote_spec(f"{run} 0.0.0.0 7007", on, name="first"))
    job = done.stdout.strip()
    try:
        wait_until(lambda: "it listens" in distrun("logs", job).stdout)
        said = told(f"{run} 0.0.0.0 7007")
    finally:
        assert distrun("kill", job).returncode == 0
    assert "port 7007 is taken: python" in said
    assert f" of worker:1 of the job {job} has it (port_taken)" in said

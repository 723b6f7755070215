"""Roles with programs of their own on other hosts."""

from __future__ import annotations

import json
from pathlib import Path

from harness.command import Distrun
from harness.network import Hosts, ProcessesOf, RemoteSpec
from harness.waiting import wait_until

DISPATCHER = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    while True:
        server.accept()[0].sendall(b"a batch")
"""
RELAY = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
print("got", socket.create_connection((host, int(port))).recv(99).decode(), flush=True)
import time; time.sleep(600)
"""
TRAINER = """
import json, os, socket
for address in json.loads(os.environ["DISTRUN_ADDRESSES"])["dispatcher"]:
    host, _, port = address.rpartition(":")
    print(socket.create_connection((host, int(port))).recv(99).decode())
"""


def test_roles_on_two_hosts_start_in_order_and_find_each_other(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    h1, h2 = hosts(2)
    for name, text in (("trainer", TRAINER), ("servers/dispatcher", DISPATCHER), ("relay", RELAY)):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    spec = remote_spec(
        "",
        [h1, h2],
        cluster={
            "worker": {"count": 2, "after": ["relay"]},
            "dispatcher": {"count": 2, "script": "servers/dispatcher.py", "args": ["{port}"]},
            "relay": {
                "count": 2,
                "script": "relay.py",
                "args": ["{address:dispatcher:1}"],
                "after": ["dispatcher"],
                "ready": {"line": "^got a"},
            },
        },
        program={"script": "trainer.py", "python": "python3"},
    )
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("got a batch\n") == 2
    assert done.stdout.count("| a batch\n") == 4
    plan = json.loads(distrun("plan", spec, "--json").stdout)["plan"]
    assert {task["host"] for task in plan["tasks"] if task["role"] == "dispatcher"} == {"h1", "h2"}
    wait_until(lambda: not any(map(processes_of, (h1, h2))))

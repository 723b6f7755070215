"""`distrun stacks` and `profile` of tasks on other hosts."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from pathlib import Path

from distrun.job import py_spy
from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.values import not_none
from harness.waiting import wait_until

SUMS = """\
import json, os, socket, time
cluster, rank = json.loads(os.environ["TF_CONFIG"])["cluster"], int(os.environ["DISTRUN_RANK"])
hub, block, links = cluster["worker"][0].rpartition(":"), bytes(20_000), []
if rank == 0:
    server = socket.create_server((hub[0], int(hub[2])), reuse_port=True)
    links = [server.accept()[0] for _ in cluster["worker"][1:]]
while not links:
    try:
        links = [socket.create_connection((hub[0], int(hub[2])))]
    except ConnectionRefusedError:
        time.sleep(0.05)
print("sums", flush=True)
while True:
    for link in links:
        link.sendall(block)
    for link in links:
        left = len(block)
        while left:
            left -= len(link.recv(left))
    time.sleep(0.01)
"""


def test_a_slow_link_and_where_tasks_stand_are_told_with_what_tasks_send_each_other(
    ssh: Ssh, distrun: Distrun
) -> None:
    these = ssh.hosts(3)
    (distrun.cwd / "sums.py").write_text(SUMS)
    script = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(distrun.cwd / 'sums.py'))}"
    distrun.checked("launch", "-d", ssh.spec(script, these))
    wait_until(lambda: distrun.asked("logs").count("sums") == 3, timeout=60)
    for _ in range(2):  # at first, the hosts have to be sent py-spy
        assert "sums.py:" in distrun.checked("stacks").stdout
    digest = hashlib.sha256(Path(not_none(py_spy.find())).read_bytes()).hexdigest()
    for host in these:
        assert len(list(host.home.rglob(digest))) == 1
    found = json.loads(distrun("profile", "--seconds", "1", "--json").stdout)
    pairs = {(each["task"], each["peer"]) for each in found["traffic"]}
    assert pairs == {(f"worker:{a}", f"worker:{b}") for a, b in [(0, 1), (1, 0), (0, 2), (2, 0)]}
    assert min(each["sent_bytes"] for each in found["traffic"]) > 100_000
    assert found["slow_link"] is None
    these[2].slow_down("1mbit")
    said = wait_until(  # until the kernel has measured it
        lambda: re.search("the link of (.*) is slow", distrun("profile", "--seconds", "1").stdout),
        timeout=60,
    )
    assert not_none(said)[1] == "worker:2"
    distrun.checked("kill")

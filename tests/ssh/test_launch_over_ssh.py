"""Jobs on other hosts: that they run there, and leave nothing there."""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.parts.hosts import bootstrap
from harness.parts.job import py_spy
from harness.values import not_none
from harness.waiting import wait_until

SHOWS = """\
in_use=$(python3 -c "import json, os, socket; c = json.loads(os.environ['TF_CONFIG'])
p = int(c['cluster']['worker'][c['task']['index']].rpartition(':')[2])
socket.socket().bind(('', p))" 2>&1 | grep -c 'in use')
echo "I am $DISTRUN_TASK on $(hostname), $in_use in use"
echo "$LANG,$http_proxy,${ONLY_HERE-unset},${DISTRUN_X-unset},$(pwd)"
echo "${GLIBC_TUNABLES:+kept} $MALLOC_ARENA_MAX"
echo "no_proxy,$no_proxy"
echo "$no_grpc_proxy"
echo "$TF_CONFIG"
"""
"""What a host's agent holds for a task cannot be bound without SO_REUSEPORT."""


def test_tasks_have_the_environment_of_the_login_and_leave_nothing_but_the_agent(
    monkeypatch: pytest.MonkeyPatch, ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    names = "http_proxy=http://p:1 no_proxy=inner DISTRUN_X=1 MALLOC_ARENA_MAX=1"
    h1.change(sshd=f"SetEnv LANG=de_DE.UTF-8 {names}\n")
    monkeypatch.setenv("ONLY_HERE", "x")
    on = ["localhost", {"name": "h1", "workdir": "/", "env": {"LANG": "C"}}, "h2"]
    done = distrun.checked("launch", ssh.spec(SHOWS, [h1, h2], hosts=on, cluster={"worker": 3}))
    lines = done.stdout.splitlines()
    who, environment, malloc, no_proxy, no_grpc_proxy, config = (
        line.partition(" | ")[2] for line in lines if line.startswith("worker:1")
    )
    assert who == "I am worker:1 on h1, 1 in use"
    assert "worker:2 | I am worker:2 on h2, 1 in use" in lines
    assert environment == "C,http://p:1,unset,unset,/"
    assert malloc == " 1"  # settings for malloc of one's own
    assert "worker:2 | kept " in lines
    # Addresses that all of them can dial.
    workers = json.loads(config)["cluster"]["worker"]
    machines = [address.rpartition(":")[0] for address in workers]
    assert machines == [ssh.network.gateway, h1.address, h2.address]
    assert {*machines, "inner", "h1", "h2"} <= {*no_proxy.split(",")} & {*no_grpc_proxy.split(",")}
    wait_until(lambda: not any(map(ssh.processes, (h1, h2))))
    for host in (h1, h2):
        left = [path for path in host.home.rglob("*") if not path.is_dir()]
        assert [path.name for path in left] == [bootstrap.digest()]


def test_hosts_of_a_hostfile_with_slots_users_and_a_jump(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    config = distrun.cwd / "config"
    config.write_text(f"Host h2\n  ProxyJump h1\n{ssh.network.ssh_config.read_text()}")
    distrun.cwd.joinpath("hosts.txt").write_text("# ours\nroot@h1 slots=1\n\nh2 slots=2  # twice\n")
    spec = ssh.spec("echo $(hostname) $TF_CONFIG", [h1, h2], cluster={"worker": 3},
                    ssh={"config_file": str(config)}, placement="pack")  # fmt: skip
    document = spec.read_text().replace("hosts:\n- h1\n- h2\n", "hostfile: hosts.txt\n")
    spec.write_text(document)
    # The client that jumps has to find the same configuration.
    lines = sorted(distrun.checked("launch", spec).stdout.splitlines())
    assert [line.split()[2] for line in lines] == ["h1", "h2", "h2"]
    workers = json.loads(lines[0].partition("h1 ")[2])["cluster"]["worker"]
    # Behind a jump it is still its own address.
    assert [each.rpartition(":")[0] for each in workers] == [h1.address, h2.address, h2.address]


def test_addresses_of_the_spec_are_used_as_they_are(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, h3 = ssh.hosts(3)
    # Known by what the spec says, by its name, and by what ssh's configuration says.
    workers = [f"{h1.address}:20001", "H2:20002", f"{h3.address}:20003"]
    spec = ssh.spec("echo $(hostname) $TF_CONFIG", [h1, h2], cluster={"worker": workers},
                       hosts=[{"name": "h1", "address": h1.address}, "h2", "h3"])  # fmt: skip
    # The hosts do not know each other's names.
    lines = sorted(distrun.checked("launch", "--no-preflight", spec).stdout.splitlines())
    assert [line.split()[2] for line in lines] == ["h1", "h2", "h3"]
    assert json.loads(lines[0].partition("h1 ")[2])["cluster"] == {"worker": workers}
    assert "preflight was skipped" in distrun.asked("events")


# A python3 that keeps what a login is sent before its agent runs.
COPYING = """\
#!/bin/sh
[ "$3" = -c ] || exec {python} "$@"
exec {python} "$1" "$2" "$3" "import os
read = os.read
def copied(descriptor, size):
    block = read(descriptor, size)
    if descriptor == 0:
        with open('{file}', 'ab') as file:
            file.write(block)
    return block
os.read = copied
$4"
"""


def test_only_a_missing_or_changed_copy_is_sent_again(ssh: Ssh, distrun: Distrun) -> None:
    (host,) = ssh.hosts(1)
    spec, sent = ssh.spec("echo here", [host]), host.folder / "sent"
    host.provide("python3", COPYING.format(python=sys.executable, file=sent))

    def launch() -> int:
        """Return how many bytes the host was sent before an agent ran."""
        done = distrun("launch", spec)
        assert (done.returncode, done.stdout) == (0, "worker:0 | here\n"), done.stderr
        size = sent.stat().st_size
        sent.unlink()
        return size

    copies = host.home / ".local" / "state" / "distrun" / "files"
    copies.parent.mkdir(parents=True)
    copies.symlink_to("/proc/none")  # it cannot be kept
    assert launch() > 50_000
    copies.unlink()
    assert launch() > 50_000
    (copy,) = (path for path in copies.rglob("*") if path.is_file())
    assert copy.stat().st_mode & 0o777 == 0o600
    assert launch() < 2_000
    text = copy.read_bytes()
    copy.write_bytes(text[:-9] + b"x" + text[-8:])
    assert launch() > 50_000
    assert copy.read_bytes() == text
    copy.unlink()
    os.mkfifo(copy)
    assert launch() > 50_000
    assert copy.read_bytes() == text


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


def test_a_slow_link_and_stacks_are_told_with_traffic(ssh: Ssh, distrun: Distrun) -> None:
    these = ssh.hosts(3)
    (distrun.cwd / "sums.py").write_text(SUMS)
    program = {"script": "sums.py", "python": sys.executable}
    distrun.checked("launch", "-d", ssh.spec("", these, program=program))
    wait_until(lambda: distrun.asked("logs").count("sums") == 3, timeout=60)

    def is_joined() -> bool:
        """Whether two tasks are at the same place now, each in its own host's copy of the file."""
        found = json.loads(distrun.checked("stacks", "--json").stdout)["entries"]
        return any(len(entry["tasks"]) > 1 for entry in found)

    assert "> <module>  sums.py:" in distrun.checked("stacks").stdout
    wait_until(is_joined, timeout=60)
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
    found = json.loads(distrun("profile", "--seconds", "1", "--json").stdout)
    rates = {(each["task"], each["peer"]): each["delivery_bytes"] for each in found["traffic"]}
    assert 0 < rates["worker:2", "worker:0"] < rates["worker:0", "worker:1"]
    distrun.checked("kill")

"""Jobs on other hosts: that they run there, and leave nothing there."""

from __future__ import annotations

import json

import pytest

from distrun.supervisor.hosts import bootstrap
from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.waiting import wait_until

BINDS_ITS_PORT = """\
python3 -c "import json, os, socket; c = json.loads(os.environ['TF_CONFIG'])
p = int(c['cluster']['worker'][c['task']['index']].rpartition(':')[2])
socket.socket().bind(('', p))" 2>&1 | grep -c 'in use'"""
"""What a host's agent holds for a task: it cannot be bound without SO_REUSEPORT."""


def test_a_job_runs_on_two_hosts_and_leaves_nothing_there_but_the_agent(
    ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    script = f"echo I am $DISTRUN_TASK on $(hostname), $({BINDS_ITS_PORT}) in use"
    done = distrun.checked("launch", ssh.spec(script, [h1, h2]))
    assert sorted(done.stdout.splitlines()) == [
        "worker:0 | I am worker:0 on h1, 1 in use",
        "worker:1 | I am worker:1 on h2, 1 in use",
    ]
    again = distrun("logs")
    assert sorted(again.stdout.splitlines()) == sorted(done.stdout.splitlines())
    wait_until(lambda: not any(map(ssh.processes, (h1, h2))))
    for host in (h1, h2):
        left = [path for path in host.home.rglob("*") if not path.is_dir()]
        assert [path.name for path in left] == [bootstrap.digest()]


def test_each_task_gets_addresses_that_the_others_can_dial(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    spec = ssh.spec(
        'printf "%s\\n" "$TF_CONFIG" "$no_proxy"',
        [h1, h2],
        hosts=["localhost", "h1", "h2"],
        cluster={"worker": 3},
    )
    done = distrun.checked("launch", spec)
    config, no_proxy = (line for line in done.stdout.splitlines() if line.startswith("worker:0"))
    cluster = json.loads(config.partition("| ")[2])["cluster"]["worker"]
    machines = [address.rpartition(":")[0] for address in cluster]
    assert machines == [h1._network.gateway, h1.address, h2.address]
    assert {*machines, "h1", "h2"} <= set(no_proxy.partition("| ")[2].split(","))


def test_the_environment_is_that_of_the_remote_login(
    monkeypatch: pytest.MonkeyPatch, ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    names = "http_proxy=http://p:1 no_proxy=inner DISTRUN_X=1 MALLOC_ARENA_MAX=1"
    h1.change(sshd=f"SetEnv LANG=de_DE.UTF-8 {names}\n")
    monkeypatch.setenv("ONLY_HERE", "x")
    script = (
        'echo "$LANG,$http_proxy,$no_proxy,${ONLY_HERE-unset},${DISTRUN_X-unset},$(pwd)"; '
        'echo "${GLIBC_TUNABLES:+kept} $MALLOC_ARENA_MAX"'
    )
    on = [{"name": "h1", "workdir": "/", "env": {"LANG": "C"}}, "h2"]
    done = distrun.checked("launch", ssh.spec(script, [h1, h2], hosts=on))
    lines = done.stdout.splitlines()
    known = f"inner,{h1.address},{h2.address},h1,h2"
    assert [each for each in lines if "worker:0" in each] == [
        f"worker:0 | C,http://p:1,{known},unset,unset,/",
        "worker:0 |  1",  # settings for malloc of one's own
    ]
    assert "worker:1 | kept " in lines


def test_sixteen_hosts_at_once(ssh: Ssh, distrun: Distrun) -> None:
    sixteen = ssh.hosts(16)
    spec = ssh.spec("hostname", sixteen, hosts=["h[1-16]"], timeouts={"link": "30s"})
    done = distrun.checked("launch", spec)
    shown = {line.partition(" | ")[2] for line in done.stdout.splitlines()}
    assert shown == {host.name for host in sixteen}
    wait_until(lambda: not any(map(ssh.processes, sixteen)))


def test_hosts_of_a_hostfile_with_slots_users_and_a_jump(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    config = distrun.cwd / "config"
    config.write_text(f"Host h2\n  ProxyJump h1\n{ssh.network.ssh_config.read_text()}")
    distrun.cwd.joinpath("hosts.txt").write_text("# ours\nroot@h1 slots=1\n\nh2 slots=2  # twice\n")
    spec = ssh.spec("hostname; echo $TF_CONFIG", [h1, h2], cluster={"worker": 3},
                       ssh={"config_file": str(config)}, placement="pack")  # fmt: skip
    document = spec.read_text().replace("hosts:\n- h1\n- h2\n", "hostfile: hosts.txt\n")
    spec.write_text(document)
    # The client that jumps has to find the same configuration.
    done = distrun.checked("launch", spec)
    named = [line for line in done.stdout.splitlines() if "{" not in line]
    assert sorted(named) == ["worker:0 | h1", "worker:1 | h2", "worker:2 | h2"]
    config_line = next(line for line in done.stdout.splitlines() if "{" in line)
    cluster = json.loads(config_line.partition("| ")[2])["cluster"]["worker"]
    # Behind a jump it is still its own address.
    assert [each.rpartition(":")[0] for each in cluster] == [h1.address, h2.address, h2.address]


def test_addresses_of_the_spec_are_used_as_they_are(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, h3 = ssh.hosts(3)
    # Known by what the spec says, by its name, and by what ssh's configuration says.
    workers = [f"{h1.address}:20001", "H2:20002", f"{h3.address}:20003"]
    spec = ssh.spec("echo $(hostname) $TF_CONFIG", [h1, h2], cluster={"worker": workers},
                       hosts=[{"name": "h1", "address": h1.address}, "h2", "h3"])  # fmt: skip
    # The hosts do not know each other's names.
    done = distrun.checked("launch", "--no-preflight", spec)
    lines = sorted(done.stdout.splitlines())
    assert [line.split()[2] for line in lines] == ["h1", "h2", "h3"]
    cluster = json.loads(lines[0].partition("h1 ")[2])["cluster"]
    assert cluster == {"worker": workers}

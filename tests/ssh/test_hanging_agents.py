"""Agents that hang or are killed: what ends, although their links seem to live."""

from __future__ import annotations

import os

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.tracing import hanging
from harness.values import not_none
from harness.waiting import wait_until

# Short, for its end is waited for; but a host that was only slow for some seconds is none that
# is lost.
LEASE = "10s"


def test_a_guard_ends_the_tasks_of_an_agent_that_hangs_when_its_lease_expires(
    ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    spec = ssh.spec("setsid sleep 1000 & exec sleep 1000", [h1, h2], timeouts={"link": LEASE})
    job = distrun.checked("launch", "-d", spec)
    wait_until(lambda: len(ssh.processes(h2, "sleep")) == 2)
    task = ssh.processes(h2, "sleep")[0]
    agent = next(each for each in task.parents() if each.name().startswith("python"))
    with hanging(agent.pid):
        h2.cut()
        waited = distrun("wait", job.stdout.strip())
        assert waited.returncode == 69
        # The supervisor does not start a replacement before this.
        assert not ssh.processes(h2, "sleep")
    wait_until(lambda: not ssh.processes(h2))


def test_a_dead_agent_is_noticed_where_a_profile_leaves_a_process_that_holds_ssh(
    ssh: Ssh, distrun: Distrun
) -> None:
    (h1,) = ssh.hosts(1)
    h1.change(shell="/bin/bash")
    h1.home.joinpath(".bashrc").write_text("sleep 1000 &\n")
    fifo = distrun.cwd / "fifo"
    os.mkfifo(fifo)
    # Its silence is noticed well before the end of the lease, which would be told otherwise.
    spec = ssh.spec(f"exec cat {fifo}", [h1], timeouts={"link": "24s"})
    launch = distrun.start("launch", spec, stdout=-3, stderr=-1, text=True)
    (task,) = wait_until(lambda: ssh.processes(h1, "cat"))
    not_none(task.parent()).kill()
    _, said = launch.communicate(timeout=60)
    assert launch.returncode == 69
    assert "its agent is gone" in said
    assert not task.is_running()

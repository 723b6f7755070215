"""Whatever dies on either side, nothing is left on any host."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun
from harness.network import Hosts, ProcessesOf, RemoteSpec
from harness.processes import alive
from harness.values import not_none
from harness.waiting import wait_until

# Prints without end, and has a child that has left its session.
BUSY = "setsid sleep 1000 & while :; do echo 0123456789012345678901234567890123456789; done"
IDLE = "setsid sleep 1000 & sleep 1000"


@pytest.fixture
def running(
    distrun: Distrun, remote_spec: RemoteSpec, hosts: Hosts, processes_of: ProcessesOf
) -> Callable[..., Any]:
    """Launch a job on two hosts; the launch command, once tasks run on both."""

    def start(script: str, *args: str, **keys: Any) -> Any:
        two, count = hosts(2), script.count("sleep")
        keys = {"timeouts": {"link": "5m", "grace": "2s"}, **keys}
        process = distrun.start(
            "launch", *args, remote_spec(script, two, **keys), stdout=-3, stderr=-3
        )
        # Both of the script's: the task itself may not have come so far yet.
        wait_until(
            lambda: all(len(processes_of(host, "sleep")) == count for host in two), what="tasks"
        )
        return process

    return start


def supervisor_of(launch: Any) -> psutil.Process:
    return psutil.Process(launch.pid).children()[0]


@pytest.mark.parametrize(
    ("who", "script"),
    [("launch", BUSY), ("supervisor", IDLE), ("both", BUSY)],
    ids=["launch", "supervisor", "both"],
)
def test_a_death_of_the_launching_side_leaves_nothing_on_any_host(
    who: str, script: str, running: Any, hosts: Hosts, processes_of: ProcessesOf
) -> None:
    launch = running(script)
    supervisor = supervisor_of(launch)
    # Both at once: neither is there to clean up after the other.
    victims = {"launch": [launch.pid], "supervisor": [supervisor.pid]}
    for pid in victims.get(who, [launch.pid, supervisor.pid]):
        os.kill(pid, signal.SIGKILL)
    # Far sooner than the lease of 5 min.
    wait_until(lambda: not any(map(processes_of, hosts(2))), what="every host is clean")
    launch.wait(60)
    wait_until(lambda: not alive(supervisor))


def test_a_signal_to_launch_ends_the_tasks_on_all_hosts(
    running: Any, hosts: Hosts, processes_of: ProcessesOf
) -> None:
    launch = running(IDLE)
    launch.send_signal(signal.SIGHUP)
    assert launch.wait(60) == 128 + signal.SIGHUP
    for host in hosts(2):
        assert not processes_of(host, "sleep")
    wait_until(lambda: not any(map(processes_of, hosts(2))))


def test_kill_returns_when_nothing_is_left_on_any_host(
    running: Any, hosts: Hosts, processes_of: ProcessesOf, distrun: Distrun
) -> None:
    launch = running(IDLE)
    killed = distrun("kill")
    assert killed.returncode == 0, killed.stderr
    for host in hosts(2):
        assert not processes_of(host, "sleep")
    assert launch.wait(60) == 137


def has_all(text: str, parts: list[str]) -> bool:
    return all(part in text for part in parts)


def test_a_killed_ssh_is_replaced_and_the_job_goes_on(
    running: Any, hosts: Hosts, processes_of: ProcessesOf, distrun: Distrun
) -> None:
    launch = running(IDLE)
    clients = [each for each in supervisor_of(launch).children() if each.name() == "ssh"]
    assert len(clients) == 2
    for each in clients:
        each.kill()
    back = [f"the link to {host.name} is restored" for host in hosts(2)]
    wait_until(lambda: has_all(distrun("events").stdout, back), what=" and ".join(back))
    for host in hosts(2):
        assert len(processes_of(host, "sleep")) == 2
    assert distrun("kill").returncode == 0
    wait_until(lambda: not any(map(processes_of, hosts(2))))


def leaves_a_process(host: Any) -> None:
    """Have each login on the host start something that goes on and holds its output."""
    host.change(shell="/bin/bash")
    host.home.joinpath(".bashrc").write_text("sleep 1000 &\n")


def test_a_job_ends_where_a_profile_leaves_a_process_that_holds_ssh(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun
) -> None:
    (h1,) = hosts(1)
    leaves_a_process(h1)
    # Without a lease nothing else would end it.
    done = distrun("launch", remote_spec("echo fine", [h1], timeouts={"link": "off"}))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "worker:0 | fine\n"
    assert "lost" not in distrun("events").stdout


def test_a_dead_agent_is_noticed_where_a_profile_leaves_a_process_that_holds_ssh(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    (h1,) = hosts(1)
    leaves_a_process(h1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    launch = distrun.start(
        # Its silence is noticed well before the end of the lease, which would be told otherwise.
        "launch", remote_spec(f"exec cat {fifo}", [h1], timeouts={"link": "24s"}),
        stdout=-3, stderr=-1, text=True,
    )  # fmt: skip
    (task,) = wait_until(lambda: processes_of(h1, "cat"))
    not_none(task.parent()).kill()
    _, said = launch.communicate(timeout=60)
    assert launch.returncode == 69
    assert "its agent is gone" in said
    assert not task.is_running()

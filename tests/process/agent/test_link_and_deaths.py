"""What ends with the link, the agent or its guard."""

from __future__ import annotations

import os
import signal
import time

import psutil

from distrun.agent import protocol
from harness.agents import TIMEOUT, Host, MakeHost, children_of, pids_of
from harness.processes import alive
from harness.waiting import wait_until

MIXED = (
    "setsid sleep 600 & timeout 600 sleep 600 & (env -i setsid sleep 600 &); "
    "sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo it ready $$; exec sleep 600"
)


def mixed_family(host: Host) -> list[psutil.Process]:
    for name in ("worker:0", "worker:1"):
        host.run(name, "sh", "-c", MIXED)
        pids_of(host, name, 1)
    wait_until(lambda: len(children_of(host.pid)) >= 14, timeout=TIMEOUT, what="all of them")
    return children_of(host.pid)


def test_the_links_end_ends_all(any_host: Host) -> None:
    family = mixed_family(any_host)
    any_host.hang_up()
    assert any_host.link.process.wait(TIMEOUT) == 0
    assert not [each for each in family if alive(each)]


def test_a_lease_lets_tasks_live_on_without_a_supervisor(make_host: MakeHost) -> None:
    host = make_host(configured=False)
    host.configure(lease=1.0)
    task = host.run("worker:0", "sleep", "600")
    begun = time.monotonic()
    host.hang_up()
    wait_until(lambda: not alive(task.pid), timeout=TIMEOUT)
    assert time.monotonic() - begun > 0.9
    assert host.link.process.wait(TIMEOUT) == 0


def test_sigterm_to_the_agent_is_a_fault_and_ends_all(host: Host) -> None:
    family = mixed_family(host)
    os.kill(host.pid, signal.SIGTERM)
    assert host.expect(protocol.Fault).cause.code is protocol.Code.AGENT_TERMINATED
    assert host.expect_end() == 0
    assert not [each for each in family if alive(each)]
    assert {message.task for message in host.all(protocol.TaskEnded)} == {"worker:0", "worker:1"}

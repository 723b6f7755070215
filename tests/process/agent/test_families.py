"""All that a task has started ends with it, the link, the agent or its guard; nothing else does."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import psutil

from harness.agents import SLEEP, TIMEOUT, Host, MakeHost, children_of, pids_of, script, with_stub
from harness.parts.agent import protocol, task
from harness.parts.protocol import Code
from harness.processes import alive, with_argument
from harness.waiting import wait_until


def test_an_exit_is_reported_at_once_and_the_end_when_all_are_gone(make_host: MakeHost) -> None:
    """What a task leaves is ended although it ignores SIGTERM. It has an hour for that."""
    stub = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; "
        f"import {task.__name__} as task; task.KILL_GRACE = 3600.0; main()"
    )
    host = make_host(changed=partial(with_stub, stub))
    child = 'trap "" TERM; echo it ready $$; touch up; while :; do sleep 0.1; done'
    leader = f"sh -c '{child}' & until [ -e up ]; do sleep 0.02; done"
    host.run("worker:0", "sh", "-c", leader)
    (pid,) = pids_of(host, "worker:0", 1)
    assert host.expect(protocol.TaskExited).code is not None
    assert alive(pid)
    assert not host.all(protocol.TaskEnded)
    host.stop("worker:0", signal.SIGKILL, grace=0.0)
    host.expect(protocol.TaskEnded)
    assert not alive(pid)


DAEMONS = (
    "timeout 600 sleep 600 & env -i sleep 600 & "
    "(env -i setsid sh -c 'sleep 600 & sleep 601' &); "
    "(setsid env -i sleep 600 >/dev/null 2>&1 &); "
)


def test_no_relative_of_a_task_outlives_it(host: Host) -> None:
    for attempt, end in enumerate(("exec sleep 600", "exit 0")):
        task = host.run("worker:0", "sh", "-c", f"{DAEMONS} {end}", attempt=attempt)
        if end == "exit 0":
            host.expect(protocol.TaskExited)
        else:
            wait_until(lambda: len(children_of(host.pid)) >= 7, timeout=TIMEOUT)
            assert alive(task.pid)
            host.stop("worker:0")
        host.expect(protocol.TaskEnded)
        wait_until(lambda: not any(map(alive, children_of(host.pid))), timeout=TIMEOUT)


def sleepers(host: Host, word: str) -> list[psutil.Process]:
    return with_argument(children_of(host.pid), word)


HIDING = "exec </dev/null >/dev/null 2>&1; "
HIDDEN = (
    "(setsid env -i sh -c '(setsid sleep 600 &); (setsid sleep 600 &)' &)",
    "(env -i setsid sh -c 'cd /; umask 0; trap \"\" TERM HUP; exec sleep 600' &)",
    "setsid env -i sh -c 'sleep 0.2; (setsid sleep 600 &); exit' &",
    "env -i DISTRUN_JOB_ID={job} DISTRUN_TASK=worker:1 setsid sleep 600 & ",
)
UNTIL_LEAVE = "until [ -e leave ]; do sleep 0.02; done"


def test_a_hidden_daemon_ends_with_its_task_and_not_with_another(host: Host) -> None:
    host.run("worker:1", "sh", "-c", f"({HIDING}env -i setsid sleep 700 &); exec sleep 701")
    wait_until(lambda: sleepers(host, "700"), timeout=TIMEOUT)
    for attempt, daemon in enumerate(HIDDEN):
        hide = daemon.replace("{job}", host.job_id)
        shell = f"({HIDING}{hide}); {UNTIL_LEAVE}"
        host.run("worker:0", "sh", "-c", shell, attempt=attempt)
        hidden = wait_until(lambda: sleepers(host, "600"), timeout=TIMEOUT)
        (host.folder / "leave").touch()
        host.expect(protocol.TaskEnded, "worker:0")
        assert not any(map(alive, hidden)), daemon
        assert sleepers(host, "700"), daemon
        (host.folder / "leave").unlink()
    host.stop("worker:1", grace=0.5)
    host.expect(protocol.TaskEnded, "worker:1")
    assert not sleepers(host, "700")


def test_a_daemon_that_shows_nothing_of_its_task_ends_with_none_of_several(host: Host) -> None:
    """It has dropped its label, too, and is the second task's; the first one must not take it."""
    daemon = f"(ulimit -x unlimited; {HIDING}env -i setsid {SLEEP} 600 &)"
    host.run("worker:0", "sh", "-c", UNTIL_LEAVE)
    host.run("worker:1", "bash", "-c", f"{daemon}; exec {SLEEP} 601")
    wait_until(lambda: sleepers(host, "600"), timeout=TIMEOUT)
    (host.folder / "leave").touch()
    host.expect(protocol.TaskEnded, "worker:0")
    assert sleepers(host, "600")
    host.stop("worker:1")
    host.expect(protocol.TaskEnded, "worker:1")
    assert not sleepers(host, "600")


# Each link starts the next one and exits; SIGTERM is ignored, so only patience ends it.
RELAY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
until = time.monotonic() + 0.5
while time.monotonic() < until:
    time.sleep(0.001)
    if os.fork():
        os._exit(0)
"""


def test_a_task_has_not_ended_while_orphans_follow_one_another(host: Host, tmp_path: Path) -> None:
    relay = script(tmp_path, "relay.py", RELAY)
    for attempt in range(2):
        host.run("worker:0", *relay, attempt=attempt)
        host.expect(protocol.TaskEnded)
        assert not [each for each in children_of(host.pid) if alive(each)]


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
    assert host.expect(protocol.Fault).cause.code is Code.AGENT_TERMINATED
    assert host.expect_end() == 0
    assert not [each for each in family if alive(each)]
    assert {message.task for message in host.all(protocol.TaskEnded)} == {"worker:0", "worker:1"}

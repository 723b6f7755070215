"""All that a task has started ends with it, and nothing else does."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil
import pytest

from distrun.agent import protocol
from harness.agents import SLEEP, TIMEOUT, Host, children_of, pids_of, script
from harness.processes import alive
from harness.waiting import wait_until


@pytest.mark.parametrize("is_patient", [True, False])
def test_an_exit_is_reported_at_once_and_the_end_when_all_are_gone(
    request: pytest.FixtureRequest, is_patient: bool
) -> None:
    """What a task leaves is ended although it ignores SIGTERM."""
    host = request.getfixturevalue("patient_host" if is_patient else "host")
    child = 'trap "" TERM; echo it ready $$; touch up; while :; do sleep 0.1; done'
    leader = f"sh -c '{child}' & until [ -e up ]; do sleep 0.02; done"
    host.run("worker:0", "sh", "-c", leader)
    (pid,) = pids_of(host, "worker:0", 1)
    assert host.expect(protocol.TaskExited).code is not None
    if is_patient:
        assert alive(pid)
        assert not host.all(protocol.TaskEnded)
        host.stop("worker:0", signal.SIGKILL, grace=0.0)
    host.expect(protocol.TaskEnded)
    assert not alive(pid)


@pytest.mark.parametrize(
    "daemon",
    [
        "timeout 600 sleep 600 & env -i sleep 600 &",
        "(env -i setsid sh -c 'sleep 600 & sleep 601' &);",
        "(setsid env -i sleep 600 >/dev/null 2>&1 &);",
    ],
)
@pytest.mark.parametrize("end", ["exit 0", "exec sleep 600"])
def test_no_relative_of_a_task_outlives_it(host: Host, daemon: str, end: str) -> None:
    task = host.run("worker:0", "sh", "-c", f"{daemon} echo done; {end}")
    if end == "exit 0":
        host.expect(protocol.TaskExited)
    else:
        wait_until(lambda: host.lines("worker:0"), timeout=TIMEOUT)
        wait_until(lambda: len(children_of(host.pid)) >= 2, timeout=TIMEOUT)
        before = children_of(host.pid)
        assert alive(task.pid)
        host.stop("worker:0")
    host.expect(protocol.TaskEnded)
    wait_until(lambda: not [each for each in children_of(host.pid) if alive(each)], timeout=TIMEOUT)
    if end != "exit 0":
        assert not any(alive(each) for each in before)


def test_a_daemon_that_shows_nothing_of_its_task_ends_with_none_of_several(host: Host) -> None:
    """It has dropped its label, too, and is the second task's; the first one must not take it."""
    daemon = f"(ulimit -x unlimited; exec </dev/null >/dev/null 2>&1; env -i setsid {SLEEP} 600 &)"
    host.run("worker:0", "sh", "-c", "until [ -e leave ]; do sleep 0.02; done")
    host.run("worker:1", "bash", "-c", f"{daemon}; exec {SLEEP} 601")

    def daemons() -> list[psutil.Process]:
        found = []
        for each in children_of(host.pid):
            with contextlib.suppress(psutil.Error):  # it ends, or is a zombie
                found += [each] if alive(each) and "600" in each.cmdline() else []
        return found

    wait_until(daemons, timeout=TIMEOUT)
    (host.folder / "leave").touch()
    host.expect(protocol.TaskEnded, "worker:0")
    assert daemons()
    host.stop("worker:1")
    host.expect(protocol.TaskEnded, "worker:1")
    assert not daemons()


HIDING = "exec </dev/null >/dev/null 2>&1; "


@pytest.mark.parametrize(
    "daemon",
    [
        "(setsid env -i sh -c '(setsid sleep 600 &); (setsid sleep 600 &)' &)",
        "(env -i setsid sh -c 'cd /; umask 0; trap \"\" TERM HUP; exec sleep 600' &)",
        "setsid env -i sh -c 'sleep 0.2; (setsid sleep 600 &); exit' &",
        "env -i DISTRUN_JOB_ID={job} DISTRUN_TASK=worker:1 setsid sleep 600 & ",
    ],
)
def test_a_hidden_daemon_ends_with_its_task_and_not_with_another(host: Host, daemon: str) -> None:
    def sleepers(word: str) -> list[int]:
        found = []
        for each in children_of(host.pid):
            with contextlib.suppress(psutil.Error):  # it ends, or is a zombie
                found += [each.pid] if word in each.cmdline() else []
        return found

    host.run("worker:1", "sh", "-c", f"({HIDING}env -i setsid sleep 700 &); exec sleep 701")
    wait_until(lambda: sleepers("700"), timeout=TIMEOUT)
    hide = daemon.replace("{job}", host.job_id)
    script = f"({HIDING}{hide}); until [ -e leave ]; do sleep 0.02; done"
    host.run("worker:0", "sh", "-c", script)
    hidden = wait_until(lambda: sleepers("600"), timeout=TIMEOUT)
    (host.folder / "leave").touch()
    host.expect(protocol.TaskEnded, "worker:0")
    assert not any(alive(pid) for pid in hidden)
    assert sleepers("700")
    host.stop("worker:1", grace=0.5)
    host.expect(protocol.TaskEnded, "worker:1")
    assert not sleepers("700")


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

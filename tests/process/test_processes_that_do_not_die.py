"""Processes that not even SIGKILL ends at once: nothing waits for them without end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun
from harness.requirements import reason
from harness.waiting import SOON, wait_until

_MOUNT = Path("/sys/fs/cgroup/freezer")
Freeze = Callable[..., None]
"""Freezes processes, by their ids, until the test ends."""


@contextlib.contextmanager
def freezer() -> Iterator[Freeze]:
    """Give a function that freezes processes; they thaw at the end. Skips where that cannot be."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="distrun-", dir=_MOUNT))
    except OSError:
        pytest.skip(reason("no freezer cgroup (v1) can be made", "run as root, on cgroup v1"))
    state = folder / "freezer.state"

    def freeze(*pids: int) -> None:
        for pid in pids:
            (folder / "cgroup.procs").write_text(str(pid))
        state.write_text("FROZEN")
        wait_until(lambda: state.read_text().strip() == "FROZEN")

    def is_removed() -> bool:
        with contextlib.suppress(OSError):  # a process in it has yet to die
            folder.rmdir()
        return not folder.exists()

    try:
        yield freeze
    finally:
        state.write_text("THAWED")
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (_MOUNT / "cgroup.procs").write_text(pid)
        wait_until(is_removed)


SLEEPS = "exec sleep 600"


@pytest.fixture
def freeze() -> Iterator[Freeze]:
    with freezer() as function:
        yield function


@pytest.mark.parametrize("killed", [("agent", "guard"), ()])
def test_kill_ends_a_job_and_names_a_task_that_does_not_die(
    distrun: Distrun, freeze: Freeze, killed: tuple[str, ...]
) -> None:
    job = distrun.detached(SLEEPS)
    task = distrun.status(job)["tasks"][0]["pid"]
    supervisor = psutil.Process(distrun.status(job)["supervisor_pid"])
    victims = [distrun.victim_of(who, None) for who in killed]
    freeze(task)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    done = distrun("kill", job, "--grace", "500ms", timeout=60)
    assert "answer" not in done.stderr
    wait_until(lambda: not supervisor.is_running() or supervisor.status() == "zombie", timeout=20)
    named = f"do not die, not even by SIGKILL: {task}"
    assert done.returncode == 69
    assert named in done.stderr
    assert '"JobEnded"' in distrun("events", job, "--json").stdout
    assert named in distrun("events", job).stdout


def test_kill_names_a_client_that_does_not_die_and_runs_no_task(distrun: Distrun) -> None:
    """As an ssh client on a file system that does not answer."""
    job = distrun.detached("exit 0")
    distrun("wait", job)
    token = (distrun.home / "jobs" / job / "token").read_text()
    env = {**os.environ, "DISTRUN_TOKEN": token}
    with freezer() as freeze:
        client = subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)
        freeze(client.pid)
        done = distrun("kill", job, timeout=60)
    client.wait(SOON)
    assert done.returncode == 0, done.stderr
    assert f"processes of distrun, which run no task, remain: {client.pid}\n" in done.stderr


def test_other_commands_are_answered_while_a_dead_agents_task_does_not_die(
    distrun: Distrun, freeze: Freeze
) -> None:
    job = distrun.detached(SLEEPS, restart={"max": 3})
    task = distrun.status(job)["tasks"][0]["pid"]
    victims = [distrun.victim_of(who, None) for who in ("agent", "guard")]
    freeze(task)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    # Its answer comes from the supervisor, which waits in its loop.
    assert distrun("wait", job, "--timeout", "200ms").returncode == 124
    done = distrun("wait", job, timeout=60)
    assert done.returncode == 69  # nothing starts beside what may still run
    shown = distrun("events", job).stdout
    assert f"do not die, not even by SIGKILL: {task}" in shown
    assert "attempt 1" not in shown


def test_launch_ends_although_a_dead_supervisors_task_does_not_die(
    distrun: Distrun, freeze: Freeze
) -> None:
    launch = distrun.launched(SLEEPS)
    task = wait_until(lambda: distrun.status()["tasks"][0]["pid"])
    freeze(task)
    victims = [distrun.victim_of(who, launch) for who in ("supervisor", "agent", "guard")]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert launch.stderr is not None
    assert launch.wait(40) == 70
    assert f"do not die, not even by SIGKILL: {task}" in launch.stderr.read()
    launch.stderr.close()

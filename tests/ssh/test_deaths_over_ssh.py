"""A login whose profile leaves a process: the end of an agent is noticed all the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness.command import Distrun
from harness.network import Hosts, ProcessesOf, RemoteSpec
from harness.values import not_none
from harness.waiting import wait_until


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

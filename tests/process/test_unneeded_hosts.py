"""A job's end does not wait for the login to a host on which nothing of the job can be."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.spec.loader import load
from distrun.supervisor.hosts.host import Host, LinkState
from distrun.supervisor.hosts.host_channel import ChecksummedReceiver
from distrun.supervisor.hosts.reach import Connection, Reach
from harness.command import Distrun
from harness.waiting import wait_until

AGENT = b"x" * 20_000


class Login(Reach):
    """A login by some command, which the agent is sent through."""

    kind = "test"
    can_reattach = True
    connect_timeout = 60.0

    def __init__(self, *command: str) -> None:
        self._command = command

    def connect(self, job_id: str) -> Connection:
        stdin, writer = os.pipe()
        reader, stdout = os.pipe()
        process = subprocess.Popen(self._command, stdin=stdin, stdout=stdout)
        os.close(stdin)
        os.close(stdout)
        self.process = process
        self.connection = Connection(process, ChecksummedReceiver(reader, writer, b"mark"))
        return self.connection

    def bootstrap(self, connection: Connection) -> bytes:
        return AGENT

    def address(self, hello: Any, hellos: Any) -> None:
        raise AssertionError("no host is up")

    def diagnose(self, connection: Connection, status: int | None) -> Cause:
        raise AssertionError("the login has not failed")


class Observer:
    def __init__(self) -> None:
        self.gone: list[Cause] = []

    def on_gone(self, _: Host, cause: Cause) -> None:
        self.gone.append(cause)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_login_that_has_not_read_the_agent_is_given_up_at_once(
    distrun: Distrun, is_read: bool, tmp_path: Path
) -> None:
    login, observer = Login(*(["wc", "-c"] if is_read else ["sleep", "60"])), Observer()
    host = Host(
        "h1",
        login,
        loop=Loop(),
        observer=cast("Any", observer),
        job_id="job-1",
        spec=load(str(distrun.write_spec("true", workers=1))),
        logs=tmp_path,
        variables=(),
    )
    host.connect()
    host.send_agent()
    if is_read:
        wait_until(lambda: login.connection.has_read_agent)
    host.order(protocol.Shutdown())
    if is_read:
        assert host.state is LinkState.CONNECTING
        assert not observer.gone
        host._close_connection()
        return
    assert host.state is LinkState.GONE
    assert [cause.code for cause in observer.gone] == [Code.AGENT_NOT_NEEDED]
    assert login.process.poll() is not None

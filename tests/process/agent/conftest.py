"""Agents for the tests, gone at their end."""

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.agents import Host, MakeHost, with_stub
from harness.pythons import python38


@pytest.fixture
def make_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeHost]:
    for name in list(os.environ):
        if name.startswith("DISTRUN_"):
            monkeypatch.delenv(name)
    make = MakeHost(tmp_path)
    yield make
    for host in make.hosts:
        host.close()


@pytest.fixture
def host(make_host: MakeHost) -> Host:
    return make_host()


@pytest.fixture
def patient_host(make_host: MakeHost) -> Host:
    """An agent that gives what a task leaves an hour, so that no test has to be faster than it."""
    stub = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; "
        "from distrun.agent.tasks import task; task.KILL_GRACE = 3600.0; main()"
    )
    return make_host(changed=partial(with_stub, stub))


@pytest.fixture
def any_host(make_host: MakeHost) -> Host:
    """An agent on the oldest Python that remote hosts may have, or on this one without it."""
    python = python38() or sys.executable
    return make_host(changed=lambda command: [python, *command[1:]])

"""Agents for the tests, gone at their end."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.agents import Host, MakeHost
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
def any_host(make_host: MakeHost) -> Host:
    """An agent on the oldest Python that remote hosts may have, or on this one without it."""
    python = python38() or sys.executable
    return make_host(changed=lambda command: [python, *command[1:]])

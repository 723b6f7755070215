"""Logs for the tests of distrun.logs."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.logs import PLAIN, Follow, Job
from harness.parts.logs import Follower, TaskLog, View


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def follow() -> Iterator[Follow]:
    with contextlib.ExitStack() as stack:

        def start(logs: Sequence[TaskLog], view: View = PLAIN, **how: Any) -> Follower:
            follower = Follower(logs, view, **how)
            stack.callback(follower.close)
            return follower

        yield start

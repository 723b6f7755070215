"""Logs for the tests of distrun.logs."""

from __future__ import annotations

import contextlib

import pytest
from log_harness import PLAIN, Job

from distrun.logs import Follower


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def follow():
    with contextlib.ExitStack() as stack:

        def start(logs, view=PLAIN, **how) -> Follower:
            follower = Follower(logs, view, **how)
            stack.callback(follower.close)
            return follower

        yield start

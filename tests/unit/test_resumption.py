"""The spec that a job had is read from its folder, whatever is there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from distrun.errors import HostError
from distrun.job.folder import JobStore
from distrun.job.resumption import spec_of
from harness.job_folders import add


def nest(path: Path) -> None:
    path.write_text("[" * 100_000)


@pytest.mark.parametrize("make", [nest, os.mkfifo, Path.mkdir])
def test_a_spec_that_cannot_be_read_is_refused(tmp_path: Path, make: Callable[..., None]) -> None:
    def expire(*_: object) -> None:
        raise AssertionError("it waits for a writer")

    folder = add(JobStore(tmp_path), "mnist")
    make(folder.resolved_spec_file)
    signal.signal(signal.SIGALRM, expire)
    signal.alarm(5)
    with pytest.raises(HostError, match=r"has no spec\.json"):
        spec_of(folder, ())
    signal.alarm(0)

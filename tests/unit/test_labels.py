"""A label tells a job's attempts apart, and is not mistaken for a limit that somebody has set."""

from __future__ import annotations

import os
import resource
import sys

import pytest

from distrun.agent.linux import labels


def test_each_attempt_has_a_label_of_its_own_that_shows_its_job() -> None:
    attempts = [
        (job, task, attempt)
        for job in ("a-1", "a-2", "\udcff")
        for task in ("worker:0", "worker:1", "chief:0", "\udcfe:0")
        for attempt in range(50)
    ]
    found = {labels.of_attempt(*each) for each in attempts}
    assert len(found) == len(attempts)
    assert all(0 < each < 1 << 63 for each in found)
    label = labels.of_attempt("a-1", "worker:0", 3)
    assert labels.is_of_job(label, "a-1")
    assert not labels.is_of_job(label, "a-2")


@pytest.mark.parametrize("limit", [0, 1, 1024, 1 << 31, (1 << 63) - 1])
def test_a_limit_that_somebody_has_set_is_no_label_of_a_job(limit: int) -> None:
    assert not labels.is_of_job(limit, "a-1")


@pytest.mark.parametrize("hard", [None, 1000])
def test_a_process_keeps_its_label_unless_its_hard_limit_is_lower(hard: int | None) -> None:
    label = labels.of_attempt("a-1", "worker:0", 0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = "import os, sys; os.write(1, b'.'); sys.stdin.read()"
        try:
            if hard is not None:
                resource.setrlimit(labels._LOCKS, (hard, hard))
            labels.put(label)
            os.dup2(writer, 1)
            os.setsid()
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"."
    expected = label if hard is None else hard
    assert labels.read(child) == labels._read_as_stranger(child) == expected
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(reader)
    assert labels.read(child) is None
    assert labels._read_as_stranger(child) is None

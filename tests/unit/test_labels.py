"""A process keeps the label of its attempt, which its user and others can read."""

from __future__ import annotations

import os
import resource
import sys

import pytest

from distrun.agent.linux import labels


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

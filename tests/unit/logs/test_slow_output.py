"""Output that a task makes to keep the reader of its log busy: each block takes linear time.

With a search in quadratic time, one of these blocks would take hours; the limit of time ends it.
"""

from __future__ import annotations

import re

import pytest

from distrun.logs.repeats import RepeatFolder
from distrun.logs.startup_lines import StartupFilter
from distrun.logs.view import Formatter, View

pytestmark = pytest.mark.timeout(60)
LOGGED = b"I0000 00:00:1795377989.000138    1575 "
FLAGS = b"This TensorFlow binary is optimized to use available CPU instructions in performance-"


@pytest.mark.parametrize(
    "line",
    [
        LOGGED + b"cpu_feature_guard.cc:1] " + FLAGS + b"critical operations: " + b" " * 800_000,
        LOGGED + b"eager_service_impl.cc:1] SessionOptions: goo.gle/debugonly" + b" " * 800_000,
        LOGGED + b" " * 800_000,
        b"To enable the following instructions: " + b"a " * 400_000,
    ],
)
def test_a_line_that_begins_like_a_start_up_line(line: bytes) -> None:
    block = line + b"x\n"
    assert StartupFilter().select("worker:0", block) == block


def test_equal_lines_of_one_task() -> None:
    folder = RepeatFolder(View(tasks=("worker:0", "worker:1")), ("worker:0", "worker:1"))
    shown = b"".join([*folder.add("worker:0", b"\n" * 32_000), *folder.flush()])
    assert shown == b"worker:0 | \n" * 32_000


@pytest.mark.parametrize("pattern", [rb"(?is).*zzz", rb"[\t-~]*zzz"])
def test_a_pattern_that_can_cross_lines(pattern: bytes) -> None:
    view = View((), grep=re.compile(pattern))
    assert Formatter(view, "worker:0").select(b"step 1 loss 0.5\n" * 100_000) == b""

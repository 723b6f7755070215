"""A dozen cells of the fault matrix, in forks that have TensorFlow imported.

`make faults` runs more of them, with the real interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cells import MWM, PS, Cell
from harness.preloaded import PreloadedPython
from harness.requirements import AS_ROOT, skip
from runner import has_memory_cgroups, run_cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
# fmt: off
CELLS = [
    Cell("SIGKILL", "launch", "starting", MWM),
    Cell("SIGKILL", "supervisor", "starting", PS),
    Cell("SIGTERM", "supervisor", "starting", MWM),
    Cell("SIGKILL", "agent", "starting", MWM),
    Cell("SIGTERM", "agent", "starting", PS),
    Cell("SIGKILL", "worker:0", "saving", MWM),
    Cell("SIGSTOP", "worker:1", "mid_epoch", MWM),
    Cell("oom", "worker:1", "first_step", MWM),
    Cell("SIGTERM", "evaluator:0", "mid_epoch", MWM),
    Cell("exit1", "ps:0", "first_step", PS),
    Cell("exception", "worker:0", "mid_epoch", PS),
    Cell("SIGKILL", "chief:0", "shutting_down", PS),
]
# fmt: on


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_must_hold_holds(
    cell: Cell,
    preloaded: PreloadedPython,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    if cell.fault == "oom" and not has_memory_cgroups():
        skip("no memory cgroup can be made here", AS_ROOT)
    python = preloaded.interpreter
    if cell.fault == "oom":
        # The kernel's report must name a process of the task: no fork of another process.
        python = str(tmp_path / "python")
        real = f'[ "$DISTRUN_TASK-$DISTRUN_ATTEMPT" != {cell.victim}-0 ] || exec {sys.executable}'
        Path(python).write_text(f'#!/bin/sh\n{real} "$@"\nexec {preloaded.interpreter} "$@"\n')
        Path(python).chmod(0o755)
    result = run_cell(cell, python)
    record_property("table", str(result))
    assert not result.violations, str(result)

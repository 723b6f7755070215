"""Some cells of the fault matrix, in forks that have TensorFlow imported.

`make faults` runs more of them, with the real interpreter.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cells import MWM, PS, Cell
from harness.preloaded import PreloadedPython
from runner import run_cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
CELLS = [
    Cell("SIGKILL", "worker:0", "saving", MWM),
    Cell("SIGSTOP", "worker:1", "mid_epoch", MWM),
    Cell("exception", "worker:0", "mid_epoch", PS),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_must_hold_holds(
    cell: Cell, preloaded: PreloadedPython, record_property: Callable[[str, object], None]
) -> None:
    result = run_cell(cell, preloaded.interpreter)
    record_property("table", str(result))
    assert not result.violations, str(result)

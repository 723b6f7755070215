"""How the fault matrix is drawn: pairwise, by a seed, with a promise for every cell."""

from __future__ import annotations

import pytest

from cells import ALL, MWM, PS, Cell, drawn, promise


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_two_values_that_can_meet_do(seed: int) -> None:
    cells = drawn(seed)
    assert 60 <= len(cells) == len(set(cells)) <= 70
    met = set().union(*(cell.pairs for cell in cells))
    assert met == set().union(*(cell.pairs for cell in ALL))


def test_a_seed_draws_the_same_again_and_another_others() -> None:
    assert drawn(7) == drawn(7)
    assert set(drawn(7)) != set(drawn(8))


def test_no_cell_promises_nothing() -> None:
    for cell in ALL:
        wanted = promise(cell)
        assert wanted.results
        assert cell.teller.partition(":")[0] in cell.cluster
        if cell.fault == "SIGKILL" and cell.victim == "worker:1" and cell.strategy == MWM:
            assert (wanted.kinds, wanted.restarts) == (("killed",), (1,))
    assert Cell("exit1", "launch", "starting", PS) not in ALL

"""How the fault matrix is sampled: pairwise, by a seed, with an expectation for every cell."""

from __future__ import annotations

import pytest

from cells import ALL, MWM, PS, Cell, expected, sampled


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_two_values_that_can_meet_do(seed: int) -> None:
    cells = sampled(seed)
    assert 60 <= len(cells) == len(set(cells)) <= 70
    met = set().union(*(cell.pairs for cell in cells))
    assert met == set().union(*(cell.pairs for cell in ALL))


def test_a_seed_draws_the_same_again_and_another_others() -> None:
    assert sampled(7) == sampled(7)
    assert set(sampled(7)) != set(sampled(8))


def test_no_cell_promises_nothing() -> None:
    for cell in ALL:
        wanted = expected(cell)
        assert wanted.results
        assert cell.reporter.partition(":")[0] in cell.cluster
        if cell.fault == "SIGKILL" and cell.victim == "worker:1" and cell.strategy == MWM:
            assert (wanted.kinds, wanted.restarts) == (("killed",), (1,))
    assert Cell("exit1", "launch", "starting", PS) not in ALL

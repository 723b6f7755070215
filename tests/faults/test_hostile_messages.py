"""100,000 mutated messages of a host: none ends its supervisor or spoils the record."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from harness.hostile import REPORTS, WAYS_PER_RUN, run_mutated

COUNT = 100_000


@pytest.mark.timeout(3 * 3600)
@seed(int(os.environ.get("SEED", "1")))
@settings(
    max_examples=COUNT // WAYS_PER_RUN,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(kind=st.sampled_from(REPORTS), chooser=st.randoms(use_true_random=False))
def test_no_mutated_message_harms_the_supervisor(
    tmp_path_factory: pytest.TempPathFactory, kind: str, chooser: random.Random
) -> None:
    run_mutated(tmp_path_factory.getbasetemp(), kind, chooser)

"""Damaged records and messages.

Every field of every kind of event is given every odd value, and two commands read each record. Of
100,000 mutated messages of a host, none ends its supervisor or spoils the record.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from harness.command import Distrun
from harness.damaged_records import COMMANDS, VALUES, Record, run_here
from harness.hostile import REPORTS, WAYS_PER_RUN, run_mutated

COUNT = 100_000


@pytest.mark.timeout(3600)
def test_no_field_of_an_event_hinders_a_command(distrun: Distrun, tmp_path: Path) -> None:
    chooser = random.Random(int(os.environ.get("SEED", "1")))
    record = Record(distrun, tmp_path)
    for number, path in record.places():
        for value in VALUES:
            line = record.damage(number, path, value)
            print(line[:2000])  # shown if the test fails
            for command in chooser.sample(COMMANDS, 2):
                record.check(command, number, *run_here(command))


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

"""Damaged records and messages.

Every field of every kind of event is given six odd values that SEED draws, and a drawn command
reads each record. Of 100,000 mutated messages of a host, none ends its supervisor or spoils the
record.
"""

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
VALUES_EACH = 6
"""Of 53: all of them, in some 550 fields, would take most of an hour."""


@pytest.mark.timeout(1200)
def test_no_field_of_an_event_hinders_a_command(distrun: Distrun, tmp_path: Path) -> None:
    """Other seeds draw other values and commands for each field."""
    chooser = random.Random(int(os.environ.get("SEED", "1")))
    record = Record(distrun, tmp_path)
    for number, path in record.places():
        for value in chooser.sample(VALUES, VALUES_EACH):
            line = record.damage(number, path, value)
            print(line[:2000])  # shown if the test fails
            command = chooser.choice(COMMANDS)
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

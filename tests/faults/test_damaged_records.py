"""Every field of every kind of event is given every odd value; two commands read each record."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.damaged_records import COMMANDS, VALUES, Record, run_here


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

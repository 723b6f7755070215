"""Recorded failures of real tasks, judged anew: the right task and the right kind.

`make.py` beside the corpus made them; the part `held_out` when the rules were done, and no rule has
been changed because of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from distrun.cli.cause_text import cause_advice
from distrun.cli.verdict_text import evidence_text
from table import rows, shares

ENOUGH = {"rules": 1.0, "second": 1.0, "held_out": 0.95}


@pytest.mark.parametrize("part", ENOUGH)
def test_the_first_cause_is_named(
    part: str, record_property: Callable[[str, object], None]
) -> None:
    began = time.process_time()
    judged = rows(part)
    took = time.process_time() - began
    record_property("table", "\n".join([*map(str, judged), *shares(part, judged)]))
    assert len(judged) >= 40
    right = sum(row.is_right for row in judged)
    assert right >= ENOUGH[part] * len(judged), [str(row) for row in judged if not row.is_right]
    assert took / len(judged) < 0.1


@pytest.mark.parametrize("part", ENOUGH)
def test_each_verdict_says_what_it_rests_on_and_what_to_do(part: str) -> None:
    for row in rows(part):
        assert row.verdict is not None
        assert row.verdict.evidence, row.name
        assert cause_advice(row.verdict.cause), row.name
        for evidence in row.verdict.evidence:
            assert evidence_text(evidence).strip() == evidence_text(evidence) != ""

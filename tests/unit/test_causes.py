"""Causes as values: there and back as JSON, and every one has words."""

from __future__ import annotations

import json

from distrun.agent.protocol import Cause, Code
from distrun.codec import from_json, to_json
from distrun.words.causes import ADVICE, TEXTS, cause_advice, cause_text


def test_every_code_has_words_of_known_fields_alone() -> None:
    inner = Cause(Code.PROBE_DIED)
    assert TEXTS.keys() == set(Code) >= ADVICE.keys()
    for code in Code:
        assert cause_text(Cause(code, path="/p", name="n", version="1", within=(inner,))), code
        cause_text(Cause(code))  # a name that there is not raises AttributeError
        cause_advice(Cause(code))


def test_a_cause_comes_back_from_json() -> None:
    inner = Cause(Code.WORKDIR_NOT_ENTERED, path="/srv/\udcff", errno=2)
    cause = Cause(Code.PROGRAM_NOT_EXECUTED, name="a b", errno=13, status=0, within=(inner,))
    told = json.loads(json.dumps(to_json(cause)))
    assert from_json(Cause, told) == cause
    assert told["within"] == [{"code": "workdir_not_entered", "path": "/srv/\udcff", "errno": 2}]

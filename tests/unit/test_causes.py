"""Causes as values: there and back as JSON, and every one has words."""

from __future__ import annotations

import json

from distrun.agent.protocol import Cause, Code
from distrun.words.causes import cause_advice, cause_text, templates


def test_every_code_has_words_and_every_template_a_code_and_known_fields() -> None:
    inner = Cause(Code.PROBE_DIED)
    for code in Code:
        assert cause_text(Cause(code, path="/p", name="n", version="1", within=(inner,))), code
    assert templates().keys() <= {code.value for code in Code}
    for code in map(Code, templates()):
        cause_text(Cause(code))  # a name that there is not raises AttributeError
        cause_advice(Cause(code))


def test_a_cause_comes_back_from_json() -> None:
    inner = Cause(Code.WORKDIR_NOT_ENTERED, path="/srv/\udcff", errno=2)
    cause = Cause(Code.PROGRAM_NOT_EXECUTED, name="a b", errno=13, status=0, within=(inner,))
    told = json.loads(json.dumps(cause.to_json()))
    assert Cause.from_json(told) == cause
    assert told["within"] == [{"code": "workdir_not_entered", "path": "/srv/\udcff", "errno": 2}]

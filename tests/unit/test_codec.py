"""Typed values to JSON and back: every event and whole specs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun.advice import model as advice_model
from distrun.agent.protocol.causes import Cause, Subject
from distrun.codec import field_names, from_json, range_of, to_json
from distrun.frozen import replace
from distrun.job import events
from distrun.plan import Plan, tasks
from distrun.spec import model as spec_model
from distrun.spec.model import RoleSpec, Spec
from distrun.verdict import model as verdict_model
from distrun.verdict.model import Kind
from harness.generated import OS_TEXT, causes

st.register_type_strategy(str, OS_TEXT)
st.register_type_strategy(int, st.integers(-(1 << 63), 1 << 63))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(Cause, causes(OS_TEXT))
st.register_type_strategy(Kind, st.sampled_from(list(Kind)))
st.register_type_strategy(Subject, st.sampled_from(list(Subject)))


def short_tuples(kind: Any) -> st.SearchStrategy[Any]:
    """Tuples of one type with up to three elements: long ones take long and show no more."""
    element, *others = get_args(kind)
    if others != [Ellipsis]:
        return st.tuples(*map(st.from_type, get_args(kind)))
    return st.lists(st.from_type(element), max_size=3).map(tuple)


def instances(kind: Any) -> st.SearchStrategy[Any]:
    """Instances of a dataclass, by the types of its fields."""
    hints = get_type_hints(kind)
    values = {each: st.from_type(hints[each]) for each in field_names(kind)}
    for name in values:  # numbers out of range are refused
        found = range_of(name)
        if found is None:
            continue
        low, high = found
        whole, real = st.integers(int(low), int(high)), st.floats(low, high)
        for plain, numbers in ((int, whole), (float, real), (tuple[int, ...], st.tuples(whole))):
            if hints[name] in (plain, plain | None):
                values[name] = numbers if hints[name] == plain else st.none() | numbers
    built = st.builds(kind, **values)
    if kind is events.TaskRecord:
        return built.map(lambda task: replace(task, name=f"{task.role.value}:{task.index}"))
    return built


st.register_type_strategy(tuple, short_tuples)
for module in (events, tasks, spec_model, verdict_model, advice_model):
    for found in vars(module).values():
        if isinstance(found, type) and dataclasses.is_dataclass(found):
            st.register_type_strategy(found, instances)
for found in events.KINDS.values():
    st.register_type_strategy(found, instances)

ANY_EVENT = st.sampled_from(sorted(events.KINDS)).flatmap(
    lambda name: st.from_type(events.KINDS[name])
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(to_json(value)))


@given(event=ANY_EVENT)
def test_every_event_comes_back(event: events.Event) -> None:
    assert events.decode(json.loads(json.dumps(events.encode(event)))) == event


@given(value=st.from_type(Spec) | st.from_type(Plan))
def test_specs_and_plans_come_back(value: Spec | Plan) -> None:
    assert from_json(type(value), through_json(value)) == value


@pytest.mark.parametrize(
    "value", [None, [], 1, "x", {}, {"role": "No Body", "count": 1}, {"role": None, "count": 1}]
)
def test_what_does_not_fit_is_an_error(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_json(RoleSpec, value)


@pytest.mark.parametrize("number", [10**400, -(10**400), 1 << 64])
def test_a_number_that_nothing_could_show_is_an_error(number: int) -> None:
    record = events.encode(events.Synced(at=1.0, host="a", files=1, size=2))
    with pytest.raises(ValueError, match="size is "):
        events.decode({**record, "size": number})

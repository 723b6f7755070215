"""Jobs, events and their causes as `--json` prints them: docs/json.md describes it."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from distrun.agent.protocol import Struct
from distrun.agent.protocol.causes import Cause
from distrun.codec import field_names, to_json
from distrun.job import events
from distrun.preflight import Check
from distrun.verdict.model import Evidence, Verdict
from distrun.words.causes import cause_advice, cause_text, check_text
from distrun.words.verdicts import evidence_place, evidence_text

if TYPE_CHECKING:
    from distrun.plan import TaskPlan

_UNITS = {
    **dict.fromkeys(("backoff", "backoff_max", "delay", "down", "grace", "lived"), "seconds"),
    **dict.fromkeys(("link", "reset_after", "run", "stall", "start"), "seconds"),
    **dict.fromkeys(("all_size", "log_max_size", "log_start", "size"), "bytes"),
    "since": "at",
    "spread": "seconds",
}
"""What is put behind the names of fields in the output: the units of their values."""
_NAMES = {
    "behind": "clock_behind_seconds",
    "reached": "phases",
    "received": "received_bytes_by_task",
    "sizes": "size_bytes_by_task",
}
_CAUSES = ("Cause", "Cause | None", "Optional[Cause]")
"""The annotations of fields with a cause."""
_HIDDEN = {"token", "folder", "pid_namespace", "found_as"}
"""Fields of HostReady that identify an agent to distrun alone."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)


def output_json(value: Any) -> Any:
    """Return a value as `--json` prints it: the causes in it also as text.

    The key `cause` has the text of a cause, and `cause_code` its code and parameters. Verdicts have
    `advice`, evidence has `place` and `text`. Names of times and sizes end with the unit.
    """
    if isinstance(value, Evidence):
        place, text = evidence_place(value), evidence_text(value)
        return {"task": value.task, "place": place, "text": text}
    if isinstance(value, dict):
        return {key: output_json(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)) and not isinstance(value, Struct):
        return [output_json(each) for each in value]
    if isinstance(value, Cause) or not (isinstance(value, Struct) or is_dataclass(value)):
        return to_json(value)
    shown: dict[str, Any] = {}
    for name in field_names(type(value)):
        shown.update(_field_json(value, name))
    if isinstance(value, events.TaskReported):
        shown["values"] = progress_json(value.values)
    if isinstance(value, Verdict):
        shown["advice"] = cause_advice(value.cause) or ""
    if isinstance(value, (Check, events.PreflightFound)):
        is_check = isinstance(value, Check)
        shown["text"] = cause_text(value.cause) if is_check else check_text(value)
        shown["advice"] = cause_advice(value.cause)
        shown["dialled_from"] = list(value.cause.hosts) if value.cause.addresses else []
        shown["addresses"] = list(value.cause.addresses)
    return shown


def event_fields(kind: type[events.Event]) -> list[str]:
    """Return the names of the fields of a kind of events as `--json` prints them, without `at`."""
    names: list[str] = []
    for name in field_names(kind):
        if name == "at" or (name in _HIDDEN and kind is events.HostReady):
            continue
        key = _output_name(name)
        names += [key, f"{key}_code"] if _is_cause(kind, name) else [key]
    more = ("text", "advice", "dialled_from", "addresses")
    return [*names, *more] if kind is events.PreflightFound else names


def _field_json(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values for a field: causes as text and as code."""
    inner, key = getattr(value, name), _output_name(name)
    if name in _HIDDEN and isinstance(value, events.HostReady):
        return
    if _is_cause(type(value), name):
        yield key, None if inner is None else cause_text(inner)
        yield f"{key}_code", to_json(inner)
    else:
        yield key, output_json(inner)


def _is_cause(kind: Any, name: str) -> bool:
    fields = kind.__annotations__ if issubclass(kind, Struct) else kind.__dataclass_fields__
    return getattr(fields[name], "type", fields[name]) in _CAUSES


def _output_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    unit = _UNITS.get(name)
    return name if unit is None else f"{name}_{unit}"


def progress_json(values: Mapping[str, str]) -> dict[str, int | float | str]:
    """Return a task's progress as `--json` prints it: numbers as numbers, except nan and inf."""
    return {key: _number_or_text(value) for key, value in values.items()}


def _number_or_text(text: str) -> int | float | str:
    if _NUMBER.fullmatch(text) is None or not math.isfinite(float(text)):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def task_json(task: TaskPlan) -> dict[str, Any]:
    """A task with its command, variables and TF_CONFIG; the keys are those of `status --json`."""
    from distrun.redaction.secrets import mask_arguments, mask_secrets

    fields = task.fields()
    del fields["name"]
    tf_config = None
    with contextlib.suppress(ValueError):  # a spec may set it to anything
        tf_config = json.loads(task.tf_config or "")
    return {
        "task": task.name,
        **fields,
        "argv": mask_arguments(task.argv),
        "env": mask_secrets(task.environment),
        "tf_config": tf_config if isinstance(tf_config, dict) else None,
    }

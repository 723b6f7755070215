"""A verdict in lines: the first cause, the evidence for it, and what to do about it."""

from __future__ import annotations

import re

from distrun.lifecycle import is_host_preempted
from distrun.verdict.model import Evidence, Replacement, Source, Verdict
from distrun.words.causes import cause_advice, cause_text, restart_reason
from distrun.words.formats import format_count, format_duration

_PLACES = {
    Source.LOGS: "their logs",
    Source.EXIT: "its exit",
    Source.START: "its start",
    Source.PROCESS: "its process",
    Source.KERNEL: "the kernel of {host}",
    Source.LINK: "the link to {host}",
    Source.HOST: "{host}",
    Source.DISTRUN: "distrun",
}
_LABEL_WIDTH = len("also stopped")
LABEL_INDENT = 2 + _LABEL_WIDTH + 2
"""Columns before the text of a line of a report."""
_TRACED = re.compile(r'File "(?:.*/)?([^"/]+)", line (\d+)')


def verdict_lines(verdict: Verdict, *, is_past: bool = False) -> list[str]:
    """Return the lines below the headline of a report, and of `status`.

    `is_past`: whether the job succeeded after that failure, so that advice is needless unless a
    task failed.
    """
    label = "earlier" if is_past else "cause"
    is_past = is_past and verdict.task is None
    if verdict.repeats_outcome:
        return [] if is_past else _advice_lines(verdict)
    cause = labelled(label, f"{cause_text(verdict.cause)} ({verdict.kind.value})")
    lines = [cause, *evidence_lines(verdict)]
    return lines[: len(lines) - len(_advice_lines(verdict))] if is_past else lines


def replacement_text(replacement: Replacement, *, with_cause: bool = True) -> str:
    """Return what a further plan has changed, and what it has cost, in one clause."""
    moves = [
        f"{name} moved from {former} to {replacement.hosts.get(name, 'no host')}"
        for name, former in replacement.former_hosts.items()
    ]
    if replacement.workers < replacement.all_workers:
        moves.append(f"{replacement.workers} of {replacement.all_workers} workers continued")
    elif not moves:
        count = replacement.all_workers
        moves.append(f"all {count} workers run again" if count > 1 else "the worker runs again")
    if with_cause and replacement.cause is not None:
        moves[0] = f"after {restart_reason(replacement.cause)}: {moves[0]}"
    cost = steps_text(replacement.repeated_steps)
    if replacement.seconds is not None:
        cost += f", {format_duration(replacement.seconds)} without a step"
    return "; ".join([*moves, cost])


def steps_text(count: int | None) -> str:
    """Return how many steps were repeated: `40 steps repeated`."""
    if count is None:
        return "the number of repeated steps is not known"
    return f"{format_count(count, 'step') if count else 'no step'} repeated"


def labelled(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}}  {text}"


def evidence_lines(verdict: Verdict) -> list[str]:
    """Return the evidence and the advice. A line that the cause quotes is shown by its place."""
    if verdict.repeats_outcome:
        return []
    cause = cause_text(verdict.cause)
    quoted: dict[str, list[str]] = {}  # by place: what it shows that the cause does not say
    for evidence in verdict.evidence:
        text = evidence_text(evidence)
        traced = _TRACED.match(text)  # `train.py:4` for a line of a traceback
        place = text if traced is None else f"{traced[1]}:{traced[2]}"
        is_repeated = text in cause or place in cause
        if evidence.source is Source.LOG or not is_repeated:
            whose = f"{evidence.task}, " if evidence.task else ""
            found = quoted.setdefault(f"{whose}{evidence_place(evidence)}", [])
            found += [] if is_repeated else [text]
    places = _joined([place for place, texts in quoted.items() if not texts])
    lines = [labelled("evidence", f"{place}: {text}") for place in quoted for text in quoted[place]]
    lines += [labelled("evidence", place) for place in places]
    if verdict.replacement is not None:
        done = replacement_text(verdict.replacement, with_cause=False)
        lines.append(labelled("done", done))
        if is_host_preempted(verdict.cause):
            return lines  # nothing is left to do
    return lines + _advice_lines(verdict)


def _joined(places: list[str]) -> list[str]:
    """Return `its log, lines 9 and 12` for two lines of one log."""
    if len(places) == 2:
        (first, _, start), (second, _, end) = (place.rpartition(" line ") for place in places)
        if first and first == second:
            return [f"{first} lines {start} and {end}"]
    return places


def _advice_lines(verdict: Verdict) -> list[str]:
    advice = (cause_advice(verdict.cause) or "").splitlines()
    return [labelled("" if number else "try", line) for number, line in enumerate(advice)]


def evidence_place(evidence: Evidence) -> str:
    if evidence.source is not Source.LOG:
        return _PLACES[evidence.source].format(host=evidence.host)
    line = evidence.line or 0
    if line > 0:
        return f"its log, line {line}"
    before = "the last line" if line == -1 else f"{format_count(-line - 1, 'line')} before the end"
    return f"its log, {before}"


def evidence_text(evidence: Evidence) -> str:
    return evidence.text if evidence.cause is None else cause_text(evidence.cause)

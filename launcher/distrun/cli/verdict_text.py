"""A verdict in lines: the first cause, the evidence for it, and what to do about it."""

from __future__ import annotations

from distrun.cli.cause_text import cause_advice, cause_text
from distrun.verdict.model import Evidence, Kind, Source, Verdict

_PLACES = {
    Source.LOGS: "their logs",
    Source.EXIT: "its exit",
    Source.START: "its start",
    Source.PROCESS: "its process",
    Source.VARIABLES: "its variables",
    Source.KERNEL: "the kernel of {host}",
    Source.LINK: "the link to {host}",
    Source.HOST: "{host}",
    Source.DISTRUN: "distrun",
}


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return the lines below the headline of a report, and of `status`."""
    if _repeats_outcome(verdict):
        return _advice_lines(verdict)
    cause = f"  cause  {cause_text(verdict.cause)} ({verdict.kind.value})"
    return [cause, *evidence_lines(verdict)]


def evidence_lines(verdict: Verdict) -> list[str]:
    """Return the evidence and the advice."""
    if _repeats_outcome(verdict):
        return []
    lines = []
    # If distrun itself ended the job, the cause is its own evidence.
    for evidence in (each for each in verdict.evidence if each.cause != verdict.cause):
        whose = f"{evidence.task}, " if evidence.task else ""
        lines.append(f"  seen   {whose}{evidence_place(evidence)}: {evidence_text(evidence)}")
    return lines + _advice_lines(verdict)


def _advice_lines(verdict: Verdict) -> list[str]:
    advice = (cause_advice(verdict.cause) or "").splitlines()
    return [f"  {'do' if number == 0 else '':6} {line}" for number, line in enumerate(advice)]


def evidence_place(evidence: Evidence) -> str:
    """Return where evidence was found: `its log, line 4`."""
    if evidence.source is not Source.LOG:
        return _PLACES[evidence.source].format(host=evidence.host)
    line = evidence.line or 0
    if line > 0:
        return f"its log, line {line}"
    return "its log, the last line" if line == -1 else f"its log, {-line - 1} lines before the end"


def evidence_text(evidence: Evidence) -> str:
    """Return the quotation, or the words of the cause."""
    return evidence.text if evidence.cause is None else cause_text(evidence.cause)


def _repeats_outcome(verdict: Verdict) -> bool:
    """Whether the verdict only repeats why distrun ended the job; that is shown above it."""
    return verdict.task is None and verdict.kind is Kind.OTHER

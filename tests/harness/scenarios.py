"""Scenarios of a job's life as text: what happens, what distrun does at once, how it then is.

A scenario is a title (`# ...`), a line with the job, and a line for each step:

- `mwm chief worker:2 evaluator | max=1 run=60`: the strategy, the tasks, the settings.
- `worker:0 worker:1 exit 3`: what happens to tasks; `-9` is a signal. Or `stop`, `timer run`, ...
- ` -> stop worker:0; finish` behind a step: all that distrun does; ` ->+ finish`: this among it.
- `= succeeded 0 task`: how the job is now; see `CHECKS`.

With the setting `rooms`, the tasks of lost hosts may move: h1, h2 and h3 have room for more, and
events are a moment apart (`wait 1.5`: seconds more). A task is on h1 without another host.
"""

import itertools
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from distrun.agent.protocol import KILL_GRACE, Cause, Code
from distrun.job import events
from distrun.lifecycle import (
    JOB,
    SIGTERM,
    Finish,
    MakePlan,
    SetTimer,
    StartAttempt,
    StopTask,
    TaskPhase,
)
from distrun.spec.restart_spec import RestartSpec
from distrun.strategies import Success, Workers
from distrun.verdict.analysis import analyze
from distrun.verdict.model import LogTail, Verdict
from distrun.words.causes import cause_text
from harness.histories import MWM, PS, Job, backoff_over, because, restarts_planned, starts
from harness.values import not_none
from table import failures

NOT_FOUND = Cause(Code.PROGRAM_NOT_FOUND, name="x")
DISK_FULL = Cause(Code.LOG_DISK_FULL, path="/x")
SILENT, NODE_FAILED = because("silent"), Cause(Code.SLURM_NODE_FAILED, name="11")
CANCELLED = Cause(Code.SLURM_CANCELLED, name="11", text="STEP 11.1 CANCELLED")
_ENUMS: dict[str, Callable[[str], Any]] = {
    "success": lambda name: Success[name], "workers": Workers,
}  # fmt: skip
_ROOMS = " link=60 start=300 max=3 backoff=1 "


def scenarios(text: str) -> pytest.MarkDecorator:
    """Parametrize a test by the scenarios of a text, or of a file of tests/unit."""
    if text.endswith(".txt"):
        text = "\n" + Path(__file__).parents[1].joinpath("unit", text).read_text()
    blocks = [block.strip().splitlines() for block in text.split("\n# ")[1:]]
    found = [pytest.param(block[1:], id=block[0].replace(" ", "-")) for block in blocks]
    return pytest.mark.parametrize("scenario", found)


def play(scenario: Iterable[str]) -> Job:
    """Replay a scenario, and check what it says. Returns the job as it is then."""
    setup, *steps = filter(None, (line.strip() for line in scenario))
    job = _created(setup)
    for step in steps:
        if step.startswith("= "):
            check(job, step)
            continue
        what, _, expected = step.partition(" ->")
        done = describe(_happen(job, what.split()))
        if expected.startswith("+"):
            assert set(expected[1:].strip().split("; ")) <= set(done), (step, done)
        elif expected:
            assert "; ".join(done) == expected.strip().replace("nothing", ""), (step, done)
    return job


def check(job: Job, line: str) -> None:
    """Check a line that says how the job is."""
    name, _, value = line[2:].partition(" ")
    holds = CHECKS.get(name)
    assert holds(job, value) if holds else outcome_of(job) == line[2:], (line, outcome_of(job))


def describe(actions: Iterable[Any]) -> list[str]:
    """What distrun does, in words; tasks that are stopped alike are told together."""
    told = []
    for (kind, how), group in itertools.groupby(actions, lambda each: (type(each), _how(each))):
        names = " ".join(each.task for each in group) if kind in (StopTask, StartAttempt) else ""
        told.append(f"{names} {how}".strip() if not names else f"{how[0]} {names}{how[1]}")
    return told


def _how(action: Any) -> Any:
    if isinstance(action, StopTask):
        by = "" if action.signal == SIGTERM else f" by {action.signal}"
        grace = "" if action.grace == KILL_GRACE else f" grace {action.grace:g}"
        return "stop", by + grace
    if isinstance(action, StartAttempt):
        return "start", f" #{action.attempt}"
    if isinstance(action, SetTimer):
        if action.seconds is None:
            return f"cancel {action.timer}"
        seconds = "" if "restart" in str(action.timer) else f" {action.seconds:g}"
        return f"set {action.timer}{seconds}"
    if isinstance(action, MakePlan):
        return f"plan {action.restart}"
    return "finish" if isinstance(action, Finish) else type(action).__name__


def _created(setup: str) -> Job:
    words, _, settings = setup.partition("|")
    strategy, *roles = words.split()
    has_rooms = " rooms " in f"{settings} "
    fields, places, stage = _read(settings.replace(" rooms ", _ROOMS))
    job = Job()
    job.created({"mwm": MWM, "ps": PS}.get(strategy, strategy), **fields)
    names = _names(roles)
    if stage == "created":
        return job
    if has_rooms:
        job.now = 100.0
        for host in ("h1", "h2", "h3"):
            job.ready(host, token="1", room=4)
        job.placed({name: places.get(name, "h1") for name in names})
    else:
        job.planned(*names, places=places)
    assert starts(job.actions) == [(name, 0) for name in names]
    if stage == "started":
        job.started(*names)
        assert job.phase().value == "running"
    return job


def _read(settings: str) -> tuple[dict[str, Any], dict[str, str], str]:
    """Return what a job is created with, the hosts of tasks, and how far the job is."""
    fields: dict[str, Any] = {"start_timeout": None}
    policies: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    stage = "started"
    for setting in settings.split():
        name, _, value = setting.partition("=")
        role, _, key = name.rpartition(".")
        if "@" in setting:
            task, _, places[task] = setting.partition("@")
        elif setting in ("created", "planned"):
            stage = setting
        elif name in _ENUMS:
            fields[name] = _ENUMS[name](value)
        elif name in ("run", "start", "stall", "link"):
            fields[f"{name}_timeout"] = None if value == "off" else float(value)
        else:
            policies.setdefault(role, {})[key] = _policy(key, value)
    fields["role_restarts"] = {role: RestartSpec(**each) for role, each in policies.items() if role}
    if "" in policies:
        fields["restart"] = RestartSpec(**policies[""])
    return fields, places, stage


def _names(roles: list[str]) -> list[str]:
    counts = [(role, int(count or 1)) for role, _, count in (each.partition(":") for each in roles)]
    return [f"{role}:{n}" for role, count in counts for n in range(count)]


def _plan(job: Job, words: list[str]) -> list[Any]:
    """Plan tasks, each with its host; `kept=worker:0` is one that goes on."""
    kept = [each.removeprefix("kept=") for each in words if each.startswith("kept=")]
    return job.placed(dict(each.split("@") for each in words if "@" in each), *kept)


def verdicts(job: Job, **logs: str) -> list[Verdict]:
    """Return the verdict on each failure. Logs by a task's name, `worker0`."""
    texts = {name: text.encode() for name, text in logs.items()}
    return [
        analyze(case, lambda name: LogTail(texts.get(name.replace(":", ""), b"")))
        for case in failures(job.history)
    ]


def verdict_words(verdict: Verdict) -> str:
    """Return the kind of a verdict, the task, and the tasks that are echoes."""
    return " ".join([verdict.kind.value, verdict.task or "nobody", *verdict.echoes])


def _policy(key: str, value: str) -> Any:
    if key in {"backoff", "backoff_max", "reset_after"}:
        return None if value == "off" else float(value)
    if key == "on":
        return tuple(value.split(","))
    return tuple(map(int, value.split(","))) if key == "never_on" else int(value)


def _happen(job: Job, words: list[str]) -> list[Any]:
    tasks = list(itertools.takewhile(lambda word: ":" in word, words))
    verb, *rest = words[len(tasks) :]
    if tasks:
        each = (_task_event(job, task, verb, rest) for task in tasks)
        return list(itertools.chain.from_iterable(each))
    host = rest[0] if rest else "localhost"
    simple: dict[str, Callable[[], Any]] = {
        "stop": lambda: job.stop(int(rest[0]), float(rest[1])) if rest else job.stop(),
        "timer": lambda: job.timed_out(rest[0]),
        "backoff": lambda: backoff_over(job),
        "again": lambda: start_again(job, rest),
        "plan": lambda: _plan(job, rest) if "@" in rest[0] else job.planned(*rest),
        "wait": lambda: setattr(job, "now", job.now + float(rest[0])) or [],  # type: ignore[operator, func-returns-value]
        "link-lost": lambda: job(events.LinkLost, host=host, cause=Cause(Code.AGENT_EXITED)),
        "lost": lambda: job(events.HostLost, host=host, cause=NODE_FAILED if rest[1:] else SILENT),
        "fault": lambda: job(events.HostFault, host=host, cause=DISK_FULL),
        "cancelled": lambda: job(events.HostFault, host=host, cause=CANCELLED),
        "scancel": lambda: job.stop(cause=CANCELLED, exit_code=143),
        "finish": lambda: job.finish() or [],  # type: ignore[func-returns-value]
        "resume": job.resumed,
        "no-room": lambda: job(events.PlanFailed, restart=int(host), cause=Cause(Code.NO_ROOM)),
    }
    return list(simple[verb]())


def _task_event(job: Job, task: str, verb: str, rest: list[str]) -> list[Any]:
    attempt = job.attempt(task)
    if verb in ("exit", "gone"):
        number = int(rest[0])
        how = {"code": number} if number >= 0 else {"signal": -number}
        if rest[1:2] and rest[1] in ("asked", "unasked"):
            asked = rest[1] == "asked"
            return job(events.TaskExited, task=task, attempt=attempt, was_stopping=asked, **how)
        lived = float(rest[rest.index("after") + 1]) if "after" in rest else None
        return (job.exited if verb == "exit" else job.gone)(task, **how, lived=lived)
    if verb == "refused":
        return job(events.TaskNotStarted, task=task, attempt=attempt, cause=NOT_FOUND)
    if verb == "saves":
        return job(events.SavingStarted, task=task, attempt=attempt)
    if verb in ("reports", "first"):
        values = dict(each.split("=") for each in rest)
        is_printed = values.pop("printed", "") != ""
        at = float(len(job.history)) if job.now is None else job.now
        kind = events.FirstStep if verb == "first" else events.TaskReported
        first: dict[str, Any] = {"attempt": attempt, "is_printed": is_printed}
        fields = first if verb == "first" else {"step_at": at}
        return job(kind, task=task, values=values, **fields)
    return {"start": job.started, "end": job.ended}[verb](task)


def start_again(job: Job, names: list[str]) -> list[Any]:
    """All that is being stopped ends, the backoff passes, and all of these start."""
    for name in names:
        if job.state.tasks[name].phase is TaskPhase.STOPPING:
            job.exited(name, signal=SIGTERM)
        if job.state.tasks[name].phase is TaskPhase.EXITED:
            job.ended(name)
    assert {name for name, _ in starts(backoff_over(job))} == set(names)
    return job.started(*names)


def outcome_of(job: Job) -> str:
    if job.undecided():
        return "undecided"
    outcome = job.outcome
    return f"{outcome.result.value} {outcome.exit_code} {outcome.origin.value}"


def _pairs(value: str) -> dict[str, str]:
    return dict(each.split("=") for each in value.split())


def _has(found: dict[str, Any], value: str) -> bool:
    """`value` names some of the pairs; or `all X`."""
    if value.startswith("all "):
        return {str(each) for each in found.values()} == {value[4:]}
    return {name: str(found[name]) for name in _pairs(value)} == _pairs(value)


def _why(job: Job, task: str, words: str) -> bool:
    reason = job.state.tasks[task].reason
    return words in ("None" if reason is None else cause_text(reason))


def _planned(job: Job, field: str) -> list[str]:
    found = map(operator.attrgetter(field), restarts_planned(job))
    return [each if isinstance(each, str) else str(int(each)) for each in found]


CHECKS: dict[str, Callable[[Job, str], bool]] = {
    "job": lambda job, value: job.phase().value == value,
    "tasks": lambda job, value: _has(job.phases(), value),
    "attempts": lambda job, value: _has({name: job.attempt(name) for name in job.phases()}, value),
    "words": lambda job, value: cause_text(job.outcome.cause) == value,
    "mentions": lambda job, value: value in cause_text(job.outcome.cause),
    "found": lambda job, value: value == cause_text(not_none(job.state.verdict).cause),
    "cause": lambda job, value: job.outcome.task == value,
    "budget": lambda job, value: job.state.budget(JOB).counted == int(value),
    "why": lambda job, value: _why(job, *value.split(" ", 1)),
    "codes": lambda job, value: _planned(job, "cause.code.name") == value.split(),
    "numbers": lambda job, value: _planned(job, "number") == value.split(),
    "verdict": lambda job, value: verdict_words(verdicts(job)[-1]) == value,
    "left": lambda job, value: _planned(job, "left") == value.split(),
    "free": lambda job, value: _planned(job, "is_free") == value.split(),
    "left-out": lambda job, value: (
        value.split() == [each.name for each in job.state.hosts.values() if each.left_out]
    ),
    "finished": lambda job, value: (Finish in map(type, job.actions)) == (value == "yes"),
}

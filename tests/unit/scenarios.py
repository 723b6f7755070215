"""Scenarios of a job's life as text: what happens, what distrun does at once, how it then is.

A scenario is a title (`# ...`), a line with the job, and a line for each step:

- `mwm chief worker:2 evaluator | max=1 run=60`: the strategy, the tasks, the settings.
- `worker:0 worker:1 exit 3`: what happens to tasks; `-9` is a signal. Or `stop`, `timer run`, ...
- ` -> stop worker:0; finish` behind a step: all that distrun does; ` ->+ finish`: this among it.
- `= succeeded 0 task`: how the job is now; see `CHECKS`.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from distrun import events
from distrun.agent.protocol import KILL_GRACE, Cause, Code
from distrun.cli.cause_text import cause_text
from distrun.lifecycle import (
    SIGTERM,
    Account,
    CancelTimer,
    Finish,
    MakePlan,
    SetTimer,
    StartTask,
    StopTask,
    TaskPhase,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import Success, Workers

from .histories import MWM, PS, Job, backoff_over, because, restarts_planned

NOT_FOUND = Cause(Code.PROGRAM_NOT_FOUND, name="x")
DISK_FULL = Cause(Code.LOG_DISK_FULL, path="/x")
_STRATEGIES = {"mwm": MWM, "ps": PS}
_TIMES = {"backoff", "backoff_max", "reset_after"}


def scenarios(text: str) -> pytest.MarkDecorator:
    """Parametrize a test by the scenarios of a text."""
    blocks = [block.strip().splitlines() for block in text.split("\n# ")[1:]]
    found = [pytest.param(block[1:], id=block[0].replace(" ", "-")) for block in blocks]
    return pytest.mark.parametrize("scenario", found)


def play(scenario: Iterable[str]) -> Job:
    """Replay a scenario, and check what it says. Returns the job as it is then."""
    setup, *steps = filter(None, (line.strip() for line in scenario))
    job = _created(setup)
    for step in steps:
        if step.startswith("= "):
            name, _, value = step[2:].partition(" ")
            check = CHECKS.get(name)
            assert check(job, value) if check else _verdict(job) == step[2:], (step, _verdict(job))
            continue
        what, _, expected = step.partition(" ->")
        done = describe(_happen(job, what.split()))
        if expected.startswith("+"):
            assert set(expected[1:].strip().split("; ")) <= set(done), (step, done)
        elif expected:
            assert "; ".join(done) == expected.strip().replace("nothing", ""), (step, done)
    return job


def describe(actions: Iterable[Any]) -> list[str]:
    """What distrun does, in words; tasks that are stopped alike are told together."""
    told = []
    for (kind, how), group in itertools.groupby(actions, lambda each: (type(each), _how(each))):
        names = " ".join(each.task for each in group) if kind in (StopTask, StartTask) else ""
        told.append(f"{names} {how}".strip() if not names else f"{how[0]} {names}{how[1]}")
    return told


def _how(action: Any) -> Any:
    if isinstance(action, StopTask):
        by = "" if action.signal == SIGTERM else f" by {action.signal}"
        grace = "" if action.grace == KILL_GRACE else f" grace {action.grace:g}"
        return "stop", by + grace
    if isinstance(action, StartTask):
        return "start", f" #{action.attempt}"
    if isinstance(action, SetTimer):
        seconds = "" if "restart" in str(action.timer) else f" {action.seconds:g}"
        return f"set {action.timer}{seconds}"
    if isinstance(action, CancelTimer):
        return f"cancel {action.timer}"
    if isinstance(action, MakePlan):
        return f"plan {action.restart}"
    return "finish" if isinstance(action, Finish) else type(action).__name__


def _created(setup: str) -> Job:
    words, _, settings = setup.partition("|")
    strategy, *roles = words.split()
    fields: dict[str, Any] = {"start_timeout": None}
    restart: dict[str, Any] = {}
    of_roles: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    stage = "started"
    for setting in settings.split():
        name, _, value = setting.partition("=")
        role, _, key = name.rpartition(".")
        if "@" in setting:
            task, _, places[task] = setting.partition("@")
        elif setting in ("created", "planned"):
            stage = setting
        elif name == "success":
            fields[name] = Success[value]
        elif name == "workers":
            fields[name] = Workers(value)
        elif name in ("run", "start", "stall"):
            fields[f"{name}_timeout"] = float(value)
        else:
            (of_roles.setdefault(role, {}) if role else restart)[key] = _policy(key, value)
    if restart:
        fields["restart"] = RestartSpec(**restart)
    fields["role_restarts"] = {role: RestartSpec(**policy) for role, policy in of_roles.items()}
    job = Job()
    job.created(_STRATEGIES.get(strategy, strategy), fields.pop("success", None), **fields)
    names = [f"{role}:{n}" for role, _, count in (each.partition(":") for each in roles)
             for n in range(int(count or 1))]  # fmt: skip
    if stage != "created":
        assert job.planned(*names, places=places) == [StartTask(name, 0) for name in names]
    if stage == "started":
        job.started(*names)
        assert job.phase().value == "running"
    return job


def _policy(key: str, value: str) -> Any:
    if key in _TIMES:
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
        "again": lambda: _again(job, rest),
        "plan": lambda: job.planned(*rest),
        "abort": lambda: job(events.Aborted, cause=because("port 1 is taken"), exit_code=69),
        "lost": lambda: job(events.HostLost, host=host, cause=because("silent")),
        "fault": lambda: job(events.HostFault, host=host, cause=DISK_FULL),
        "finish": lambda: job.finish() or [],  # type: ignore[func-returns-value]
    }
    return list(simple[verb]())


def _task_event(job: Job, task: str, verb: str, rest: list[str]) -> list[Any]:
    if verb in ("exit", "gone"):
        number = int(rest[0])
        how = {"code": number} if number >= 0 else {"signal": -number}
        lived = float(rest[rest.index("after") + 1]) if "after" in rest else None
        if rest[1:2] and rest[1] in ("asked", "unasked"):
            return job(events.TaskExited, task=task, attempt=0, code=number, signal=None,
                       was_stopping=rest[1] == "asked")  # fmt: skip
        happen = job.exited if verb == "exit" else job.gone
        return happen(task, **how, lived=lived)
    attempt = job.attempt(task)
    if verb == "refused":
        return job(events.TaskNotStarted, task=task, attempt=attempt, cause=NOT_FOUND)
    if verb == "saves":
        return job(events.SavingStarted, task=task, attempt=attempt)
    if verb == "reports":
        values = dict(each.split("=") for each in rest)
        return job(events.TaskReported, task=task, values=values)
    return {"start": job.started, "end": job.ended}[verb](task)


def _again(job: Job, names: list[str]) -> list[Any]:
    """All that is being stopped ends, the backoff passes, and all of these start."""
    for name in names:
        if job.state.tasks[name].phase is TaskPhase.STOPPING:
            job.exited(name, signal=SIGTERM)
        if job.state.tasks[name].phase is TaskPhase.EXITED:
            job.ended(name)
    started = [each for each in backoff_over(job) if isinstance(each, StartTask)]
    assert {each.task for each in started} == set(names)
    return job.started(*names)


def _verdict(job: Job) -> str:
    outcome = job.state.outcome
    if outcome is None:
        return "undecided"
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
    get = operator.attrgetter(field)
    return [str(int(get(each))) for each in restarts_planned(job)]


CHECKS: dict[str, Callable[[Job, str], bool]] = {
    "job": lambda job, value: job.phase().value == value,
    "tasks": lambda job, value: _has(job.phases(), value),
    "attempts": lambda job, value: _has(job.attempts(), value),
    "words": lambda job, value: job.words == value,
    "mentions": lambda job, value: value in job.words,
    "cause": lambda job, value: job.outcome.task == value,
    "budget": lambda job, value: job.state.budgets[Account.JOB].counted == int(value),
    "why": lambda job, value: _why(job, *value.split(" ", 1)),
    "left": lambda job, value: _planned(job, "left") == value.split(),
    "free": lambda job, value: _planned(job, "is_free") == value.split(),
    "restarts": lambda job, value: len(restarts_planned(job)) == int(value),
    "finished": lambda job, value: (
        functools.reduce(operator.or_, (isinstance(each, Finish) for each in job.actions))
        == (value == "yes")
    ),
}

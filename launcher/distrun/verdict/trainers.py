"""How far the tasks that train came, each against the others, and whether they met."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distrun.agent.protocol.causes import Cause, Code
from distrun.strategies import Role, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distrun.lifecycle import JobState, TaskState
    from distrun.verdict.log_analysis import LogAnalysis
    from distrun.verdict.model import Found

_TRAINS = (Role.CHIEF, Role.WORKER)
_FAR_BEHIND = 0.1
"""The part of a peer's steps, and of its time, by which a task is far behind."""
_FEWEST_STEPS, _FEWEST_SECONDS = 5, 1.0
_COUNT = re.compile(
    r"(?i)[^a-z]{0,40}(?:[a-z]{1,12}[ _])?(?P<name>epoch|step|iter(?:ation)?|batch)"
    r"[\s:=#\[(]{1,4}(?P<count>\d{1,9})\b(?!\.\d{1,9}e)"
)
_FEWEST = 2
_MOST_SHOWN = 4
_REPORT_SECONDS = 1.0


def without_contact(state: JobState) -> str:
    """Return `silent` if no task of a cluster ever listened, `alone` if none reached another."""
    training = [task for task in state.tasks.values() if task.role in _TRAINS]
    directing = [task for task in training if not state.rule(task).serves]
    contacts = {task.exit.contact for task in directing if not task.owns_tf_config}
    if len(training) < _FEWEST or not state.row.tf_config or len(contacts) != 1:
        return ""
    # Who trains with parameter servers may connect to those alone.
    has_servers = any(task.role is Role.PS for task in state.tasks.values())
    known = ("silent",) if has_servers else ("silent", "alone")
    return next((each for each in contacts if each in known), "")


def find_without_contact(state: JobState) -> Iterator[Found]:
    """Find the tasks that should have trained together, and never met."""
    strategy = state.row.classes[0] if state.row.classes else ""
    silent, alone = Cause(Code.NEVER_LISTENED, name=strategy), Cause(Code.TRAINED_ALONE)
    if contact := without_contact(state):
        cause = silent if contact == "silent" else alone
        names = (task.name for task in state.tasks.values() if task.role in _TRAINS)
        yield from ((cause._replace(task=name), ()) for name in names)


def not_finite(done: list[TaskState]) -> Iterator[Found]:
    """Find tasks whose last loss is no number any more."""
    for task in done:
        loss = (task.reported.get("LOSS") or task.reported.get("TRAIN_LOSS", "")).lower()
        if loss.strip("+-") in ("nan", "inf"):
            yield Cause(Code.VALUES_NOT_FINITE, task=task.name, text=f"loss {loss}"), ()


def left_behind(
    state: JobState, done: list[TaskState], log_of: Callable[[TaskState], LogAnalysis]
) -> Iterator[Found]:
    """Find tasks that exited 0 long before the others, at an earlier step: preemptions, mostly."""
    training = [task for task in done if task.role in _TRAINS]
    reached = {
        task.name: task.reported or printed_place(reversed(log_of(task).lines)) for task in training
    }
    training = [task for task in training if _position(reached[task.name])]
    if not training:
        return
    first = max(training, key=lambda task: _place_of(reached[task.name]))
    for task in training:
        own, log = reached[task.name], log_of(task)
        at = None if _is_of_children(log) else log.sigterm
        if not _is_far_behind(own, reached[first.name]):
            goal = {key: own[f"{key}S"] for key in ("EPOCH", "STEP") if f"{key}S" in own}
            printed = "" if at is None else log.lines[at].lower()
            is_near = not _is_far_behind({key: own.get(key, "0") for key in goal}, goal)
            if is_near or not ("sigterm" in printed or "signal 15" in printed):
                continue
            cause = Cause(Code.PREEMPTED_SILENTLY, task=task.name, text=_place(own))
            total = _place(goal) if len(goal) > 1 else "".join(goal.values())
            yield cause._replace(expected=total), (log.evidence(at or 0),)
            continue
        # Workers that are independent do different parts.
        is_early = state.rule(task).restarts is Scope.GROUP and _left_early(task, first)
        if at is None and not is_early:
            continue
        cause = Cause(Code.LEFT_BEHIND if at is None else Code.PREEMPTED_SILENTLY, task=task.name)
        cause = cause._replace(
            text=_place(reached[task.name]), name=first.name, expected=_place(reached[first.name])
        )
        yield cause, (() if at is None else (log.evidence(at),))


def _is_of_children(log: LogAnalysis) -> bool:
    """Whether the program trained on after it had printed the line on a signal before."""
    at = log.sigterm
    first = None if at is None else log.lines.index(log.lines[at])
    return first != at and any(map(_COUNT.match, log.lines[first:at]))


def _steps_unseen(task: TaskState) -> float:
    """Return how many steps a task may take before its first report is read."""
    seconds = (task.exited_at or 0.0) - (task.first_step_at or 0.0)
    steps = _place_of(task.reported)[1] - _place_of(task.first_step)[1]
    return steps / seconds * _REPORT_SECONDS if seconds > 0 else 0.0


def _first_steps(log: LogAnalysis) -> tuple[str, int, int] | None:
    """Return what a log calls a step, the first one, and how far from it the next one is."""
    found = filter(None, map(_COUNT.match, log.lines if log.has_beginning else ()))
    steps = [(e["name"].lower(), int(e["count"])) for e in found if e["name"].lower() != "epoch"]
    is_known = len(steps) > 1 and steps[0] < steps[1]
    return (*steps[0], steps[1][1] - steps[0][1]) if is_known else None


def uneven_starts(state: JobState, log_of: Callable[[TaskState], LogAnalysis]) -> Iterator[Found]:
    """Find whether tasks that train together began at different steps, after a restart."""
    from distrun.verdict.log_analysis import RESTORED  # slow; most successes need none of it

    again = [
        task
        for task in state.tasks.values()
        if task.role in _TRAINS and task.attempt and state.rule(task).restarts is Scope.GROUP
    ]
    began = {task.name: task.first_step or printed_place(log_of(task).lines) for task in again}
    again = [task for task in again if _position(began[task.name])]
    if len({tuple(sorted(began[task.name])) for task in again}) != 1 or len(again) < _FEWEST:
        return  # not known, or lines of two forms
    shown = [each for each in (_first_steps(log_of(task)) for task in again) if each is not None]
    may_differ = max(_FEWEST_STEPS, *map(_steps_unseen, again))
    if len(shown) == len(again) and len({name for name, *_ in shown}) == 1:
        for task, (_, step, _) in zip(again, shown, strict=True):
            began[task.name] = {**began[task.name], "STEP": str(step)}
        may_differ = max(distance for *_, distance in shown)
    places = {_place_of(began[task.name]) for task in again}
    (first, one), (last, other) = min(places), max(places)
    if first == last and other - one <= may_differ:
        return
    starts, quoted = [], []
    for task in again[:_MOST_SHOWN]:
        log = log_of(task)
        found = next(filter(None, map(RESTORED.search, log.lines)), None)
        path = "" if found is None else found["path"].rstrip(".,;:'\")")
        place = _place(began[task.name])
        starts.append(Cause(Code.WAS_AT, task=task.name, text=place, path=path))
        if found is not None:
            quoted.append(log.evidence(log.lines.index(found.string)))
    yield Cause(Code.STARTS_UNEVEN, within=(*starts, *state.unshared)), tuple(quoted)


def place_reached(task: TaskState, log: LogAnalysis) -> str:
    """Return the last epoch and step that a task reported or printed, in words, or ''."""
    return _place(task.reported or printed_place(reversed(log.lines)))


def may_be_behind(done: list[TaskState]) -> bool:
    """Whether the first of these tasks exited long before the last."""
    training = [task for task in done if task.role in _TRAINS]
    training.sort(key=lambda task: task.exited_at or 0.0)
    return bool(training) and _left_early(training[0], training[-1])


def printed_place(lines: Iterable[str]) -> dict[str, str]:
    """Return the first epoch or step in lines, of those that progress is not read from, too."""
    for line in lines:
        found = _COUNT.match(line)
        if found is not None:
            return {"EPOCH" if found["name"].lower() == "epoch" else "STEP": found["count"]}
    return {}


def _place_of(values: Mapping[str, str]) -> tuple[float, float]:
    return _position(values) or (0.0, 0.0)


def _position(values: Mapping[str, str]) -> tuple[float, float] | None:
    try:
        numbers = (float(values.get("EPOCH", 0)), float(values.get("STEP", 0)))
    except ValueError:
        return None
    return numbers if any(key in values for key in ("EPOCH", "STEP")) else None


def _place(values: Mapping[str, str]) -> str:
    names = (("epoch", "EPOCH"), ("step", "STEP"))
    return ", ".join(f"{name} {values[key]}" for name, key in names if key in values)


def _is_far_behind(own: Mapping[str, str], peer: Mapping[str, str]) -> bool:
    (epoch, step), (last_epoch, last_step) = _place_of(own), _place_of(peer)
    if any((key in own) != (key in peer) for key in ("EPOCH", "STEP")):
        return False  # lines of two forms
    if epoch != last_epoch:
        return last_epoch - epoch >= max(1.0, last_epoch * _FAR_BEHIND)
    return last_step - step >= max(_FEWEST_STEPS, last_step * _FAR_BEHIND)


def _left_early(task: TaskState, peer: TaskState) -> bool:
    before = (peer.exited_at or 0.0) - (task.exited_at or 0.0)
    return before >= max(_FEWEST_SECONDS, (peer.exit.lived or 0.0) * _FAR_BEHIND)


def reached_of_total(own: Mapping[str, str]) -> str:
    """Return `epoch 3 of 10` if epochs, or without them steps, were left to do, else ''."""
    key = "EPOCH" if "EPOCH" in own else "STEP"
    reached, total = (_place_of({"STEP": own.get(each, "0")})[1] for each in (key, f"{key}S"))
    least = 1 if key == "EPOCH" else _FEWEST_STEPS
    left = total - reached - (key == "EPOCH")  # they may count from 0
    is_short = left >= max(least, total * _FAR_BEHIND)
    return f"{key.lower()} {own.get(key, '0')} of {own[f'{key}S']}" if is_short else ""

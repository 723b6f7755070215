"""Jobs beside each other: their key figures, what differs in specs and versions, and curves."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from distrun import __version__
from distrun.frozen import replace
from distrun.job import events
from distrun.job.folder import JobFolder
from distrun.job.history import Sample
from distrun.job.job import read_job
from distrun.job.json_output import progress_json
from distrun.job.steps import STEP, is_of_epoch, numbers, steps_done
from distrun.job.timing import Phase, first_time
from distrun.redaction.redactor import Redactor, secret_values
from distrun.report import plots
from distrun.report.series import COUNTS, RATE, Panel, Point, metric_title, metrics, points
from distrun.spec.regular_file import read_regular_file

_LARGEST_FILE = 16 << 20
_LEAST_SECONDS = 5.0
"""Of which a rate is known: printed steps are noticed up to half a second late."""
_OF_NO_INTEREST = {
    "name",
    "source",
    "origin",
    "sync_base",
    "local",
    "owns_tf_config",
    "is_workdir_chosen",
    "role",
    "expects_free_port",
    "why",
}
"""Fields of a spec that follow from others, or differ between any two jobs."""
_NAMED_BY_USERS = ("cluster.", "hosts.", "env.", "options.")
"""The ends of the paths of mappings whose keys are not fields."""
_NAMES = {"program.interpreter.path": "program.python", "program.target": "program.script"}


class Run:
    def __init__(self, folder: JobFolder) -> None:
        self.id = folder.job_id
        self.folder = folder
        self.job = read_job(folder)
        self._history, tasks = self.job.history, self.job.state.tasks
        self._samples = {
            task: with_whole_epochs(each, numbers(tasks[task].first_step))
            for task, each in self.job.samples.items()
        }
        self.metrics = metrics(self._samples)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """Its key figures; None: unknown, or it has none."""
        job, state, shown = self.job, self.job.state, self.job.summary()
        end = state.ended_at or (time.time() if job.is_running else None)
        reported = self._last_reported
        progress = {key: each for key, each in reported.items() if not isinstance(each, str)}
        counts = ("exit_code", "created_at", "restarts", "resumed", "cpu_seconds", "task_count")
        return {
            "state": job.phase,
            "cause": job.cause_word,
            **{name: shown[name] for name in counts},
            "host_count": len(job.hosts_in_use) if job.has_counts else None,
            "seconds": None if end is None else max(0.0, end - state.created_at),
            "first_output_seconds": first_time(job.timing, Phase.FIRST_OUTPUT),
            "first_step_seconds": first_time(job.timing, Phase.FIRST_STEP),
            "step": progress.get(STEP),
            "epoch": progress.get("EPOCH"),
            "steps_per_second": self._step_rate(),
            "examples_per_second": progress.get(RATE),
            "peak_memory_bytes": shown["peak_memory_bytes"],
            "metrics": {key: each for key, each in reported.items() if key not in COUNTS},
        }

    @property
    def _last_reported(self) -> dict[str, float | str]:
        """What the task that reports most has reported last; nan and inf are texts."""
        task = self._reporting(STEP) or next(iter(self._samples), "")
        of_tasks = {each.state.name: each.progress for each in self.job.tasks}
        return progress_json(of_tasks.get(task) or self.job.progress)

    def _reporting(self, key: str) -> str | None:
        """Return the task that has most samples with this key; the first of several."""
        having = {
            task: sum(key in sample.progress for sample in each)
            for task, each in self._samples.items()
        }
        task = max(having, key=having.__getitem__, default="")
        return task if having.get(task) else None

    def _of_task(self, key: str) -> list[Sample]:
        """Return the samples of the task that has most with this key."""
        return self._samples.get(self._reporting(key) or "", [])

    @property
    def steps(self) -> list[tuple[Sample, float]]:
        """The samples of the task that reports most, with the steps done by then."""
        return steps_of(self._of_task(STEP))

    def _step_rate(self) -> float | None:
        """Return the steps a second, over the time of all attempts between their samples."""
        steps = seconds = 0.0
        before: tuple[float, float] | None = None
        for at, step in self.over_time(self.steps):
            if before is not None and not math.isnan(step):
                steps, seconds = steps + max(0.0, step - before[1]), seconds + at - before[0]
            before = None if math.isnan(step) else (at, step)
        return steps / seconds if steps > 0 and seconds >= _LEAST_SECONDS else None

    def over_time(self, values: Sequence[tuple[Sample, float]]) -> list[Point]:
        """Return points by the seconds since the job began; NaN between two attempts."""
        return points(values, lambda each: each.at - self.job.state.created_at)

    def _curve(self, key: str) -> list[tuple[Sample, float]]:
        return [(each, each.progress[key]) for each in self._of_task(key) if key in each.progress]

    def curve_over_time(self, key: str) -> list[Point]:
        return self.over_time(self._curve(key))

    def over_steps(self, key: str) -> list[Point]:
        steps = {id(sample): step for sample, step in steps_of(self._of_task(key))}
        known = [each for each in self._curve(key) if id(each[0]) in steps]
        return points(known, lambda each: steps[id(each)])

    @cached_property
    def settings(self) -> tuple[dict[str, str], ...]:
        """Its versions, hosts and spec by the name of each key, without secrets; empty: unknown."""
        versions: dict[str, str] = {}
        for event in self._history:
            if isinstance(event, events.JobCreated):
                versions = {f"{name} version": each for name, each in event.versions.items()}
        ready = self.job.ready_hosts
        hosts = [each for name, each in ready.items() if name in self.job.hosts_in_use]
        found = {
            "Python of agents": {each.python for each in hosts},
            "cores of hosts": {f"{each.cores:g}" for each in hosts},
            "GPUs of hosts": {str(len(each.gpus)) for each in hosts},
        }
        facts = {name: ", ".join(sorted(values)) for name, values in found.items() if values}
        try:
            content = read_regular_file(str(self.folder.resolved_spec_file), largest=_LARGEST_FILE)
            spec = json.loads(content or b"{}")
        except (OSError, ValueError, RecursionError):
            spec = None
        redacted = Redactor(secret_values(self.folder), mask="***").value(spec)
        return versions, facts, dict(_flattened(redacted) if isinstance(redacted, dict) else ())


def steps_of(samples: Sequence[Sample]) -> list[tuple[Sample, float]]:
    """Return samples with the steps done by then, in all epochs."""
    reported = [each for each in samples if STEP in each.progress]
    attempts = itertools.groupby(reported, lambda each: each.attempt)
    of_epoch = any(is_of_epoch([each.progress for each in group]) for _, group in attempts)
    done = [(each, steps_done(each.progress, of_epoch=of_epoch)) for each in reported]
    # Epochs may begin with 0.
    begun = min((steps - each.progress[STEP] for each, steps in done), default=0.0)
    return [(each, steps - min(begun, 0.0)) for each, steps in done]


def with_whole_epochs(samples: list[Sample], first: Mapping[str, float]) -> list[Sample]:
    """Add the steps to samples of a program that prints its step only when an epoch ends.

    When the next epoch begins, it has no step until that ends. `first`: when it had its first step.
    """
    begun = {STEP: 0.0, "STEPS": first.get(STEP, 0.0)}
    reported = {each.progress.get("STEPS") for each in samples if STEP in each.progress}
    if begun["STEPS"] <= 1 or not reported <= {begun["STEPS"]}:
        return samples
    return [
        replace(each, progress=begun | each.progress) if "EPOCH" in each.progress else each
        for each in samples
    ]


def _flattened(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, each in value.items():
        name = f"{path}{key}"
        if key in _OF_NO_INTEREST and not path.endswith(_NAMED_BY_USERS):
            continue
        if key in ("roles", "hosts") and isinstance(each, list):
            named = {str(one.get("role") or one.get("name")): one for one in each if one}
            name = "cluster" if key == "roles" else "hosts"
            yield name, ", ".join(named)
            yield from _flattened(named, f"{name}.")
        elif isinstance(each, dict):
            yield from _flattened(each, f"{name}.")
        elif isinstance(each, list):
            yield name, " ".join(map(str, each))
        else:
            is_unset = each is None or (each is False and path.startswith("hosts."))
            # As in the YAML file. Each float of a spec is a duration.
            text = f"{each:.12g}s" if isinstance(each, float) else str(each)
            text = text.lower() if isinstance(each, bool) else text
            yield _NAMES.get(name, name), "" if is_unset else text


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return what differs in specs and versions: the value of each job by the key's name."""
    found: dict[str, list[str]] = {}
    for groups in zip(*(run.settings for run in runs), strict=True):
        for name in dict.fromkeys(name for group in groups for name in group):
            known = {group.get(name, "") for group in groups if group}
            if len(known) > 1:
                found[name] = [group.get(name, "") for group in groups]
    return found


def drawn(runs: Sequence[Run]) -> list[plots.Plot]:
    numbers = {run.id: number for number, run in enumerate(runs)}
    keys = list(dict.fromkeys([*(key for run in runs for key in run.metrics), RATE]))
    by_steps = [_panel(key, "over steps", runs, Run.over_steps) for key in keys]
    by_time = [_panel(key, "over time", runs, Run.curve_over_time) for key in keys]
    steps = {run.id: run.over_time(run.steps) for run in runs}
    by_time.append(Panel(title="Steps over time", unit="steps", curves=steps))
    found = []
    for panels, counts in ((by_steps, True), (by_time, False)):
        # Of a single point, nothing would be seen.
        shown = [each for each in panels if any(len(dict(c)) > 1 for c in each.curves.values())]
        lines = sum(len(each.curves) for each in shown)
        places = [at for each in shown for points in each.curves.values() for at, _ in points]
        axis = plots.TimeAxis(0.0, max([1.0, *places]) * 1.01, counts)
        found += [plots.curves(each, numbers, (), axis, lines) for each in shown]
    return found


def _panel(
    key: str, over: str, runs: Sequence[Run], points: Callable[[Run, str], list[Point]]
) -> Panel:
    what, unit = metric_title(key), ""
    if key == RATE:
        what, unit = "Examples per second", "examples/s"
    curves = {run.id: points(run, key) for run in runs}
    return Panel(title=f"{what} {over}", unit=unit, curves=curves)


def render(runs: Sequence[Run], tables: Mapping[str, Sequence[tuple[str, Sequence[str]]]]) -> str:
    """Return the page. `tables`: rows of a name and a value for each job, by the table's title."""
    from distrun.report.page import date, template  # slow: `compare` may need no page

    return template("compare.html").render(
        jobs=[run.id for run in runs],
        tables=tables,
        plots=drawn(runs),
        redact=str,
        made_at=date(time.time()),
        version=__version__,
    )

"""`distrun compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from distrun.cli import console
from distrun.cli.job_faults import tell_problem, tell_record_fault
from distrun.cli.options import job_argument, json_option, output_option
from distrun.cli.output_file import write_file
from distrun.errors import UsageError
from distrun.job import queued_job
from distrun.job.folder import JobStore
from distrun.report.comparison import Run, differences, render
from distrun.spec.units import format_bytes
from distrun.words.formats import format_duration, format_time
from distrun.words.table import Column, make_table

Row = tuple[str, Sequence[str]]
_FEWEST, _MOST = 2, 6
_MOST_IN_FULL, _WIDEST_IN_PIPE = 3, 120
"""Jobs without a line of what is the same in all, and columns."""
_WIDEST_VALUE = 32
"""Characters of a column; longer values are folded."""
_LARGEST_COUNT = 1e15


@click.command("compare")
@job_argument(many=True)
@output_option("Also write one HTML page, with the curves over steps and over time.")
@json_option
def command(jobs: tuple[str, ...], output: str | None, as_json: bool) -> int:
    """Show two to six jobs side by side: key figures, and what differs in specs and versions.

    Loss, other metrics, step and rate are the last ones of the task that reports most; "steps/s" is
    the mean while the job was sampled. Values that look like secrets are shown as ***. Jobs may
    still run, or may have failed; an empty cell is not known.

    \b
      distrun compare mnist night
      distrun compare mnist night -o compare.html
    """
    store = JobStore.default()
    folders = [store.find(job) for job in jobs]
    ids = [folder.job_id for folder in folders]
    twice = next((each for each in ids if ids.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice", hint="a name stands for the newest job of it")
    if not _FEWEST <= len(ids) <= _MOST:
        raise UsageError(f"name two to six jobs, not {len(ids)}")
    for folder in folders:
        queued_job.refresh(folder)
        tell_record_fault(folder)
    runs = [Run(folder) for folder in folders]
    tell_problem(run.job for run in runs)
    found = differences(runs)
    if as_json:
        console.print_json(
            {
                "jobs": [{"job_id": run.id, **run.numbers} for run in runs],
                "differences": [{"name": key, "values": each} for key, each in found.items()],
            }
        )
    else:
        figures = list(_figures(runs))
        alike = [(name, each) for name, each in figures if len({*each}) == 1]
        alike = alike if len(ids) > _MOST_IN_FULL and len(alike) < len(figures) else []
        _print_table(ids, [each for each in figures if each not in alike])
        console.print_text("")
        if alike:
            text = ", ".join(f"{name} {values[0]}" for name, values in alike)
            console.print_text(f"the same in all: {text}\n", indent=2)
        if found:
            _print_table(ids, list(found.items()))
        else:
            console.print_text("nothing differs in specs and versions that the records have")
    if output is not None:
        console.require("a report", "jinja2")
        rows = list(found.items())
        tables: dict[str, Sequence[Row]] = {
            "Key figures": list(_figures(runs)),
            "What differs in spec and versions": rows,
        }
        with write_file(output) as file:
            file.write(render(runs, tables).encode("utf-8", "replace"))
        console.print_message(f"wrote {Path(output)}")
    return 0


def _figures(runs: Sequence[Run]) -> Iterator[Row]:
    values = [{**run.numbers, **run.numbers["metrics"]} for run in runs]
    forms: dict[str, tuple[str, Callable[[Any], str]]] = {
        "state": ("state", str),
        "cause": ("cause", str),
        "exit_code": ("exit code", str),
        "created_at": ("began", lambda at: format_time(at) if at else ""),  # its record is missing
        "seconds": ("lasted", format_duration),
        "task_count": ("tasks", str),
        "host_count": ("hosts", str),
        "restarts": ("restarts", str),
        "resumed": ("resumed", str),
        "first_output_seconds": ("until first output", format_duration),
        "first_step_seconds": ("until first step", format_duration),
        "epoch": ("epoch", _number),
        "step": ("step", _number),
        "steps_per_second": ("steps/s", _number),
        "examples_per_second": ("examples/s", _number),
        **{key: (key.lower(), _number) for run in runs for key in run.numbers["metrics"]},
        "cpu_seconds": ("processor time", format_duration),
        "peak_memory_bytes": ("peak memory", format_bytes),
    }
    for key, (title, form) in forms.items():
        found = [each.get(key) for each in values]
        if any(each is not None for each in found):
            yield title, ["" if each is None else form(each) for each in found]


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    is_count = value == int(value) and abs(value) < _LARGEST_COUNT
    return f"{value:,.0f}" if is_count else f"{value:.4g}"


def _print_table(ids: Sequence[str], rows: Sequence[Row]) -> None:
    """Print rows; the jobs that do not fit beside the others follow in a further table."""
    out = console.rich_console()
    width = out.width if out.is_terminal else _WIDEST_IN_PIPE
    left = max(len(name) for name, _ in rows)
    first, used = 0, left
    for index in range(len(ids) + 1):
        cells = [values[index] for _, values in rows] if index < len(ids) else []
        wide = min(max(map(len, [ids[index], *cells])), _WIDEST_VALUE) if cells else width + 1
        if index > first and used + 2 + wide > width:  # also after the last one
            columns = [Column("JOB"), *(Column(ids[each]) for each in range(first, index))]
            shown = [
                {"JOB": name, **{ids[each]: values[each] for each in range(first, index)}}
                for name, values in rows
            ]
            if first:
                console.print_text("")
            console.print_renderable(make_table(columns, shown, width))
            first, used = index, left
        used += 2 + wide

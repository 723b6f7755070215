"""`distrun profile`."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from distrun import __version__
from distrun.advice import gpus, profile
from distrun.advice.model import Kind
from distrun.advice.profile import SlowLink, Straggler, TaskProfile, Timeline, Traffic
from distrun.advice.rules import find_slowdown
from distrun.cli import console
from distrun.cli.options import duration, job_argument, json_option, output_option, task_option
from distrun.cli.output_file import write_file
from distrun.cli.stacks import problems, take
from distrun.codec import to_json
from distrun.errors import HostError
from distrun.frozen import replace
from distrun.job import history, py_spy, queued_job
from distrun.job.folder import replace_file
from distrun.job.stacks import Frame, Stacks
from distrun.report.flame import INPUT_MARK
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes
from distrun.strategies import Role
from distrun.words.advice import gpus_text, link_text, reason_text, slowdown_text
from distrun.words.formats import format_names
from distrun.words.table import Column, make_table

_MOST_COLUMNS = 4
"""Of tasks. Of more, the one that the others wait for is shown, and the median of each role."""
_LEAST_SHOWN = 0.005
_MOST_SECONDS = 300
_LEAST_SENT = 10_000
"""Bytes a second."""
_MOSTLY, _FULL = 0.5, 0.8
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


@click.command("profile")
@job_argument(only="running")
@task_option
@click.option(
    "--seconds",
    metavar="N",
    default="10",
    callback=lambda _, __, value: _whole_seconds(value),
    help="How long to look: 1 to 300, or a duration such as 1m. Default: 10.",
)
@output_option(
    "Also write the stacks of all tasks, for https://www.speedscope.app (a flame graph)."
)
@json_option
def command(
    job: str | None, tasks: tuple[str, ...], seconds: int, output: str | None, as_json: bool
) -> int:
    """Show where each task's time goes, without stopping it. Default: the running job.

    It samples all tasks on all hosts at the same time. For each task it shows how much of the time
    it computes, waits for others or for input, saves, evaluates, prints or runs its own Python,
    with the line of your program. If the others wait for one task, it names that task and how it
    differs: for example a longer step, fewer cores, a slow generator.

    It needs py-spy here, and nothing on the hosts: pip install py-spy

    Without py-spy, only busy and idle times are known.

    \b
      distrun profile mnist --seconds 2 -o mnist.json
    """
    folder = queued_job.find(job)
    # A file that cannot be written is said before anybody waits for it.
    with nullcontext() if output is None else write_file(Path(output)) as file:
        began, found = time.time(), take(folder, tasks, seconds=seconds)
        state = folder.state()
        each_one = (profile.profile(p, state.training, state.gpu_tasks) for p in found.processes)
        profiles = [each for each in each_one if each is not None]
        synchronous = [
            task for task in state.synchronous_tasks if (task.ended_at or began) >= began
        ]
        members = {task.name for task in synchronous}
        members -= {each.task for each in found.processes if not each.is_python}
        hosts = {task.name: task.host for task in state.tasks.values()}
        has_begun = any(task.first_step_at is not None for task in synchronous)
        servers = {task.name for task in state.tasks.values() if task.role is Role.PS}
        straggler = profile.straggler(profiles, members, hosts, has_begun=has_begun)
        straggler = straggler or profile.busiest_server(profiles, servers, hosts)
        if straggler is not None:
            samples = history.read(folder, [straggler.task])
            slowdown = find_slowdown(samples.get(straggler.task, []))
            straggler = replace(straggler, since=slowdown)
        traffic = profile.find_traffic(profiles)
        slow_link = profile.find_slow_link(traffic, members, hosts)
        if as_json:
            shown = profile_json(profiles, straggler, found)
            shown |= {"traffic": to_json(traffic), "slow_link": to_json(slow_link)}
            if (hindrance := to_json(profile.hindrance(profiles, hosts))) is not None:
                reason = hindrance.pop("reason")
                hindrance |= {name: reason[name] for name in ("obstacle", "amount", "usual")}
            shown["hindrance"] = hindrance
            console.print_json({"job_id": folder.job_id, "seconds": seconds, **shown})
        else:
            has_program = folder.is_elsewhere or py_spy.find() is not None
            width = console.rich_console().width
            view = profile_view(profiles, straggler, found, width, hosts, has_program=has_program)
            console.print_renderable(view)
            for line in network_lines(traffic, slow_link):
                console.print_text(line)
        last = max((each.seconds for each in profiles), default=seconds)
        if last < seconds - 1:
            console.print_message(f"the tasks ended meanwhile: this is of their last {last:.0f} s")
        stacks = json.dumps(speedscope(profiles, folder.job_id))
        with suppress(OSError):  # of the report's page
            replace_file(folder.profile_file, stacks)
        if file is not None:
            file.write(stacks.encode())
    if file is not None:
        console.print_message(f"wrote {output}: open it with https://www.speedscope.app")
    return 0 if profiles else HostError.exit_code


def _whole_seconds(text: str) -> int:
    seconds = math.ceil(duration(text if text[-1:].isalpha() else f"{text}s"))
    if not 1 <= seconds <= _MOST_SECONDS:
        raise click.BadParameter(f"{text!r} is not from 1 to {_MOST_SECONDS} seconds")
    return seconds


def profile_json(
    profiles: Sequence[TaskProfile], straggler: Straggler | None, found: Stacks
) -> dict[str, Any]:
    known = {each.task: each for each in profiles}
    tasks = []
    for process in found.processes:
        each = known.get(process.task)
        shares, places = (each.shares, each.places) if each is not None else ({}, {})
        kinds = [
            {"kind": kind.value, "share": round(share, 4), "place": places[kind]}
            for kind, share in shares.items()
        ]
        about = {"task": process.task, "pid": process.pid, "error": process.error, "kinds": kinds}
        used = 0.0 if each is None else each.cpu_seconds
        shown = [] if each is None else to_json(gpus.read(each.recording))
        tasks.append({**about, "cpu_seconds": round(used, 2), "gpus": shown})
    who = to_json(straggler)
    return {"tasks": tasks, "straggler": who, "hosts_without_answer": found.silent}


def profile_view(
    profiles: Sequence[TaskProfile],
    straggler: Straggler | None,
    found: Stacks,
    width: int,
    hosts: Mapping[str, str],
    *,
    has_program: bool,
) -> Group:
    """Return the profile as text, in some ten lines."""
    lines: list[Any] = []
    if profiles:
        lines.append(_table(profiles, straggler, width))
        lines += [Text(printable(line)) for line in _gpu_lines(profiles, straggler)]
    if straggler is not None:
        slow = (straggler.task, *straggler.also)
        names = format_names(sorted(slow, key=lambda name: (len(name), name)))
        what = "the job"
        if {each.kind for each in straggler.reasons[:1]} & {Kind.SAVING, Kind.EVALUATION}:
            what = "what was seen here (a longer --seconds shows more of the job)"
        gain = f"without that, {what} would take {straggler.gain:.0%} less time"
        reasons = straggler.reasons
        if any(each.is_suspended for each in found.processes if each.task in slow):
            gain, reasons = "it is suspended", ()
        lines.append(Text(f"the others wait for {names}: {gain}", "bold"))
        lines += [Text(f"  {printable(reason_text(each))}") for each in reasons]
        if straggler.since is not None:
            lines.append(Text(f"  {slowdown_text(straggler.since)}"))
    elif (found_one := profile.hindrance(profiles, hosts)) is not None:
        lines.append(Text(f"{found_one.task}: {reason_text(found_one.reason)}"))
    if not has_program:
        command = console.install_command("py-spy")
        lines.append(Text(f"what they do is not known without py-spy here: {command}"))
        found.processes[:] = [each for each in found.processes if each.recording is None]
    return Group(*lines, *map(Text, map(printable, problems(found))))


def _gpu_lines(profiles: Sequence[TaskProfile], straggler: Straggler | None) -> list[str]:
    """Return what the GPUs of each task do; of many tasks, of the slowest and the least busy."""
    found = {each.task: gpus.read(each.recording) for each in profiles}
    found = {task: each for task, each in found.items() if each}
    if len(found) > _MOST_COLUMNS:
        idle = min(found, key=lambda task: sum(gpu.busy_percent or 0.0 for gpu in found[task]))
        slow = idle if straggler is None else straggler.task
        found = {task: each for task, each in found.items() if task in (idle, slow)}
    return [gpus_text(task, each) for task, each in found.items()]


def network_lines(traffic: Sequence[Traffic], slow: SlowLink | None) -> list[str]:
    """Return what tasks send each other, and the task whose link is slow: two lines at most."""
    more = [] if slow is None else [link_text(slow.task, slow.round_trip, slow.usual)]
    sent = sum(each.sent_bytes for each in traffic)
    if sent < _LEAST_SENT:
        return more
    # All wait for the slower one of two ways.
    ways = [each for each in traffic if each.sent_bytes >= _MOSTLY * traffic[0].sent_bytes]
    most = min(ways, key=lambda each: each.delivery_bytes or math.inf)
    rate, delivery = (format_bytes(round(n)) for n in (most.sent_bytes, most.delivery_bytes))
    is_full = 0 < _FULL * most.delivery_bytes <= most.sent_bytes
    most_of = f" of {delivery}/s that the connection delivers" if most.delivery_bytes else ""
    words = [
        f"network: {format_bytes(round(sent))}/s between tasks",
        f"most from {most.task} to {most.peer}: {rate}/s"
        + (", all that the connection delivers" if is_full else most_of),
    ]
    resent = sum(each.resent_packets for each in traffic)
    words += [f"{resent:.0f} packets/s are sent again"] if resent >= 1 else []
    if most.limited >= profile.LEAST_GAIN:
        words.append(f"{most.peer} is not ready for them {most.limited:.0%} of the time")
    return ["; ".join(words), *more]


def _table(profiles: Sequence[TaskProfile], straggler: Straggler | None, width: int) -> Any:
    first = None if straggler is None else straggler.task
    is_long = len(profiles) > _MOST_COLUMNS
    columns: dict[str, list[TaskProfile]] = {}
    order = sorted(profiles, key=lambda each: (len(each.task), each.task))  # hosts answer in any
    for each in sorted(order, key=lambda each: is_long and each.task != first):
        name = each.task.partition(":")[0] if is_long and each.task != first else each.task
        columns.setdefault(name, []).append(each)
    titles = {n: n if ":" in n else f"{n} ({len(group)})" for n, group in columns.items()}
    rows = []
    for kind in Kind:
        shares = {
            title: statistics.median(each.shares.get(kind, 0.0) for each in columns[name])
            for name, title in titles.items()
        }
        if max(shares.values()) < _LEAST_SHOWN:
            continue
        most = max(profiles, key=lambda each: each.shares.get(kind, 0.0))
        cells = {title: f"{share:.0%}" if share else "" for title, share in shares.items()}
        rows.append({"": kind.value, **cells, "line": most.places.get(kind, "")})
    heads = [Column(""), *(Column(each, right=True) for each in titles.values())]
    return make_table([*heads, Column("line")], rows, width)


def speedscope(profiles: Sequence[TaskProfile], name: str) -> dict[str, Any]:
    """Return the stacks of all threads of all tasks as one file of speedscope."""
    frames: dict[Frame, int] = {}
    threads = []
    for each in profiles:
        timeline = Timeline(each.recording)
        indices = [frames.setdefault(frame, len(frames)) for frame in timeline.frames]
        waits_for_input = each.shares.get(Kind.INPUT, 0.0) >= _MOSTLY
        for number, thread in enumerate([timeline.main, *timeline.others]):
            if len(thread) < 2:
                continue
            is_input = waits_for_input and any(timeline.place(stack) for _, stack in thread)
            name_of_thread = f" thread {number}{INPUT_MARK if is_input else ''}" if number else ""
            stacks = [each.recording.stacks[stack] for _, stack in thread[:-1]]
            moments = [moment for moment, _ in thread]
            weights = [end - start for start, end in pairwise(moments)]
            threads.append(
                {
                    "type": "sampled",
                    "name": f"{each.task}{name_of_thread}",
                    "unit": "milliseconds",
                    "startValue": moments[0],
                    "endValue": moments[-1],
                    "samples": [[indices[i] for i in reversed(stack)] for stack in stacks],
                    "weights": weights,
                }
            )
    listed = [{"name": each.function, "file": each.file, "line": each.line} for each in frames]
    return {
        "$schema": _SCHEMA,
        "exporter": f"distrun {__version__}",
        "name": name,
        "shared": {"frames": listed},
        "profiles": threads,
    }

"""`distrun stacks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from distrun.cli import console
from distrun.cli.options import job_argument, json_option, task_option
from distrun.codec import to_json
from distrun.errors import HostError, UsageError
from distrun.job import control, py_spy, queued_job, stacks
from distrun.job.chosen_logs import check_choice, chosen_tasks
from distrun.job.folder import JobFolder
from distrun.job.stacks import Entry, Frame, Stacks, Thread
from distrun.spec.problems import printable
from distrun.words.formats import format_count, format_names

_MOST_FRAMES = 12
"""Of a thread, unless all its threads are asked for."""
_PTRACE = ("ptrace", "permission", "operation not permitted")
_PTRACE_ADVICE = (
    "the host refuses that one process reads another's memory; as root there: "
    "sysctl kernel.yama.ptrace_scope=0; in a container: --cap-add SYS_PTRACE"
)


@click.command("stacks")
@job_argument(only="running")
@task_option
@click.option("--native", is_flag=True, help="Show frames of C and C++ functions, too.")
@click.option("--all-threads", is_flag=True, help="Show the threads of libraries, too.")
@json_option
def command(
    job: str | None, tasks: tuple[str, ...], native: bool, all_threads: bool, as_json: bool
) -> int:
    """Show the stacks of a running job's tasks, without stopping them. Default: the running job.

    Each Python thread is shown with its calls, the innermost first. Tasks whose main threads have
    the same stack, and whose other threads are at the same lines of your own program, are one
    entry. The one that differs most comes first: in a job that hangs, that is the task to look at.
    Lines of your own program are marked with >.

    It needs py-spy here, and nothing on the hosts: pip install py-spy

    \b
      distrun stacks
      distrun stacks mnist -t worker:1 --all-threads
    """
    folder = queued_job.find(job)
    found = take(folder, tasks, native=native)
    if as_json:
        console.print_json({"job_id": folder.job_id, **_stacks_json(found)})
    else:
        console.print_renderable(stacks_view(found, all_threads=all_threads))
    is_known = any(process.threads for process in found.processes)
    return 0 if is_known else HostError.exit_code


def take(
    folder: JobFolder, tasks: tuple[str, ...] = (), *, native: bool = False, seconds: int = 0
) -> Stacks:
    """Return the stacks of a running job's tasks; `tasks` as `-t` names them, or all.

    `seconds`: record for so long, also without py-spy.

    Raises:
        DistrunError: it has ended, or they cannot be taken.
    """
    program = None if folder.is_elsewhere else py_spy.find() or ""
    state, found = folder.state(), None
    names = list(state.tasks)
    check_choice([names], tasks)
    names = chosen_tasks(names, tasks) if tasks else []
    if not state.phase.is_final:
        if program == "" and not seconds:
            raise HostError("py-spy is not installed here", hint=console.install_command("py-spy"))
        found = control.take_stacks(folder, program, names, native=native, seconds=seconds)
    if found is None:
        when = "has ended: nothing of it runs" if state.phase.is_final else "has ended meanwhile"
        raise UsageError(
            f"job {folder.job_id} {when}",
            hint=f"see what it printed last: distrun logs {folder.job_id} -n 20",
        )
    if not (found.processes or found.silent):
        raise UsageError(
            f"nothing of {format_names(names) or f'job {folder.job_id}'} runs now",
            hint=f"see how far it is: distrun status {folder.job_id}",
        )
    return found


def _stacks_json(found: Stacks) -> dict[str, Any]:
    processes = [to_json(each) for each in found.processes]
    for each in processes:
        del each["recording"]
    return {
        "entries": [
            {"tasks": list(entry.tasks), "place": entry.place}
            for entry in stacks.fold(found.processes)
        ],
        "processes": processes,
        "hosts_without_answer": found.silent,
    }


def stacks_view(found: Stacks, *, all_threads: bool) -> Group:
    lines: list[Text] = []
    for entry in stacks.fold(found.processes):
        if lines:
            lines.append(Text())
        lines += _entry(entry, all_threads=all_threads)
    lines += [Text(printable(text)) for text in problems(found)]
    return Group(*lines)


def _entry(entry: Entry, *, all_threads: bool) -> list[Text]:
    process, names = entry.process, printable(format_names(entry.tasks))
    lines = [Text.assemble((names, "bold"), f": {printable(entry.place)}")]
    first, others = entry.thread or process.main, []
    for thread in sorted(process.threads, key=lambda thread: thread is not first):
        if thread in (first, process.main) or all_threads or thread.own_frames:
            is_named = thread is process.main and thread is first
            lines += _thread(thread, is_main=is_named, is_whole=all_threads)
        else:
            others.append(thread)
    if others:
        lines.append(Text(f"  and {format_count(len(others), 'thread')} of libraries"))
    return lines


def _thread(thread: Thread, *, is_main: bool, is_whole: bool) -> list[Text]:
    what = "" if is_main else f"  thread {printable(thread.name) or 'without a name'}"
    lines = [Text(f"{what}{', holds the GIL' if thread.holds_gil else ''}")] if what else []
    shown = thread.frames if is_whole else _shortened(thread.frames)
    lines += [_frame(frame) for frame in shown]
    left = len(thread.frames) - len(shown)
    return lines + ([Text(f"      and {format_count(left, 'frame')} more")] if left else [])


def _shortened(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the innermost frames, and those of the user's program."""
    own = [index for index, frame in enumerate(frames) if not frame.is_of_library]
    kept = [*range(min(len(frames), _MOST_FRAMES // 2)), *own[:_MOST_FRAMES]]
    return [frames[index] for index in sorted(set(kept))]


def _frame(frame: Frame) -> Text:
    mark, place, style = ">", f"{frame.file}:{frame.line}", "bold"
    if frame.is_of_library:
        mark, place, style = " ", frame.place, ""
    return Text(f"    {mark} {printable(frame.function)}  {printable(place)}", style)


def problems(found: Stacks) -> list[str]:
    """Return what is not known, and why, one line each."""
    notes = [f"{host}: {why}{_advice(why)}" for host, why in found.silent.items()]
    known = {
        process.task
        for process in found.processes
        if process.threads or (process.recording is not None and process.recording.threads)
    }
    errors: dict[str, list[str]] = {}
    for process in found.processes:
        if process.error and (process.task not in known or process.is_python):
            why = process.error if process.is_python else "it is not a Python program"
            errors.setdefault(why, []).append(process.task)
    for why, tasks in errors.items():
        notes.append(f"{format_names(dict.fromkeys(tasks))}: {why}{_advice(why)}")
    return notes


def _advice(why: str) -> str:
    if why == py_spy.MISSING:
        return f"; before the next one: {console.install_command(py_spy.NAME)}"
    return f"; {_PTRACE_ADVICE}" if any(word in why.lower() for word in _PTRACE) else ""

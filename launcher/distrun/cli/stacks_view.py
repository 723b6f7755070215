"""Where tasks stand, as `stacks` shows it, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from distrun.codec import to_json
from distrun.job import stacks
from distrun.spec.problems import printable
from distrun.words.formats import format_count, format_task_names

if TYPE_CHECKING:
    from distrun.job.stacks import Entry, Frame, Thread
    from distrun.supervisor.stack_collector import Stacks

_MOST_FRAMES = 12
"""Of a thread, unless all its threads are asked for."""
_PTRACE = ("ptrace", "Permission denied", "Operation not permitted", "permission")
_PTRACE_ADVICE = (
    "the host refuses that one process reads another's memory; as root there: "
    "sysctl kernel.yama.ptrace_scope=0; in a container: --cap-add SYS_PTRACE"
)


def stacks_json(found: Stacks) -> dict[str, Any]:
    """Return the stacks as `stacks --json` prints them."""
    return {
        "entries": [
            {"tasks": list(entry.tasks), "place": entry.process.place}
            for entry in stacks.fold(found.processes)
        ],
        "processes": [
            {name: value for name, value in to_json(process).items() if name != "recording"}
            for process in found.processes
        ],
        "hosts_without_answer": found.silent,
    }


def stacks_view(found: Stacks, *, all_threads: bool) -> Group:
    """Return the stacks as text."""
    lines: list[Text] = []
    for entry in stacks.fold(found.processes):
        if lines:
            lines.append(Text())
        lines += _entry(entry, all_threads=all_threads)
    lines += [_note(text) for text in problems(found)]
    return Group(*lines)


def _entry(entry: Entry, *, all_threads: bool) -> list[Text]:
    process = entry.process
    lines = [
        Text.assemble(
            (printable(format_task_names(entry.tasks)), "bold"), f": {printable(process.place)}"
        )
    ]
    main, others = process.main, []
    for thread in process.threads:
        if thread is main or all_threads or thread.own_frame is not None:
            lines += _thread(thread, is_main=thread is main, is_whole=all_threads)
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
    mark = "  " if frame.is_of_library else "> "
    place = frame.place if frame.is_of_library else f"{frame.file}:{frame.line}"
    text = f"    {mark}{printable(frame.function)}  {printable(place)}"
    return Text(text, "" if frame.is_of_library else "bold")


def _note(text: str) -> Text:
    return Text(printable(text))


def problems(found: Stacks) -> list[str]:
    """Return what is not known, and why, one line each."""
    notes = [f"{host}: {why}" for host, why in found.silent.items()]
    known = {
        process.task
        for process in found.processes
        if process.threads or (process.recording is not None and process.recording.threads)
    }
    errors: dict[str, list[str]] = {}
    for process in found.processes:
        if process.error and (process.task not in known or process.is_python):
            why = process.error if process.is_python else "it is no Python program"
            errors.setdefault(why, []).append(process.task)
    for why, tasks in errors.items():
        advice = f"; {_PTRACE_ADVICE}" if any(word in why for word in _PTRACE) else ""
        notes.append(f"{format_task_names(dict.fromkeys(tasks))}: {why}{advice}")
    return notes

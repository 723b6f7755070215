"""Where the threads of tasks stand: read from what hosts say, and folded."""

from __future__ import annotations

import json
import re
from typing import Any

from distrun.codec import from_json
from distrun.frozen import Frozen

_MAIN = "MainThread"
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/|^<frozen "
    r"|\.so(?:\.[\d.]+)?$|\.(?:c|cc|cpp|cu|h|hpp|pyx|rs|S)$|^(?!.*/.*\.py$)(?!.*\.py$)"
)
_LONGEST_TEXT = 1 << 21
_MOST_PROCESSES = 4096
PY_SPY = "py-spy"


class Frame(Frozen):
    """A call that has not returned: its function, its file, and the line in it."""

    function: str
    file: str
    line: int

    @property
    def is_of_library(self) -> bool:
        """Whether the file is installed, and not of the user's program."""
        return _LIBRARY.search(self.file) is not None

    @property
    def place(self) -> str:
        """The file without its folders, and the line."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


class Thread(Frozen, kw_only=True):
    """A thread, its innermost frame first. `holds_gil`: whether it runs Python code now."""

    name: str
    is_main: bool
    holds_gil: bool
    frames: tuple[Frame, ...]

    @property
    def own_frame(self) -> Frame | None:
        """The innermost frame of the user's program."""
        return next((frame for frame in self.frames if not frame.is_of_library), None)


class ProcessStacks(Frozen, kw_only=True):
    """The threads of one process of a task. `error`: why they are not known; '': they are."""

    task: str
    pid: int
    threads: tuple[Thread, ...] = ()
    error: str = ""

    @property
    def is_python(self) -> bool:
        """Whether it is a Python program, as far as is known."""
        return "find python" not in self.error.lower()

    @property
    def main(self) -> Thread | None:
        """Its main thread; the first one if none is called so."""
        named = (thread for thread in self.threads if thread.is_main or thread.name == _MAIN)
        return next(named, self.threads[0] if self.threads else None)


class Entry(Frozen, kw_only=True):
    """Tasks whose main threads stand at the same place, and one of their processes."""

    tasks: tuple[str, ...]
    process: ProcessStacks


def decode(text: str) -> list[ProcessStacks]:
    """Read what a host has sent.

    Raises:
        ValueError: it has another form.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError("it is too long")
    try:
        found = json.loads(text)
        if type(found) is not list or len(found) > _MOST_PROCESSES:
            raise ValueError("it is no list")
        return [_process(each) for each in found]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _process(value: dict[str, Any]) -> ProcessStacks:
    threads = [
        {
            "name": each["name"],
            "is_main": each["main"],
            "holds_gil": each["gil"],
            "frames": [
                {"function": function, "file": file, "line": line}
                for function, file, line in each["frames"]
            ],
        }
        for each in value.get("threads", ())
    ]
    fields = {"task": value["task"], "pid": value["pid"], "error": value.get("error", "")}
    return from_json(ProcessStacks, {**fields, "threads": threads})


def fold(processes: list[ProcessStacks]) -> list[Entry]:
    """Join tasks whose main threads stand at the same place: the rarest place first.

    Of each task, its processes with a stack are taken. Equal processes of one task count once.
    """
    places: dict[tuple[Any, ...], list[ProcessStacks]] = {}
    for process in processes:
        if process.main is not None:
            places.setdefault(process.main.frames, []).append(process)
    entries = [
        Entry(tasks=tuple(dict.fromkeys(each.task for each in found)), process=found[0])
        for found in places.values()
    ]
    return sorted(entries, key=lambda entry: len(entry.tasks))

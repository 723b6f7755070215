"""A filter that leaves out TensorFlow's harmless start-up lines, of which there is a table."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache

from distrun.tables import read_rows

# What absl's logging (since TensorFlow 2.17) and TensorFlow's own before it put before a message.
_BEFORE = (
    rb"(?:[IWE]\d{4} \d\d:\d\d:[\d.]{1,20} {1,9}\d{1,20} |"
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]{1,20}: [IWE] (?:[\w./-]{1,300}/)?)"
)
_ROWS = [row.split(" | ") for row in read_rows(__spec__, "startup_lines.txt")]
_NEEDED = (b"]", b"W", b"T")
_EXTENSIONS = b"Extension m"
"""A block with such a line has one of these bytes, or this text. To find one byte is fast."""
_PARTS = {
    "...": r"[^\n]*",
    "DETAILS": r"[^\n]*(?:\n(?:Additional GRPC error information|:UNKNOWN:Error )[^\n]*){0,2}",
    "CONFIG": r"[^\n]*(?:\n(?:port|protocol|(?:job_gc|client|worker|dispatcher|heartbeat|snapshot"
    r"|data_transfer)_\w+): [^\n]*){0,20}(?:\n\nIt will not recover its state on restart\.)?",
    "NO_GPU": r"(?:UNKNOWN ERROR \(303\)|CUDA_ERROR_NO_DEVICE: )",
    "SETTING": r"(?:\n {0,99}(?:(?:device_count|gpu_options|experimental|pluggable_device_options)"
    r" \{|(?:key|value|allow_soft_placement|collective_group_leader): \S+|\}))",
}


class StartupFilter:
    """Leaves the lines of the table out of what is shown, and counts them.

    Args:
        gpu_tasks: the tasks on hosts with GPUs.
    """

    def __init__(self, gpu_tasks: Container[str] = ()) -> None:
        self.count = 0
        """The lines that were left out."""
        self._has_shown: dict[str, bool] = {}
        """The tasks that have printed anything, and whether any of it was shown."""
        self._gpu_tasks = gpu_tasks

    @property
    def silent(self) -> set[str]:
        """The tasks that have printed nothing but such lines."""
        return {task for task, has_shown in self._has_shown.items() if not has_shown}

    def select(self, task: str, block: bytes, *, counted: bool = False) -> bytes:
        """A block of whole lines without these lines. `counted`: what is left out is counted."""
        shown = block
        may_have = any(byte in block for byte in _NEEDED)
        if may_have or (_EXTENSIONS[:1] in block and _EXTENSIONS in block):
            left, count = _pattern(task in self._gpu_tasks).subn(b"", b"\n" + block)
            shown = left[1:] if count else block
        if counted:
            self.count_left_out(task, block, shown)
        return shown

    def count_left_out(self, task: str, block: bytes, shown: bytes) -> None:
        """Note how many lines of a block are left out of what is shown of it."""
        if block:
            if shown is not block:  # to count lines would take as long as to show them
                self.count += block.count(b"\n") - shown.count(b"\n")
            self._has_shown[task] = self._has_shown.get(task, False) or bool(shown)


@cache
def _pattern(has_gpu: bool) -> re.Pattern[bytes]:
    logged: list[str] = []
    others: list[str] = []
    for *only, file, text, _ in _ROWS:
        if only and has_gpu:
            continue
        whole = re.sub(
            "CONFIG|DETAILS|SETTING|NO_GPU|[.]{3}$", lambda found: _PARTS[found[0]], text
        )
        (others if file == "-" else logged).append(
            whole if file == "-" else rf"{file}:\d+\] {whole}"
        )
    either = (b"|".join(map(str.encode, each)) for each in (logged, others))
    # It begins with a newline: a search for one byte is fast. The line's own newline stays, as it
    # begins the next match.
    return re.compile(rb"\n((?:%s(?:%s)|%s) {0,9})(?=\n)" % (_BEFORE, *either))

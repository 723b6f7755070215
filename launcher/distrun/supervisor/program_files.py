"""The files of a job's program on this machine: its scripts, and what it has written."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial

from distrun.agent.protocol.causes import Cause, Code
from distrun.lifecycle import JobState
from distrun.spec.model import Spec
from distrun.spec.regular_file import beginning, open_regular_file
from distrun.verdict.model import Evidence, LogTail

_TAIL_BYTES = 64 * 1024
_MOST_CALLS = 3
_PATH = r"\"?((?:\$\([^)]*\)|[\w./${}%:@+-])+)"
_SENT_TO = re.compile(rf"(?m)^(?!\s*#).*(?:py|exec\b).*?(?:>|\btee\s(?:-a\s)?)\s*{_PATH}")
_OPENED = re.compile(
    r"""(?m)^(?!\s*#)(?=.*(?:(?:, ?|\.open\()(?:mode=)?["'][wax]|FileHandler|filename=|\.add\())"""
    r""".*?["']([^"'\s]*(?:err|log|out|txt))["']"""
)
_SENDS = re.compile(r"\bstdout=|\bos\.system\(|\bshell=True")
_SENDS_OWN = re.compile(r"\bstd(?:out|err) =|\blog(?:ging|uru)\b")
"""How a program in Python opens a file to write, and sends output of others or its own there."""
_MAY_RUN_PYTHON = ("py", "exec", ".sh")
"""A shell script without one of these words runs no Python whose output it could hide in a file. To
compile the expressions of :mod:`distrun.verdict.shell_scripts` takes as long as a short job."""
_MOST_CLOSING = 5.0
"""Seconds from what a program writes into its own log to its exit, if that was why."""
_ASSIGNED = re.compile(rf"(?m)^\s*(?:export )?(\w+)={_PATH}")
_VARIABLE = re.compile(r"\$\([^)]*\)|\$\{?(\w+)[^}/.]*\}?")
"""In a path of a shell script: a variable, or what a command prints."""
_COLLECTIVE_LIMIT = re.compile(r"\btimeout_seconds\s*=\s*(\d{1,9}(?:\.\d{1,9})?)\b")
_MOST_SCRIPT_BYTES = 64 * 1024
_MOST_DEPTH = 3
_INNER, _MOST_FOLDERS = ("", "*/", "*/*/"), 1000
_ENDS = re.compile(r"(?P<index>sstable)|(?P<h5>file signature)|(?P<keras>a zip file)")
"""How the names of files end that an error cannot read."""
_MARKS = {"index": b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", "h5": b"\x89HDF\r\n\x1a\n", "keras": b"PK"}
"""How the first one ends (tensorflow/core/lib/io/format.h), and the others begin."""


class ProgramFiles:
    """The files of a job's program, each read when it is asked for."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    @property
    def may_have_output(self) -> bool:
        """Whether what tasks print may go to files: by a shell script, or by one in Python."""
        shell = "\n".join(self.shell_texts().values()).lower()
        return any(word in shell for word in _MAY_RUN_PYTHON) or any(
            _SENDS.search(text) for _, text in self.scripts()
        )

    def scripts(self) -> Iterator[tuple[str, str]]:
        texts = ((path, self.text_of(path)) for path in self._spec.scripts)
        return ((path, text) for path, text in texts if text)

    def shell_texts(self) -> dict[str, str]:
        """Return the texts of the shell script that tasks run and of those that it calls, by name.

        An inner one comes after the one that calls it, and counts only if it runs Python.
        """
        program = self._spec.program
        words = (*program.argv, *program.args)
        if words[1:2] and words[1].startswith("-") and words[1].endswith("c"):
            shell = words[0].rpartition("/")[2]
            found, folder = {f"{shell} -c": words[2] if words[2:] else ""}, ""
        else:
            found = next(filter(None, map(self._shell_script, words[:2])), {})
            folder = next((os.path.dirname(word) for word in words[:2] if word.endswith("sh")), "")
        if not any(".sh" in text for text in found.values()):
            return found
        from distrun.verdict.shell_scripts import called_scripts, runs_python

        for _ in range(_MOST_DEPTH):
            for path in called_scripts("\n".join(found.values())):
                name = os.path.basename(path)
                if name in found:
                    continue
                inner = self._shell_script(path) or self._shell_script(os.path.join(folder, name))
                if any(map(runs_python, inner.values())):
                    found |= inner
        return found

    def _shell_script(self, word: str) -> dict[str, str]:
        """Return the shell script of this path as its name and text; empty if it is none."""
        text = self.text_of(word) if word.endswith("sh") else ""
        return {word.rpartition("/")[2]: text} if text and not text.startswith("\x7fELF") else {}

    def text_of(self, path: str) -> str:
        path = os.path.join(self._spec.program.workdir, path)
        return beginning(path, _MOST_SCRIPT_BYTES).decode("utf-8", "replace")

    def written(
        self, state: JobState, *, has_failed: bool = False
    ) -> Iterator[tuple[str, LogTail]]:
        """Yield the files to which a script has sent output since the job began."""
        from distrun.verdict.success import LOOKS

        folder = self._spec.program.workdir
        if not has_failed and any(task.attempt for task in state.tasks.values()):
            return  # former attempts may have written into them
        text = "\n".join(self.shell_texts().values())
        values = dict(_ASSIGNED.findall(text))
        fill = partial(_VARIABLE.sub, lambda found: values.get(found[1] or "", "*"))
        # A value may have variables, too.
        since = {fill(fill(path)): state.created_at for path in _SENT_TO.findall(text)}
        end = max((task.exited_at or 0.0 for task in state.tasks.values()), default=0.0)
        for _, program in self.scripts():
            sends = _SENDS.search(program) and (has_failed or not LOOKS.search(program))
            is_known = sends or (has_failed and _SENDS_OWN.search(program))
            text = re.sub(r"\{[^{}\n]*\}", "*", program) if is_known else ""
            for path in (*_OPENED.findall(text), *_SENT_TO.findall(text)):
                inner = (glob.iglob(each, root_dir=folder) for each in _INNER[1:])
                within = itertools.islice(itertools.chain(*inner), _MOST_FOLDERS)
                name = os.path.basename(path)
                for pattern in (path, *(glob.escape(each) + name for each in within)):
                    since[pattern] = state.created_at if sends else end - _MOST_CLOSING
        for pattern, first in since.items():
            names = pattern.strip("*/") and glob.glob(pattern, root_dir=folder)
            for name in sorted(names):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError), open_regular_file(path) as file:
                    start = file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                    if os.fstat(file.fileno()).st_mtime >= first:
                        tail = LogTail(file.read() or b"", start == 0)
                        yield name.removeprefix(f"{folder}/"), tail

    def call_of_one(self, stands: Sequence[Evidence] | None = None) -> str:
        """Return where the script makes calls for one task alone that all must make, or ''.

        `stands`: lines of a traceback, one of which must be there; then only the first call.
        """
        from distrun.verdict.lone_calls import find_lone_calls

        found = []
        for path, text in self.scripts():
            name = os.path.basename(path)
            frame = re.compile(rf'[/"]{re.escape(name)}", line (\d+)')
            stood = [frame.search(each.text) for each in stands or ()]
            lines = [int(found[1]) for found in stood if found]
            for call in find_lone_calls(text):
                if any(map(call.contains, lines)):
                    return f"{name}:{call}"
                found += [f"{name}:{call}"] if stands is None and not call.is_unsure else []
        return " and ".join(found[:_MOST_CALLS])

    def damaged(self, said: str, host: str) -> str:
        """Return the only file here that may be the one that an error on a host cannot read."""
        program, roles, here = self._spec.program, self._spec.roles, self._spec.local_host
        kind = _ENDS.search(said)
        if kind is None or here is None or here.name != host:
            return ""
        args = (*program.args, *(word for role in roles for word in role.args), *program.shared)
        words = ("", *(word.rpartition("=")[2] for word in args if word.strip("/")))
        roots = {os.path.normpath(os.path.join(program.workdir, each)) for each in words}
        ends = [f"{inner}*.{kind.lastgroup}" for inner in _INNER]
        forms = (os.path.join(glob.escape(root), end) for root in roots for end in ends)
        paths = {*itertools.islice(itertools.chain(*map(glob.iglob, forms)), _MOST_FOLDERS)}
        damaged = [path for path in paths if not _is_whole(path, kind.lastgroup or "")]
        (path,) = damaged if len(damaged) == 1 else [""]
        is_known = os.path.basename(path) in said
        return "" if is_known else path.removeprefix(f"{program.workdir}/").removesuffix(".index")

    def find_limit(self) -> Iterator[Cause]:
        for path, text in self.scripts():
            for number, line in enumerate(text.splitlines(), 1):
                found = _COLLECTIVE_LIMIT.search(line)
                if found is not None:
                    place = f"{os.path.basename(path)}:{number}"
                    yield Cause(Code.COLLECTIVE_LIMIT, seconds=float(found[1]), path=place)
                    return


def _is_whole(path: str, kind: str) -> bool:
    """Whether a file has the mark of its kind; also if it cannot be read."""
    mark = _MARKS[kind]
    try:
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - len(mark)) if kind == "index" else 0)
            return file.read(len(mark)) == mark
    except OSError:
        return True

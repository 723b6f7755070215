"""Records of jobs with one damaged field, and every command that reads a record, run on them."""

import copy
import functools
import json
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from unittest import mock

from distrun.agent.protocol import Cause, Code, Subject
from distrun.job import events, record
from distrun.words.events import EventFormatter
from harness import command
from harness.command import Distrun, write_spec
from harness.odd_values import ODD, dumps

MISSING = "@missing"
"""Stands for no field."""
VALUES: Sequence[Any] = (*ODD, MISSING)
COMMANDS = (
    *(("status",), ("status", "--json"), ("events",), ("events", "--json")),
    *(("ps", "-a"), ("ps", "-a", "--json"), ("logs",), ("logs", "--timestamps", "-n", "3")),
    *(("wait",), ("kill", "job"), ("clean", "--dry-run")),
)
SCRIPT = """
case $DISTRUN_TASK-$DISTRUN_ATTEMPT in
evaluator*) exit 5;;
worker:1-0) {python} -c "import os, socket
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.sendto(b'EPOCH=2\\nSTEP=7\\nLOSS=0.5', os.environ['DISTRUN_NOTIFY'].replace('@', '\\0'))"
    exit 3;;
worker:1-1) echo 'ValueError: odd' >&2; exit 4;;
esac
exec sleep 600
"""
_CAUSE = Cause(Code.LOST_WITH_HOST, within=(Cause(Code.SSH_TIMED_OUT),))
_EXAMPLES: dict[Any, Any] = {
    Cause: _CAUSE,
    str: "x", int: 1, float: 9.0, bool: True, bytes: b"x", "at": 1.7e9, "task": "worker:0",
    "host": "localhost", "subject": Subject.CLOCK, "strategy": "multi_worker_mirrored",
}  # fmt: skip
"""By type, or by the name of the field."""


def example(kind: Any, name: str = "") -> Any:
    """A value of a type, in a field of that name."""
    inner = get_args(kind)
    for known in (name, kind):
        if known in _EXAMPLES:
            return _EXAMPLES[known]
    if get_origin(kind) is tuple:
        return (example(inner[0], name.removesuffix("s")),)
    if get_origin(kind) is dict:
        return {"worker:1": example(inner[1])}
    if inner:  # a union
        return example(inner[0], name)
    if issubclass(kind, Enum):
        return next(iter(kind))
    hints = get_type_hints(kind)
    names = kind._fields if issubclass(kind, tuple) else kind._names
    return kind(**{field: example(hints[field], field) for field in names})


class Record:
    def __init__(self, distrun: Distrun, folder: Path) -> None:
        spec = write_spec(
            folder,
            SCRIPT.format(python=sys.executable),
            cluster={"worker": 2, "evaluator": 1},
            restart={"max": 1, "backoff": "10ms"},
        )
        done = distrun("launch", spec)
        assert done.returncode == 4, done.stderr
        (self.path,) = distrun.home.glob("jobs/*/events.jsonl")
        *lines, last = self.path.read_bytes().splitlines()
        started = json.loads(lines[0])["at"]
        present = {json.loads(line)["event"] for line in (*lines, last)}
        for name in (each for each in events.KINDS if each not in present):  # of other jobs
            encoded = {**events.encode(example(events.KINDS[name])), "at": started + 1}
            lines.append(json.dumps(encoded).encode("ascii"))
        self.lines = [*lines, last]
        assert {json.loads(line)["event"] for line in self.lines} == events.KINDS.keys()
        self._texts = [self._text(line) for line in self.lines]

    @staticmethod
    def _text(line: bytes) -> str:
        """What `events` shows of an event, without its time; empty if that depends on others."""
        event = _decode_line(line)
        assert event is not None
        lines = EventFormatter().lines(event)
        return lines[0][0][lines[0][1] :] if lines else ""

    def places(self) -> Iterator[tuple[int, tuple[str | int, ...]]]:
        """Every field of the first event of each kind, those within others too."""
        kinds = set()
        for number, line in enumerate(self.lines):
            fields = json.loads(line)
            if fields["event"] not in kinds:
                kinds.add(fields["event"])
                yield from ((number, path) for path in _paths(fields))

    def damage(self, number: int, path: Sequence[str | int], value: Any) -> bytes:
        """Write the record with one value changed. Returns the changed line."""
        fields = json.loads(self.lines[number])
        holder = fields
        for step in path[:-1]:
            holder = holder[step]
        if value == MISSING:
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(value)
        line = dumps(fields)
        self.write(number, line)
        return line

    def write(self, number: int, line: bytes) -> None:
        changed = [*self.lines[:number], line, *self.lines[number + 1 :]]
        self.path.write_bytes(b"".join(each + b"\n" for each in changed))

    def check(
        self, command: Sequence[str], number: int, code: int, stdout: str, stderr: str
    ) -> None:
        """Check the result of a command on the record whose event `number` is damaged."""
        is_result = command[0] == "wait"
        if is_result and number == len(self.lines) - 1:
            self._check_unknown_result(code, stderr)
        else:
            assert code == (4 if is_result else 0), stderr
        assert "Traceback" not in stderr
        assert code != 70, stderr
        for line in f"{stdout}\n{stderr}".split("\n"):
            assert line.isprintable(), line
        if command[0] == "events":
            self._check_others(number, stdout, as_json="--json" in command)
        elif "--json" in command:
            json.loads(stdout, parse_constant=_refuse)

    def _check_unknown_result(self, code: int, stderr: str) -> None:
        """Check what `wait` says if the last event, which has the exit code, is damaged."""
        end = _decode_line(self.path.read_bytes().splitlines()[-1])
        if isinstance(end, events.JobEnded):
            assert code == end.outcome.exit_code
        else:
            assert (code, "is damaged: the result" in stderr) == (69, True), stderr

    def _check_others(self, number: int, stdout: str, *, as_json: bool) -> None:
        lines = stdout.splitlines()
        if as_json:
            shown = [json.loads(line, parse_constant=_refuse) for line in lines]
            kinds = [json.loads(line)["event"] for line in self.lines]
            del kinds[number]
            found = [each["event"] for each in shown]
            assert len(found) - len(kinds) in (0, 1)
            for kind in kinds:
                found.remove(kind)
            return
        for at, text in enumerate(self._texts):
            assert at == number or text in stdout, (text, stdout)


def _paths(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    keys: Any = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        path = (*above, key)
        yield path
        if isinstance(value[key], (dict, list)):
            yield from _paths(value[key], path)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


_decode_line = functools.cache(record._decode_line)
"""Most lines stay the same ones, and events cannot be changed."""


def run_here(words: Sequence[str]) -> tuple[int, str, str]:
    with mock.patch.object(record, "_decode_line", _decode_line):
        return command.run_here(words)

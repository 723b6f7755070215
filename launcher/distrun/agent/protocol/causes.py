"""Why something failed, as a value.

A cause is made where something fails: by an agent, the supervisor or the plan. It travels in
messages and stands in the record as it is. It is put into words only where it is shown
(:mod:`distrun.cli.cause_text`), so that no decision ever depends on a wording.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict, Optional, Tuple

from distrun.agent.structs import Struct


class Code(str, Enum):
    """What failed. Each comment names the fields of :class:`Cause` that it comes with."""

    # A task's program could not be executed.
    PROCESS_NOT_MADE = "process_not_made"  # errno
    LOG_NOT_OPENED = "log_not_opened"  # path, errno
    WORKDIR_NOT_ENTERED = "workdir_not_entered"  # path, errno
    PROGRAM_NOT_FOUND = "program_not_found"  # name
    INTERPRETER_NOT_FOUND = "interpreter_not_found"  # name: the script's, path: the interpreter's
    PROGRAM_NOT_EXECUTABLE = "program_not_executable"  # name
    PROGRAM_FORMAT_UNKNOWN = "program_format_unknown"  # name
    ARGUMENTS_TOO_LONG = "arguments_too_long"
    PROGRAM_NOT_EXECUTED = "program_not_executed"  # name, errno
    AGENT_DEFECT = "agent_defect"  # text: Python's own words

    # Decided by the plan.
    PEERS_BEHIND_PROXY = "peers_behind_proxy"  # name: of the variable, host: the first such machine


class Cause(Struct):
    """A code with its parameters; those that a code does not come with are empty.

    Attributes:
        task: the task it is about, as `worker:0`.
        host: the host's name in the spec.
        path: a file or folder.
        name: a program, variable or the like.
        port: a TCP port.
        errno: the number of the system's error.
        signal: the number of a signal.
        status: an exit code.
        seconds: a length of time.
        count: how many.
        text: foreign words, such as what ssh said; never distrun's own.
        within: what led to this, one cause for each.
    """

    code: Code
    task: str = ""
    host: str = ""
    path: str = ""
    name: str = ""
    port: int = 0
    errno: int = 0
    signal: int = 0
    status: Optional[int] = None
    seconds: float = 0.0
    count: int = 0
    text: str = ""
    within: "Tuple[Cause, ...]" = ()

    def to_json(self) -> Dict[str, Any]:
        """The code and what is not empty, as the record and messages have it."""
        fields: Dict[str, Any] = {"code": self.code.value}
        for name, value in self._asdict().items():
            if name == "within":
                if value:
                    fields[name] = [each.to_json() for each in value]
            elif name != "code" and value not in ("", None) and (name == "status" or value):
                fields[name] = value
        return fields

    @classmethod
    def from_json(cls, fields: Dict[str, Any]) -> "Cause":
        """The inverse. Raises ValueError, KeyError or TypeError where it is none."""
        known = {name: fields[name] for name in cls._fields if name in fields}
        known["code"] = Code(known["code"])
        known["within"] = tuple(cls.from_json(each) for each in known.get("within", ()))
        return cls(**known)

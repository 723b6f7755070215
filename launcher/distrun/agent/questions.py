"""What is asked and answered before the first task starts: the messages of the preflight.

They travel as those of :mod:`distrun.agent.wire` do. First every agent listens on the ports it
holds; when all do, each dials those of the others; when all have, they stop listening.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Type

from distrun.agent.record import Record

# From supervisor to agent ------------------------------------------------------------------


class Listen(Record):
    """Listen on the ports that are held, until :class:`Hush`, and greet who dials them."""

    greeting: str


class Target(Record):
    """Ports of a host as their addresses name it, and what is to be heard there."""

    machine: str
    ports: List[int]
    greeting: str


class Dial(Record):
    """Dial each port, waiting so many seconds for each."""

    targets: List[Target]
    seconds: float


class Hush(Record):
    """Stop listening: tasks are about to."""


class Program(Record):
    """What tasks are to run, as in :class:`~distrun.agent.wire.StartTask`."""

    argv: List[str]
    workdir: str
    env: Dict[str, str]
    unset: List[str]
    script: str = ""
    """The path of its script, where it is known to be one."""
    is_python: bool = False
    """Whether `argv` begins with a Python interpreter, which can be asked for versions."""
    machines: Sequence[str] = ()
    """Those it will talk to by gRPC."""
    or_home: bool = False


class Inspect(Record):
    """Look at these programs and the disks, for at most so many seconds."""

    programs: List[Program]
    seconds: float


# From agent to supervisor ------------------------------------------------------------------


class Listening(Record):
    """Answers Listen. `failed`: the ports that cannot be listened on (as text), and why."""

    failed: Dict[str, str]
    at: float


class Miss(Record):
    """A port that could not be reached; `kind` is one of :mod:`distrun.agent.dialing`."""

    machine: str
    port: int
    kind: str
    detail: str = ""


class Dialled(Record):
    """Answers Dial, once all ports have answered or failed."""

    misses: List[Miss]
    failure: str = ""
    """Why it could not be done at all."""


class Hushed(Record):
    """Answers Hush: nothing listens any more."""


class ProgramFacts(Record):
    """What is known of a program where it is to run. Each `..._problem` is empty where all is well.

    `tensorflow` is a version, `unknown`, or empty where it is not installed.
    """

    program: str
    workdir: str
    script: str = ""
    is_python: bool = False
    workdir_problem: str = ""
    program_problem: str = ""
    script_problem: str = ""
    digest: str = ""
    """SHA-256 of the script."""
    python: str = ""
    tensorflow: str = ""
    python_problem: str = ""
    is_slow: bool = False
    """Whether the interpreter did not answer in time."""
    proxy: str = ""
    """The variable that names a proxy for gRPC."""
    proxied: Sequence[str] = ()
    """The machines that would be reached by way of it."""


class Disk(Record):
    """A folder's file system: bytes free to this user."""

    folder: str
    free: int


class Inspected(Record):
    """Answers Inspect."""

    programs: List[ProgramFacts]
    disks: List[Disk]
    failure: str = ""
    """Why it could not be done at all."""


TYPES: Dict[str, Type[Any]] = {
    kind.__name__: kind
    for kind in (Listen, Dial, Hush, Inspect, Listening, Dialled, Hushed, Inspected)
}
PARTS: Dict[str, Dict[str, Type[Any]]] = {
    "Dial": {"targets": Target},
    "Inspect": {"programs": Program},
    "Dialled": {"misses": Miss},
    "Inspected": {"programs": ProgramFacts, "disks": Disk},
}
"""What the lists in them are of, by message and field."""

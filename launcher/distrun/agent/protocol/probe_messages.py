"""The messages of the preflight, which runs before the first task starts.

First every agent listens on the ports that it holds, and writes a file into the folders that the
hosts are to share. When all listen, each dials the ports of the others, and looks for the file of
one host. When all have dialled, they stop listening, and remove their files. Before that, hosts may
measure how fast they receive from each other.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from distrun.agent.protocol import Order, Report
from distrun.agent.protocol.causes import Cause
from distrun.agent.structs import Struct

MARK_PREFIX = ".distrun-shared-"
"""Begins the names of the files that hosts write into folders, to see whether they share them."""

# From supervisor to agent ------------------------------------------------------------------


class Listen(Order):
    """Listen on the held ports until :class:`StopListening`, and send callers the greeting."""

    greeting: str
    mark: str = ""
    """The name of the file to write into each folder; empty: it writes none."""
    folders: Sequence[str] = ()
    """The folders that the hosts are to share, as the program names them."""
    workdir: str = ""
    """Their tasks' working folder, and whether it may be the home folder: see :class:`Program`."""
    or_home: bool = False
    password: str = ""
    """Callers that send it receive zeros for as long as they stay; empty: nobody does."""


class Target(Struct):
    """Ports of a host, by the name or address in `cluster`, and the greeting expected there."""

    machine: str
    ports: List[int]
    greeting: str


class Dial(Order):
    """Dial each port, and wait at most so many seconds for each; look for another host's file."""

    structs = {"targets": Target}  # noqa: RUF012 - nobody changes it
    targets: List[Target]
    seconds: float
    mark: str = ""
    """The name of the file to look for in each folder; empty: it looks for none."""


class Measure(Order):
    """Receive from the first port for so many seconds, by the password of :class:`Listen`."""

    structs = {"targets": Target}  # noqa: RUF012 - nobody changes it
    targets: List[Target]
    password: str
    seconds: float


class StopListening(Order):
    """Stop listening: the tasks need the ports now. Remove the file in the shared folders."""


class Program(Struct):
    """A program that tasks will run, as in :class:`~distrun.agent.protocol.StartTask`."""

    argv: List[str]
    workdir: str
    env: Dict[str, str]
    unset: List[str]
    script: str = ""
    """The path of its script; empty if it is not known to be a script."""
    is_python: bool = False
    """Whether `argv` begins with a Python interpreter, which can be asked for versions."""
    or_home: bool = False
    modules: Sequence[str] = ()
    """The modules to look for with the interpreter."""


class Inspect(Order):
    """Inspect these programs and the disks, for at most so many seconds."""

    structs = {"programs": Program}  # noqa: RUF012 - nobody changes it
    programs: List[Program]
    seconds: float
    script: str = ""
    """A program for the interpreters: it prints their versions."""
    with_exposure: bool = False
    """Whether to find who else can connect to its ports."""


# From agent to supervisor ------------------------------------------------------------------


class Listening(Report):
    """Answers Listen. There is an error for each port that cannot be listened on."""

    errors: List[Cause]
    at: float
    unwritten: Sequence[Cause] = ()
    """Why no file could be written into a folder."""


class Unreachable(Struct):
    """A port that could not be reached."""

    machine: str
    port: int
    cause: Cause


class Dialled(Report):
    """Answers Dial, once every port has answered or failed."""

    unreachable: List[Unreachable]
    failure: Optional[Cause] = None
    """Why it could not be done at all; None if it was done."""
    unseen: Sequence[Cause] = ()
    """In which folders the other host's file is not."""


class Measured(Report):
    """Answers Measure."""

    rate: float
    """Bytes a second; 0: nothing came."""


class StoppedListening(Report):
    """Answers StopListening: nothing listens any more."""


class ProgramFacts(Struct):
    """The facts about a program on its host. Each `..._problem` is None if there is none.

    `tensorflow` is a version, `unknown`, or empty if it is not installed.
    """

    program: str
    workdir: str
    script: str = ""
    is_python: bool = False
    workdir_problem: Optional[Cause] = None
    program_problem: Optional[Cause] = None
    script_problem: Optional[Cause] = None
    digest: str = ""
    """SHA-256 of the script."""
    python: str = ""
    tensorflow: str = ""
    python_problem: Optional[Cause] = None
    is_slow: bool = False
    """Whether the interpreter did not answer in time."""
    has_tf_keras: bool = False
    missing: Sequence[str] = ()
    """The modules that the interpreter does not find."""


class Inspected(Report):
    """Answers Inspect: a new fact of a host is a field here, and found in `inspection.inspect`."""

    programs: List[ProgramFacts]
    disks: Dict[str, int]
    """For each folder that needs space, the bytes that are free for this user on its disk."""
    users: Sequence[str] = ()
    """Other people who can log in there, or have processes: names, or numbers."""
    addresses: Sequence[str] = ()
    """Its addresses, without loopback and link-local ones."""
    failure: Optional[Cause] = None
    """Why it could not be done at all; None if it was done."""

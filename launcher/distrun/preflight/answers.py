"""The answers of the hosts to the questions of the preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.frozen import dataclass

if TYPE_CHECKING:
    from distrun.agent.protocol import Cause
    from distrun.agent.protocol.probe_messages import Dialled, Inspected


@dataclass(frozen=True, kw_only=True)
class HostAnswers:
    """One host's answers.

    Attributes:
        clock_offset: seconds by which its clock is ahead of this machine's.
        clock_tolerance: the largest error of that, in seconds: half the round trip.
        listen_errors: why it could not listen on some of its ports.
        dialled: the result of its calls; None if it had none to make.
        calls: how many calls it had to make.
        ports: how many ports it holds; 0 if only an evaluator runs there.
    """

    host: str
    clock_offset: float = 0.0
    clock_tolerance: float = 0.0
    listen_errors: tuple[Cause, ...] = ()
    dialled: Dialled | None = None
    calls: int = 0
    ports: int = 0
    inspected: Inspected


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of all hosts, and what this machine knows itself.

    Attributes:
        owners: the host of each task's address.
        machines: the names and addresses by which tasks reach each other.
        digest: SHA-256 of the script on this machine; empty if it is unknown.
        sync: the spec's program.sync.
        job_disk: bytes free where the job's record is; None if that is unknown.
    """

    hosts: tuple[HostAnswers, ...]
    owners: dict[str, str]
    machines: tuple[str, ...] = ()
    digest: str = ""
    sync: str = "script"
    job_folder: str = ""
    job_disk: int | None = None

"""What the hosts said in answer to the preflight's questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrun.agent.protocol import Cause
    from distrun.agent.protocol.probe_messages import Dialled, Inspected


@dataclass(frozen=True, kw_only=True)
class HostFindings:
    """One host's answers.

    Attributes:
        offset: seconds by which its clock is ahead of this machine's.
        tolerance: seconds by which that may be wrong: half of the way there and back.
        dialled: what became of its calls; None where it had none to make.
        calls: how many it was to make.
        ports: how many it holds; none where only an evaluator runs.
    """

    host: str
    offset: float = 0.0
    tolerance: float = 0.0
    listen_errors: tuple[Cause, ...] = ()
    """Why it could not listen on some of its ports."""
    dialled: Dialled | None = None
    calls: int = 0
    ports: int = 0
    inspected: Inspected


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All of it.

    Attributes:
        owners: whose a task's address is.
        machines: the names and addresses by which tasks reach each other.
        digest: SHA-256 of the script as this machine has it, empty where it is not known.
        is_sent: whether distrun sends the script to other hosts.
        job_disk: bytes free where the job's record is; None where that is not known.
    """

    hosts: tuple[HostFindings, ...]
    owners: dict[str, str]
    machines: tuple[str, ...] = ()
    digest: str = ""
    is_sent: bool = False
    job_folder: str = ""
    job_disk: int | None = None

"""The preflight of one job: it asks the hosts, in order, and has their answers judged.

    Listen to all -> all listen -> Dial -> all have dialled -> StopListening -> nothing listens
    Inspect to all, beside it

So each host calls the ports of the others only while somebody is there to answer, and no task
starts while anything but it listens on its port.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from distrun import events
from distrun.agent import protocol
from distrun.agent.protocol import probe_messages
from distrun.errors import HostError
from distrun.plan import PROXY_VARIABLES, split_address
from distrun.preflight import Check, Findings, Grade, HostFindings, judge
from distrun.spec.model import ProgramKind, Sync
from distrun.supervisor.preparation import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from distrun.agent.protocol import Order, Report
    from distrun.plan import Plan, TaskPlan
    from distrun.spec.model import Spec

_DIAL_SECONDS = 5.0
_INSPECT_SECONDS = 20.0
_PYTHON = re.compile(r"python[0-9.]*")
_OF_ONE_TASK = (
    "TF_CONFIG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
)  # fmt: skip
"""Variables in which tasks differ though they run the same; TF_CONFIG is large, too."""


class Preflight:
    """Asks the hosts of a plan what a job needs to know before it starts.

    Args:
        hosts: those of them that can be asked.
        folder: where the job's record is, or will be.
        has_files: whether other hosts have been sent the program's files, as the spec says.
        order: sends a host an order.
    """

    def __init__(
        self,
        spec: Spec,
        plan: Plan,
        hosts: Sequence[str],
        folder: Path,
        order: Callable[[str, Order], None],
        *,
        has_files: bool = True,
    ) -> None:
        self._spec = spec
        self._by_name = {host.name: host for host in spec.hosts}
        self._has_files = has_files
        self._plan = plan
        self._hosts = hosts
        self._folder = folder
        self._order = order
        self._addresses = {
            task.address: task.host for task in plan.tasks if task.address and task.host in hosts
        }
        self._ports = Counter(self._addresses.values())
        self._machines = list(dict.fromkeys(split_address(each)[0] for each in self._addresses))
        self._greetings = {host: f"distrun {os.urandom(8).hex()}\n" for host in hosts}
        self._calls = {host: self._targets(host) for host in hosts}
        self._asked_at: dict[str, float] = {}
        self._clocks: dict[str, tuple[float, float]] = {}
        self._listen_errors: dict[str, tuple[protocol.Cause, ...]] = {}
        self._dialled: dict[str, probe_messages.Dialled] = {}
        self._quiet: set[str] = set()
        self._inspected: dict[str, probe_messages.Inspected] = {}

    def begin(self) -> None:
        """Ask the first questions; to :meth:`take` come the answers."""
        for host in self._hosts:
            self._asked_at[host] = time.time()
            self._order(host, probe_messages.Listen(self._greetings[host]))
        for host, programs in self._programs().items():
            self._order(host, probe_messages.Inspect(programs, _INSPECT_SECONDS))

    def take(self, host: str, answer: Report) -> None:
        """Take what an agent answered; what is to be asked next is asked."""
        if isinstance(answer, probe_messages.Listening):
            now, asked = time.time(), self._asked_at[host]
            self._clocks[host] = (answer.at - (now + asked) / 2, max(0.0, (now - asked) / 2))
            self._listen_errors[host] = tuple(answer.errors)
            if len(self._listen_errors) == len(self._hosts):
                self._dial()
        elif isinstance(answer, probe_messages.Dialled):
            self._dialled[host] = answer
            self._hush_when_dialled()
        elif isinstance(answer, probe_messages.StoppedListening):
            self._quiet.add(host)
        elif isinstance(answer, probe_messages.Inspected):
            self._inspected[host] = self._looked_at(host, answer)

    @property
    def waiting_for(self) -> list[str]:
        """The hosts that have yet to answer what they were asked last."""
        if len(self._listen_errors) < len(self._hosts):
            return [host for host in self._hosts if host not in self._listen_errors]
        calling = [host for host, targets in self._calls.items() if targets]
        if len(self._dialled) < len(calling):
            return [host for host in calling if host not in self._dialled]
        done = self._quiet & self._inspected.keys()
        return [host for host in self._hosts if host not in done]

    def checks(self) -> tuple[Check, ...] | None:
        """What it comes to; None while something has not been answered."""
        if len(self._quiet & self._inspected.keys()) < len(self._hosts):
            return None
        script = self._spec.program.target
        is_script = self._spec.program.kind is ProgramKind.SCRIPT
        judged = judge(
            Findings(
                hosts=tuple(self._findings(host) for host in self._hosts),
                owners=self._addresses,
                machines=tuple(self._machines),
                digest=_digest(script) if is_script else "",
                is_sent=self._spec.program.sync is not Sync.OFF,
                job_folder=str(self._folder),
                job_disk=_free(self._folder),
            )
        )
        return (*judged, *dict.fromkeys(self._not_looked_at()))

    def _not_looked_at(self) -> Iterator[Check]:
        """What hosts have not been sent; a launch looks at it when they have."""
        is_script = self._spec.program.kind is ProgramKind.SCRIPT
        for task in self._plan.tasks:
            if task.host not in self._hosts or not self._lacks_files(task):
                continue
            if is_script or self._needs_files(task):
                what = self._spec.program.target if is_script else task.argv[0]
                yield Check(
                    host=task.host,
                    subject="script" if is_script else "program",
                    grade=Grade.NOTE,
                    text=f"{what} was not looked at: a launch sends it first",
                )

    def _findings(self, host: str) -> HostFindings:
        offset, tolerance = self._clocks[host]
        return HostFindings(
            host=host,
            offset=offset,
            tolerance=tolerance,
            listen_errors=self._listen_errors[host],
            dialled=self._dialled.get(host),
            calls=sum(len(target.ports) for target in self._calls[host]),
            ports=self._ports[host],
            inspected=self._inspected[host],
        )

    def _looked_at(self, host: str, answer: probe_messages.Inspected) -> probe_messages.Inspected:
        if not any(each.is_local for each in self._spec.hosts if each.name == host):
            return answer
        # Logs go into the job's folder here, which is looked at for itself.
        workdirs = {program.workdir for program in answer.programs}
        disks = [disk for disk in answer.disks if disk.folder in workdirs]
        return probe_messages.Inspected(answer.programs, disks, answer.failure)

    # The network ---------------------------------------------------------------------------

    def _targets(self, host: str) -> list[probe_messages.Target]:
        """Every port of the others; its own where tasks there have to reach each other."""
        targets: dict[tuple[str, str], probe_messages.Target] = {}
        for address, owner in self._addresses.items():
            if owner != host or self._ports[host] > 1:
                machine, port = split_address(address)
                target = probe_messages.Target(machine, [], self._greetings[owner])
                targets.setdefault((machine, owner), target).ports.append(port)
        return list(targets.values())

    def _dial(self) -> None:
        for host, targets in self._calls.items():
            if targets:
                self._order(host, probe_messages.Dial(targets, _DIAL_SECONDS))
        self._hush_when_dialled()

    def _hush_when_dialled(self) -> None:
        if len(self._dialled) == sum(bool(targets) for targets in self._calls.values()):
            for host in self._hosts:
                self._order(host, probe_messages.StopListening())

    # Programs ------------------------------------------------------------------------------

    def _programs(self) -> dict[str, list[probe_messages.Program]]:
        """What is run on each host, tasks that run the same once."""
        asked: dict[str, dict[object, probe_messages.Program]] = {host: {} for host in self._hosts}
        for task in self._plan.tasks:
            if task.host not in asked or self._needs_files(task):
                continue
            program = self._program(task)
            key = (*program.argv, program.workdir, *sorted(program.env.items()))
            asked[task.host].setdefault(key, program)
        return {host: list(programs.values()) for host, programs in asked.items()}

    def _lacks_files(self, task: TaskPlan) -> bool:
        return not self._has_files and not self._by_name[task.host].is_local

    def _needs_files(self, task: TaskPlan) -> bool:
        """Whether the program itself is one of the files that its host has not been sent."""
        is_command = self._spec.program.kind is ProgramKind.COMMAND
        is_sent = is_command and "/" in task.argv[0] and not os.path.isabs(task.argv[0])
        return is_sent and self._lacks_files(task)

    def _program(self, task: TaskPlan) -> probe_messages.Program:
        kind = self._spec.program.kind
        lacks_files = self._lacks_files(task)
        has_script = kind is ProgramKind.SCRIPT and not lacks_files
        head = 2 if has_script else 1
        env = environment(self._spec, task)
        # Else it is in the copy.
        is_on_host = task.workdir in (self._spec.program.workdir, self._by_name[task.host].workdir)
        return probe_messages.Program(
            argv=list(task.argv[:head]),
            workdir=task.workdir,
            env={
                name: value
                for name, value in env.items()
                if name not in _OF_ONE_TASK and not name.startswith("DISTRUN_")
            },
            unset=list(task.unset),
            script=task.argv[1] if has_script else "",
            is_python=kind is not ProgramKind.COMMAND or _is_python(task.argv[0]),
            variables=PROXY_VARIABLES if task.address and len(self._addresses) > 1 else (),
            or_home=task.or_home or (lacks_files and not is_on_host),
        )


def failure(checks: tuple[Check, ...]) -> HostError | None:
    """Why the job cannot start; None where it can."""
    failed = [check.sentence for check in checks if check.grade is Grade.FAILED]
    if not failed:
        return None
    more = f", and {len(failed) - 1} more (`distrun events`)" if len(failed) > 1 else ""
    return HostError(f"the preflight failed: {failed[0]}{more}")


def record(checks: tuple[Check, ...], at: float) -> Iterator[events.Event]:
    """What of it belongs in the job's record: all that is not good, and the sum."""
    found: Counter[Grade] = Counter(check.grade for check in checks)
    for check in checks:
        if check.grade in (Grade.WARNING, Grade.FAILED):
            yield events.PreflightFound(
                at=at,
                host=check.host,
                subject=check.subject,
                grade=check.grade.value,
                text=check.sentence,
                advice=check.advice,
            )
    yield events.PreflightEnded(
        at=at,
        checks=len(checks),
        failed=found[Grade.FAILED],
        warnings=found[Grade.WARNING],
    )


def _is_python(program: str) -> bool:
    return _PYTHON.fullmatch(os.path.basename(program)) is not None


def _digest(path: str) -> str:
    import hashlib

    with contextlib.suppress(OSError), open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
    return ""


def _free(folder: Path) -> int | None:
    """Bytes free where a folder is or will be."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            found = os.statvfs(place)
            return found.f_bavail * found.f_frsize
    return None

"""Sends the orders of the preflight to the hosts of a plan, and collects their answers.

Every host first listens on its ports (Listen). When all hosts listen, each dials the ports of the
others (Dial). When all have dialed, they stop listening (StopListening). By the same steps hosts
write a file into each folder that they are to share, look for that of one host, and remove theirs.
If asked, they measure in between how fast they receive from each other (Measure), in rounds.
Meanwhile each host inspects its programs and disks (Inspect). So nothing else listens on a task's
port when the task starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distrun.agent.linux.facts import file_digest, free_bytes
from distrun.agent.protocol import Report, probe_messages
from distrun.job import events
from distrun.plan import Plan, TaskPlan, split_address
from distrun.plan.ranks import RANKS
from distrun.preflight import Check
from distrun.preflight.judgement import Answers, HostAnswers, judge
from distrun.spec.asked_interpreter import probe_text
from distrun.spec.model import ProgramKind, Spec
from distrun.spec.target import find_target
from distrun.supervisor.job_hosts import JobHosts

_ALL_PAIRS = 32
"""Up to so many hosts, each dials every other."""
_MOST_MEASURED = 16
"""Up to so many hosts, each receives from every other: it takes a second for each."""
_DIAL_SECONDS = 5.0
_MEASURE_SECONDS = 1.0
_LONGEST_ROUND = 10.0
_INSPECT_SECONDS = 20.0
_PYTHON = re.compile(r"python[0-9.]*")
_OF_ONE_TASK = (
    "TF_CONFIG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
    *RANKS,
)  # fmt: skip
"""Variables that differ between tasks of the same program; TF_CONFIG is large, too."""


class Probe:
    """Runs the preflight on hosts of a plan.

    `fresh` are inspected also if they were before. Others than `newcomers` need not be like the
    rest. `trials`: further tasks whose programs are inspected.
    """

    def __init__(
        self,
        job: JobHosts,
        plan: Plan,
        hosts: Iterable[str],
        *,
        fresh: Collection[str],
        newcomers: Collection[str],
        trials: Sequence[TaskPlan] = (),
    ) -> None:
        from distrun.spec.value_warnings import checkpoint_folders

        self._job, self._spec, self._plan, self._newcomers = job, job.spec, plan, newcomers
        self._hosts = hosts = tuple(hosts)
        self._program_of = {role.role: self._spec.program_of(role) for role in self._spec.roles}
        is_dry = job.checks_all and self._spec.sends_files
        self._lacking_files = job.hosts_without_files if is_dry else []
        self._modules = _needed_modules(self._spec)
        self._addresses = {
            task.address: task.host for task in plan.tasks if task.address and task.host in hosts
        }
        self._ports = Counter(self._addresses.values())
        self._machines = list(dict.fromkeys(split_address(each)[0] for each in self._addresses))
        folders = (*job.spec.program.shared, *checkpoint_folders(job.spec))
        self._folders = tuple(dict.fromkeys(folders)) if len(hosts) > 1 else ()
        """Those that hosts are to share: of the spec, and the checkpoints' in arguments."""
        self._writer = next((host for host in hosts if host not in newcomers), hosts[0])
        """The host whose files the others look for."""
        self._password = os.urandom(16).hex() if job.measures else ""
        self._greetings = {host: f"distrun {os.urandom(8).hex()}\n" for host in hosts}
        self._targets = {host: self._targets_of(host) for host in hosts}
        self._sent_at: dict[str, float] = {}
        self._known: dict[str, dict[str, Any]] = {host: {} for host in hosts}
        """By host, the fields of its :class:`.HostAnswers` so far."""
        self._rounds = (
            _rounds([host for host in hosts if self._ports[host]]) if job.measures else ()
        )
        """The host that each one receives from, in each round of measuring."""
        self._rates: list[tuple[str, str, float]] = []
        self._answer_to_step = (
            probe_messages.Listening,
            probe_messages.Dialled,
            *(probe_messages.Measured for _ in self._rounds),
            probe_messages.StoppedListening,
        )
        self._step = 0
        self._waiting = set(hosts)
        for host in fresh:
            job.inspected.pop(host, None)
        job.emit(events.PreflightStarted(at=time.time(), hosts=len(hosts)))
        for host in hosts:
            self._sent_at[host] = time.time()
            job.order(host, self._listen(host, (*plan.tasks, *trials)))
        script = probe_text()
        for host, programs in self._programs((*plan.tasks, *trials)).items():
            if host not in job.inspected:
                order = probe_messages.Inspect(programs, _INSPECT_SECONDS, script, job.checks_all)
                job.order(host, order)

    def receive(self, host: str, answer: Report) -> None:
        """Record an agent's answer. After the last one of a step, start the next step."""
        if host not in self._hosts:
            return
        if isinstance(answer, probe_messages.Inspected):
            self._job.inspected[host] = self._relevant(host, answer)
        elif isinstance(answer, self._answer_to_step[self._step]):
            if isinstance(answer, probe_messages.Listening):
                now, sent = time.time(), self._sent_at[host]
                self._known[host].update(
                    clock_offset=answer.at - (now + sent) / 2,
                    clock_tolerance=max(0.0, (now - sent) / 2),
                    listen_errors=tuple(answer.errors),
                    unwritten=tuple(answer.unwritten),
                )
            elif isinstance(answer, probe_messages.Dialled):
                self._known[host].update(dialled=answer)
            elif isinstance(answer, probe_messages.Measured):
                self._rates.append((host, self._rounds[self._step - 2][host], answer.rate))
            self._waiting.discard(host)
            self._advance()

    def forget(self, host: str) -> None:
        """Continue without a host that no other host has to dial."""
        if host in self._hosts:
            self._hosts = tuple(each for each in self._hosts if each != host)
            del self._targets[host]
            self._waiting.discard(host)
            self._advance()

    def _advance(self) -> None:
        """Take the next steps if the answers so far allow them."""
        while not self._waiting and self._step < self._last_step:
            self._step += 1
            if self._step == self._last_step:
                self._waiting = set(self._hosts)
                for host in self._hosts:
                    self._job.order(host, probe_messages.StopListening())
            elif self._step > 1:
                self._measure(self._rounds[self._step - 2])
            else:
                mark = self._mark(self._writer)
                looking = {*self._hosts} - {self._writer} if mark else set()
                self._waiting = looking | {host for host in self._hosts if self._targets[host]}
                for host in self._waiting:
                    order = probe_messages.Dial(
                        self._targets[host], _DIAL_SECONDS, mark if host in looking else ""
                    )
                    self._job.order(host, order)

    def _measure(self, senders: Mapping[str, str]) -> None:
        addresses = {host: address for address, host in self._addresses.items()}
        for host, sender in senders.items():
            if host not in self._targets or sender not in self._targets:
                continue
            machine, port = split_address(addresses[sender])
            target = probe_messages.Target(machine, [port], self._greetings[sender])
            self._waiting.add(host)
            self._job.order(
                host, probe_messages.Measure([target], self._password, _MEASURE_SECONDS)
            )

    @property
    def _last_step(self) -> int:
        return len(self._answer_to_step) - 1

    @property
    def waiting_for(self) -> list[str]:
        waiting = set(self._waiting)
        if self._step == self._last_step:
            waiting |= {*self._hosts} - self._job.inspected.keys()
        return [host for host in self._hosts if host in waiting]

    def checks(self) -> tuple[Check, ...] | None:
        """Return the result of each check; None while an answer is missing."""
        if self._step < self._last_step or self.waiting_for:
            return None
        script = self._spec.program.target
        is_script = self._spec.program.kind is ProgramKind.SCRIPT
        scripts = {
            task.argv[1]: self._program_of[task.role].target
            for task in self._plan.tasks
            if task.role.is_custom and self._kind(task) is ProgramKind.SCRIPT
        }
        return judge(
            Answers(
                hosts=tuple(
                    HostAnswers(
                        host=host,
                        calls=sum(len(target.ports) for target in self._targets[host]),
                        ports=self._ports[host],
                        inspected=self._job.inspected[host],
                        gpu_failure=self._job.hellos[host].gpu_failure,
                        **self._known[host],
                    )
                    for host in self._hosts
                ),
                owners=self._addresses,
                program=self._spec.program,
                newcomers=frozenset(self._newcomers),
                machines=tuple(self._machines),
                digest=_digest(script) if is_script else "",
                custom_digests={path: _digest(source) for path, source in scripts.items()},
                modules=self._modules,
                folders=self._folders,
                writer=self._writer,
                rates=tuple(self._rates) if self._job.measures else None,
                job_folder=str(self._job.folder),
                job_disk=_free(self._job.folder),
            )
        )

    def _relevant(self, host: str, answer: probe_messages.Inspected) -> probe_messages.Inspected:
        if self._job.has_own_logs(host):
            return answer
        # Its logs are in the job's folder, which has a check of its own.
        workdirs = {program.workdir for program in answer.programs}
        disks = {each: free for each, free in answer.disks.items() if each in workdirs}
        return answer._replace(disks=disks)

    # Shared folders ------------------------------------------------------------------------

    def _mark(self, host: str) -> str:
        """The name of a host's file in the folders; empty if there are none."""
        random = self._greetings[host].split()[1]
        return f"{probe_messages.MARK_PREFIX}{random}" if self._folders else ""

    def _listen(self, host: str, tasks: Iterable[TaskPlan]) -> probe_messages.Listen:
        task = next((task for task in tasks if task.host == host), None)
        listen = probe_messages.Listen(self._greetings[host], password=self._password)
        if task is None or not self._folders:
            return listen
        return listen._replace(
            mark=self._mark(host),
            folders=self._folders,
            workdir=task.workdir,
            or_home=task.or_home or host in self._lacking_files,
        )

    # The network ---------------------------------------------------------------------------

    def _targets_of(self, host: str) -> list[probe_messages.Target]:
        """Return the ports that a host must reach: those of other hosts, and its own if several."""
        targets: dict[tuple[str, str], probe_messages.Target] = {}
        dialled = dialled_by(host, self._hosts)
        for address, owner in self._addresses.items():
            if owner in dialled and (owner != host or self._ports[host] > 1):
                machine, port = split_address(address)
                target = probe_messages.Target(machine, [], self._greetings[owner])
                targets.setdefault((machine, owner), target).ports.append(port)
        return list(targets.values())

    # Programs ------------------------------------------------------------------------------

    def _programs(self, tasks: Iterable[TaskPlan]) -> dict[str, list[probe_messages.Program]]:
        found: dict[str, dict[object, probe_messages.Program]] = {host: {} for host in self._hosts}
        for task in tasks:
            if task.host not in found or self._needs_files(task):
                continue
            program = self._program(task)
            key = (*program.argv, program.workdir, *sorted(program.env.items()))
            found[task.host].setdefault(key, program)
        return {host: list(programs.values()) for host, programs in found.items()}

    def _kind(self, task: TaskPlan) -> ProgramKind:
        return self._program_of[task.role].kind

    def _needs_files(self, task: TaskPlan) -> bool:
        """Return whether the program is a file that its host does not have yet."""
        is_command = self._kind(task) is ProgramKind.COMMAND
        is_sent = is_command and "/" in task.argv[0] and not os.path.isabs(task.argv[0])
        return is_sent and task.host in self._lacking_files

    def _program(self, task: TaskPlan) -> probe_messages.Program:
        kind, is_custom = self._kind(task), task.role.is_custom
        lacks_files = task.host in self._lacking_files
        has_script = kind is ProgramKind.SCRIPT and not lacks_files
        head = 2 if has_script else 1
        is_python = _PYTHON.fullmatch(os.path.basename(task.argv[0])) is not None
        env = {**task.env, **self._job.passed_variables(task.host)}
        # If not, the folder is in the copy of the program's files.
        own_folders = (self._spec.program.workdir, self._job.specs[task.host].workdir)
        is_on_host = task.workdir in own_folders
        # No interpreter that is asked for versions may import from the working folder.
        env["PYTHONSAFEPATH"] = "1"
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
            # A command of a custom role need not be like the program that trains.
            is_python=kind is not ProgramKind.COMMAND or (is_python and not is_custom),
            or_home=task.or_home or (lacks_files and not is_on_host),
            modules=() if is_custom else self._modules,
        )


def dialled_by(host: str, hosts: Sequence[str]) -> Collection[str]:
    """Return the hosts whose ports a host dials: all of a few, and a selection of many.

    Of many, it is the first one, which coordinates the others, and those that follow this one
    after 1, 2, 4, 8... places. So each is dialled by as many, and the connections of N hosts are
    N log N.
    """
    if len(hosts) <= _ALL_PAIRS:
        return hosts
    place = hosts.index(host)
    return {host, hosts[0], *(hosts[(place + step) % len(hosts)] for step in _doubled(len(hosts)))}


def _doubled(count: int) -> Iterator[int]:
    """Yield 1, 2, 4, 8... below a count."""
    return (1 << power for power in range((count - 1).bit_length()))


def _rounds(hosts: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Return who receives from whom in each round."""
    count = len(hosts)
    return tuple(
        {host: hosts[(place + step) % count] for place, host in enumerate(hosts)}
        for step in _measured_steps(count)
    )


def _measured_steps(count: int) -> Iterable[int]:
    """How many places on the sender is in each round: all of a few hosts, a selection of many."""
    return range(1, count) if count <= _MOST_MEASURED else _doubled(count)


def longest_measuring(hosts: int) -> float:
    """The seconds after which so many hosts have measured, or never will."""
    return _LONGEST_ROUND * len([*_measured_steps(hosts)])


def _digest(path: str) -> str:
    with contextlib.suppress(OSError):
        return file_digest(path)
    return ""


def _free(folder: Path) -> int | None:
    """The free bytes on the disk of a folder that exists or will."""
    counts = (free_bytes(str(place)) for place in (folder, *folder.parents))
    return next((count for count in counts if count is not None), None)


def _needed_modules(spec: Spec) -> tuple[str, ...]:
    """Return the first names of the modules that the program certainly imports.

    Those beside it are left out. It is read on this machine; if it is not here, none is known.
    """
    from distrun.lint.program import read_program
    from distrun.lint.rules import imported_modules
    from distrun.spec.value_warnings import BUNDLED_NEEDS

    target = find_target(spec)
    if target is not None and target.is_bundled:
        return BUNDLED_NEEDS
    try:
        return tuple(imported_modules(read_program(spec)))
    except Exception:  # noqa: BLE001 - a defect in a check must not keep a job from starting
        return ()

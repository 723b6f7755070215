"""Three losses of hosts in one job, at moments drawn by a seed, and what must hold after them.

The network of one host is cut, the agent of another is killed, and on a third all processes of the
job get SIGKILL. The job has a task on each of all hosts but one, which is the spare. The first loss
takes the spare. All lost hosts return as spares: after 1 s, or when the cut host is connected to
the network again, after the others were lost. Until then a later loss waits for room.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from harness.command import Distrun, Status, recorded_events
from harness.network import Host, ProcessesOf
from harness.waiting import SOON, wait_until

CUT, KILL_AGENT, KILL_ALL = "cut", "kill agent", "kill all processes"


@dataclass
class Losses:
    """The losses, drawn by `seed`: their order, hosts, and steps of a training of `steps`.

    `lease` and `backoff` are those of the job, in seconds. `patience`: the seconds that a start of
    the job may take on a machine that others use too.
    """

    seed: int
    steps: int
    distrun: Distrun
    status: Status
    processes_of: ProcessesOf
    lease: float
    backoff: float
    patience: float = SOON
    inflicted: list[tuple[str, Host, float]] = field(default_factory=list)
    """How, which host, and when by Unix time."""

    def __post_init__(self) -> None:
        self._chooser = random.Random(self.seed)
        print(f"seed {self.seed}")  # shown if the test fails
        ways = self._chooser.sample([CUT, KILL_AGENT, KILL_ALL], 3)
        # The job must not end before the last one.
        moments = sorted(self._chooser.randrange(1, self.steps * 2 // 3) for _ in ways)
        self.plan = list(zip(ways, moments, strict=True))
        self._furthest = 0

    def inflict(self, on: list[Host]) -> None:
        """Inflict each loss at its step, on a host that a task is on and that was not lost yet.

        A step that has been reached before an earlier loss counts. So the next host may be lost
        while the last one is being replaced.
        """
        for way, moment in self.plan:
            wait_until(lambda moment=moment: self._step() >= moment, self.patience)  # type: ignore[misc]
            lost = [host for _, host, _ in self.inflicted]
            used = {task["host"] for task in self.status()["tasks"]}
            host = self._chooser.choice([h for h in on if h.name in used and h not in lost])
            print(f"{way}, {host.name}, at step {moment}")
            self.inflicted.append((way, host, self._lose(way, host)))
        for way, host, _ in self.inflicted:
            if way == CUT:
                wait_until(lambda host=host: self._lost_at(host), self.patience)  # type: ignore[misc]
                host.mend()

    def _lost_at(self, host: Host) -> float | None:
        """When the loss of a host was recorded."""
        return first(recorded_events(self.distrun), 0.0, "HostLost", host=host.name)

    def _step(self) -> int:
        told = [each["progress"].get("STEP", 0) for each in self.status()["tasks"]]
        self._furthest = max(self._furthest, *map(int, told))
        return self._furthest

    def _lose(self, way: str, host: Host) -> float:
        """Inflict a loss. Returns the Unix time just before it."""
        processes = self.processes_of(host)
        (pid,) = [e["agent_pid"] for e in self.status()["hosts"] if e["name"] == host.name]
        agents = [each for each in processes if pid_on_host(each) == pid]
        assert agents, f"{host.name} has no agent: has the job ended?"
        at = time.time()
        if way == CUT:
            host.cut()
        else:
            for each in agents if way == KILL_AGENT else processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        return at

    def check(self, workers: int) -> None:
        """Each loss costs at most a lease and a restart: all workers start again soon after it.

        Raises:
            AssertionError: it is not so.
        """
        record = recorded_events(self.distrun)
        restarts = {each["number"] for each in record if each["event"] == "RestartPlanned"}
        assert 1 <= len(restarts) <= len(self.plan), restarts
        for way, host, at in self.inflicted:
            lost = first(record, at, "HostLost", host=host.name)
            assert lost is not None
            assert lost - at <= self.lease + self.patience, way
            for index in range(workers):
                start = first(record, lost, "TaskStarted", task=f"worker:{index}")
                assert start is not None
                assert start - lost <= self.backoff + self.patience, way

    def was_lost(self, task: str, attempt: int) -> bool:
        """Whether an attempt was on a host when that was lost."""
        host = ""
        for event in recorded_events(self.distrun):
            if event["event"] == "JobPlanned":
                (host,) = [each["host"] for each in event["tasks"] if each["name"] == task]
            elif event["event"] == "TaskStarted" and event["task"] == task:
                number = event["attempt"]
            elif event["event"] == "HostLost" and event["host"] == host and number == attempt:
                return True
        return False


def pid_on_host(process: psutil.Process) -> int | None:
    """The id that a process has in the innermost of its namespaces; None if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


def first(record: list[dict[str, Any]], since: float, kind: str, **fields: str) -> float | None:
    """When the first event of a kind with these fields happened since a time; None if none did."""
    return min(
        (
            event["at"]
            for event in record
            if event["event"] == kind
            and event["at"] >= since
            and all(event[name] == value for name, value in fields.items())
        ),
        default=None,
    )

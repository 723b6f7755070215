"""A job's history in the making, for tests of the pure lifecycle."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.lifecycle import (
    SIGTERM,
    Action,
    Announce,
    Finish,
    JobPhase,
    JobState,
    StartAttempt,
    step,
)
from distrun.spec.model import Timeouts
from distrun.strategies import STRATEGIES, Role, Success

GRACE = 10.0
MWM = "multi_worker_mirrored"
PS = "parameter_server"


def because(text: str) -> Cause:
    """A cause whose words are that text."""
    return Cause(Code.UNCODED, text=text)


@dataclass
class Job:
    """A history in the making: each call is an event, its actions are what it returns."""

    state: JobState = field(default_factory=JobState)
    history: list[events.Event] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    now: float | None = None
    """When the next event is, each a moment after the one before; None: each a second."""

    def __call__(self, kind: type[events.Event], **fields: Any) -> list[Action]:
        at = float(len(self.history)) if self.now is None else self.now
        self.now = None if self.now is None else self.now + 0.01
        actions = self.happened(kind(at=at, **fields))
        return [action for action in actions if not isinstance(action, Announce)]

    def happened(self, event: events.Event) -> list[Action]:
        self.history.append(event)
        self.state, actions = step(self.state, event)
        self.actions += actions
        for action in actions:
            if isinstance(action, Announce):
                self.happened(action.event)
        return actions

    def created(self, strategy: str, success: Success | None = None, **fields: Any) -> list[Action]:
        bounds = {key[:-8]: fields.pop(key) for key in list(fields) if key.endswith("_timeout")}
        timeouts = Timeouts(**{"link": None, "grace": GRACE, **bounds})
        known = {"job_id": "job-1", "name": "job", "spec_file": "job.yaml", "supervisor_pid": 1}
        success = success or STRATEGIES[strategy].success
        about = {"strategy": strategy, "success": success, "timeouts": timeouts}
        return self(events.JobCreated, **{**known, **about, **fields})

    def resumed(self, **fields: Any) -> list[Action]:
        created = {name: value for name, value in vars(self.history[0]).items() if name != "at"}
        return self(events.JobResumed, **{**created, **fields})

    def ready(self, host: str, **about: Any) -> list[Action]:
        known = {"agent_pid": 2, "hostname": host, "python": "3.11", "cores": 2.0, "gpus": ()}
        return self(events.HostReady, host=host, **{**known, **about})

    def planned(
        self, *names: str, host: str = "localhost", places: dict[str, str] | None = None
    ) -> list[Action]:
        """`places`: the hosts of tasks that are on another."""
        of = {name: (places or {}).get(name, host) for name in names}
        for each in dict.fromkeys([host, *of.values()]):
            self.ready(each)
        return self.placed(of)

    def placed(self, hosts: dict[str, str], *kept: str, **about: Any) -> list[Action]:
        """The plan of the tasks, each with its host. `kept`: tasks that go on."""
        records = tuple(
            events.TaskRecord(name=name, role=Role(role), index=int(index), host=host, **about)
            for name, host in hosts.items()
            for role, _, index in [name.partition(":")]
        )
        return self(events.JobPlanned, tasks=records, kept=kept)

    def started(self, *names: str) -> list[Action]:
        return self._each(events.TaskStarted, names, pid=100)

    def exited(
        self, name: str, code: int | None = 0, signal: int | None = None, **about: Any
    ) -> list[Action]:
        how = {"code": code if signal is None else None, "signal": signal, **about}
        return self(events.TaskExited, task=name, attempt=self.attempt(name), **how)

    def ended(self, *names: str) -> list[Action]:
        return self._each(events.TaskEnded, names)

    def _each(self, kind: type[events.Event], names: Iterable[str], **about: Any) -> list[Action]:
        found = (self(kind, task=each, attempt=self.attempt(each), **about) for each in names)
        return list(itertools.chain.from_iterable(found))

    def gone(self, name: str, *how: int | None, **about: Any) -> list[Action]:
        return self.exited(name, *how, **about) + self.ended(name)

    def attempt(self, name: str) -> int:
        return self.state.tasks[name].attempt

    def timed_out(self, name: str) -> list[Action]:
        return self(events.TimedOut, timer=events.Timer.from_json(name))

    def stop(self, signal: int = SIGTERM, grace: float = GRACE, **about: Any) -> list[Action]:
        known = {"cause": because("distrun kill"), "exit_code": 137, **about}
        return self(events.StopRequested, signal=signal, grace=grace, **known)

    def phases(self) -> dict[str, str]:
        return {name: task.phase.value for name, task in self.state.tasks.items()}

    def phase(self) -> JobPhase:
        return self.state.phase

    def undecided(self) -> bool:
        return self.state.outcome is None

    @property
    def outcome(self) -> events.Outcome:
        assert self.state.outcome is not None
        return self.state.outcome

    def finish(self) -> None:
        """What the supervisor does once it has been told to finish."""
        assert sum(isinstance(action, Finish) for action in self.actions) == 1
        self(events.JobEnded, outcome=self.outcome)
        assert self.state.phase.is_final


def running(
    strategy: str,
    *names: str,
    success: Success | None = None,
    places: dict[str, str] | None = None,
    **fields: Any,
) -> Job:
    job = Job()
    job.created(strategy, success, **fields)
    assert job.planned(*names, places=places) == [StartAttempt(name, 0) for name in names]
    job.started(*names)
    assert job.phase() is JobPhase.RUNNING
    return job


def restarts_planned(job: Job) -> list[events.RestartPlanned]:
    return [each for each in job.history if isinstance(each, events.RestartPlanned)]


def backoff_over(job: Job) -> list[Any]:
    """The newest restart's backoff is over; what follows."""
    return job.timed_out(f"restart:{restarts_planned(job)[-1].number}")


def starts(actions: list[Any]) -> list[tuple[str, int]]:
    return [(each.task, each.attempt) for each in actions if isinstance(each, StartAttempt)]

"""The lifecycle in a world: agents that take orders and report, timers, and whatever may happen.

Hypothesis chooses what happens next: an order or a report arrives, a timer runs out, a task is
executed, exits or ends, somebody stops the job, a host is lost. The world knows the truth, which
the lifecycle only hears of, and holds it to its guarantees.

If hosts have room for more tasks, tasks of lost hosts restart elsewhere: somebody makes plans, and
hosts return.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.lifecycle import (
    MOST_FREE_IN_A_ROW,
    SIGKILL,
    SIGTERM,
    Action,
    Announce,
    CancelTimer,
    Finish,
    JobPhase,
    JobState,
    MakePlan,
    SetTimer,
    StartTask,
    StopTask,
    replay,
    step,
)
from distrun.spec.model import Ready, RestartSpec, Timeouts, exit_codes
from distrun.strategies import STRATEGIES, Role, Success, Workers
from harness.examples import examples

from .histories import because, timer

MWM = "multi_worker_mirrored"
PS = "parameter_server"
INDEPENDENT = "parameter_server, independent"
JOBS = [
    ("mirrored", None, ("worker:0",)),
    (MWM, None, ("worker:0", "worker:1")),
    (MWM, None, ("chief:0", "worker:0", "worker:1", "evaluator:0")),
    (MWM, Success.ALL, ("worker:0", "worker:1", "evaluator:0")),
    (MWM, Success.WORKER_0, ("worker:0", "worker:1")),
    (PS, None, ("chief:0", "worker:0", "worker:1", "ps:0", "evaluator:0")),
    (PS, Success.ALL, ("chief:0", "worker:0", "ps:0", "evaluator:0")),
    (INDEPENDENT, Success.WORKER_0, ("worker:0", "worker:1", "ps:0", "evaluator:0")),
    (INDEPENDENT, None, ("chief:0", "worker:0", "worker:1", "ps:0")),
    (INDEPENDENT, Success.ALL, ("chief:0", "worker:0", "worker:1", "ps:0")),
    ("mirrored", None, ("worker:0", "proxy:0", "hub:0")),
    (MWM, None, ("worker:0", "worker:1", "proxy:0", "master:0", "hub:0")),
    (MWM, Success.ALL, ("worker:0", "evaluator:0", "proxy:0", "proxy:1")),
    (PS, None, ("chief:0", "worker:0", "ps:0", "master:0", "hub:0")),
]
AFTER = {"worker": ("proxy", "master"), "evaluator": ("proxy",), "proxy": ("hub",)}
"""The roles that a role starts after, if the job has them."""
READY = {"proxy": Ready.PORT, "master": Ready.LINE}
POLICIES = [
    RestartSpec(max=0),
    RestartSpec(max=1, backoff=0.0),
    RestartSpec(max=2, never_on=(2,)),
    RestartSpec(max=3, reset_after=None),
    RestartSpec(max=2, on=("always",)),
    RestartSpec(max=2, on=("preemption",)),
    RestartSpec(max=2, on=("130-255", "2")),
]
MIN_WORKERS = RestartSpec(max=3, min_workers=1, host_failures=2, reset_after=None)
ROLE_POLICIES: list[dict[str, RestartSpec]] = [
    {},
    {"worker": RestartSpec(max=1, on=("always",), reset_after=None)},
    {"ps": RestartSpec(max=0), "evaluator": RestartSpec(max=5, on=("always",))},
    {"chief": RestartSpec(max=1, on=("preemption", "1")), "worker": RestartSpec(max=2)},
]
EXITS = [(0, None), (1, None), (2, None), (42, None), (None, SIGKILL), (None, SIGTERM)]
OF_HOSTS = (Code.HOST_LOST, Code.HOST_FAILED, Code.TASK_NOT_STARTED)
LOSSES = ("lost", "lost first", "lost spare", "return", "return", "fault", "stop")
DISASTERS = ("stop", "fault", "lost", "run")


@dataclass
class Attempt:
    """What is true of one attempt. `told`: it has been sent a signal to stop."""

    number: int
    executed: bool = False
    exited: bool = False
    told: bool = False
    ready: bool = False
    began: int = 0
    """How much had happened when it began."""


@dataclass
class World:
    """Two hosts, the links to them, and the supervisor's timers."""

    state: JobState = field(default_factory=JobState)
    history: list[events.Event] = field(default_factory=list)
    alive: dict[str, Attempt] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    orders: dict[str, deque[Action]] = field(default_factory=dict)
    reports: dict[str, deque[events.Event]] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    hosts: dict[str, str] = field(default_factory=dict)
    replaces: bool = False
    """Whether tasks may restart on other hosts."""
    requests: deque[MakePlan] = field(default_factory=deque)
    regrown: set[str] = field(default_factory=set)
    """The tasks that a plan has dropped and a later one has again."""
    finished: list[events.Outcome] = field(default_factory=list)
    finished_tasks: set[str] = field(default_factory=set)
    """Independent workers, and their chief, that have exited 0 and were not stopped."""
    resumes: int = 0
    at: float = 0.0

    # The supervisor ------------------------------------------------------------------------

    def happen(self, event: events.Event) -> None:
        decided = None if isinstance(event, events.JobResumed) else self.state.outcome
        self.history.append(event)
        state, actions = step(self.state, event)
        assert (state, actions) == step(self.state, event), "chance has a part in it"
        if isinstance(event, events.TaskExited) and phase_of(self.state, event.task) == "stopping":
            assert not actions, "the exit of a task that was told to stop is no failure"
        if isinstance(event, events.TaskExited) and state.has_finished(state.tasks[event.task]):
            self.finished_tasks.add(event.task)
        self.state = state
        assert decided is None or state.outcome == decided, "a decided outcome changed"
        for action in actions:
            self.perform(action)

    def perform(self, action: Action) -> None:  # noqa: C901 - a case for each action
        if isinstance(action, (StartTask, StopTask)):
            host = self.hosts[action.task]
            if isinstance(action, StartTask):
                assert host not in self.lost | self.faulty, "started where nothing can be"
                assert action.task not in self.finished_tasks, "it had finished"
            self.orders[host].append(action)
            if isinstance(action, StartTask):
                self.check_order(action)
                if action.attempt:
                    self.check_start(action)
        elif isinstance(action, SetTimer):
            assert str(action.timer) not in self.timers, "set twice"
            self.timers[str(action.timer)] = action.seconds
        elif isinstance(action, CancelTimer):
            self.timers.pop(str(action.timer), None)
        elif isinstance(action, MakePlan):
            assert self.replaces
            assert not self.alive.keys() & {*action.tasks}, "a plan is asked for too early"
            self.requests.append(action)
        elif isinstance(action, Announce) and isinstance(action.event, events.HostLeftOut):
            assert self.replaces
            self.happen(action.event)
        elif isinstance(action, Announce):
            assert isinstance(action.event, events.RestartPlanned)
            assert "evaluator:0" not in action.event.tasks or len(action.event.tasks) == 1
            self.happen(action.event)
        elif isinstance(action, Finish):
            assert not self.running_in_truth(), "it finished over living tasks"
            self.finished.append(action.outcome)

    def check_start(self, start: StartTask) -> None:
        """All that start together have ended, not only this one."""
        if start.cause is not None and start.cause.code is Code.JOB_RESUMED:
            kinds = (events.JobPlanned, events.TaskStarted, events.TaskReady)
            assert isinstance(self.history[-1], kinds), "neither planned nor waited for"
            return
        planned = [
            (number, e)
            for number, e in enumerate(self.history)
            if isinstance(e, events.RestartPlanned) and start.task in e.tasks
        ]
        since, restart = planned[-1]
        if start.task in self.regrown:
            return
        assert start.cause == restart.cause
        begun = {
            e.task for queue in self.orders.values() for e in queue if isinstance(e, StartTask)
        }
        for name in restart.tasks:
            is_new = name in self.alive and self.alive[name].began > since
            assert name in begun or is_new or name not in self.alive, f"{name} has not ended"

    def check_order(self, start: StartTask) -> None:
        """All tasks of the roles before it are ready."""
        for role in self.state.tasks[start.task].after:
            for task in self.state.tasks.values():
                if task.role is role:
                    was_ready = task.is_ready or task.ready is Ready.OFF
                    assert was_ready, f"{task.name} was not ready"
                    assert task.phase.value in ("running", "exited", "succeeded")

    # The hosts -----------------------------------------------------------------------------

    def running_in_truth(self) -> list[str]:
        return [name for name in self.alive if self.hosts[name] not in self.lost]

    def obey(self, host: str) -> None:
        order = self.orders[host].popleft()
        if isinstance(order, StartTask):
            assert order.task not in self.alive, "two attempts of one task"
            last = self.last.get(order.task, -1)
            # A start that was lost with its host, or with its supervisor, counts.
            may_skip = self.replaces or self.resumes
            assert order.attempt == last + 1 or (may_skip and order.attempt > last)
            self.last[order.task] = order.attempt
            self.alive[order.task] = Attempt(order.attempt, began=len(self.history))
        elif isinstance(order, StopTask) and order.task in self.alive:
            self.alive[order.task].told = True

    def report(self, task: str, kind: type[events.Event], **fields: object) -> None:
        number = self.alive[task].number
        event = kind(at=self.at, task=task, attempt=number, **fields)  # type: ignore[call-arg]
        self.reports[self.hosts[task]].append(event)

    def execute(self, task: str, *, works: bool) -> None:
        if works:
            self.report(task, events.TaskStarted, pid=1)
            self.alive[task].executed = True
        else:
            self.report(task, events.TaskNotStarted, cause=Cause(Code.PROGRAM_NOT_FOUND, name="x"))
            del self.alive[task]

    def exit(self, task: str, code: int | None, signal: int | None, lived: float) -> None:
        self.report(task, events.TaskExited, code=code, signal=signal, lived=lived)
        self.alive[task].exited = True

    def end(self, task: str) -> None:
        self.report(task, events.TaskEnded)
        del self.alive[task]

    def lose_host(self, host: str) -> None:
        decided = self.state.outcome
        self.lost.add(host)
        self.orders[host].clear()
        self.reports[host].clear()
        for name in [name for name in self.alive if self.hosts[name] == host]:
            del self.alive[name]
        self.happen(events.HostLost(at=self.at, host=host, cause=because("gone")))
        there = [name for name, where in self.hosts.items() if where == host]
        if self.state.success is not Success.ALL and there == ["evaluator:0"]:
            assert self.state.outcome == decided, "an evaluator's host ended the job"

    def resume(self, places: dict[str, str], *, stopped: bool) -> None:
        """Another supervisor continues the job: nothing that the last one knew only itself is left.

        Args:
            stopped: whether somebody stops it while its hosts are cleared.
        """
        self.resumes += 1
        for host in self.orders:
            self.orders[host].clear()
            self.reports[host].clear()
        self.timers.clear()
        self.finished.clear()
        created = self.history[0]
        assert isinstance(created, events.JobCreated)
        was = self.state.tasks
        self.happen(events.JobResumed(**{**vars(created), "at": self.at}))
        assert self.state.phase is JobPhase.PREPARING
        assert self.state.outcome is None
        assert all(was[name].attempt == task.attempt for name, task in self.state.tasks.items())
        if stopped:
            self.disaster("stop")
        for host in list(self.state.former_hosts):
            for name in [name for name in self.alive if self.hosts[name] == host]:
                del self.alive[name]
            self.happen(events.HostCleared(at=self.at, host=host))
        if stopped:
            assert self.finished, "it waits for tasks that are not there"
            return
        assert not self.running_in_truth(), "a host was forgotten"
        assert "start" in self.timers
        self.lost.clear()
        self.faulty.clear()
        self.hosts = places
        plan(self, replaces=False)

    def return_host(self, host: str) -> None:
        """It is connected anew: its agent has ended everything by its lease."""
        self.lost.discard(host)
        self.faulty.discard(host)
        self.happen(ready(host, room=3))

    # Plans ---------------------------------------------------------------------------------

    def usable(self) -> list[str]:
        return [name for name, host in self.state.hosts.items() if host.is_usable]

    def make_plan(self, draw: st.DataObject | None) -> None:
        """Do what the supervisor does: each task stays, or gets a host that can be used."""
        request = self.requests.popleft()
        if request.restart not in self.state.restarts or self.state.outcome is not None:
            return
        hosts = self.usable()
        if not hosts or (draw is not None and draw.draw(st.integers(0, 5), "room unless 0") == 0):
            cause = Cause(Code.NO_ROOM, tasks=request.tasks)
            self.happen(events.PlanFailed(at=self.at, restart=request.restart, cause=cause))
            return
        names = [*self.state.tasks]
        workers = [name for name in names if name.startswith("worker:")]
        if self.state.policy.min_workers and {*workers} <= {*request.tasks}:
            count = self.state.all_workers
            if draw is not None:
                count = draw.draw(st.integers(self.state.policy.min_workers, count), "workers")
            names = [name for name in names if name not in workers]
            names += [f"worker:{index}" for index in range(count)]
            self.regrown |= {*names} & self.state.dropped.keys()
        kept = [n for n in names if n in self.state.tasks and n not in request.tasks]
        places = {
            name: self.hosts[name]
            if name in kept or self.hosts[name] in hosts
            else (hosts[0] if draw is None else draw.draw(st.sampled_from(hosts), "place"))
            for name in names
        }
        former = {n: self.hosts[n] for n in places if self.hosts[n] != places[n]}
        self.hosts.update(places)
        self.happen(
            events.JobPlanned(
                at=self.at, tasks=records(places), kept=tuple(kept), former_hosts=former
            )
        )

    # What can be next ----------------------------------------------------------------------

    def choices(self) -> list[tuple[str, str]]:
        found = [("obey", host) for host, queue in self.orders.items() if queue]
        found += [("hear", host) for host, queue in self.reports.items() if queue]
        found += [("plan", str(request.restart)) for request in list(self.requests)[:1]]
        found += [("lose", host) for host in self.faulty - self.lost if self.replaces]
        found += [("timer", timer) for timer in self.timers if timer not in ("run", "start")]
        for name, attempt in self.alive.items():
            if not attempt.executed:
                found.append(("execute", name))
            elif not attempt.exited:
                found.append(("exit", name))
                if name.partition(":")[0] in READY and not attempt.ready:
                    found.append(("ready", name))
            else:
                found.append(("end", name))
        return found

    def do(self, what: str, which: str, draw: st.DataObject) -> None:
        self.at += 1.0
        if what == "obey":
            self.obey(which)
        elif what == "hear":
            self.happen(self.reports[which].popleft())
        elif what == "timer":
            del self.timers[which]
            self.happen(events.TimedOut(at=self.at, timer=timer(which)))
        elif what == "plan":
            self.make_plan(draw)
        elif what == "lose":
            self.lose_host(which)
        elif what == "execute":
            self.execute(which, works=draw.draw(st.integers(0, 9), "executed unless 0") > 0)
        elif what == "ready":
            self.alive[which].ready = True
            self.report(which, events.TaskReady)
        elif what == "exit":
            code, signal = draw.draw(st.sampled_from(EXITS))
            self.exit(which, code, signal, lived=draw.draw(st.sampled_from([1.0, 61.0])))
        else:
            self.end(which)

    def disaster(self, what: str) -> None:
        if what == "stop":
            self.happen(
                events.StopRequested(
                    at=self.at, cause=because("kill"), signal=SIGTERM, grace=10.0, exit_code=137
                )
            )
        elif what == "fault":
            self.faulty.add("a")
            self.happen(
                events.HostFault(at=self.at, host="a", cause=Cause(Code.LOG_DISK_FULL, path="/x"))
            )
        elif what == "lost" and "b" not in self.lost:
            self.lose_host("b")
        elif what == "lost first" and "a" not in self.lost:
            self.lose_host("a")
        elif what == "lost spare" and "c" not in self.lost:
            self.lose_host("c")
        elif what == "return" and self.lost:
            self.return_host(min(self.lost))
        elif what == "run" and self.timers.pop("run", None) is not None:
            self.happen(events.TimedOut(at=self.at, timer=timer("run")))

    def run_to_end(self) -> None:
        """Let all tasks end: those that were asked to stop exit, the others exit 0."""
        for _ in range(2000):
            found = self.choices()
            calm = [each for each in found if each[0] not in ("exit", "timer")]
            told = [each for each in found if each[0] == "exit" and self.alive[each[1]].told]
            exits = [each for each in found if each[0] == "exit"]
            timers = [each for each in found if each[0] == "timer" and "restart" in each[1]]
            ready = calm or told or timers or sorted(exits)
            if not ready:
                if self.state.outcome is not None or not self.waits_for_host():
                    return
                self.happen(events.TimedOut(at=self.at, timer=timer("start")))
                continue
            what, which = ready[0]
            if what == "exit":
                self.exit(which, None if self.alive[which].told else 0, SIGTERM
                          if self.alive[which].told else None, lived=1.0)  # fmt: skip
            elif what == "execute":
                self.execute(which, works=True)
            else:
                self.do(what, which, None)  # type: ignore[arg-type]
        raise AssertionError("it goes on for ever")

    def waits_for_host(self) -> bool:
        return self.timers.pop("start", None) is not None and any(
            restart.needs_host for restart in self.state.restarts.values()
        )


def phase_of(state: JobState, task: str) -> str:
    return state.tasks[task].phase.value


def create(
    strategy: str,
    success: Success | None,
    names: tuple[str, ...],
    policy: RestartSpec,
    role_policies: dict[str, RestartSpec],
    places: list[str],
    *,
    replaces: bool,
) -> World:
    world = World(
        hosts=dict(zip(names, places, strict=False)),
        orders={host: deque() for host in "abc"},
        reports={host: deque() for host in "abc"},
        replaces=replaces and policy.max > 0,
    )
    strategy, _, workers = strategy.partition(", ")
    world.happen(
        events.JobCreated(
            at=0.0, job_id="job-1", name="job", strategy=strategy,
            workers=Workers(workers or "coordinated"),
            success=success or STRATEGIES[strategy].success, spec_file="job.yaml",
            supervisor_pid=1, timeouts=Timeouts(run=60.0, stall=30.0), restart=policy,
            role_restarts=role_policies,
        )
    )  # fmt: skip
    plan(world, replaces=replaces)
    return world


def plan(world: World, *, replaces: bool) -> None:
    """The hosts are ready, and every task has its place."""
    for host in "abc" if replaces else "ab":
        world.happen(ready(host, room=3 if replaces else None))
    world.happen(events.JobPlanned(at=0.0, tasks=records(world.hosts)))


def ready(host: str, room: int | None) -> events.HostReady:
    return events.HostReady(
        at=0.0, host=host, agent_pid=2, hostname=host, python="3.11", cores=2.0, gpus=(),
        room=room, spare=host == "c", token="" if room is None else "1",
    )  # fmt: skip


def records(places: dict[str, str]) -> tuple[events.TaskRecord, ...]:
    return tuple(
        events.TaskRecord(
            name=name,
            role=Role(role),
            index=int(index),
            host=host,
            after=tuple(Role(each) for each in AFTER.get(role, ()) if f"{each}:0" in places),
            ready=READY.get(role, Ready.OFF),
            joins_cluster=role == "master",
        )
        for name, host in places.items()
        for role, _, index in [name.partition(":")]
    )


def check_budgets(history: list[events.Event], policies: dict[str, RestartSpec]) -> None:
    """No more restarts than there may be, those of roles with their own policy counted apart."""
    counted = dict.fromkeys(policies, 0)
    in_a_row = dict.fromkeys(policies, 0)
    for event in history:
        if isinstance(event, events.JobResumed):
            counted, in_a_row = dict.fromkeys(policies, 0), dict.fromkeys(policies, 0)
        if isinstance(event, events.TimedOut) and event.timer.kind is events.TimerKind.HEALTH:
            counted[event.timer.key] = in_a_row[event.timer.key] = 0
        if not isinstance(event, events.RestartPlanned):
            continue
        role = event.cause.task.partition(":")[0]  # of the task that failed first; none: a stall
        name = role if role in policies else "job"
        if event.cause.code in OF_HOSTS:
            name = "evaluator" if event.tasks == ("evaluator:0",) else "job"
        policy = policies[name]
        counted[name] += not event.is_free
        in_a_row[name] = in_a_row[name] + 1 if event.is_free else 0
        assert event.left == policy.max - counted[name]
        assert 0 <= event.delay <= policy.backoff_max
        assert counted[name] <= policy.max
        assert in_a_row[name] <= MOST_FREE_IN_A_ROW
        check_policy(event, policy)


def check_policy(event: events.RestartPlanned, policy: RestartSpec) -> None:
    """The policy of the role whose task failed first includes how that exited."""
    cause = event.cause
    if cause.code in OF_HOSTS:
        return
    if cause.code is Code.STALLED:
        assert {"failure", "always"} & set(policy.on)
        return
    status = 128 + cause.signal if cause.signal else cause.status or 0
    assert status not in policy.never_on
    if cause.code is Code.TASK_EXITED and status == 0:
        assert "always" in policy.on
        return
    codes = exit_codes(each for each in policy.on if each[0].isdigit())
    is_preemption = "preemption" in policy.on and status in (42, 143)
    assert {"failure", "always"} & set(policy.on) or status in codes or is_preemption


def play(world: World, data: st.DataObject) -> None:
    """Let hypothesis choose what happens."""
    for _ in range(data.draw(st.integers(0, 60), "moves")):
        found = world.choices()
        if data.draw(st.integers(0, 24), "disaster at 0") == 0:
            world.disaster(data.draw(st.sampled_from(DISASTERS)))
        elif found:
            world.do(*data.draw(st.sampled_from(found)), data)
        if world.finished:
            break


def check_end(world: World, policies: dict[str, RestartSpec]) -> None:
    assert replay(world.history) == world.state

    assert world.finished == [world.state.outcome], "it does not end, or twice"
    assert not world.running_in_truth()
    assert world.state.outcome is not None
    world.happen(events.JobEnded(at=world.at, outcome=world.state.outcome))
    assert world.state.phase.is_final
    assert all(task.phase.is_final for task in world.state.tasks.values())
    assert not world.state.restarts
    check_budgets(world.history, policies)
    recorded = [events.decode(events.encode(event)) for event in world.history]
    assert recorded == world.history


@settings(max_examples=examples(200))
@given(data=st.data())
def test_whatever_happens_to_hosts_the_guarantees_hold(data: st.DataObject) -> None:
    strategy, success, names = data.draw(st.sampled_from(JOBS))
    policy = data.draw(st.sampled_from([*POLICIES[1:], MIN_WORKERS, MIN_WORKERS]))
    places = data.draw(st.sampled_from(["ababa", "aaaba", "aabbb", "aaaab"]), "places")
    world = create(strategy, success, names, policy, {}, list(places), replaces=True)
    for _ in range(data.draw(st.integers(0, 80), "moves")):
        found = world.choices()
        if data.draw(st.integers(0, 9), "disaster at 0") == 0:
            world.disaster(data.draw(st.sampled_from(LOSSES)))
        elif found:
            world.do(*data.draw(st.sampled_from(found)), data)
        if world.finished:
            break
    world.run_to_end()
    check_end(world, {"evaluator": policy, "job": policy})


@settings(max_examples=examples(200))
@given(data=st.data())
def test_whatever_happens_the_guarantees_hold(data: st.DataObject) -> None:
    strategy, success, names = data.draw(st.sampled_from(JOBS))
    policy = data.draw(st.sampled_from(POLICIES))
    places = data.draw(st.sampled_from(["ababa", "aaaba", "aabbb", "aaaab"]), "places")
    role_policies = data.draw(st.sampled_from(ROLE_POLICIES))
    world = create(strategy, success, names, policy, role_policies, list(places), replaces=False)
    play(world, data)
    world.run_to_end()
    check_end(world, {"evaluator": policy, "job": policy, **role_policies})


@settings(max_examples=examples(200))
@given(data=st.data())
def test_a_job_is_resumed_after_any_end_and_no_two_attempts_live(data: st.DataObject) -> None:
    strategy, success, names = data.draw(st.sampled_from(JOBS))
    policy = data.draw(st.sampled_from(POLICIES))
    layouts = st.sampled_from(["ababa", "aaaba", "aabbb", "aaaab"])
    role_policies = data.draw(st.sampled_from(ROLE_POLICIES))
    places = list(data.draw(layouts))
    world = create(strategy, success, names, policy, role_policies, places, replaces=False)
    for _ in range(data.draw(st.integers(1, 3), "resumes")):
        play(world, data)
        outcome = world.state.outcome
        if data.draw(st.booleans(), "ended, not lost"):
            world.run_to_end()
            outcome = world.state.outcome
            if outcome is None:  # nothing else was to happen
                break
            world.happen(events.JobEnded(at=world.at, outcome=outcome))
        if outcome is not None and outcome.result is events.Result.SUCCEEDED:
            break
        anew = dict(zip(names, data.draw(layouts, "places"), strict=False))
        world.resume(anew, stopped=data.draw(st.integers(0, 5), "stopped at 0") == 0)
        assert replay(world.history) == world.state
    if world.state.phase.is_final:
        return
    world.run_to_end()
    check_end(world, {"evaluator": policy, "job": policy, **role_policies})

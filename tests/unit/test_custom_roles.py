"""Custom roles and ranks in the pure parts: the plan, the lifecycle, the watch, the checks."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from distrun.agent.loop import Loop
from distrun.agent.protocol import Code, TaskStarted
from distrun.frozen import replace
from distrun.job import events
from distrun.job.folder import JobFolder
from distrun.lifecycle import Action, StartAttempt
from distrun.lint.check import check_program
from distrun.plan import TaskPlan
from distrun.spec.loader import load
from distrun.spec.model import (
    EnvStyle,
    HostSpec,
    ProgramKind,
    ProgramSpec,
    Ready,
    RestartSpec,
    RoleSpec,
)
from distrun.spec.placeholders import fill, names
from distrun.strategies import Role, Success
from distrun.supervisor.hosts.inquiry import Inquiries
from distrun.supervisor.log_tails import LogTails
from distrun.supervisor.running_task import RunningTask
from distrun.words.causes import cause_text
from harness.requirements import need_tensorflow
from harness.waiting import SOON, wait_until

from .histories import MWM, PS, Job
from .plans import SCRIPT, A, B, env, planned, role, spec_of, task

SERVE = ProgramSpec(kind=ProgramKind.COMMAND, target="", argv=("serve",), workdir="/src")


def custom(name: str, count: int = 1, **options: Any) -> RoleSpec:
    options = {"in_tf_config": False, "expects_free_port": True, "program": SERVE, **options}
    return role(name, count, **options)


# The plan ----------------------------------------------------------------------------------


def test_chief_and_workers_are_one_group_and_other_roles_are_their_own() -> None:
    made = planned(
        spec_of(
            *(role("worker", 3), role("chief"), role("ps", 2), custom("proxy", 2)),
            strategy=PS,
            hosts=(A, B),
        )
    )
    shown = {
        each.name: "/".join(
            each.env[f"DISTRUN_{name}"] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        )
        for each in made.tasks
    }
    hosts = {each.name: each.host for each in made.tasks}
    assert {name: text.rpartition("/")[0] for name, text in shown.items()} == {
        "chief:0": "0/4",
        "worker:0": "1/4",
        "worker:1": "2/4",
        "worker:2": "3/4",
        "ps:0": "0/2",
        "ps:1": "1/2",
        "proxy:0": "0/2",
        "proxy:1": "1/2",
    }
    for host in "ab":
        group = ("chief:0", "worker:0", "worker:1", "worker:2")
        here = [shown[name][-1] for name in group if hosts[name] == host]
        assert here == [str(number) for number in range(len(here))]


def test_a_custom_role_has_a_port_and_its_own_program_but_no_cluster() -> None:
    hub_role = custom("hub", in_tf_config=True)
    made = planned(spec_of(role("worker", 2, args=("x",)), custom("proxy"), hub_role))
    proxy, hub, worker = (task(made, name) for name in ("proxy:0", "hub:0", "worker:0"))
    assert proxy.argv == hub.argv == ("serve",)
    assert (proxy.tf_config, proxy.unset) == (None, ("TF_CONFIG",))
    assert list(worker.cluster.addresses if worker.cluster else ()) == ["worker", "hub"]
    assert (proxy.joins_cluster, hub.joins_cluster, worker.joins_cluster) == (False, True, False)
    assert (proxy.binds_port, worker.binds_port) == (True, False)
    assert (proxy.ready, worker.ready) == (Ready.PORT, Ready.PORT)
    addresses = made.record()["addresses"]
    assert addresses == {
        "worker": [worker.address, task(made, "worker:1").address],
        "proxy": [proxy.address],
        "hub": [hub.address],
    }


def test_torchrun_gives_each_group_a_master_of_its_own() -> None:
    program = replace(SCRIPT, env_style=EnvStyle.TORCHRUN)
    made = planned(
        spec_of(
            role("chief", expects_free_port=True),
            role("worker", expects_free_port=True),
            role("evaluator", expects_free_port=True),
            program=program,
            hosts=(HostSpec(name="a", address="::1"),),
        )
    )
    worker, evaluator = env(made, "worker:0"), env(made, "evaluator:0")
    assert (worker["RANK"], worker["WORLD_SIZE"], worker["MASTER_ADDR"]) == ("1", "2", "::1")
    assert worker["MASTER_PORT"] == (task(made, "chief:0").address or "").rpartition(":")[2]
    assert evaluator["MASTER_PORT"] == (task(made, "evaluator:0").address or "").rpartition(":")[2]
    cluster = task(made, "worker:0").cluster
    assert cluster is not None
    assert list(cluster.addresses) == ["chief", "worker"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{rank}", "<rank>"),
        ("a{port}b{address:x:0}", "a<port>b<address:x:0>"),
        ('{"a": {"b": {index}}}', '{"a": {"b": <index>}}'),
        ("{{rank}} {{{role}}}", "{rank} {{role}}"),
        ("{{rank}", "{<rank>"),
        ("{rank }{ranks}{}{{}}{Rank}", "{rank }{ranks}{}{{}}{Rank}"),
    ],
)
def test_only_placeholders_are_replaced(text: str, expected: str) -> None:
    assert fill(text, "<{}>".format) == expected
    assert [f"<{name}>" for name in names(text)] == re.findall(r"<.*?>", expected)


# The lifecycle -----------------------------------------------------------------------------


def job_of(strategy: str, *tasks: str, success: Success | None = None, **after: str) -> Job:
    """A job whose roles start after others; `proxy` is ready when that is reported."""
    job = Job()
    job.created(strategy, success, start_timeout=60.0)
    job.happened(
        events.JobPlanned(
            at=1.0,
            tasks=tuple(
                events.TaskRecord(
                    name=name,
                    role=Role(name[:-2]),
                    index=int(name[-1]),
                    host="localhost",
                    address="localhost:1" if name.startswith("proxy") else None,
                    after=tuple(map(Role, after.get(name[:-2], "").split())),
                    ready=Ready.PORT if name.startswith("proxy") else Ready.OFF,
                )
                for name in tasks
            ),
        )
    )
    return job


def ready(job: Job, name: str) -> list[Action]:
    return job(events.TaskReady, task=name, attempt=job.attempt(name))


def starts(actions: list[Action]) -> list[str]:
    return [f"{each.task} {each.attempt}" for each in actions if isinstance(each, StartAttempt)]


def test_roles_start_one_after_another() -> None:
    job = job_of(
        MWM, "worker:0", "worker:1", "proxy:0", "proxy:1", "hub:0", worker="proxy hub", proxy="hub"
    )
    assert starts(job.actions) == ["hub:0 0"]
    assert starts(job.started("hub:0")) == ["proxy:0 0", "proxy:1 0"]
    job.started("proxy:0", "proxy:1")
    assert starts(ready(job, "proxy:1")) == []
    assert job.phases()["worker:0"] == "waiting"
    assert starts(ready(job, "proxy:0")) == ["worker:0 0", "worker:1 0"]
    job.started("worker:0", "worker:1")
    assert job.phase().value == "running"


def test_a_task_that_has_only_waited_restarts_as_the_same_attempt() -> None:
    job = Job()
    job.created(MWM, restart=RestartSpec(max=2, backoff=0.0))
    record = events.TaskRecord(name="chief:0", role=Role.CHIEF, index=0, host="a")
    worker = events.TaskRecord(
        name="worker:0", role=Role.WORKER, index=0, host="a", after=(Role("proxy"),)
    )
    proxy = events.TaskRecord(
        name="proxy:0", role=Role("proxy"), index=0, host="a", ready=Ready.PORT
    )
    job.happened(events.JobPlanned(at=1.0, tasks=(record, worker, proxy)))
    job.started("chief:0", "proxy:0")
    job.gone("chief:0", 3)
    assert job.phases()["worker:0"] == "restarting"
    assert starts(job.timed_out("restart:1")) == ["chief:0 1"]
    (again,) = [each for each in ready(job, "proxy:0") if isinstance(each, StartAttempt)]
    assert (again.task, again.attempt) == ("worker:0", 0)
    assert again.cause is not None


def test_what_is_not_ready_in_time_is_named() -> None:
    job = job_of(MWM, "worker:0", "worker:1", "proxy:0", worker="proxy")
    job.started("proxy:0")
    job.timed_out("start")
    (cause,) = job.outcome.cause.within
    assert cause.code is Code.TASK_NOT_READY
    assert cause_text(cause) == "worker:0, worker:1 wait until proxy:0 listens at localhost:1"


@pytest.mark.parametrize("success", [None, Success.ALL, Success.WORKER_0])
def test_custom_roles_decide_no_success_and_fail_the_job(success: Success | None) -> None:
    job = job_of(MWM, "worker:0", "proxy:0", success=success)
    job.started("worker:0", "proxy:0")
    job.gone("worker:0")
    assert job.outcome.exit_code == 0
    job = job_of(MWM, "worker:0", "proxy:0", success=success)
    job.started("worker:0", "proxy:0")
    job.gone("proxy:0")
    assert job.verdict == ("failed", 1, "distrun")


# The watch ---------------------------------------------------------------------------------


@dataclass
class Watching:
    """An attempt of proxy:0, with the loop of its supervisor, and what it was found to be."""

    plan: TaskPlan
    folder: JobFolder
    loop: Loop
    inquiries: Inquiries
    found: list[tuple[str, int]]
    task: RunningTask | None = None

    def start(self, attempt: int, log_start: int) -> RunningTask:
        """Start the next attempt."""
        if self.task is not None:
            self.task.close()
        tails = LogTails(self.loop, self.folder)
        hosts = types.SimpleNamespace(inquiries=self.inquiries)
        job: Any = types.SimpleNamespace(loop=self.loop, hosts=hosts, folder=self.folder)
        observer: Any = self  # it is told only that the task is ready
        self.task = RunningTask(self.plan, job, tails, observer)
        self.task.start(TaskStarted("proxy:0", attempt, 1, 0.0, log_start))
        return self.task

    def on_ready(self, task: RunningTask) -> None:
        self.found.append((task.name, task.attempt))

    def until_found(self) -> list[tuple[str, int]]:
        """Wait until the task is ready."""
        deadline = monotonic() + SOON
        while not self.found:
            assert monotonic() < deadline
            self.loop.turn(SOON)
        return [self.found.pop()]

    def finds_nothing(self) -> bool:
        """Whether a search reads all there is and does not find the line."""
        assert self.task is not None
        task = self.task
        wait_until(lambda: self.loop.turn(0.0) or bool(self.inquiries.pids))
        (pid,) = self.inquiries.pids
        wait_until(lambda: task.why_not_ready is None and waits(pid))
        self.loop.turn(0.0)
        return not self.found


def waits(pid: int) -> bool:
    return ") S " in Path(f"/proc/{pid}/stat").read_text()


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Callable[..., Watching]]:
    made: list[Watching] = []

    def start(**ready: Any) -> Watching:
        plan = planned(spec_of(role("worker", after=(Role("proxy"),)), custom("proxy", **ready)))
        folder = JobFolder(tmp_path)
        folder.logs.mkdir()
        loop = Loop()
        made.append(Watching(task(plan, "proxy:0"), folder, loop, Inquiries(loop, "job-1"), []))
        return made[-1]

    yield start
    for each in made:
        if each.task is not None:
            each.task.close()
        each.loop.close()


def test_only_the_own_port_makes_a_task_ready(watching: Callable[..., Watching]) -> None:
    job = watching()
    proxy, port = job.start(2, 0), job.plan.port
    proxy.on_listening([port + 1])
    assert job.found == []
    proxy.on_listening([1, port])
    proxy.on_listening([1, port])
    assert job.found == [("proxy:0", 2)]


def test_a_line_is_searched_when_it_is_complete_and_only_in_its_attempt(
    watching: Callable[..., Watching],
) -> None:
    job = watching(ready=Ready.LINE, ready_line="^up [0-9]")
    job.start(0, 0)
    log = job.folder.log_of("proxy:0")
    job.loop.turn(0.0)
    assert not job.inquiries.pids  # there is no log yet
    log.write_text("not up 1\nup")
    assert job.finds_nothing()
    log.write_text("not up 1\nup 2\n")
    assert job.until_found() == [("proxy:0", 0)]

    before = "not up 1\nup 2\n--- attempt 1, now: printed by the program ---\nup 3\n"
    log.write_text("not up 1\nup 2\n")  # the rest of a copy may arrive after the start
    job.start(1, len(before))
    assert job.finds_nothing()
    log.write_text(before + "up")
    assert job.finds_nothing()
    log.write_bytes(log.read_bytes() + b" 4 \xff\n")
    assert job.until_found() == [("proxy:0", 1)]


# The check of scripts ----------------------------------------------------------------------


def test_a_custom_role_is_checked_but_not_against_the_strategy(tmp_path: Path) -> None:
    need_tensorflow()
    (tmp_path / "train.py").write_text("print('no strategy')\n")
    (tmp_path / "serve.py").write_text(
        "import tensorflow as tf\nimport os\nos.environ['TF_CONFIG'] = '{}'\n"
        "tf.distribute.MirroredStrategy()\n"
    )
    (tmp_path / "broken.py").write_text("def f(:\n")
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "strategy: multi_worker_mirrored\n"
        "cluster: {worker: 2, proxy: {script: serve.py}, hub: {script: broken.py}}\n"
        "program: {script: train.py}\n"
    )
    found = check_program(load(spec))
    assert [(Path(each.file).name, each.line) for each in found] == [("broken.py", 1)]
    spec.write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\nprogram: {script: serve.py}\n"
    )
    assert len(check_program(load(spec))) == 2

"""The first cause and its echoes: what no recorded case shows, replayed as histories."""

from __future__ import annotations

import pytest

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.cli.cause_text import cause_advice, cause_text
from distrun.cli.verdict_text import evidence_text
from distrun.strategies import Role, Workers
from distrun.verdict.analysis import analyze
from distrun.verdict.log_analysis import LogAnalysis, LogTail
from distrun.verdict.model import Kind, Verdict
from distrun.verdict.rules import RULES
from harness.values import not_none
from table import failures

from .histories import MWM, PS, Job, because, restartable, running

ECHO = (
    "Traceback (most recent call last):\n"
    '  File "/home/user/train.py", line 9, in <module>\n'
    "    step()\n"
    "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: "
    "Socket closed\n"
)
OWN = (
    "Traceback (most recent call last):\n"
    '  File "/home/user/train.py", line 7, in <module>\n'
    "    load()\n"
    "ValueError: labels must lie in [0, 10), got 17\n"
)


def verdicts(job: Job, **logs: str) -> list[Verdict]:
    """Logs by a task's name, `worker0`."""
    texts = {name: text.encode() for name, text in logs.items()}
    return [
        analyze(case, lambda name: LogTail(texts.get(name.replace(":", ""), b"")))
        for case in failures(job.history)
    ]


@pytest.mark.parametrize(
    ("workers", "kind"),
    [(Workers.INDEPENDENT, Kind.CONNECTION_LOST), (Workers.COORDINATED, Kind.LEFT_EARLY)],
)
def test_an_independent_worker_that_has_finished_has_not_left_early(
    workers: Workers, kind: Kind
) -> None:
    job = running(PS, "chief:0", "worker:0", "worker:1", "ps:0", workers=workers)
    job.gone("worker:0")
    job.exited("worker:1", 1)
    for name in ("chief:0", "ps:0"):
        job.gone(name, signal=15)
    job.ended("worker:1")
    (verdict,) = verdicts(job, worker1=ECHO)
    assert verdict.kind is kind


def on_two_hosts(behind: float = 0.0) -> Job:
    job = Job()
    job.created(MWM)
    for name, late in (("here", 0.0), ("there", behind)):
        job(
            events.HostReady,
            host=name,
            agent_pid=2,
            hostname=name,
            python="3.11",
            cores=2.0,
            gpus=(),
            behind=late,
        )
    records = [
        events.TaskRecord(name="worker:0", role=Role.WORKER, index=0, host="here"),
        events.TaskRecord(name="worker:1", role=Role.WORKER, index=1, host="there"),
    ]
    job(events.JobPlanned, tasks=tuple(records))
    job.started("worker:0", "worker:1")
    return job


def test_a_full_disk_is_of_the_variable_that_its_host_goes_by() -> None:
    for name, variable in (
        ("DISTRUN_HOME", "DISTRUN_HOME"),
        ("XDG_STATE_HOME", "XDG_STATE_HOME for its login"),
    ):
        job = Job()
        job.created(MWM)
        job(
            events.HostReady,
            host="h1",
            agent_pid=2,
            hostname="h1",
            python="3.11",
            cores=2.0,
            gpus=(),
        )
        job(events.HostFault, host="h1", cause=Cause(Code.LOG_DISK_FULL, path="/x", name=name))
        (verdict,) = verdicts(job)
        assert verdict.kind is Kind.DISK_FULL
        assert cause_advice(verdict.cause) == f"make room there, or set {variable} to another disk"


def test_a_lost_host_is_the_cause_of_what_its_peers_say() -> None:
    job = on_two_hosts()
    job.gone("worker:0", 1)
    job(events.HostLost, host="there", cause=because("no sign of life for 60 s (timeouts.link)"))
    (verdict,) = verdicts(job, worker0=ECHO)
    assert (verdict.task, verdict.kind, verdict.echoes) == (
        "worker:1",
        Kind.HOST_LOST,
        ("worker:0",),
    )
    assert cause_text(verdict.cause) == (
        "worker:1 was lost with there: no sign of life for 60 s (timeouts.link)"
    )
    job(events.VerdictReached, verdict=verdict)
    assert job.verdict == ("failed", 69, "distrun")


@pytest.mark.parametrize("is_task_first", [False, True])
def test_what_slurm_ends_is_not_blamed_on_a_task(is_task_first: bool) -> None:
    job = on_two_hosts()
    ended = Cause(Code.SLURM_CANCELLED, name="11", text="STEP 11.1 CANCELLED")
    if not is_task_first:
        job(events.HostFault, host="there", cause=ended)
    job(events.TaskExited, task="worker:0", attempt=0, signal=15, was_stopping=False)
    job.ended("worker:0")
    if is_task_first:
        job(events.HostFault, host="there", cause=ended)
    job.gone("worker:1", None, 15)
    (verdict,) = verdicts(job)
    assert (verdict.task, verdict.kind) == (None, Kind.HOST_LOST)
    assert "it was cancelled in Slurm (scancel)" in cause_text(verdict.cause)
    job(events.VerdictReached, verdict=verdict)
    assert job.verdict == ("failed", 69, "distrun")


def test_an_error_of_ones_own_before_a_lost_host_stays_the_cause() -> None:
    job = on_two_hosts()
    job.gone("worker:0", 1)
    job(events.HostLost, host="there", cause=because("no sign of life for 60 s (timeouts.link)"))
    (verdict,) = verdicts(job, worker0=OWN)
    assert (verdict.task, verdict.kind) == ("worker:0", Kind.EXCEPTION)


def test_all_hosts_that_were_lost_are_named() -> None:
    job = on_two_hosts()
    job(events.HostLost, host="there", cause=because("its agent was killed by SIGKILL"))
    job(events.HostLost, host="here", cause=because("no sign of life for 60 s (timeouts.link)"))
    (verdict,) = verdicts(job)
    assert (verdict.task, verdict.kind) == (None, Kind.HOST_LOST)
    said = cause_text(verdict.cause)
    assert said.startswith("worker:0, worker:1 were lost with here, there: ")


def test_exits_are_ordered_by_when_they_were_not_by_when_they_were_heard_of() -> None:
    """The link to `there` was down, and its clock is 100 s behind."""
    job = on_two_hosts(behind=100.0)
    for task, at in (("worker:0", 1001.0), ("worker:1", 900.0)):
        job.happened(events.TaskExited(at=at, task=task, attempt=0, code=1, was_stopping=False))
    job.ended("worker:0", "worker:1")
    (verdict,) = verdicts(job, worker0=OWN, worker1=OWN.replace("17", "18"))
    assert verdict.task == "worker:1"
    assert "got 18" in cause_text(verdict.cause)


def test_each_restart_has_its_verdict_and_the_end_has_its_own() -> None:
    policy = on_two_hosts().state.policy.__class__(max=1, backoff=0.1)
    job = running(MWM, "worker:0", "worker:1", restart=policy)
    job.gone("worker:1", signal=9)
    job.gone("worker:0", 1)
    job.timed_out("restart:1")
    job.started("worker:0", "worker:1")
    job.gone("worker:0", 1)
    job.gone("worker:1", signal=15)
    first, last = verdicts(job, worker0=OWN)
    assert (first.task, first.kind, first.attempt) == ("worker:1", Kind.KILLED, 0)
    assert (last.task, last.kind, last.attempt) == ("worker:0", Kind.EXCEPTION, 1)


def test_the_exit_code_is_the_first_causes_own() -> None:
    """The chief fails within milliseconds of the ps that it lost, and is heard of first."""
    job = running(PS, "chief:0", "worker:0", "ps:0")
    job.exited("chief:0", 1)
    job(events.TaskExited, task="ps:0", attempt=0, signal=9, was_stopping=False)
    job.ended("ps:0", "chief:0")
    job.gone("worker:0", signal=15)
    assert job.verdict == ("failed", 1, "task")
    (verdict,) = verdicts(job, chief0=ECHO)
    assert (verdict.task, verdict.kind, verdict.echoes) == ("ps:0", Kind.KILLED, ("chief:0",))
    job(events.VerdictReached, verdict=verdict)
    assert job.verdict == ("failed", 137, "task")
    assert job.phases() == {"chief:0": "failed", "worker:0": "stopped", "ps:0": "failed"}


def test_another_first_cause_keeps_the_reason_why_nothing_was_restarted() -> None:
    job = restartable(MWM, "worker:0", "worker:1", on=("130-255",))
    job.exited("worker:0", 1)
    job(events.TaskExited, task="worker:1", attempt=0, code=7, signal=None, was_stopping=False)
    job.ended("worker:0", "worker:1")
    (verdict,) = verdicts(job, worker0=ECHO, worker1=OWN)
    job(events.VerdictReached, verdict=verdict)
    assert job.verdict == ("failed", 7, "task")
    assert job.words == (
        "worker:1 exited 7; not restarted: exit code 1 is not in restart.on, which is 130-255"
    )


def test_a_crash_that_outlasted_the_stop_gives_its_own_exit_code() -> None:
    """It was dumping where it stood when its peer failed, and ignored the SIGTERM meanwhile."""
    job = running(MWM, "worker:0", "worker:1")
    job.exited("worker:0", 1)
    job.exited("worker:1", signal=11)
    job.ended("worker:0", "worker:1")
    (verdict,) = verdicts(job, worker0=ECHO)
    assert (verdict.task, verdict.kind) == ("worker:1", Kind.CRASH)
    job(events.VerdictReached, verdict=verdict)
    assert job.verdict == ("failed", 139, "task")


def test_out_of_memory_by_the_kernels_word() -> None:
    job = running(MWM, "worker:0", "worker:1")
    job(
        events.TaskExited,
        task="worker:1",
        attempt=0,
        signal=9,
        oom=Cause(Code.OOM_KILL_LOGGED, text="Memory cgroup out of memory: Killed process 7"),
    )
    job.ended("worker:1")
    job.gone("worker:0", signal=15)
    (verdict,) = verdicts(job)
    assert (verdict.task, verdict.kind) == ("worker:1", Kind.HOST_MEMORY)
    assert "kernel: Memory cgroup" in evidence_text(verdict.evidence[0])
    assert "batch" in not_none(cause_advice(verdict.cause))


@pytest.mark.timeout(60)  # it took minutes when each error was compared with all others
@pytest.mark.parametrize(
    "line", ["SyntaxError: ", "Traceback (most recent call last):\nValueError: in user code:"]
)
def test_thousands_of_errors_in_a_log_delay_no_verdict(line: str) -> None:
    raw = f"{line}\n".encode() * (64_000 // len(line))
    assert LogAnalysis(LogTail(raw), 1).exception is not None


@pytest.mark.timeout(60)  # the time of these patterns grows with the square of the line's length
@pytest.mark.parametrize(
    "lines",
    [
        f'  File "a.py", line 1, in f{" " * 60_000}x\nValueError: x',
        f"ValueError: {'Invalid value for argument `reduction` ' * 25_000}",
    ],
)
def test_a_long_line_in_a_log_delays_no_verdict(lines: str) -> None:
    job = running(MWM, "worker:0", "worker:1")
    job.gone("worker:0", 1)
    job.gone("worker:1", signal=15)
    (verdict,) = verdicts(job, worker0=f"Traceback (most recent call last):\n{lines}\n")
    assert verdict.task == "worker:0"


def reached(job: Job, **logs: str) -> list[tuple[str | None, int | None]]:
    return [(verdict.task, verdict.attempt) for verdict in verdicts(job, **logs)]


def test_a_failed_evaluator_has_its_verdict_though_the_job_ends_before_it() -> None:
    job = running(MWM, "worker:0", "evaluator:0")
    job.exited("evaluator:0", 1)
    job.exited("worker:0")
    job.ended("evaluator:0")
    assert reached(job) == [("evaluator:0", 0)]
    job = running(MWM, "worker:0", "evaluator:0")
    job.exited("evaluator:0", 1)
    job.stop()
    job.ended("evaluator:0")
    assert reached(job) == [("evaluator:0", 0)]


def test_a_failed_evaluator_is_not_what_the_job_failed_by() -> None:
    job = restartable(MWM, "worker:0", "evaluator:0", max=1, never_on=(7,))
    job.gone("evaluator:0", 1)
    job.gone("worker:0", 7)
    own, final = verdicts(job)
    assert (own.task, final.task) == ("evaluator:0", "worker:0")
    found = []
    for verdict in (own, final):
        job(events.VerdictReached, verdict=verdict)
        found.append(job.outcome.verdict)
    assert found == [None, final]
    assert job.outcome.exit_code == 7


def test_the_patterns_of_rules_take_linear_time() -> None:
    """In a pattern that may begin anywhere, `.*` takes the square of a line's length."""
    for rule in RULES:
        for pattern in rule.patterns:
            assert pattern.startswith("^") or ".*" not in pattern
        for pattern in rule.line_patterns:
            assert pattern.count(".*") < 3
            assert not pattern.startswith(".*") or ".*" not in pattern[2:].rstrip("$*.")

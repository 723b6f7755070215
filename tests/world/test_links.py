"""Links that are lost: what goes on, what ends, and that no line is lost or doubled."""

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.parts.hosts import host as host_module
from harness.parts.records import JobFolder, unanswered
from harness.values import not_none
from harness.world import World

Launch = Callable[..., World]
NONE = {"max": 0}


@pytest.mark.parametrize(
    ("lose", "find"),
    [
        (World.cut, World.mend), (World.drop_links, None), (World.freeze, World.thaw),
        (World.stall_links, None),
    ],
)  # fmt: skip
def test_a_short_cut_loses_no_line_and_doubles_none(lose: Any, find: Any, world: Launch) -> None:
    job = world(2, timeouts={"link": "24s"})
    job.delay("h2", 0.2)
    job.print("worker:1", "step 1 loss 0.9\nstep 2 loss 0.8\n")
    job.print_lines("worker:1", 1, 20)
    lose(job, "h2")
    if lose is not World.freeze:
        job.print("worker:1", "more than may be under way\n" * 9_000)
        job.print_lines("worker:1", 21, 30)
    job.until(lambda: "LinkLost" in job.kinds, 12)
    job.print("worker:0", "step 50 loss 0.3\nstep 90 loss 0.2\n")
    job.advance(1)
    assert not find or job.status()["behind"] is None, "nobody knows how far worker:1 is"
    if find:
        find(job, "h2")
    job.until(lambda: "LinkRestored" in job.kinds, 12)
    job.print_lines("worker:1", 31, 40)
    job.succeed()
    assert len(job.attempts) == 2
    printed = [n for n in range(1, 41) if lose is not World.freeze or not 20 < n <= 30]
    assert job.lines("worker:1") == [(0, n) for n in printed]


def test_who_is_behind_is_also_shown_when_the_others_have_succeeded(world: Launch) -> None:
    job = world(2)
    steps = (1, 1), (10, 4), (37, 13), (58, 20)
    for reached in steps:
        for name, step in zip(("worker:0", "worker:1"), reached, strict=True):
            job.print(name, f"step {step}/300 loss 0.{step}\n")
        job.advance(3)
    assert job.status()["behind"] == "worker:1 is behind: step 20, the others are at 58"
    for name, step in (("worker:0", 300), ("worker:1", 40)):
        job.print(name, f"step {step}/300 loss 0.1\n")
    job.advance(1)
    job.exit("worker:0")
    job.advance(10)
    assert job.status()["behind"] == "worker:1 is behind: step 40, the others are at 300"


def test_a_link_slower_than_the_output_is_not_lost_and_a_kill_is_executed(world: Launch) -> None:
    job = world(2)
    job.hosts["h2"].rate = 2048
    for _ in range(60):
        job.print("worker:1", "more than the link takes\n" * 400)
        job.advance(1)
    job.stop(137)
    job.until(lambda: not job.running, 5)
    assert job.end(300) == 137
    assert not {"LinkLost", "HostLost"} & {*job.kinds}
    assert "LogsIncomplete h2 logs_left_on_host logs_too_slow" in job.causes


def test_a_log_that_is_removed_is_told_once_and_the_next_one_is_copied(world: Launch) -> None:
    job = world(2, restart={"max": 1})
    job.print_lines("worker:1", 1, 5)
    job.advance(1)
    task = job.task("worker:1")
    with open(task.log, "rb") as held:
        os.unlink(task.log)
        task.log = f"/proc/self/fd/{held.fileno()}"
        job.print_lines("worker:1", 6, 10)
        job.exit("worker:0", 1)
    job.until(lambda: len(job.attempts) == 4)
    job.print_lines("worker:1", 11, 15)
    job.succeed()
    assert job.causes.count("LogsIncomplete h2 log_removed") == 1
    assert job.lines("worker:1") == [(n // 10, n) for n in (1, 2, 3, 4, 5, 11, 12, 13, 14, 15)]


def test_a_host_that_refuses_new_logins_is_lost_with_the_remedy_for_that(world: Launch) -> None:
    job = world(2, restart=NONE, timeouts={"link": "10s"})
    job.hosts["h2"].refusal = "root@h2: Permission denied (publickey).\n"
    job.drop_links("h2")
    job.advance(3)
    assert "h2: the link has been lost for 3.0 s (" in job.said()
    assert (job.end(), job.outcome[-1]) == (69, "login_refused")


@pytest.mark.parametrize("lease", [10, 60])
@pytest.mark.parametrize(
    "part", ["agent", "hung agent", "obstinate task", "slow death", "slow death of a hung agent's"]
)
def test_tasks_have_ended_before_a_host_is_lost(lease: int, part: str, world: Launch) -> None:
    job = world(3, spares=1, timeouts={"link": f"{lease}s"})
    job.delay("h2", 0.4)
    job.advance(lease)
    if "obstinate" in part or "death" in part:
        job.task("worker:1").stops_after = None
    if "death" in part:  # half of the reserve is the guard's
        job.task("worker:1").dies_after = min(5.0, lease / 4) / (2 if "hung" in part else 1) - 0.01
    job.cut("h2")
    if "hung" in part:
        job.hang_agent("h2")
    job.until(lambda: "HostLost" in job.kinds, lease + 10)
    assert "worker:1" not in job.running
    job.until(lambda: job.running.get("worker:1") == "h3", 60)
    (lost,) = (each for each in job.events if each["event"] == "HostLost")
    assert (lost["host"], lost["cause_code"]["seconds"]) == ("h2", lease)
    job.succeed()


def test_hosts_on_which_nothing_is_needed_any_more_may_be_lost(world: Launch) -> None:
    job = world(3, cluster={"worker": 2, "evaluator": 1}, timeouts={"link": "10s"})
    job.exit("worker:1")
    job.advance(1)
    job.cut("h2", "h3")
    job.advance(12)
    job.expect(hosts={"h2": "lost", "h3": "lost"})
    job.exit("worker:0")
    assert job.end() == 0
    lacking = [each for each in job.causes if each.startswith("LogsIncomplete")]
    assert {each.split()[1] for each in lacking} == {"h3"}


def test_a_job_that_has_succeeded_tells_no_time_that_is_left(world: Launch) -> None:
    job = world(1, cluster={"worker": 1, "evaluator": 1})
    for epoch in (1, 2, 3):
        job.print("worker:0", f"epoch {epoch}/4, loss 0.5\n")
        job.advance(4 if epoch < 3 else 1)
    assert job.status()["seconds_left"] == pytest.approx(3.0, abs=1.0), "three are complete"
    for epoch in (1, 2):
        job.print("evaluator:0", f"Epoch {epoch}/30\n100/100 - 4s - loss: 0.5\n")
        job.advance(4)
    assert job.status()["seconds_left"] > 50
    job.exit("worker:0")
    assert job.running == {"evaluator:0": "h1"}
    assert job.status()["seconds_left"] is None, "the evaluator is stopped soon"
    job.succeed()
    assert {each["last_output_at"] for each in job.status()["tasks"]} == {None}


def test_without_a_lease_tasks_wait_and_a_second_kill_does_not(world: Launch) -> None:
    job = world(1, cluster={"worker": 1}, restart=NONE, timeouts={"link": "off", "stall": "60s"})
    job.cut("h1")
    job.drop_links("h1")
    job.advance(600)
    assert "link lost" in job.state_of("h1")
    assert "h1 cannot be reached; to stop waiting for it: distrun kill" in job.ask_to_stop()
    job.advance(600)
    assert job.is_running
    assert (job.ask_to_stop(), job.end()) == ("", 137)
    assert "LogsIncomplete h1" in " ".join(job.causes)
    assert job.running == {"worker:0": "h1"}, "it has no lease"


def test_a_host_may_take_as_long_to_stop_a_task_as_its_grace(world: Launch) -> None:
    job = world(2, timeouts={"grace": "5m"})
    job.task("worker:1").stops_after = 250
    job.stop()
    assert job.end() == 130
    assert "HostFault" not in job.kinds


def test_without_a_lease_an_order_waits_as_long_as_the_link_is_lost(world: Launch) -> None:
    job = world(2, restart={"max": 1}, timeouts={"link": "off"})
    job.delay("h2", 1.0)
    job.advance(200)
    job.exit("worker:0", 1)
    job.advance(0.9)
    assert job.running == {"worker:1": "h2"}, "the order to stop it is under way"
    job.cut("h2")
    job.drop_links("h2")
    job.advance(600)
    assert job.running == {"worker:1": "h2"}
    assert "HostLost" not in job.kinds
    job.mend("h2")
    job.until(lambda: len(job.attempts) == 4)
    job.succeed()


def test_an_agent_that_hangs_without_tasks_ends_by_itself(world: Launch) -> None:
    job = world(2, timeouts={"link": "10s"})
    job.exit("worker:1")
    job.advance(1)
    job.hang_agent("h2")
    job.cut("h2")
    job.advance(15)
    assert job.state_of("h2") == "lost"
    assert job.has_agent("h2")
    job.resume_agent("h2")
    job.advance(1)
    assert job.processes_on("h2") == []
    assert not job.files_left_on("h2")
    job.exit("worker:0")
    assert job.end() == 0


def test_our_own_sleep_is_blamed(world: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world(3, cluster={"worker": 3}, timeouts={"link": "10s"}, restart=NONE)
    monkeypatch.setattr(JobFolder, "is_suspended", property(lambda _: True))
    assert "tasks on other hosts end within 10 s" in str(unanswered(not_none(job._folder)))
    job.cut("h2")
    job.cut("h3")
    later = time.clock_gettime(time.CLOCK_BOOTTIME) + 125
    monkeypatch.setattr(host_module, "_clock", lambda: later)
    assert job.end() == 69
    assert "launcher_suspended" in job.outcome
    assert "\nworker:1, worker:2 were lost with h2, h3: no sign" in job.said()


def test_the_lease_of_a_suspended_machine_is_enforced_when_it_wakes(world: Launch) -> None:
    job = world(2, timeouts={"link": "10s"}, restart=NONE)
    job.freeze("h2")
    assert job.end() == 69
    assert "host_silent_too_long" in job.outcome
    assert job.running == {"worker:1": "h2"}
    job.thaw("h2")
    assert job.running == {}
    job.advance(5)
    assert job.processes_on("h2") == []


@pytest.mark.parametrize("quarter", range(12))
def test_an_order_that_arrives_twice_is_executed_once(quarter: int, world: Launch) -> None:
    """Noise has an agent repeat its reports, and the orders that it has not had are sent again.

    One may be on its way meanwhile: at one of these moments it is the order to start the task.
    """
    job = world(2, restart={"max": 1, "backoff": "8s"}, timeouts={"link": "20s"})
    job.delay("h2", 1.0)
    job.advance(5 + quarter / 4)
    job.exit("worker:0", 1)
    (planned,) = [each for each in job.events if each["event"] == "RestartPlanned"]
    job.advance(planned["delay_seconds"] - 3)
    job.damage("h2")
    job.until(lambda: job.hosts_of("worker:1") == ["h2", "h2"], 10)
    job.advance(10)
    assert job.hosts_of("worker:1") == ["h2", "h2"]
    job.succeed()


@pytest.mark.parametrize("end", [World.kill_agent, World.cut, lambda job, _: job.stop()])
def test_a_suspended_task_can_save_before_it_is_killed(end: Any, world: Launch) -> None:
    job = world(2, timeouts={"link": "10s"}, restart=NONE)
    task = job.task("worker:1")
    task.is_suspended = True
    end(job, "h2")
    job.until(lambda: not task.lives, 15)
    assert task.status == signal.SIGTERM


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("is_obstinate", [False, True])
def test_a_dead_launcher_leaves_nothing(is_cut: bool, is_obstinate: bool, world: Launch) -> None:
    job = world(2, timeouts={"link": "60s"})
    if is_obstinate:
        for each in job.attempts:
            each.stops_after = None
    job.advance(30)
    job.print("worker:0", "step 50 loss 0.3\nstep 90 loss 0.2\n")
    job.advance(0.2)
    if is_cut:
        job.cut("h1")
    job.kill_supervisor()
    assert job.status()["tasks"][0]["progress"]["STEP"] == 90, "its log is here"
    job.advance(2)
    assert job.running == ({"worker:0": "h1"} if is_cut else {})
    job.advance(60)
    assert job.processes_on("h1") == job.processes_on("h2") == []


def test_a_stop_precedes_further_starts_which_are_in_order(world: Launch) -> None:
    job = world(1, cluster={"worker": 30}, is_launched=False)
    job.delay("h1", 1.0)
    job.launch()
    job.until(lambda: len(job.attempts) > 8)
    job.stop()
    assert job.end() == 130
    started = len(job.attempts)
    assert [each.name for each in job.attempts] == [f"worker:{n}" for n in range(started)]
    assert started <= 24, "more than were ordered before the stop"
    (canceled,) = (each for each in job.events if each["event"] == "StartsCanceled")
    assert started + len(canceled["tasks"]) == 30
    assert "were not started" in job.told()


def test_who_has_just_begun_to_save_has_longer(world: Launch) -> None:
    job = world(2)
    task = job.task("worker:1")
    task.stops_after = 0.5
    name = task.env[b"DISTRUN_NOTIFY"].decode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        for said in (b"STEP=1", b"SAVING=1"):
            job.advance(1)
            notify.sendto(said, "\0" + name[1:])
    job.advance(0.1)
    job.exit("worker:0", 1)
    job.until(lambda: not task.lives, 5)
    assert task.status == signal.SIGTERM


def test_many_hosts_that_are_lost_together_are_told_once(world: Launch) -> None:
    job = world(6, cluster={"worker": 6}, timeouts={"link": "20s", "start": "60s"})
    for host in ("h2", "h3", "h4", "h5"):
        job.cut(host)
    job.advance(15)
    assert (job.said().count("the link has been lost"), job.end()) == (1, 69)
    assert job.shown(200, "status").count("Connection timed out") == 3  # its end, hosts, cause
    report = job.shown(200, "logs", "-fn", "1")
    assert report.count("Connection timed out") == 1
    assert "worker:1 to worker:4, of the same error" in report

"""Jobs whose supervisor died: nothing of the earlier attempts lives on, and no line is lost."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from harness.world import World

Launch = Callable[..., World]


def lose_supervisor(world: World) -> None:
    world.kill_supervisor()
    world.advance(1)
    assert world.status()["state"] == "lost"


def succeed_again(job: World) -> None:
    job.until(lambda: len(job.attempts) == 4)
    job.succeed()


def cleared(world: World) -> dict[str, Any]:
    """By host: how it is known that nothing is left there."""
    found = [each for each in world.events if each["event"] == "HostCleared"]
    return {each["host"]: each["cause_code"] and each["cause_code"]["code"] for each in found}


def test_an_agent_that_holds_its_lease_is_ended_first_and_its_lines_received(world: Launch) -> None:
    job = world(3, spares=1, timeouts={"link": "300s"})
    job.print_lines("worker:1", 1, 5)
    job.kill_agent("h2")
    job.until(lambda: len(job.attempts) == 4)
    job.print_lines("worker:1", 6, 9)
    job.cut("h3")
    lose_supervisor(job)
    job.print_lines("worker:1", 10, 20)
    assert job.running == {"worker:1": "h3"}
    job.mend("h3")
    job.resume()
    job.until(lambda: len(job.attempts) == 6)
    assert cleared(job) == dict.fromkeys(("h1", "h2", "h3"))
    assert job.lines("worker:1") == [(n // 6 > 0, n) for n in range(1, 21)]
    job.succeed()
    assert not any(map(job.files_left_on, ("h1", "h3")))


def test_a_host_that_cannot_be_reached_is_waited_for_until_its_lease_is_over(world: Launch) -> None:
    job = world(2, timeouts={"link": "60s"})
    job.cut("h2")
    lose_supervisor(job)
    began = job.now
    job.resume(hosts="h1", link=5.0)  # it was told 60 s
    job.advance(30)
    assert job.running == {"worker:1": "h2"}
    job.until(lambda: len(job.attempts) == 4)
    assert job.now - began > 55
    assert job.running == {"worker:0": "h1", "worker:1": "h1"}
    how = cleared(job)
    assert how["h1"] is None
    assert how["h2"] == "former_lease_over"
    job.succeed()


def test_without_a_lease_an_unreachable_host_refuses_the_resume(world: Launch) -> None:
    job = world(2, timeouts={"link": "off"})
    job.cut("h2")
    lose_supervisor(job)
    for _ in range(2):  # the second time, too, it is not forgotten
        job.resume(hosts="h1")
        assert (job.end(), job.outcome[0]) == (69, "former_host_unreachable")
        assert re.search(r"distrun resume job-\w+ --assume-dead h2", job.said())
        assert job.running == {"worker:1": "h2"}
    job.power_off("h2")
    job.resume(hosts="h1", assumed_dead=("h2",))
    succeed_again(job)
    assert cleared(job) == {"h1": None, "h2": "former_host_assumed_dead"}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_resume_stopped_while_it_clears_leaves_nothing(is_killed: bool, world: Launch) -> None:
    job = world(2, timeouts={"link": "60s"})
    job.cut("h2")
    lose_supervisor(job)
    job.resume()
    job.advance(2)
    job.stop()
    if is_killed:
        job.kill(130)
    assert job.end(120) == 130
    assert (job.running, len(job.attempts)) == ({}, 2)
    job.mend("h2")
    job.resume()
    succeed_again(job)


@pytest.mark.parametrize("is_reached", [True, False])
def test_lines_of_a_lost_host_come_after_a_resume(is_reached: bool, world: Launch) -> None:
    """The hosts are reached when the job is resumed, or only before it ends."""
    job = world(3, spares=1, timeouts={"link": "60s"})
    job.print_lines("worker:1", 1, 5)
    job.cut("h2")
    job.print_lines("worker:1", 6, 20)
    job.until(lambda: job.running.get("worker:1") == "h3", 90)
    job.print_lines("worker:1", 1, 10)
    job.advance(1)
    job.cut("h3")
    lose_supervisor(job)
    if is_reached:
        job.mend("h2", "h3")
    job.resume(hosts="h1 h2 h3" if is_reached else "h1")
    job.until(lambda: len(job.hosts_of("worker:1")) == 3, 120)
    job.mend("h2", "h3")
    job.advance(1)
    job.succeed()
    assert job.lines("worker:1") == [
        *((0, n) for n in range(1, 21)), *((1, n) for n in range(1, 11)),
    ]  # fmt: skip
    assert not any(map(job.files_left_on, ("h1", "h2", "h3")))


@pytest.mark.parametrize("is_ending", [False, True])
def test_lines_printed_in_a_cut_are_shown_at_their_place(is_ending: bool, world: Launch) -> None:
    job = world(3, spares=1, timeouts={"link": "60s"})
    job.print_lines("worker:1", 1, 5)
    job.cut("h2")
    job.print_lines("worker:1", 6, 20)
    job.until(lambda: job.running.get("worker:1") == "h3", 90)
    job.print_lines("worker:1", 1, 5)
    assert (0, 6) not in job.lines("worker:1")
    job.mend("h2")
    if not is_ending:
        job.until(lambda: "LogsReceivedLate" in job.kinds, 120)
    job.succeed()
    for options in ((), ("--raw",), ("--json",), ("--grep", "line")):
        assert job.lines("worker:1", *options) == [
            *((0, n) for n in range(1, 21)), *((1, n) for n in range(1, 6)),
        ]  # fmt: skip
    assert job.kinds.count("LogsReceivedLate") == 1
    assert not any(map(job.files_left_on, ("h1", "h2", "h3")))


def test_nothing_is_left_of_a_worker_that_a_resumed_job_had_no_room_for(world: Launch) -> None:
    job = world(3, cluster={"worker": 3}, restart={"min_workers": 2})
    job.print_lines("worker:2", 1, 5)
    job.cut("h2")
    job.until(lambda: job.running == {"worker:0": "h1", "worker:1": "h3"}, 90)
    lose_supervisor(job)
    job.mend("h2")
    job.resume()
    job.until(lambda: len(job.running) >= 2, 120)
    job.succeed()
    assert not any(map(job.files_left_on, ("h1", "h2", "h3")))


def test_a_host_that_stays_away_is_named_with_the_folder_of_its_logs(world: Launch) -> None:
    job = world(3, spares=1)
    job.cut("h2")
    job.until(lambda: job.running.get("worker:1") == "h3", 90)
    before = len(job.hosts["h2"].connections)
    job.advance(600)
    logins = len(job.hosts["h2"].connections) - before
    assert 6 < logins < 12, "less and less often, and at least once a minute"
    job.succeed()
    (folder,) = job.files_left_on("h2")
    assert str(folder) in job.told()
    assert "LogsIncomplete" in job.kinds


def test_output_after_an_unfinished_line_is_that_of_its_own_attempt(world: Launch) -> None:
    """The former attempt's last words have no newline, as those of a progress bar."""
    job = world(1, cluster={"worker": 1}, restart={"max": 0})
    error = 'File "old.py", line 7, in <module>\nValueError: an old error'
    job.print("worker:0", f"Traceback (most recent call last):\n  {error}\ncaught: going on")
    lose_supervisor(job)
    job.resume()
    job.until(lambda: len(job.attempts) == 2)
    job.exit("worker:0", 1)
    assert (job.end(), job.status()["verdict"]["kind"]) == (1, "exit")
    assert re.search(r"going on\n--- attempt 1, ", job.log("worker:0"))


def test_the_rest_of_a_lost_hosts_log_that_comes_in_parts_is_shown_once(world: Launch) -> None:
    job = world(3, spares=1, timeouts={"link": "10s"})
    job.cut("h2")
    numbers = range(5_000)
    more_than_may_be_under_way = "".join(f"attempt 0 line {n} {'.' * 1000}\n" for n in numbers)
    job.print("worker:1", more_than_may_be_under_way)
    job.until(lambda: job.running.get("worker:1") == "h3", 90)
    job.delay("h2", 0.5)
    job.mend("h2")
    job.until(lambda: job.lines("worker:1"), 60)
    lose_supervisor(job)
    assert len(job.lines("worker:1")) < len(numbers)
    job.resume(hosts="h1 h3")
    job.until(lambda: len(job.attempts) == 6)
    job.succeed()
    assert job.lines("worker:1") == [(0, n) for n in numbers]

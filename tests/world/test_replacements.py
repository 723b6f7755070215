"""Hosts that are lost for good: their tasks restart on spares or on fewer hosts, never twice."""

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from harness.parts.hosts import Login, Purpose
from harness.parts.protocol import Cause, Code
from harness.world import World, _Reach

Launch = Callable[..., World]
LOSSES: dict[str, Callable[[World, str], None]] = {
    "cut": World.cut, "agent killed": World.kill_agent, "powered off": World.power_off,
}  # fmt: skip


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_spare_takes_the_place_of_a_lost_host(lose: Any, world: Launch) -> None:
    job = world(3, spares=1)
    lose(job, "h2")
    job.until(lambda: len(job.hosts_of("worker:1")) == 2, 70)
    assert job.hosts_of("worker:1") == ["h2", "h3"]
    job.advance(1)
    assert job.running == {"worker:0": "h1", "worker:1": "h3"}
    addresses = [each.partition(":")[0] for each in job.cluster_of("worker:0")["cluster"]["worker"]]
    assert addresses == ["10.0.0.1", "10.0.0.3"]
    job.succeed()


def test_a_host_of_an_evaluator_that_stays_down_takes_a_worker(world: Launch) -> None:
    job = world(3, cluster={"worker": 2, "evaluator": 1})
    job.cut("h3")
    job.until(lambda: job.state_of("h3") == "lost", 70)
    job.cut("h2")
    job.until(lambda: job.state_of("h2") == "lost", 70)
    job.advance(5)
    assert "no host has room for worker:1; waiting for a host" in job.said()
    assert "  earlier       evaluator:0 was lost with h3" in job.said()
    job.mend("h3")
    job.until(lambda: job.hosts_of("worker:1") == ["h2", "h3"], 120)
    job.succeed()


def test_without_room_fewer_workers_continue_and_grow_at_the_next_restart(world: Launch) -> None:
    job = world(3, cluster={"worker": 3}, restart={"min_workers": 2})
    job.cut("h2")
    job.until(lambda: len(job.hosts_of("worker:0")) == 2, 90)
    job.advance(1)
    job.expect(
        tasks={"worker:0": "h1", "worker:1": "h3"},
        hosts={"h1": "in use", "h2": "lost", "h3": "in use"},
    )
    plans = [each["all_workers"] for each in job.events if each["event"] == "JobPlanned"]
    assert plans == [None, 3], "fewer work"
    job.mend("h2")
    job.until(lambda: job.state_of("h2") == "spare", 120)
    assert len(job.hosts_of("worker:0")) == 2, "a host that is back restarts nothing"
    job.exit("worker:0", 1)
    job.until(lambda: len(job.running) == 3, 30)
    assert job.running == {"worker:0": "h1", "worker:1": "h3", "worker:2": "h2"}
    job.succeed()


@pytest.mark.parametrize(
    "fault", ["prepare 11", "log 30", "workdir 2", *(f"program {n}" for n in (2, 5, 8, 13))]
)
def test_a_host_that_cannot_run_it_is_left_out_for_fewer_workers(fault: str, world: Launch) -> None:
    job = world(3, cluster={"worker": 3}, restart={"min_workers": 2}, is_launched=False)
    job.break_program("h2", fault)
    job.launch()
    job.until(lambda: job.running == {"worker:0": "h1", "worker:1": "h3"}, 30)
    job.succeed()


def test_all_hosts_that_cannot_be_reached_are_told_together(world: Launch) -> None:
    job = world(4, cluster={"worker": 4}, is_launched=False)
    job.hosts["h2"].refusal = "root@h2: Permission denied (publickey).\n"
    job.hosts["h3"].refusal = "root@h3: Permission denied (publickey).\n"
    job.hosts["h4"].refusal = "ssh: Could not resolve hostname h4: Name not known\n"
    job.launch()
    assert (job.end(), job.outcome.count("login_refused")) == (69, 2)
    assert re.search(r"try +h2, h3: `ssh HOST true` .*\n +h4: correct the name", job.said())


def test_without_a_spare_the_job_waits_for_a_host_and_then_fails(world: Launch) -> None:
    job = world(2, timeouts={"start": "20s"})
    job.cut("h2")
    job.until(lambda: "HostLost" in job.kinds, 90)
    job.advance(5)
    assert "waiting for a host" in job.said()
    assert (job.end(), job.outcome[-1]) == (69, "no_room")
    assert job.running == {}


def test_pods_in_a_queue_are_waited_for(world: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, and not as for a host; from their admission on, `timeouts.start` holds."""
    opened, said, lacking = _Reach.open, Cause(Code.POD_QUEUED), "h2"
    job = world(2, ssh={"connect_timeout": "5s"}, is_launched=False)

    def open_one(reach: _Reach, job_id: str, login: Login) -> Any:
        is_lacking = login.purpose is Purpose.AGENT and said.code is not Code.POD_DELETED
        job.hosts[lacking].is_cut |= is_lacking
        return opened(reach, job_id, login)

    monkeypatch.setattr(_Reach, "open", open_one)
    monkeypatch.setattr(_Reach, "release", lambda _: None)
    monkeypatch.setattr(_Reach, "diagnose", lambda *_, **__: (said, False))
    job.launch()
    job.advance(900)
    assert job.status()["state"] == "pending"
    said = Cause(Code.POD_UNSCHEDULABLE, name="p", text="no node")
    job.until(lambda: "pod p is unschedulable: no node; waiting for a host, at most" in job.said())
    said = Cause(Code.POD_DELETED)
    job.mend("h2")
    job.until(lambda: len(job.running) == 2, 60)
    assert "waiting for a host" not in job.said()
    for losses in (1, 2, 3):  # what Kubernetes has created in its place is used at once
        job.kill_agent("h2")
        job.until(lambda: len(job.hosts_of("worker:1")) > losses, 5)  # noqa: B023
    assert "try  " not in job.told()
    said, lacking = Cause(Code.POD_QUEUED), "h1"
    job.kill_agent("h1")
    job.until(lambda: job.status()["state"] == "pending", 60)
    job.advance(900)
    assert "pod_queued" in job.causes[-1]
    said = Cause(Code.POD_PENDING, name="q", text="admitted")
    job.until(lambda: "pod q does not run yet" in job.said())
    assert (job.end(310), job.outcome[-1]) == (69, "pod_pending")


def test_a_restart_waits_for_a_spare_whose_link_is_lost(world: Launch) -> None:
    job = world(3, spares=1, timeouts={"link": "30s"})
    job.cut("h2")
    job.advance(15)
    job.cut("h3")
    job.until(lambda: "PlanFailed" in job.kinds, 60)
    job.mend("h3")
    job.until(lambda: job.running.get("worker:1") == "h3", 10)
    job.succeed()


@pytest.mark.parametrize("places", ["h2 h2 h4", "h3 h3 h6", "h2 h2 h2"])
def test_a_host_on_which_tasks_fail_often_is_left_out(world: Launch, places: str) -> None:
    """All that know its task's address restart. If no other host can be used, it is used again."""
    failing, _, last = places.split()
    ps = {"chief": 1, "ps": 1} if last == "h6" else {}
    own = {"command": ["own"], "ready": "off", "after": ["worker"]}
    job = world(
        4 + len(ps), strategy="parameter_server" if ps else "multi_worker_mirrored", spares=1,
        cluster={"worker": {"count": 2, "ready": "off"}, "proxy": own, **ps},
        restart={"host_failures": 2, "max": 9}, ports={"range": "20000-20000"},
    )  # fmt: skip
    if last == failing:
        job.take_port("h4", 20000)
    for _ in range(2):
        job.exit("worker:1", 3)
        job.advance(20)
    assert " ".join(job.hosts_of("worker:1")) == places
    job.expect(hosts={failing: "in use" if last == failing else "left out", "h1": "in use"})
    known = json.loads(job.task("proxy:0").env[b"DISTRUN_ADDRESSES"])["worker"]
    assert known[1] == job.task("worker:1").env[b"DISTRUN_ADDRESS"].decode()
    job.exit("chief:0") if ps else job.exit_all()
    assert job.end() == 0


def test_preemptions_do_not_count_against_a_host(world: Launch) -> None:
    job = world(3, spares=1, restart={"host_failures": 2}, is_launched=False)
    places: list[str] = []

    def start(task: Any) -> None:
        if task.name == "worker:1" and len(places) < 4:
            places.append(task.machine.name)
            task.end(signal.SIGTERM)

    job.on_start = start
    job.launch()
    job.until(lambda: len(job.hosts_of("worker:1")) == 5)
    assert places == ["h2"] * 4
    job.succeed()


def test_a_host_that_was_lost_while_its_tasks_started_starts_them_again(world: Launch) -> None:
    job = world(2, cluster={"worker": 16}, timeouts={"link": "10s"})
    job.delay("h2", 1.0)
    job.die("worker:0")
    job.until(lambda: len(job.attempts) == 24)
    assert set(job.running.values()) == {"h1"}, "the orders to h2 are under way"
    job.cut("h2")
    job.until(lambda: "HostLost" in job.kinds, 60)
    job.delay("h2", 0.0)
    job.mend("h2")
    job.until(lambda: len(job.running) == 16)
    job.succeed()


def test_a_failure_is_judged_by_the_whole_log_whose_end_comes_after_the_exit(world: Launch) -> None:
    job = world(2, restart={"max": 2, "backoff": "1ms"})
    job.delay("h2", 0.5)
    job.advance(5)
    more_than_may_be_under_way = "a line\n" * 40_000
    job.task("worker:1").print(f"{more_than_may_be_under_way}ValueError: a bad batch\n")
    job.exit("worker:1", 1)
    job.until(lambda: len(job.attempts) == 4)
    assert job.log("worker:1").count("a line") < 40_000
    job.print("worker:1", "Traceback (most recent call last):\nKeyError: 'of the next attempt'\n")
    job.until(lambda: "VerdictReached" in job.kinds)
    assert "ValueError: a bad batch" in job.told()
    assert "KeyError" not in job.told()
    job.exit_all()
    assert job.end() == 0


def test_a_stall_does_not_count_against_the_host_of_a_task(world: Launch) -> None:
    restart = {"host_failures": 2, "backoff": "40s", "backoff_max": "40s"}
    job = world(3, spares=1, restart=restart, timeouts={"stall": "30s"})
    job.until(lambda: len(job.hosts_of("worker:0")) > 3)
    assert job.told().count("timeouts.stall expired") == job.kinds.count("RestartPlanned")
    assert set(job.hosts_of("worker:0")) == {"h1"}
    assert set(job.hosts_of("worker:1")) == {"h2"}
    job.succeed()


def test_a_spare_on_which_a_stranger_has_the_port_is_left_out_for_the_next(world: Launch) -> None:
    job = world(4, spares=2, ports={"range": "20000-20000"})
    job.take_port("h3", 20000)
    job.power_off("h2")
    job.until(lambda: len(job.hosts_of("worker:1")) == 2, 120)
    assert job.hosts_of("worker:1") == ["h2", "h4"]
    job.expect(hosts={"h3": "left out"})
    job.succeed()


def test_a_supervisor_sleeps_after_a_replacement_that_waited_for_hosts(world: Launch) -> None:
    job = world(4, cluster={"worker": 2, "evaluator": 1}, spares=1, timeouts={"start": "120s"})
    job.break_program("h1")
    job.die("worker:0")
    job.advance(60)  # of a loop without an end, the harness tells
    assert job.running["worker:0"] == "h4"
    job.succeed()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_is_back_before_a_restart_holds_other_ports(end: int, world: Launch) -> None:
    job = world(2, restart={"backoff": "4s"})
    before = job.cluster_of("worker:1")["cluster"]["worker"]
    job.kill_agent("h2", end)
    job.until(lambda: len(job.attempts) == 4, 60)
    after = job.cluster_of("worker:1")["cluster"]["worker"]
    assert job.hosts_of("worker:1") == ["h2", "h2"]
    assert before[0] == after[0]
    assert before[1] != after[1]
    verdict = job.status()["verdict"]
    assert verdict["kind"] == "host_lost"
    assert verdict["replacement"]["repeated_steps"] is None
    assert "  done          all 2 workers run again" in job.said()
    job.succeed()


def test_an_agent_that_is_back_holds_the_ports_of_the_spec(world: Launch) -> None:
    job = world(2, cluster={"worker": ["h1:2222", "h2:2222"]}, timeouts={"start": "99s"})
    job.kill_agent("h2")
    job.until(lambda: len(job.attempts) == 4, 60)
    for host in ("h1", "h2"):
        job.kill_agent(host)
    job.delay("h1", 2.0)
    job.until(lambda: job.kinds.count("HostReady") == 5, 60)
    job.drop_links("h1")  # h2 holds its port already
    job.delay("h1", 0.0)
    job.until(lambda: len(job.attempts) == 6, 10)
    job.kill_agent("h2")
    job.take_port("h2", 2222)
    assert job.end() == 69
    assert "port 2222" in job.told()


def test_a_restart_that_another_replaces_uses_no_plan_of_its_own(world: Launch) -> None:
    proxy = {"command": ["own"], "ready": "off", "after": ["worker"]}
    cluster = {"worker": {"count": 2, "ready": "off"}, "proxy": proxy}
    job = world(5, cluster=cluster, spares=2)
    job.delay("h4", 2.0)
    job.kill_agent("h3")
    job.until(lambda: "RestartPlanned" in job.kinds)
    job.advance(0.5)
    job.break_program("h2")
    job.exit("worker:1", 1)
    job.until(lambda: len(job.running) == 3, 30)
    assert job.running == {"worker:0": "h1", "worker:1": "h4", "proxy:0": "h5"}
    job.succeed()


@pytest.mark.parametrize("failed", [[], ["hub:0"]])
def test_what_starts_after_others_learns_where_they_are(failed: list[str], world: Launch) -> None:
    own = {"command": ["own"], "ready": "off"}
    reader, proxy = {**own, "after": ["hub"]}, {**own, "after": ["worker"]}
    workers = {"count": 2, "after": ["reader"], "ready": "off"}
    hub = {**own, "count": 2}  # on h4
    cluster = {"worker": workers, "reader": reader, "hub": hub, "proxy": proxy, "beside": own}
    cluster |= {"evaluator": {"count": 1, "after": ["worker"]}}  # it needs none of the group
    hosts = [{"name": f"h{n}", "slots": slots} for n, slots in enumerate((1, 1, 1, 2, 1, 3), 1)]
    hosts.insert(2, {"name": "e", "slots": 1})
    job = world(hosts, cluster=cluster, placement="pack")
    for each in failed:  # its own restart is planned already
        job.exit(each, 3)
    job.kill_agent("h4")
    job.until(lambda: job.running.get("proxy:0") and job.running.get("hub:0") == "h6", 9)
    attempts = {name: len(job.hosts_of(name)) for name in job.running}
    assert attempts == {**dict.fromkeys(job.running, 2), "beside:0": 1}
    job.kill_agent("h2")
    job.until(lambda: len(job.hosts_of("proxy:0")) == 3, 60)
    known = json.loads(job.task("proxy:0").env[b"DISTRUN_ADDRESSES"])["worker"]
    assert known[1] == job.task("worker:1").env[b"DISTRUN_ADDRESS"].decode()
    assert (len(job.hosts_of("hub:0")), len(job.hosts_of("evaluator:0"))) == (2, 2)
    job.exit("worker:0")
    job.exit("worker:1")
    assert job.end() == 0


def test_a_lost_host_of_a_worker_and_of_what_it_starts_after_is_one_restart(world: Launch) -> None:
    hosts = [{"name": f"h{n}", "slots": n} for n in (1, 2, 3)]
    cluster = {
        "worker": {"count": 2, "after": ["hub"]},
        "hub": {"command": ["hub"], "ready": "off"},
    }
    job = world(hosts, cluster=cluster, placement="pack")
    job.kill_agent("h2")
    job.until(lambda: len(job.hosts_of("worker:0")) == 2, 60)
    assert job.kinds.count("RestartPlanned") == 1
    job.exit("worker:0")
    job.exit("worker:1")
    assert job.end() == 0


def test_a_task_that_moves_gets_none_of_the_gpus_in_use(world: Launch) -> None:
    hosts = [{"name": f"h{n}", "slots": 1 + n // 3, "gpus": 1 + n // 3} for n in (1, 2, 3)]
    cluster = {"worker": {"count": 2, "gpus": 1}, "evaluator": {"count": 1, "gpus": 1}}
    job = world(hosts, cluster=cluster)
    job.kill_agent("h2")
    job.until(lambda: job.running.get("worker:1") == "h3", 9)
    assert job.task("worker:1").env[b"CUDA_VISIBLE_DEVICES"] == b"1"
    job.succeed()


def test_a_task_moves_only_to_a_host_for_its_role(world: Launch) -> None:
    names = {"h1": "", "h2": "ps", "h3": "", "h4": "ps"}
    hosts = [{"name": each, **({"role": role} if role else {})} for each, role in names.items()]
    cluster = {"chief": 1, "worker": 1, "ps": 1}
    job = world(hosts, strategy="parameter_server", cluster=cluster, spares=2)
    assert job.running == {"chief:0": "h1", "worker:0": "h1", "ps:0": "h2"}
    job.cut("h2")
    job.until(lambda: job.running == {"chief:0": "h1", "worker:0": "h1", "ps:0": "h4"}, 90)
    job.cut("h4")
    job.until(lambda: job.state_of("h4") == "lost", 90)
    job.advance(5)
    assert job.status()["state"] == "restarting", "h3 is free, and is not for a ps"
    job.mend("h2")
    job.until(lambda: job.running == {"chief:0": "h1", "worker:0": "h1", "ps:0": "h2"}, 120)
    job.exit("chief:0", 0)
    assert job.end() == 0


def test_a_host_has_no_room_where_all_its_gpus_are_in_use(world: Launch) -> None:
    hosts = [{"name": name, "slots": 2, "gpus": 1} for name in ("h1", "h2")]
    job = world(hosts, cluster={"worker": {"count": 2, "gpus": 1}}, restart={"min_workers": 1})
    job.kill_agent("h2")
    job.until(lambda: len(job.hosts_of("worker:0")) == 2, 9)
    job.expect(hosts={"h1": "in use"}, tasks={"worker:0": "h1"})
    job.succeed()


def test_clocks_that_are_an_hour_off_change_nothing(world: Launch) -> None:
    job = world(3, spares=1, restart={"on": [130]}, is_launched=False)
    job.set_clock("h1", -3600)
    job.set_clock("h2", 3600)
    job.launch()
    behind = {each["name"]: each["clock_behind_seconds"] for each in job.status()["hosts"]}
    assert behind == pytest.approx({"h1": 3600, "h2": -3600, "h3": 0}, abs=1)
    starts = [each["at"] for each in job.events if each["event"] in ("HostReady", "TaskStarted")]
    assert max(starts) - min(starts) < 60
    job.advance(5)
    printed = [json.loads(line)["at"] for line in job._command("logs", "--json").splitlines()]
    assert max(printed) - min(printed) < 60
    job.cut("h2")
    job.exit("worker:0", 1)  # the loss of its peer's host at that time explains it
    job.until(lambda: job.running.get("worker:1") == "h3", 90)
    job.succeed()


def test_a_second_host_is_lost_while_the_first_is_replaced(world: Launch) -> None:
    job = world(5, cluster={"worker": 3}, spares=2, timeouts={"start": "10m"})
    job.cut("h2")
    job.until(lambda: "after h2 was lost" in job.told(), 90)
    job.power_off("h4")  # the spare that is about to be used
    job.cut("h3")
    job.until(lambda: "no host has room" in job.told(), 200)
    job.mend("h2")
    job.until(lambda: set(job.running.values()) == {"h1", "h2", "h5"}, 200)
    job.succeed()


def test_the_other_half_of_a_split_network_ends_before_replacements_start(world: Launch) -> None:
    job = world(5, cluster={"worker": 3}, spares=2)
    job.cut("h2", "h3")
    job.until(lambda: set(job.running.values()) == {"h1", "h4", "h5"}, 90)
    lost = [each["at"] for each in job.events if each["event"] == "HostLost"]
    again = [each["at"] for each in job.events if each["event"] == "TaskStarted"][3:]
    assert len(lost) == 2
    assert max(lost) <= min(again)
    assert len(job.attempts) == 6
    job.succeed()


STOPPED_AT: dict[str, tuple[str, Callable[[World], bool]]] = {
    "the lease": ("4s", lambda job: "LinkLost" in job.kinds),
    "the backoff": ("5m", lambda job: "RestartPlanned" in job.kinds),
    "the wait for hosts": ("4s", lambda job: "TimedOut" in job.kinds),
    "the start": ("4s", lambda job: job.kinds.count("JobPlanned") == 2),
}


@pytest.mark.parametrize(("end", "code"), [(World.kill, 137), (World.stop, 130)])
@pytest.mark.parametrize("point", STOPPED_AT)
def test_a_stopped_replacement_leaves_none(point: str, end: Any, code: int, world: Launch) -> None:
    backoff, is_reached = STOPPED_AT[point]
    restart = {"backoff": backoff, "backoff_max": "10m"}
    job = world(3, spares=1, timeouts={"grace": "1s"}, restart=restart)
    job.cut("h2")
    if point == "the wait for hosts":
        job.until(lambda: "LinkLost" in job.kinds, 60)
        job.cut("h3")
    job.until(lambda: is_reached(job), 90)
    end(job)
    assert (job.end(120), job.status()["state"]) == (code, "stopped")
    job.mend("h2", "h3")
    job.advance(120)
    assert not any(map(job.processes_on, ("h1", "h2", "h3")))
    assert not job.files_left_on("h1")


def test_an_exception_is_found_whose_message_is_long(world: Launch) -> None:
    job = world(1, cluster={"worker": 1}, restart={"max": 0})
    raised = 'Traceback (most recent call last):\n  File "t.py", line 7, in <module>\nValueError: '
    job.print("worker:0", f"{raised}{'x' * 100_000}\n")
    job.exit("worker:0", 1)
    assert job.end() == 1
    verdict = job.status()["verdict"]
    assert (verdict["kind"], verdict["cause_code"]["text"][-1]) == ("exception", "…")


@pytest.mark.parametrize(
    ("second", "attempts", "code"),
    [("a bad batch", 2, 1), ("another", 3, 1), ("a bad batch", 2, 134)],
)
def test_a_failure_that_comes_again_ends_the_job(
    second: str, attempts: int, code: int, world: Launch
) -> None:
    job = world(1, cluster={"worker": 1})
    for said in ("a bad batch", second, second):
        job.print("worker:0", f"Traceback (most recent call last):\nValueError: {said}\n")
        job.exit("worker:0", code) if code < 128 else job.die("worker:0", code - 128)
        job.advance(1)
    assert (job.end(), len(job.attempts)) == (code, attempts)
    assert "failure_recurs" in job.outcome


@pytest.mark.parametrize("fault", [World.fill_disk, World.make_read_only])
def test_a_host_whose_disk_is_full_or_read_only_is_replaced(fault: Any, world: Launch) -> None:
    job = world(3, spares=1)
    fault(job, "h2")
    job.print("worker:1", "a line\n")
    job.advance(10)
    assert not job.has_agent("h2"), "what is left there has ended"
    if fault is World.fill_disk:
        job.exit("worker:0", 1)
    job.until(lambda: job.running.get("worker:1") == "h3", 90)
    assert job.kinds.count("HostFault") == 1
    if fault is World.fill_disk:
        assert "is full" in job.said()
        job.succeed()
        return
    verdict = job.status()["verdict"]
    assert verdict["kind"] == "host_lost"
    assert verdict["cause_code"]["within"][0]["code"] == "log_disk_read_only"
    fault(job, "h3")
    job.exit("worker:1", 1)
    assert (job.end(70), job.outcome[-1]) == (69, "no_room")

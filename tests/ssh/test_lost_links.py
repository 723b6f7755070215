"""Cables pulled out: what goes on, what ends, and that no line is lost or doubled."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun, Status
from harness.network import HasEnded, Host, Hosts, Network, ProcessesOf, RemoteSpec
from harness.values import not_none
from harness.waiting import wait_until

# Counts until it is told to end, and leaves in a file how far it came.
COUNTING = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
i=0
until [ -e {folder}/end ]; do i=$((i+1)); echo line $i; sleep 0.02; done
echo $i > {folder}/count-$DISTRUN_TASK
"""

# Short, for its end is waited for; but a host that was only slow for some seconds is none that
# is lost.
LEASE = "10s"
_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
# A firewall that no longer knows a connection: neither side hears of the other on it.
FORGOTTEN = """\
table inet forgotten {{
    chain input {{ type filter hook input priority 0; tcp sport {port} drop; }}
    chain output {{ type filter hook output priority 0; tcp dport {port} drop; }}
}}
"""


@pytest.fixture
def link_of(status: Status) -> Callable[[str, str], Any]:
    """Why there is no link to a host of a job, None where there is one."""

    def ask(job: str, host: str) -> Any:
        found = [each for each in status(job)["hosts"] if each["name"] == host]
        return found[0]["link_lost"] if found else None

    return ask


@contextlib.contextmanager
def hanging(pid: int) -> Iterator[None]:
    """Have a process hang as if in the kernel: it executes nothing, and SIGCONT changes nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(_PTRACE_ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0)
    try:
        yield
    finally:
        if libc.ptrace(_PTRACE_DETACH, pid, None, None) != 0:
            os.waitpid(pid, 0)  # it was killed: the tracer is told first


def counted(text: str, task: str) -> list[int]:
    """The numbers of a task's lines, in the order in which they are shown."""
    return [int(n) for n in re.findall(rf"^{task} +\| line (\d+)$", text, re.MULTILINE)]


def test_a_cut_shorter_than_the_lease_loses_no_line_and_doubles_none(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, link_of: Any, tmp_path: Path
) -> None:
    h1, h2 = hosts(2)
    # The link is given up after 8 s of silence; what is left has to do for getting it back.
    spec = remote_spec(COUNTING.format(folder=tmp_path), [h1, h2], timeouts={"link": "24s"})
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    job = launched.stdout.strip()
    wait_until(lambda: "line 20" in distrun("logs", job).stdout)
    h2.cut()
    wait_until(lambda: link_of(job, "h2"), what="the lost link is shown")
    assert "h2: the link has been lost" in distrun("status", job).stdout
    h2.mend()
    wait_until(lambda: link_of(job, "h2") is None, what="the link is back")
    (tmp_path / "end").touch()
    waited = distrun("wait", job)
    assert waited.returncode == 0, waited.stderr
    shown = distrun("logs", job).stdout
    for task in ("worker:0", "worker:1"):
        count = int((tmp_path / f"count-{task}").read_text())
        assert counted(shown, task) == list(range(1, count + 1))
    told = distrun("events", job).stdout
    assert "the link to h2 is lost" in told
    assert "the link to h2 is restored" in told


def test_a_shared_connection_that_has_died_is_not_the_only_way_back(
    hosts: Hosts, network: Network, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    (h1,) = hosts(1)
    shared = tmp_path / "shared"
    ssh = {"config_file": str(network.ssh_config), "options": {"ControlPath": str(shared)}}
    master = subprocess.Popen(
        ["ssh", "-F", network.ssh_config, "-N", "-oControlMaster=yes", f"-oControlPath={shared}",
         h1.name]
    )  # fmt: skip
    try:
        wait_until(shared.exists, what="the connection is shared")
        script = f"touch {tmp_path}/up; until [ -e {tmp_path}/end ]; do sleep 0.05; done; echo fine"
        spec = remote_spec(script, [h1], timeouts={"link": "24s"}, ssh=ssh)
        launch = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)
        wait_until((tmp_path / "up").exists)
        # As where a router on the way has forgotten it: nothing of it arrives, new ones do.
        (connection,) = psutil.Process(master.pid).net_connections("tcp")
        h1.is_changed = True
        h1.run("nft", "-f", "-", given=FORGOTTEN.format(port=connection.laddr.port))
        wait_until(lambda: "is restored" in distrun("events").stdout)
        (tmp_path / "end").touch()
        out, said = launch.communicate(timeout=60)
    finally:
        master.kill()
        master.wait()
    assert launch.returncode == 0, said
    assert out == "worker:0 | fine\n"


def test_a_host_cut_off_for_good_is_the_cause_and_its_tasks_end_by_themselves(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    h1, h2 = hosts(2)
    spec = remote_spec(COUNTING.format(folder=tmp_path), [h1, h2], timeouts={"link": LEASE})
    job = distrun("launch", "-d", spec)
    assert job.returncode == 0, job.stderr
    assert processes_of(h2, "sh")
    h2.cut()
    waited = distrun("wait", job.stdout.strip())
    assert waited.returncode == 69
    assert "h2 was lost: no sign of life for 10 s (timeouts.link)" in waited.stderr
    # Nobody can have told them: when the launching side takes the host for lost, they have ended.
    wait_until(lambda: not processes_of(h2, "sh"))
    wait_until(lambda: not processes_of(h1))
    wait_until(lambda: not processes_of(h2))


def test_hosts_on_which_nothing_is_needed_any_more_may_be_lost(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, has_ended: HasEnded, tmp_path: Path
) -> None:
    on = hosts(3)
    script = f"""\
    case $DISTRUN_TASK in
    worker:0) until test -e {tmp_path}/go; do sleep 0.05; done; echo trained;;
    worker:1) seq 30000; echo done;;
    *) echo evaluating; sleep 1000;;
    esac
    """
    spec = remote_spec(
        script, on, cluster={"worker": 2, "evaluator": 1}, timeouts={"link": LEASE},
        restart={"max": 2},
    )  # fmt: skip
    process = distrun.start("launch", spec, stderr=-1, stdout=-1, text=True)
    # Behind that nothing comes of it: neither words nor how many they were.
    wait_until(lambda: has_ended("worker:1"))
    wait_until(lambda: "worker:1    | done" in distrun("logs").stdout)
    wait_until(lambda: "evaluating" in distrun("logs").stdout)
    on[1].cut()
    on[2].cut()
    lost = re.compile(r"(?<!the link to )(h2|h3) is lost: ")
    wait_until(lambda: set(lost.findall(distrun("events").stdout)) == {"h2", "h3"})
    shown = distrun("status").stdout
    assert "h2 is lost: " in shown
    assert "h3 is lost: " in shown
    (tmp_path / "go").touch()
    printed, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "worker:0    | trained" in printed
    for host in ("h2", "h3"):
        assert re.search(f"{host} is lost: .*; the job continues without it", said)
    assert "evaluator:0 has failed and stays down" in said
    assert "the logs of h3's tasks are not all here" in said
    assert "the logs of h2's" not in said


@pytest.fixture
def without_a_lease(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, processes_of: ProcessesOf
) -> Iterator[tuple[Host, subprocess.Popen[Any], psutil.Process]]:
    """A host, a launch whose task there would go on for ever, and the ssh that leads to it.

    With no lease silence is noticed late; the end of ssh at once.
    """
    (h1,) = hosts(1)
    process = distrun.start(
        "launch", remote_spec("sleep 1000", [h1], timeouts={"link": "off"}), stderr=-1, text=True
    )
    assert "1 task" in not_none(process.stderr).readline()
    wait_until(lambda: processes_of(h1, "sleep"))
    h1.cut()
    below = psutil.Process(process.pid).children(recursive=True)
    (client,) = [each for each in below if each.name() == "ssh"]
    yield h1, process, client
    # As the message says: nothing of the job is left there then. (`distrun kill` has ended the task
    # already: on one machine, a job's token is also seen in the hosts' process namespaces.)
    told = distrun("events").stdout
    (agent,) = set(re.findall(r"that it has the process id (\d+)", told))
    assert "asked to stop by distrun kill" in told or processes_of(h1, "sleep")
    h1.run("kill", "-9", agent)
    wait_until(lambda: not processes_of(h1))


def test_without_a_lease_tasks_wait_and_a_second_kill_does_not(
    without_a_lease: Any, distrun: Distrun
) -> None:
    _, process, client = without_a_lease
    client.kill()
    assert "the link to h1 is lost" in process.stderr.readline()
    first = distrun.start("kill", stderr=-1, text=True)
    said = not_none(first.stderr).readline()
    assert "h1 cannot be reached" in said
    wait_until(lambda: "asked to stop by distrun kill" in distrun("events").stdout)
    again = said.rpartition("distrun ")[2].split()
    second = distrun(*again)
    assert second.returncode == 69, "what it could not verify is named"
    assert "may still run on h1, which could not be reached" in second.stderr
    assert "the logs of h1's tasks are not all here" in second.stderr
    assert "to stop waiting" not in second.stderr
    assert first.wait(60) == 69
    _, said = process.communicate(timeout=60)
    assert process.returncode == 137
    assert "the logs of h1's tasks are not all here" in said


def test_without_a_lease_nobody_waits_for_a_link_whose_loss_is_noticed_after_the_second_ctrl_c(
    without_a_lease: Any, distrun: Distrun
) -> None:
    _, process, client = without_a_lease
    process.send_signal(signal.SIGINT)
    assert "stopping" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "killing it at once" in process.stderr.readline()
    wait_until(lambda: distrun("events").stdout.count("asked to stop by SIGINT") == 2)
    client.kill()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "reconnecting" not in said
    assert "the logs of h1's tasks are not all here" in said


def test_an_agent_that_was_stopped_goes_on(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, processes_of: ProcessesOf
) -> None:
    (h1,) = hosts(1)
    job = distrun("launch", "-d", remote_spec("exec sleep 1000", [h1], timeouts={"link": "60s"}))
    assert job.returncode == 0, job.stderr
    (task,) = processes_of(h1, "sleep")
    agent, guard = task.parents()[:2]
    for each in (agent, guard):
        each.suspend()
    wait_until(lambda: psutil.STATUS_STOPPED not in (agent.status(), guard.status()))
    assert distrun("kill").returncode == 0
    wait_until(lambda: not processes_of(h1))


def test_a_guard_ends_the_tasks_of_an_agent_that_hangs_when_its_lease_expires(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, processes_of: ProcessesOf
) -> None:
    h1, h2 = hosts(2)
    spec = remote_spec("setsid sleep 1000 & exec sleep 1000", [h1, h2], timeouts={"link": LEASE})
    job = distrun("launch", "-d", spec)
    assert job.returncode == 0, job.stderr
    wait_until(lambda: len(processes_of(h2, "sleep")) == 2)
    task = processes_of(h2, "sleep")[0]
    agent = next(each for each in task.parents() if each.name().startswith("python"))
    with hanging(agent.pid):
        h2.cut()
        waited = distrun("wait", job.stdout.strip())
        assert waited.returncode == 69
        # The supervisor does not start a replacement before this.
        assert not processes_of(h2, "sleep")
    wait_until(lambda: not processes_of(h2))


def test_an_agent_that_hangs_without_tasks_ends_by_itself(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    has_ended: HasEnded,
    tmp_path: Path,
) -> None:
    h1, h2 = hosts(2)
    script = (
        "test $DISTRUN_TASK = worker:1 && echo done && exit 0; "
        f"until test -e {tmp_path}/end; do sleep 0.05; done"
    )
    spec = remote_spec(script, [h1, h2], timeouts={"link": LEASE})
    launch = distrun.start("launch", spec, stdout=-3, stderr=-3)
    wait_until(lambda: has_ended("worker:1"))
    wait_until(lambda: "worker:1 | done" in distrun("logs").stdout)
    (agent,) = [each for each in processes_of(h2) if not each.children()]
    with hanging(agent.pid):
        h2.cut()
        wait_until(lambda: "not known whether its tasks have ended" in distrun("events").stdout)
        assert agent.is_running()
    wait_until(lambda: not processes_of(h2))
    assert not list(h2.home.glob(".local/state/distrun/agents/*")), "it removed its folder"
    (tmp_path / "end").touch()
    assert launch.wait(60) == 0


def test_what_is_not_known_of_a_suspended_host_is_told_and_its_tasks_end_on_waking(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, processes_of: ProcessesOf
) -> None:
    h1, h2 = hosts(2)
    job = distrun(
        "launch", "-d", remote_spec("exec sleep 1000", [h1, h2], timeouts={"link": LEASE})
    )
    assert job.returncode == 0, job.stderr
    (task,) = processes_of(h2, "sleep")
    above = task.parents()
    sshd = [each for each in above[3:] if each.name().startswith("sshd")]
    # From above: each would resume the one below it, and a new login all three.
    suspended = [*sshd[::-1], *above[:3][::-1]]
    for each in suspended:
        each.suspend()
    try:
        waited = distrun("wait", job.stdout.strip())
        assert waited.returncode == 69
        assert "h2 was lost: no sign of life for 10 s (timeouts.link)" in waited.stderr
        assert "it is not known whether its tasks have ended" in waited.stderr
        assert "it is not known whether its tasks have ended" in distrun("events").stdout
        assert task.is_running()
    finally:
        for each in suspended:
            each.resume()
    wait_until(lambda: not processes_of(h2), what="the lease is enforced on waking")

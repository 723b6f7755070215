"""Hosts and jobs that are lost: what ends, what is cleared, and what stays."""

import contextlib
import itertools
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun, recorded_events
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.parts.linux import processes
from harness.processes import alive, with_argument
from harness.waiting import wait_until

SOON = {"max": 3, "backoff": "100ms"}


def kill_at_once(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended with the one before
            os.kill(pid, signal.SIGKILL)


# Killed processes of distrun ------------------------------------------------------------------

# Each attempt holds a lock, ignores SIGTERM, and leaves a daemon that hides. Whoever finds the lock
# held says so.
LOCKED = """
trap '' TERM
exec 9>>{folder}/lock-$DISTRUN_TASK
flock -n 9 || echo $DISTRUN_TASK $DISTRUN_ATTEMPT >> {folder}/double
(exec </dev/null >/dev/null 2>&1; env -i PATH=$PATH setsid sleep 1000 &)
echo $DISTRUN_ATTEMPT >> {folder}/started-$DISTRUN_TASK
until [ -e {folder}/go ]; do sleep 0.05; done
"""
SUBSETS = {"agent and guard": (0, 1), "all and sshd": (0, 1, 2, 3)}
"""An agent, its guard, the process that stands by for the guard, and the login's sshd."""


def started(folder: Path, task: str) -> list[str]:
    found = folder / f"started-{task}"
    return found.read_text().split() if found.exists() else []


@pytest.mark.parametrize("killed", SUBSETS.values(), ids=SUBSETS)
def test_no_two_attempts_live_at_once(killed: tuple[int, ...], ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    limits = {"link": "10s", "start": "60s"}
    script = LOCKED.format(folder=distrun.cwd)
    spec = ssh.spec(script, [h1, h2], timeouts=limits, restart=SOON)
    job = distrun.checked("launch", "-d", spec)
    wait_until(lambda: len(started(distrun.cwd, "worker:1")) == 1, what="the first attempt")
    before = {each.pid for each in with_argument(ssh.processes(h2, "sleep"), "1000")}
    (task,) = [each for each in ssh.processes(h2, "sh") if os.getsid(each.pid) == each.pid]
    chain = [each.pid for each in task.parents()[:4]]
    kill_at_once([chain[each] for each in killed])
    wait_until(lambda: len(started(distrun.cwd, "worker:1")) == 2, what="the second attempt")
    assert not any(map(alive, [task.pid, *before]))
    (distrun.cwd / "go").touch()
    distrun.checked("wait", job.stdout.strip())
    assert not (distrun.cwd / "double").exists()
    wait_until(lambda: not ssh.processes(h2), what="the host is clean")
    assert not ssh.processes(h1)


# Kill and clean of a lost job -----------------------------------------------------------------

# The second task has lost the environment by which processes are found.
RUNS = """\
touch "{folder}/up-$DISTRUN_TASK"
[ $DISTRUN_RANK = 0 ] || without="env -i PATH=$PATH"
exec $without sh -c 'trap "" TERM; while :; do sleep 0.1; done'
"""


def test_a_lost_jobs_tasks_are_ended_or_their_hosts_named(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2, *_ = these = ssh.hosts(5)
    config = {"config_file": str(ssh.network.ssh_config), "connect_timeout": "3s"}
    script = RUNS.format(folder=distrun.cwd)
    spec = ssh.spec(script, these, timeouts={"link": "off"}, ssh=config)
    job = distrun.checked("launch", "-d", "--no-preflight", spec).stdout.strip()
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 5)
    supervisor = distrun.status()["supervisor_pid"]
    kill_at_once([*processes.children(supervisor), supervisor])  # as in a crash
    wait_until(lambda: distrun.status()["state"] == "lost")
    h2.cut()
    done = distrun.elsewhere("kill", job)
    assert done.returncode == 69
    assert "nothing is left on h1, h[3-5]" in done.stderr
    for said in ("h2 cannot be reached", f"resume {job} --assume-dead h2"):
        assert said in done.stderr
    assert "h1 cannot be reached" not in done.stderr
    assert [bool(ssh.processes(h1)), bool(ssh.processes(h2, "sh"))] == [False, True]
    assert distrun.status(job)["state"] == "lost"
    kept = distrun.elsewhere("clean", "--all")
    assert kept.stdout == ""
    assert f"job {job} is kept: its tasks may still run on h2" in kept.stderr
    h2.mend()
    done = distrun.elsewhere("kill", job)
    assert done.returncode == 0, done.stderr
    assert not ssh.processes(h2)
    assert [each["event"] for each in recorded_events(distrun, job)].count("HostCleared") == 5
    assert distrun.status(job)["state"] == "stopped"
    assert distrun.elsewhere("clean", "--all").stdout.split() == [job]


# A host that returns --------------------------------------------------------------------------

WRITES = """\
import os, time
with open("written-" + os.environ["DISTRUN_ATTEMPT"], "w") as file:
    file.write(os.environ["DISTRUN_TASK"])
number = 0
while not os.path.exists({end!r}):
    number += 1
    print("line", number, flush=True)
    time.sleep(0.05)
"""


def test_of_an_agent_that_was_killed_only_lines_and_written_files_are_left(
    tmp_path_factory: pytest.TempPathFactory, ssh: Ssh, distrun: Distrun
) -> None:
    """What other hosts of the same machine run is not ended: these see each other's processes."""
    on = ssh.hosts(4)
    end = tmp_path_factory.mktemp("seen-by-all") / "end"
    (distrun.cwd / "job").mkdir()
    (distrun.cwd / "job" / "train.py").write_text(WRITES.format(end=str(end)))
    (distrun.cwd / "job" / "module.py").write_text("word = 1")
    for host in on:
        host.hide(distrun.cwd / "job")
    spec = ssh.spec(
        "", on, cluster={"worker": 2, "evaluator": 1}, spares=1, timeouts={"link": "5s"},
        restart=SOON, program={"script": "job/train.py"},
    )  # fmt: skip
    distrun.checked("launch", "-d", spec)

    def lines(task: str, attempt: int = 0) -> list[int]:
        log = distrun.asked("logs", "--raw", "-t", task)
        parts = re.split(r"^--- attempt \d.*$", log, flags=re.MULTILINE)
        return [int(n) for part in parts[attempt : attempt + 1] for n in re.findall(r"\d+", part)]

    def left_on(host: Host) -> list[Path]:
        return list(host.home.glob(".local/state/distrun/agents/*/*"))

    def kinds() -> list[str]:
        return [each["event"] for each in recorded_events(distrun)]

    wait_until(lambda: len(lines("evaluator:0")) > 5, what="the evaluator prints")
    for process in ssh.processes(on[2]):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until(lambda: lines("evaluator:0", 1), what="it prints again")
    wait_until(lambda: kinds().count("HostReady") == 5, what="the host is back")
    wait_until(lambda: "FilesPreserved" in kinds(), what="its files are kept")
    count = len(lines("worker:1"))
    wait_until(lambda: len(lines("worker:1")) > count + 5, what="the others go on")
    end.touch()
    distrun.checked("wait")
    events = recorded_events(distrun)
    starts = [each for each in events if each["event"] == "TaskStarted"]
    assert sorted((each["task"], each["attempt"]) for each in starts) == [
        ("evaluator:0", 0), ("evaluator:0", 1), ("worker:0", 0), ("worker:1", 0),
    ]  # fmt: skip
    first = lines("evaluator:0")
    assert first == list(range(1, len(first) + 1))
    kept = [each for each in events if each["event"] == "FilesPreserved"]
    assert {each["host"] for each in kept} == {host.name for host in on}
    written = {
        (each["host"], path.name, path.read_text())
        for each in kept
        for path in Path(each["folder"]).rglob("*")
        if path.is_file()
    }
    assert written == {
        ("h1", "written-0", "worker:0"), ("h2", "written-0", "worker:1"),
        ("h3", "written-0", "evaluator:0"), ("h4", "written-1", "evaluator:0"),
    }  # fmt: skip
    assert {*itertools.chain(*map(left_on, on))} == {Path(each["folder"]) for each in kept}

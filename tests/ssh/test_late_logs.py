"""Lost hosts that are reached again send the rest of their logs, and keep nothing of the job."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun, recorded_events
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.waiting import wait_until

LEASE = "5s"
SOON = {"max": 5, "backoff": "50ms"}
# The folder is on all hosts: these are namespaces of one machine.
COUNTING = """\
i=0
until [ -e {folder}/end ]; do i=$((i+1)); echo attempt $DISTRUN_ATTEMPT line $i
echo $i >> {folder}/count-$DISTRUN_TASK-$DISTRUN_ATTEMPT; sleep 0.02; done
"""


def printed(folder: Path, task: str, attempt: int) -> int:
    """How many lines an attempt has printed."""
    file = folder / f"count-{task}-{attempt}"
    return file.read_text().count("\n") if file.exists() else 0


def lines(distrun: Distrun, *options: str, task: str = "worker:1") -> list[tuple[int, int]]:
    """The attempt and the number of each line of a task, as `distrun logs` shows them."""
    text = distrun("logs", "-t", task, *options).stdout
    found = re.findall(r"attempt (\d+) line (\d+)(?:\"}|$)", text, re.MULTILINE)
    return [(int(attempt), int(line)) for attempt, line in found]


def left_on(host: Host) -> list[str]:
    return [str(each) for each in host.home.glob(".local/state/distrun/agents/*")]


def kinds(distrun: Distrun) -> list[str]:
    return [each["event"] for each in recorded_events(distrun)]


def test_what_other_hosts_of_the_same_machine_run_is_not_ended(ssh: Ssh, distrun: Distrun) -> None:
    """The hosts of these tests see each other's processes, as names of one machine do."""
    on = ssh.hosts(4)
    spec = ssh.spec(
        COUNTING.format(folder=distrun.cwd), on, cluster={"worker": 2, "evaluator": 1}, spares=1,
        timeouts={"link": LEASE}, restart=SOON,
    )  # fmt: skip
    distrun.checked("launch", "-d", spec)
    wait_until(lambda: lines(distrun, task="evaluator:0"))
    (shell, *_) = ssh.processes(on[2], "sh")
    agent = next(each for each in shell.parents() if each.name().startswith("python"))
    agent.kill()
    wait_until(lambda: printed(distrun.cwd, "evaluator:0", 1))
    wait_until(lambda: kinds(distrun).count("HostReady") == 5, what="the host is back")
    wait_until(lambda: len(left_on(on[2])) == 1, what="only the new agent has a folder")
    count = printed(distrun.cwd, "worker:1", 0)
    wait_until(lambda: printed(distrun.cwd, "worker:1", 0) > count + 20)
    last = printed(distrun.cwd, "evaluator:0", 0)
    (distrun.cwd / "end").touch()
    distrun.checked("wait")
    started = [each for each in recorded_events(distrun) if each["event"] == "TaskStarted"]
    assert sorted((each["task"], each["attempt"]) for each in started) == [
        ("evaluator:0", 0), ("evaluator:0", 1), ("worker:0", 0), ("worker:1", 0),
    ]  # fmt: skip
    found = [line for attempt, line in lines(distrun, task="evaluator:0") if attempt == 0]
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= last
    assert not any(map(left_on, on))


WRITES = """\
import os, time
with open("written-" + os.environ["DISTRUN_ATTEMPT"], "w") as file:
    file.write(os.environ["DISTRUN_TASK"])
print("began", flush=True)
while not os.path.exists({end!r}):
    time.sleep(0.05)
"""


def test_files_of_a_killed_agent_are_removed_except_those_that_its_task_wrote(
    tmp_path_factory: pytest.TempPathFactory, ssh: Ssh, distrun: Distrun
) -> None:
    on = ssh.hosts(3)
    end = tmp_path_factory.mktemp("seen-by-all") / "end"
    (distrun.cwd / "job").mkdir()
    (distrun.cwd / "job" / "train.py").write_text(WRITES.format(end=str(end)))
    (distrun.cwd / "job" / "module.py").write_text("word = 1")
    for host in on:
        host.hide(distrun.cwd / "job")
    spec = ssh.spec(
        "", on, cluster={"worker": 2}, spares=1, timeouts={"link": LEASE}, restart=SOON,
        program={"script": "job/train.py"},
    )  # fmt: skip
    distrun.checked("launch", "-d", spec)

    def began() -> int:
        return len(re.findall("began", distrun("logs", "--raw", "-t", "worker:1").stdout))

    wait_until(began)
    for process in ssh.processes(on[1]):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until(lambda: began() == 2)
    wait_until(lambda: "FilesPreserved" in kinds(distrun))
    end.touch()
    distrun.checked("wait")
    found = [each for each in recorded_events(distrun) if each["event"] == "FilesPreserved"]
    assert sorted(each["host"] for each in found) == ["h1", "h2", "h3"]
    for each in found:
        names = [path.name for path in Path(each["folder"]).rglob("*") if path.is_file()]
        assert names == {"h2": ["written-0"], "h3": ["written-1"]}.get(each["host"], names)
    assert not any(map(left_on, on))

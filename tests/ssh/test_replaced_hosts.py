"""Hosts that are lost for good: their tasks restart on spares or on fewer hosts, never twice."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun, Status
from harness.network import Host, Hosts, ProcessesOf, RemoteSpec
from harness.waiting import wait_until

LEASE = "6s"
SOON = {"max": 5, "backoff": "50ms"}
# Runs until a file says so; the lock fails if another attempt of the task lives. The hosts share
# the file system.
LOCKED = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
echo "$TF_CONFIG" > {folder}/config-$DISTRUN_TASK-$DISTRUN_ATTEMPT
echo "began on $(hostname) as $DISTRUN_RANK of $DISTRUN_WORLD_SIZE, attempt $DISTRUN_ATTEMPT"
until [ -e {folder}/end ]; do sleep 0.05; done
echo done
"""


def began(distrun: Distrun, task: str) -> list[str]:
    """Where and how each attempt of a task has begun, by its log."""
    log = distrun("logs", "--raw", "-t", task).stdout
    assert "TWO AT ONCE" not in log
    return re.findall(r"^began on (.*)$", log, re.MULTILINE)


def cut(host: Host, _: ProcessesOf) -> None:
    host.cut()


def kill_agent(host: Host, processes_of: ProcessesOf) -> None:
    (shell, *_) = processes_of(host, "sh")
    agent = next(each for each in shell.parents() if each.name().startswith("python"))
    agent.kill()


def kill_processes(host: Host, processes_of: ProcessesOf) -> None:
    """Kill all at the same time: once they are suspended, none can report the end of another."""
    found = processes_of(host)
    for send in (psutil.Process.suspend, psutil.Process.kill):
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                send(each)


def kill_everything(host: Host, _: ProcessesOf) -> None:
    host.power_off()


@pytest.mark.parametrize("lose", [cut, kill_agent, kill_everything])
def test_a_spare_takes_the_place_of_a_lost_host(
    lose: Any,
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(3)
    spec = remote_spec(
        LOCKED.format(folder=tmp_path), on, cluster={"worker": 2}, spares=1,
        timeouts={"link": LEASE}, restart=SOON,
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in (0, 1)))
    lose(on[1], processes_of)
    wait_until(lambda: len(began(distrun, "worker:1")) == 2, what="the task runs elsewhere")
    assert began(distrun, "worker:1") == ["h2 as 1 of 2, attempt 0", "h3 as 1 of 2, attempt 1"]
    wait_until(lambda: len(began(distrun, "worker:0")) == 2)
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr
    config = json.loads((tmp_path / "config-worker:0-1").read_text())
    assert [each.partition(":")[0] for each in config["cluster"]["worker"]] == [
        on[0].address, on[2].address,
    ]  # fmt: skip
    wait_until(lambda: not any(processes_of(host, "sh") for host in on))


def test_a_spare_that_cannot_be_used_is_a_warning(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, status: Status, tmp_path: Path
) -> None:
    on = hosts(3)
    on[2].power_off()
    spec = remote_spec(
        f"until [ -e {tmp_path}/end ]; do sleep 0.05; done", on,
        cluster={"worker": 2}, spares=1, restart=SOON,
    )  # fmt: skip
    planned = distrun("plan", spec)
    assert planned.returncode == 0, planned.stderr
    assert "warning: the spare h3 cannot be used: " in planned.stdout
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    assert "h3 is left out: " in distrun("status").stdout
    (tmp_path / "end").touch()
    assert distrun("wait").returncode == 0


def test_a_host_that_cannot_execute_the_program_is_left_out(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    on = hosts(3)
    workdir = tmp_path / "work"
    workdir.mkdir()
    spec = remote_spec(
        LOCKED.replace("until [", "until [ -e {folder}/fail-$DISTRUN_TASK-$DISTRUN_ATTEMPT ] || [")
        .replace("echo done", "[ -e {folder}/end ]").format(folder=tmp_path),
        on, cluster={"worker": 2}, spares=1, restart=SOON,
        hosts=["h1", {"name": "h2", "workdir": str(workdir)}, "h3"],
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in (0, 1)))
    workdir.rmdir()
    (tmp_path / "fail-worker:0-0").touch()
    wait_until(lambda: any(each.startswith("h3 ") for each in began(distrun, "worker:1")))
    status = distrun("status").stdout
    assert "h2 is left out: " in status
    assert "working folder" in status
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr


def fill(host: Host, folder: str) -> None:
    host.run("sh", "-c", f"dd if=/dev/zero of={folder}/fill bs=1k || true")


def unmount(host: Host, folder: str) -> None:
    host.run("umount", "-l", folder)


@pytest.mark.parametrize("lose_disk", [fill, unmount])
def test_a_host_whose_disk_is_full_or_gone_is_replaced(
    lose_disk: Any,
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(3)
    on[1].is_changed = True
    disk = on[1].home / ".local"
    disk.mkdir(exist_ok=True)
    on[1].run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk))
    spec = remote_spec(
        LOCKED.replace("until [", "until [ -e {folder}/fail-$DISTRUN_TASK-$DISTRUN_ATTEMPT ] || [")
        .replace("echo done", "[ -e {folder}/end ]").format(folder=tmp_path),
        on, cluster={"worker": 2}, spares=1, restart=SOON,
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in (0, 1)))
    lose_disk(on[1], str(disk))
    (tmp_path / "fail-worker:0-0").touch()
    wait_until(lambda: any(each.startswith("h3 ") for each in began(distrun, "worker:1")))
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr
    said = distrun("status").stdout  # the hosts are shown after the end as well
    why = "is full" if lose_disk is fill else "cannot be opened: No such file or directory"
    assert re.search(rf"^h2 is (lost|left out): .*{why}", said, re.MULTILINE), said
    assert "hosts in use: " in said
    assert "DISTRUN_HOME alone" not in said
    wait_until(lambda: not any(map(processes_of, on)))


def test_a_host_that_is_back_before_the_restart_gets_a_port_of_its_new_agent(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(2)
    spec = remote_spec(
        LOCKED.format(folder=tmp_path), on, restart={"max": 5, "backoff": "4s"},
        timeouts={"link": LEASE},
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in (0, 1)))
    kill_agent(on[1], processes_of)
    wait_until(lambda: all(len(began(distrun, f"worker:{index}")) == 2 for index in (0, 1)))
    assert began(distrun, "worker:1")[1].startswith("h2 ")
    assert len(status()["replacements"]) == 1
    first, second = (
        json.loads((tmp_path / f"config-worker:1-{attempt}").read_text())["cluster"]["worker"]
        for attempt in (0, 1)
    )
    assert first[0] == second[0]
    assert first[1] != second[1], "the new agent did not hold the former port"
    verdict = status()["verdict"]
    assert verdict["kind"] == "host_lost"
    assert verdict["replacement"]["repeated_steps"] is None
    assert "  done          all 2 workers run again" in distrun("status").stdout
    (tmp_path / "end").touch()
    assert distrun("wait").returncode == 0


def test_a_second_host_is_lost_while_the_first_is_replaced(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(5)
    spec = remote_spec(
        LOCKED.format(folder=tmp_path), on, cluster={"worker": 3}, spares=2,
        timeouts={"link": LEASE}, restart=SOON,
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: all(began(distrun, f"worker:{index}") for index in range(3)))
    on[1].cut()
    wait_until(lambda: "after h2 was lost" in distrun("events").stdout)
    on[3].power_off()  # the spare that is about to be used, or is used just now
    on[2].cut()
    wait_until(lambda: "no host has room" in distrun("events").stdout)
    on[1].mend()
    wait_until(
        lambda: {each.split()[0] for index in range(3)
                 for each in began(distrun, f"worker:{index}")[-1:]} == {"h1", "h2", "h5"}
    )  # fmt: skip
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr


# The peer exits as soon as the other task has ended, as a program whose connection breaks.
CONNECTED = """\
[ $DISTRUN_ATTEMPT = 0 ] || {{ until [ -e {folder}/end ]; do sleep 0.05; done; exit 0; }}
cd {folder}
if [ $DISTRUN_RANK = 1 ]; then exec flock connection sh -c 'echo > up; sleep 600'; fi
until [ -e up ]; do sleep 0.05; done
flock connection true
exit 1
"""


@pytest.mark.parametrize(
    ("lose", "never_on"), [(kill_processes, []), (kill_everything, []), (kill_processes, [1])]
)
def test_a_host_whose_processes_were_all_killed_is_the_cause_of_its_peers_exit(
    lose: Any,
    never_on: list[int],
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(3)
    spec = remote_spec(
        CONNECTED.format(folder=tmp_path), on, cluster={"worker": 2}, spares=1,
        timeouts={"link": LEASE}, restart={"max": 1, "backoff": "1s", "never_on": never_on},
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until((tmp_path / "up").exists)
    lose(on[1], processes_of)
    wait_until(lambda: status()["verdict"], 60)
    found = status()
    assert found["verdict"]["kind"] == "host_lost"
    assert found["verdict"]["cause_code"]["host"] == "h2"
    assert found["restarts"] == 1
    assert "h2 was lost" in found["replacements"][0]["cause"]
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr
    assert "restarted after h2 was lost" in distrun("logs", "--raw", "-t", "worker:0").stdout


def test_a_host_whose_disk_becomes_read_only_is_replaced(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, status: Status, tmp_path: Path
) -> None:
    on = hosts(3)
    script = LOCKED.format(folder=tmp_path).replace("do sleep", "do echo running; sleep")
    spec = remote_spec(
        script, on, cluster={"worker": 2}, spares=1,
        timeouts={"link": LEASE}, restart=SOON,
    )  # fmt: skip
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: began(distrun, "worker:1"))
    disk = str(on[1].home / ".local")
    on[1].is_changed = True
    on[1].run("mount", "--bind", disk, disk)
    on[1].run("mount", "-o", "remount,bind,ro", disk)
    wait_until(lambda: len(began(distrun, "worker:1")) == 2, what="the task runs elsewhere")
    assert began(distrun, "worker:1")[1].startswith("h3 ")
    found = status()
    assert found["verdict"]["kind"] == "host_lost"
    assert "is read-only" in found["verdict"]["cause"]
    assert "see `dmesg` on that host" in found["verdict"]["advice"]
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr

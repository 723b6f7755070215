"""What comes from tasks: their logs, and what they say of their progress."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from distrun.agent import protocol
from distrun.supervisor.hosts import local
from harness.agents import (
    TIMEOUT,
    Host,
    MakeHost,
    script,
)
from harness.processes import alive
from harness.requirements import AS_ROOT, skip
from harness.waiting import wait_until


def test_a_log_is_appended_to_and_its_index_says_when(any_host: Host) -> None:
    before = time.time()
    any_host.run("worker:0", "sh", "-c", "echo one; echo two >&2")
    any_host.expect(protocol.TaskEnded)
    any_host.run("worker:0", "sh", "-c", "printf three", attempt=1)
    any_host.expect(protocol.TaskEnded)
    assert any_host.log("worker:0") == b"one\ntwo\nthree"
    raw = (any_host.folder / "worker-0.idx").read_bytes()
    records = list(struct.iter_unpack("<dQ", raw))
    assert records[-1][1] == 13
    assert [size for _, size in records] == sorted({size for _, size in records})
    assert all(before <= at <= time.time() for at, _ in records)


@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_logs_are_indexed_without_inotify_too(make_host: MakeHost, limit: str) -> None:
    if subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        skip("user namespaces cannot be made here", AS_ROOT)
    setting = f'echo 0 > /proc/sys/user/{limit} && exec "$@"'

    def command(*args: str) -> list[str]:
        return ["unshare", "-Ur", "sh", "-c", setting, "sh", *local.isolated_python(*args)]

    host = make_host(command=command)
    host.send(protocol.HoldPorts(2, []))
    host.expect(protocol.PortsHeld)
    for index in range(3):
        host.run(f"worker:{index}", "sh", "-c", "echo ready; exec sleep 60")
    indexes = [host.folder / f"worker-{index}.idx" for index in range(3)]
    wait_until(lambda: all(path.stat().st_size for path in indexes), timeout=TIMEOUT)


def test_a_thousand_lines_of_four_tasks_are_all_in_their_logs(host: Host, tmp_path: Path) -> None:
    write = script(
        tmp_path,
        "write.py",
        "import sys\nfor n in range(1000): print(sys.argv[1], n, flush=True)",
    )
    names = [f"worker:{index}" for index in range(4)]
    for name in names:
        host.start(name, *write, name)
    for name in names:
        host.expect(protocol.TaskEnded, name)
        assert host.lines(name) == [f"{name} {number}" for number in range(1000)]
        raw = (host.folder / f"{name.replace(':', '-')}.idx").read_bytes()
        assert list(struct.iter_unpack("<dQ", raw))[-1][1] == len(host.log(name))


NOTIFY = """
import os, socket, sys, time
address = "\\0" + os.environ["DISTRUN_NOTIFY"][1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    for step in range(int(sys.argv[1])):
        sender.sendto(b"STEP=%d LOSS=0.5" % step, address)
"""


def test_progress_is_passed_on_and_the_last_of_it_never_lost(
    any_host: Host, tmp_path: Path
) -> None:
    any_host.run("worker:0", *script(tmp_path, "notify.py", NOTIFY), "50")
    any_host.expect(protocol.TaskEnded)
    told = any_host.all(protocol.Progress)
    assert told[-1].values == {"STEP": "49", "LOSS": "0.5"}
    assert any_host.said.index(told[-1]) < any_host.said.index(any_host.all(protocol.TaskEnded)[0])


TALK_LAST = """
import os, signal, socket
address = "\\0" + os.environ["DISTRUN_NOTIFY"][1:]
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("it is ready", flush=True)
signal.sigwait([signal.SIGUSR1])
sender.sendto(b"STEP=9", address)
"""


def test_a_last_word_that_comes_with_anothers_exit(host: Host, tmp_path: Path) -> None:
    first = host.run("worker:0", "sleep", "60")
    second = host.run("worker:1", *script(tmp_path, "talk.py", TALK_LAST))
    wait_until(lambda: host.lines("worker:1"), timeout=TIMEOUT)
    host.send(protocol.HoldPorts(1, []))
    (port,) = host.expect(protocol.PortsHeld).chosen

    # Busy for a while, so that both ends wait for it when it looks again, the first one first.
    agent = psutil.Process(host.pid)
    used = agent.cpu_times().user
    host.send(protocol.HoldPorts(0, [port] * 50_000))
    wait_until(lambda: agent.cpu_times().user - used > 0.05, timeout=TIMEOUT)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not alive(first.pid), timeout=TIMEOUT)
    os.kill(second.pid, signal.SIGUSR1)
    wait_until(lambda: not alive(second.pid), timeout=TIMEOUT)
    host.expect(protocol.PortsRefused)
    host.expect(protocol.TaskEnded, "worker:0")
    host.expect(protocol.TaskEnded, "worker:1")
    assert host.all(protocol.Progress)[-1].values == {"STEP": "9"}
    host.run("worker:2", "true")  # and the agent has survived it
    host.expect(protocol.TaskEnded)

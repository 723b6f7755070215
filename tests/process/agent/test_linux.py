"""The system calls of distrun's own, in a process of their own where they change one."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.command import write_program
from harness.parts.agent import orphans
from harness.parts.linux import (
    NvidiaSmiError,
    ask_nvidia_smi,
    processes,
    reap_child,
    syscalls,
    traffic,
)
from harness.processes import captured
from harness.requirements import AS_ROOT, skip
from harness.strangers import UID
from harness.values import not_none
from harness.waiting import wait_until

BURST = f"""
import os, signal
from {syscalls.__name__} import signal_pipe
pipe = signal_pipe([signal.SIGCHLD, signal.SIGTERM])
for _ in range(2000):
    os.kill(os.getpid(), signal.SIGCHLD)
os.kill(os.getpid(), signal.SIGTERM)
seen = b""
while True:
    try:
        seen += os.read(pipe.fileno(), 4096)
    except BlockingIOError:
        break
print(seen.count(signal.SIGCHLD), seen.count(signal.SIGTERM))
"""


def test_a_signal_behind_very_many_others_is_not_lost() -> None:
    assert captured([sys.executable, "-c", BURST], check=True).stdout.split() == ["2000", "1"]


def test_an_agent_that_is_suspended_is_resumed_and_its_end_waited_for() -> None:
    name = f"distrun-test-{os.urandom(9).hex()}"
    binds = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); "
    binds += "s.bind('\\0' + sys.argv[1]); print(flush=True); time.sleep(600)"
    command = [sys.executable, "-c", binds, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        not_none(process.stdout).readline()
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not_none(processes.find(process.pid)).is_suspended)
        process.terminate()  # it gets that when it is resumed
        left = orphans.wait_for_guard(f"\0{name}")
        process.kill()
    assert left == []


PR_SET_DUMPABLE = 4  # linux/prctl.h
USER = f"""
import ctypes, json, os, sys
sys.path[:0] = {sys.path!r}
import {processes.__name__} as processes
reap_child = processes.reap_child
if not os.geteuid():
    os.setgroups([])
    os.setgid({UID})
    os.setuid({UID})
    ctypes.CDLL(None).prctl({PR_SET_DUMPABLE}, 1, 0, 0, 0)
"""
"""Becomes an ordinary user. Root may read all of /proc. A process that has changed its user may
not read its own files there, as every program that a user starts may."""

WRITES = """
fork = ctypes.CDLL(None).fork  # os.fork reads /proc/self/stat from Python 3.12 on
child = os.fork()
if not child:
    if not fork():
        os.write(os.open("/dev/null", os.O_WRONLY), bytes(5_000_000))
        os._exit(0)
    os.wait()
    os.read(os.open("/dev/zero", os.O_RDONLY), 7_000_000)
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print(json.dumps(reap_child(child)._asdict()))
"""

HIDES = """
child, hidden = os.fork(), {hidden}
if not child:
    os.read(0, 1)
    os._exit(0)
print(json.dumps([processes.is_hidden(os.getpid()), processes.is_hidden(hidden)]))
os.kill(child, 9)
os.wait()
print(json.dumps(processes.is_hidden(child)))
"""


def run(script: str, *before: str) -> list[Any]:
    argv = [*before, sys.executable, "-c", USER + script]
    done = captured(argv, stdin=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_bytes_of_a_child_are_known_to_an_ordinary_user() -> None:
    (used,) = run(WRITES)
    assert (used["written"], used["read"]) == (5_000_000, 7_000_000)


def test_the_traffic_of_a_connection_is_known_by_both_sides() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(server.getsockname())
    with server, ours, server.accept()[0] as theirs:
        ours.sendall(b"x" * 1000)
        assert theirs.recv(1000, socket.MSG_WAITALL)
        names = [os.readlink(f"/proc/self/fd/{each.fileno()}") for each in (ours, theirs)]
        wait_until(lambda: traffic()[names[0]].sent_bytes >= 1000)  # once it is acknowledged
        found = [traffic()[name] for name in names]
    assert [each.received_bytes for each in found] == [0, 1000]
    assert found[0].sent_bytes in (1000, 1001), "the kernel counts the beginning, too"
    assert found[1].sent_bytes == 0


def test_an_nvidia_smi_without_an_answer_does_not_mean_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "nvidia-smi", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(NvidiaSmiError) as caught:
        ask_nvidia_smi("--query-gpu=index", seconds=0.1)
    assert caught.value.status is None


def test_a_child_that_runs_is_not_reaped() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert reap_child(child.pid, os.WNOHANG) is None


def test_a_process_that_proc_hides_is_not_taken_for_one_that_has_ended() -> None:
    mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    before = ["unshare", "-m", "sh", "-c", mount, "sh"]
    if os.geteuid() != 0 or subprocess.run([*before, "true"], check=False).returncode:
        skip("hiding /proc needs root", AS_ROOT)
    shown, gone = run(HIDES.format(hidden=os.getpid()), *before)
    assert shown == [False, True]
    assert gone is False

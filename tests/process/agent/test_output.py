"""What comes from tasks: their logs, and what they say of their progress."""

from __future__ import annotations

import struct
import subprocess
import time
from pathlib import Path

from distrun.agent import protocol
from harness.agents import TIMEOUT, Host, MakeHost, script
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


def test_logs_are_indexed_without_inotify_too(make_host: MakeHost) -> None:
    if subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        skip("user namespaces cannot be made here", AS_ROOT)
    setting = 'echo 0 > /proc/sys/user/max_inotify_watches && exec "$@"'

    unshare = ["unshare", "-Ur", "sh", "-c", setting, "sh"]
    host = make_host(changed=lambda command: [*unshare, *command])
    host.run("worker:0", "sh", "-c", "echo ready; exec sleep 60")
    index = host.folder / "worker-0.idx"
    wait_until(lambda: index.stat().st_size > 0, timeout=TIMEOUT)


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

"""Three hosts of one job are lost, at moments drawn by a seed: the job ends as if none had been."""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
from pathlib import Path

from harness.command import Distrun, Status
from harness.losses import Losses
from harness.network import Hosts, ProcessesOf, RemoteSpec
from harness.waiting import wait_until

LEASE, BACKOFF = 4.0, 0.05
WORKERS, STEPS, SAVE_EVERY = 4, 40, 5
# Trains in step with the other workers: worker 0 gathers and sends the result of each step. The
# hosts share the file system.
TRAIN = """\
import fcntl, hashlib, json, os, pathlib, socket, sys, time
folder, steps, save_every = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
task, attempt = os.environ["DISTRUN_TASK"], os.environ["DISTRUN_ATTEMPT"]
lock = open(folder / ("lock-" + task), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit("TWO AT ONCE")
workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
host, _, port = workers[0].rpartition(":")
if task == "worker:0":
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("", int(port)))
    listener.listen()
    peers = [listener.accept()[0].makefile("rw") for _ in workers[1:]]
else:
    while True:
        try:
            peers = [socket.create_connection((host, int(port))).makefile("rw")]
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(os.environ["DISTRUN_NOTIFY"].replace("@", "\\0", 1))
saved = folder / "checkpoint"
step, result = saved.read_text().split() if saved.exists() else ("0", "")
step = int(step)
print("attempt", attempt, "after step", step, flush=True)

def send(value):
    for peer in peers:
        print(value, file=peer, flush=True)

def receive():
    values = [peer.readline().strip() for peer in peers]
    if "" in values:
        sys.exit("a worker is gone")
    return values

while step < steps:
    step += 1
    while step == steps and not (folder / "end").exists():
        time.sleep(0.05)
    part = hashlib.sha256((task + result + str(step)).encode()).hexdigest()
    if task == "worker:0":
        parts = sorted([part, *receive()])
        result = hashlib.sha256("".join(parts).encode()).hexdigest()
        send(result)
    else:
        send(part)
        (result,) = receive()
    print("attempt", attempt, "step", step, flush=True)
    (folder / ("step-" + task + "-" + attempt)).write_text(str(step))
    notify.send(b"STEP=%d" % step)
    if step % save_every == 0 and task == "worker:0":
        (folder / "new").write_text("%d %s" % (step, result))
        (folder / "new").rename(saved)
    time.sleep(0.05)
print("result", result)
"""


def undisturbed() -> str:
    """The result of a job that loses no host."""
    result = ""
    for step in range(1, STEPS + 1):
        texts = [f"worker:{index}{result}{step}" for index in range(WORKERS)]
        parts = sorted(hashlib.sha256(each.encode()).hexdigest() for each in texts)
        result = hashlib.sha256("".join(parts).encode()).hexdigest()
    return result


def test_the_result_is_that_of_a_job_that_has_lost_no_host(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    on = hosts(WORKERS + 1)
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    command = [sys.executable, "-I", "-S", script, tmp_path, STEPS, SAVE_EVERY]
    spec = remote_spec(
        "", on, cluster={"worker": WORKERS}, spares=1, program={"command": [*map(str, command)]},
        timeouts={"link": f"{LEASE}s", "start": "60s"},
        restart={"max": 3, "backoff": f"{BACKOFF}s"},
    )  # fmt: skip
    seed = int(os.environ.get("SEED") or random.randrange(1000))
    losses = Losses(seed, STEPS, distrun, status, processes_of, LEASE, BACKOFF)
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    losses.inflict(on)
    (tmp_path / "end").touch()
    waited = distrun("wait")
    assert waited.returncode == 0, waited.stderr
    losses.check(WORKERS)
    logs = [distrun("logs", "--raw", "-t", f"worker:{n}").stdout for n in range(WORKERS)]
    assert {re.findall(r"^result (\w+)$", log, re.MULTILINE)[-1] for log in logs} == {undisturbed()}
    for index, log in enumerate(logs):
        assert "TWO AT ONCE" not in log
        check_steps(log, f"worker:{index}", tmp_path, losses)
    told = [each["repeated_steps"] for each in status()["replacements"]]
    assert told[-1] is not None, told
    assert all(each is None or each <= SAVE_EVERY + 1 for each in told), told
    wait_until(lambda: not any(map(processes_of, on)))


def check_steps(log: str, task: str, folder: Path, losses: Losses) -> None:
    """Each attempt continues from the checkpoint, and none of its lines is missing or doubled.

    Only the last lines of a task whose host was lost may be missing.
    """
    last, was_lost = 0, False
    for attempt, start in re.findall(r"^attempt (\d+) after step (\d+)$", log, re.MULTILINE):
        assert int(start) % SAVE_EVERY == 0
        assert last - SAVE_EVERY <= int(start) <= last or was_lost
        steps = [int(n) for n in re.findall(rf"^attempt {attempt} step (\d+)$", log, re.MULTILINE)]
        assert steps == list(range(int(start) + 1, int(start) + 1 + len(steps)))
        last = max([int(start), *steps])
        told = folder / f"step-{task}-{attempt}"
        was_lost = losses.was_lost(task, int(attempt))
        assert was_lost or not told.exists() or int(told.read_text()) <= last

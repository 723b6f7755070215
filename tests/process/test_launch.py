"""`distrun launch` in the foreground: output, exit codes, the report, jobs side by side."""

import json
import os
import re
import signal
import socket
import subprocess
from typing import Any

import psutil
import pytest

from harness.command import Distrun, write_program
from harness.processes import survivors
from harness.values import not_none
from harness.waiting import wait_until


def test_a_failure_is_the_exit_code_and_named_when_nothing_is_left(distrun: Distrun) -> None:
    spec = distrun.write_spec(
        "touch up-$DISTRUN_TASK; test $DISTRUN_TASK = worker:1 || exec sleep 600; "
        "until test -e up-worker:0 && test -e up-worker:2; do sleep 0.02; done; "
        'echo "no data"; exit 3',
        3,
    )
    done = distrun("launch", spec)
    assert done.returncode == 3
    report = done.stderr
    assert re.search(
        r"job job-\w+ failed: worker:1 on localhost \(pid \d+\) at \d\d:\d\d:\d\d\n", report
    )
    assert report.count("no data") == report.count("exited 3") == 1
    job = distrun.status()
    assert (job["verdict"]["kind"], job["verdict"]["task"]) == ("exit", "worker:1")
    assert (job["state"], job["exit_code"], job["origin"]) == ("failed", 3, "task")
    assert survivors(job["job_id"]) == []


def test_a_taken_port_is_named_before_anything_starts(distrun: Distrun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster = {"worker": [f"localhost:{port}", "localhost:1025"]}
        done = distrun.launch("touch started", cluster=cluster)
    assert done.returncode == 69
    assert re.search(f"port {port} on localhost is taken.*pid {os.getpid()}", done.stderr)
    assert not (distrun.cwd / "started").exists()


def test_no_input_and_what_a_task_leaves_does_not_keep_the_job(distrun: Distrun) -> None:
    script = "setsid sleep 600 & sleep 600 & cat; echo over"
    done = distrun("launch", distrun.write_spec(script, 1), stdin=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, "worker:0 | over\n")


def test_no_reader_ends_the_job_and_only_its_supervisor_is_there(distrun: Distrun) -> None:
    launch = distrun.start(
        "launch", distrun.write_spec("while echo line; do sleep 0.01; done"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert not_none(launch.stdout).readline().endswith(b"line\n")
    # No zombie of the checks of the program is left.
    wait_until(lambda: len(psutil.Process(launch.pid).children()) == 1)
    not_none(launch.stdout).close()
    assert launch.wait(60) == 141
    assert "stopped   141  output_reader_gone " in distrun.asked("ps", "-a")


@pytest.mark.parametrize(
    ("way", "number"),
    [(signal.SIG_BLOCK, each) for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT)]
    + [(signal.SIG_IGN, signal.SIGHUP)],
)
def test_a_job_ends_though_signals_are_suppressed(way: int, number: int, distrun: Distrun) -> None:
    """But for a hangup below nohup, which it survives."""

    def suppress() -> None:
        numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        if way == signal.SIG_BLOCK:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        else:
            for each in numbers:
                signal.signal(each, signal.SIG_IGN)

    spec = distrun.write_spec("touch up; until test -e go; do sleep 0.02; done; exit 3", workers=1)
    launch = distrun.start("launch", spec, preexec_fn=suppress)
    wait_until((distrun.cwd / "up").exists, timeout=30)
    launch.send_signal(number)
    if number == signal.SIGHUP:
        (distrun.cwd / "go").touch()
    assert launch.wait(60) == (3 if number == signal.SIGHUP else 128 + number)


def test_a_program_beside_the_spec_is_found_from_any_folder(distrun: Distrun) -> None:
    folder = distrun.cwd / "job"
    (folder / "data").mkdir(parents=True)

    def launch(program: str, *options: str, **keys: Any) -> subprocess.CompletedProcess[str]:
        spec = {"strategy": "default", "program": {"command": [program], **keys}}
        (folder / "job.yaml").write_text(json.dumps(spec))
        return distrun("launch", "job/job.yaml", *options)

    for place in (distrun.cwd, folder):
        write_program(place / "train.sh", f"#!/bin/sh\necho {place.name} in $(pwd)\n")
    done = launch("./train.sh", workdir="data", results=["out"])  # which are here already
    assert done.stdout == f"worker:0 | job in {folder}/data\n"
    assert "results" not in done.stderr
    (folder / "train.sh").unlink()
    done = launch("./train.sh")
    assert done.stdout == f"worker:0 | {distrun.cwd.name} in {distrun.cwd}\n"
    done = launch("./trian.sh", "--detach")
    assert (done.returncode, done.stdout) == (69, "")
    assert f"there is no program '{folder}/trian.sh'" in done.stderr, done.stderr
    assert distrun.status()["origin"] == "distrun"


LEFT = "worker:0 exited 0 with 2 processes still running, which distrun ended: sleep 600; sleep 700"


def test_what_was_still_at_work_is_told_everywhere(distrun: Distrun) -> None:
    done = distrun.launch("sleep 600 & sleep 700 & exit 0", workers=1)
    assert done.returncode == 0
    assert f"{LEFT} · start the program so that its script waits for it" in done.stderr
    assert LEFT in distrun.asked("status")
    assert LEFT in distrun("wait").stderr
    assert distrun.status()["warnings"] == [LEFT]
    assert distrun.asked("report", "-o", "-").count(LEFT) == 2  # how it ended; its events


def test_what_ends_soon_is_not_told(distrun: Distrun) -> None:
    """As the helpers of multiprocessing end. A failure needs no qualification either."""
    distrun.launch("sleep 600 & exit 3", workers=1)
    assert distrun.status()["warnings"] == []
    distrun.launch("mkfifo $$; cat $$ & exec 3>$$; exit 0", workers=1)
    assert distrun.status()["warnings"] == []

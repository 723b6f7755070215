"""`distrun launch` in the foreground: output, exit codes, the report, jobs side by side."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distrun.cli.program_check import ProgramCheck
from distrun.spec.loader import load
from harness.command import Distrun
from harness.processes import alive, survivors
from harness.values import not_none
from harness.waiting import wait_until


def test_a_failure_is_the_exit_code_and_the_report_names_it_when_nothing_is_left(
    distrun: Distrun,
) -> None:
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
    assert "  cause         worker:1 exited 3 by itself (exit)\n" in report
    assert "  evidence      worker:1, its log, line 1: no data\n" in report
    assert report.count("no data") == report.count("exited 3") == 1
    assert "  also stopped  worker:0, worker:2\n" in report
    assert re.search(r"logs          /.*/logs", report)
    assert report.splitlines()[-1] == "distrun: exit code 3, worker:1's own"
    job = distrun.status()
    assert (job["state"], job["exit_code"], job["origin"]) == ("failed", 3, "task")
    assert survivors(job["job_id"]) == []


def test_a_taken_port_is_named_before_anything_starts(distrun: Distrun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster = {"worker": [f"localhost:{port}", "localhost:1025"]}
        done = distrun.launch("touch started", cluster=cluster)
    assert done.returncode == 69
    assert f"port {port} on localhost is taken" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert not (distrun.cwd / "started").exists()


def test_input_is_at_its_end_and_what_a_task_leaves_does_not_keep_the_job(
    distrun: Distrun,
) -> None:
    script = "setsid sleep 600 & sleep 600 & cat; echo over"
    done = distrun("launch", distrun.write_spec(script), stdin=subprocess.PIPE)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["worker:0 | over", "worker:1 | over"]


def test_bytes_survive_in_the_log_and_all_but_nul_where_they_are_shown(distrun: Distrun) -> None:
    """Lines are shown without NUL, as without ESC; `logs --raw` keeps every byte."""
    spec = distrun.write_spec(r"printf '\377\000x\303\n'; printf 'no end'", 1)
    done = distrun("launch", spec, text=False)
    assert done.stdout == b"worker:0 | \xffx\xc3\nworker:0 | no end\n"
    assert distrun("logs", "--raw", text=False).stdout == b"\xff\x00x\xc3\nno end"


def test_no_reader_ends_the_job(distrun: Distrun) -> None:
    launch = distrun.start(
        "launch", distrun.write_spec("while echo line; do sleep 0.01; done"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert not_none(launch.stdout).readline().endswith(b"line\n")
    not_none(launch.stdout).close()
    assert launch.wait(60) == 141
    assert distrun.status()["state"] == "stopped"


def test_a_launch_that_stood_still_to_the_end_tells_how_the_job_ended(distrun: Distrun) -> None:
    """Its supervisor had more to tell than it would wait for; the record has it all."""
    flood = (
        "import os, socket, time\n"
        "open('up', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "notify.connect(chr(0) + os.environ['DISTRUN_NOTIFY'][1:])\n"
        "for number in range(200): notify.send(b'KEY%d=%s' % (number, b'x' * 4000))\n"
    )
    program = {"command": [sys.executable, "-c", flood]}
    launch = distrun.start("launch", distrun.write_spec("", workers=1, program=program))
    wait_until((distrun.cwd / "up").exists, timeout=30)
    supervisor = distrun.status()["supervisor_pid"]
    launch.send_signal(signal.SIGSTOP)
    try:
        (distrun.cwd / "go").touch()
        wait_until(lambda: not alive(supervisor), timeout=60)
    finally:
        launch.send_signal(signal.SIGCONT)
    assert launch.wait(30) == 0


@pytest.mark.parametrize("way", [signal.SIG_BLOCK, signal.SIG_IGN])
def test_a_job_ends_although_the_calling_program_suppressed_all_signals(
    way: int, distrun: Distrun
) -> None:
    """But for a hangup below nohup, which it survives."""

    def suppress() -> None:
        numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        if way == signal.SIG_BLOCK:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        else:
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)

    script = "touch up; until test -e go; do sleep 0.02; done; exit 3"
    for number in (signal.SIGHUP, signal.SIGTERM):
        spec = distrun.write_spec(script, workers=1)
        launch = distrun.start("launch", spec, preexec_fn=suppress)
        wait_until((distrun.cwd / "up").exists, timeout=30)
        if number == signal.SIGTERM or way == signal.SIG_IGN:
            launch.send_signal(number)
        if number == signal.SIGHUP:
            (distrun.cwd / "go").touch()
        assert launch.wait(60) == (143 if number == signal.SIGTERM else 3)
        for name in ("up", "go"):
            (distrun.cwd / name).unlink(missing_ok=True)


IN_A_CLASS = """\
import os, sys
from distrun.cli.main import main

def profile(frame, event, argument):
    code = frame.f_code
    if (event, code.co_name) == ("call", "__set_name__") and "dataclasses" in code.co_filename:
        sys.setprofile(None)
        os.kill(os.getpid(), 15)

sys.setprofile(profile)
main()
"""
"""Sends a signal while a class is created: Python before 3.12 replaces what is raised there."""


def test_a_signal_while_a_class_is_created(distrun: Distrun) -> None:
    argv = [sys.executable, "-c", IN_A_CLASS, "launch"]
    done = subprocess.run(
        [*argv, distrun.write_spec("exec sleep 600")],
        capture_output=True, text=True, cwd=distrun.cwd, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.strip()) == (143, "", "")


class Ending:
    """Has SIGTERM arrive while a class with it is created."""

    def __set_name__(self, _owner: type, _name: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_checks_that_are_ended_while_a_class_is_created_print_nothing(
    distrun: Distrun, capfd: pytest.CaptureFixture[str]
) -> None:
    check = ProgramCheck(
        load(distrun.write_spec("true")), lambda _: type("Made", (), {"attribute": Ending()})
    )
    assert check.wait(60)
    check.close()
    assert capfd.readouterr().err == ""


def write_job(folder: Path, **program: Any) -> Path:
    folder.mkdir(exist_ok=True)
    spec = folder / "job.yaml"
    spec.write_text(json.dumps({"strategy": "default", "program": program}))
    return spec


def write_program(path: Path, words: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {words} in $(pwd)\n")
    path.chmod(0o755)


def test_a_program_beside_the_spec_is_found_from_any_folder(distrun: Distrun) -> None:
    write_program(distrun.cwd / "job" / "train.sh", "beside")
    (distrun.cwd / "job" / "data").mkdir()
    done = distrun("launch", write_job(distrun.cwd / "job", command=["./train.sh"], workdir="data"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"worker:0 | beside in {distrun.cwd}/job/data\n"

    write_program(distrun.cwd / "train.sh", "elsewhere")
    spec = write_job(distrun.cwd / "job", command=["./train.sh"])
    assert distrun("launch", spec).stdout == f"worker:0 | beside in {distrun.cwd}\n"
    (distrun.cwd / "job" / "train.sh").unlink()
    assert distrun("launch", spec).stdout == f"worker:0 | elsewhere in {distrun.cwd}\n"
    for options in ((), ("--detach",)):
        done = distrun("launch", write_job(distrun.cwd / "job", command=["./trian.sh"]), *options)
        assert (done.returncode, done.stdout) == (69, "")
        assert f"there is no program '{distrun.cwd}/job/trian.sh'" in done.stderr, done.stderr
        assert distrun.status()["origin"] == "distrun"


LEFT = "worker:0 exited 0 with 1 process still at work, which distrun ended: sleep 600"


def test_what_was_still_at_work_is_told_everywhere(distrun: Distrun) -> None:
    done = distrun.launch("sleep 600 & exit 0", workers=1)
    assert done.returncode == 0
    assert LEFT in done.stderr.splitlines()[-1]
    assert LEFT in distrun("status").stdout
    assert LEFT in distrun("wait").stderr
    assert distrun.status()["warnings"] == [LEFT]
    assert distrun("report", "-o", "-").stdout.count(LEFT) == 2  # how it ended; its events


def test_what_ends_soon_or_is_stopped_is_not_told(distrun: Distrun) -> None:
    for script in (
        "mkfifo $$; cat $$ & exec 3>$$; exit 0",  # as the helpers of multiprocessing end
        "sleep 600 & exit 3",  # a failure needs no qualification
    ):
        distrun.launch(script)
        assert distrun.status()["warnings"] == []
    distrun("kill", distrun.detached("sleep 600 & wait"))
    assert distrun.status()["warnings"] == []

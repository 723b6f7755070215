"""`--notify COMMAND`: run at a job's end, with its status as JSON on standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrun.cli import notify
from distrun.jobstore import JobStore
from harness import job_folders
from harness.command import Distrun
from harness.processes import alive, survivors
from harness.values import not_none
from harness.waiting import wait_until

TO_FILE = "cat > part && mv part told"


def told(folder: Path) -> dict[str, Any]:
    """Return the job that the command was told about, and check the envelope."""
    wait_until((folder / "told").exists, timeout=60)
    envelope = json.loads((folder / "told").read_text())
    (folder / "told").unlink()
    assert envelope["version"] == 2
    job: dict[str, Any] = envelope["job"]
    return job


def test_wait_tells_of_each_job_and_exits_with_its_result(distrun: Distrun) -> None:
    failed, other = distrun.detached("exit 7"), distrun.detached("exit 0", name="other")
    assert distrun("wait", "--timeout", "60s", failed, "--notify", TO_FILE).returncode == 7
    job = told(distrun.cwd)
    assert (job["job_id"], job["state"], job["exit_code"]) == (failed, "failed", 7)
    assert job["tasks"] == json.loads(distrun("status", failed, "--json").stdout)["job"]["tasks"]
    assert distrun("wait", other, failed, "--notify", "cat >> all").returncode == 7
    lines = (distrun.cwd / "all").read_text().splitlines()
    assert [json.loads(line)["job"]["job_id"] for line in lines] == [other, failed]


def test_a_detached_job_tells_when_it_ends_and_the_command_is_not_shown_before(
    distrun: Distrun,
) -> None:
    spec = distrun.write_spec("until test -e go; do sleep 0.1; done; exit 3", workers=1)
    command = f"{TO_FILE}; env > variables; : geheim; echo $MARK"
    env = {**os.environ, "MARK": "mine"}
    done = distrun("launch", "-d", spec, "--notify", command, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    job_id = done.stdout.strip()
    shown = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    assert any({"wait", job_id} <= {*words} for words in shown)
    assert not any("geheim" in word for words in shown for word in words)
    assert not (distrun.cwd / "told").exists()
    (distrun.cwd / "go").touch()
    job = told(distrun.cwd)
    assert (job["job_id"], job["state"], job["exit_code"]) == (job_id, "failed", 3)
    log = distrun.home / "jobs" / job_id / "notify.log"
    wait_until(lambda: "mine\n" in log.read_text() and "exit code 3" in log.read_text())
    assert "geheim" not in (distrun.cwd / "variables").read_text()


def test_a_killed_and_a_lost_job_tell(distrun: Distrun) -> None:
    spec = distrun.write_spec("exec sleep 600")
    distrun("launch", "-d", spec, "--notify", TO_FILE)
    assert distrun("wait", "--timeout", "200ms", "--notify", TO_FILE).returncode == 124
    assert not (distrun.cwd / "told").exists()
    distrun("kill")
    assert told(distrun.cwd)["state"] == "stopped"
    job_id = distrun("launch", "-d", spec, "--notify", TO_FILE).stdout.strip()
    os.kill(distrun.status()["supervisor_pid"], signal.SIGKILL)
    job = told(distrun.cwd)
    assert (job["job_id"], job["state"]) == (job_id, "lost")
    wait_until(lambda: not survivors(job_id), timeout=30)


def test_a_launch_in_the_foreground_tells(distrun: Distrun) -> None:
    assert distrun("launch", distrun.write_spec("exit 4"), "--notify", TO_FILE).returncode == 4
    assert told(distrun.cwd)["exit_code"] == 4


def test_a_command_that_fails_changes_nothing(distrun: Distrun) -> None:
    distrun.detached("exit 0")
    for command, words in {
        "exit 9": "the command of --notify exited with 9",
        "kill -9 $$": "the command of --notify was killed by SIGKILL",
        "./no-such-program": "exited with 127",
        "exec true <&-": "succeeded in",
    }.items():
        done = distrun("wait", "--notify", command)
        assert done.returncode == 0
        assert words in done.stderr


IGNORES_SIGTERM = '(trap "" TERM; echo $$ > shell; exec sleep 600) & echo $! > pid; wait'


def written_pid(folder: Path) -> int:
    path = folder / "pid"
    wait_until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def test_a_command_that_takes_too_long_ends_with_what_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notify, "_SECONDS", 1.0)
    monkeypatch.chdir(tmp_path)
    notify.run_notify_command(IGNORES_SIGTERM, job_folders.add(JobStore(tmp_path), "job"))
    assert not alive(written_pid(tmp_path))
    assert "took over 1 s and was ended" in capsys.readouterr().err


def test_a_command_leaves_nothing_in_the_background(distrun: Distrun) -> None:
    distrun.detached("exit 0")
    done = distrun("wait", "--notify", "sleep 600 >&- 2>&- & echo $! > pid; exit 5")
    assert done.returncode == 0
    assert "exited with 5" in done.stderr
    wait_until(lambda: not alive(written_pid(distrun.cwd)))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 4)])
def test_a_signal_ends_the_command_and_the_exit_code_stays_the_job_s(
    distrun: Distrun, number: signal.Signals, code: int
) -> None:
    command = IGNORES_SIGTERM
    running = distrun.start(
        *("run", "--notify", command, "sh", "-c", f"exit {code}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    pid = written_pid(distrun.cwd)
    running.send_signal(number)
    assert running.wait(30) == code
    assert not alive(pid)
    *report, last = not_none(running.stderr).read().decode().splitlines()
    assert last == f"distrun: {number.name} ended the command of --notify"
    assert not code or f"exit code {code}, worker:0's own" in report[-1]

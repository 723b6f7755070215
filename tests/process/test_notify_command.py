"""`--notify COMMAND`: run at a job's end, with its status as JSON on standard input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrun.cli import notify
from distrun.jobstore import JobStore
from harness import job_folders
from harness.command import Detach, Distrun, Status, WriteSpec
from harness.processes import alive, survivors
from harness.terminal import OpenTerminal
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


@pytest.mark.parametrize(
    ("script", "state", "code"), [("exit 0", "succeeded", 0), ("exit 7", "failed", 7)]
)
def test_wait(
    distrun: Distrun, detached: Detach, tmp_path: Path, script: str, state: str, code: int
) -> None:
    job_id = detached(script)
    assert distrun("wait", job_id, "--notify", TO_FILE).returncode == code
    job = told(tmp_path)
    assert (job["job_id"], job["state"], job["exit_code"]) == (job_id, state, code)
    assert job == json.loads(distrun("status", "--json").stdout)["job"]


def test_wait_for_several_jobs_tells_of_each(
    distrun: Distrun, detached: Detach, tmp_path: Path
) -> None:
    ids = [detached("exit 0", name=name) for name in ("one", "two")]
    assert distrun("wait", *ids, "--notify", "cat >> all").returncode == 0
    lines = (tmp_path / "all").read_text().splitlines()
    assert [json.loads(line)["job"]["job_id"] for line in lines] == ids


def test_a_detached_job_tells_when_it_ends(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path
) -> None:
    spec = write_spec("until test -e go; do sleep 0.1; done; exit 3", workers=1)
    done = distrun(
        "launch",
        "-d",
        spec,
        "--notify",
        f"{TO_FILE}; echo $MARK",
        env={**os.environ, "MARK": "mine"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    job_id = done.stdout.strip()
    assert not (tmp_path / "told").exists()
    (tmp_path / "go").touch()
    job = told(tmp_path)
    assert (job["job_id"], job["state"], job["exit_code"]) == (job_id, "failed", 3)
    log = distrun.home / "jobs" / job_id / "notify.log"
    wait_until(lambda: "mine\n" in log.read_text())
    wait_until(lambda: "exit code 3" in log.read_text())


def test_the_command_of_a_detached_job_is_not_shown_while_it_waits(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path
) -> None:
    spec = write_spec("until test -e go; do sleep 0.1; done", workers=1)
    command = f"env > variables; : geheim; {TO_FILE}"
    job_id = distrun("launch", "-d", spec, "--notify", command).stdout.strip()
    shown = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    assert any({"wait", job_id} <= {*words} for words in shown)
    assert not any("geheim" in word for words in shown for word in words)
    (tmp_path / "go").touch()
    assert told(tmp_path)["state"] == "succeeded"
    assert "geheim" not in (tmp_path / "variables").read_text()


def test_a_killed_and_a_lost_job_tell(
    distrun: Distrun, write_spec: WriteSpec, status: Status, tmp_path: Path
) -> None:
    spec = write_spec("exec sleep 600")
    distrun("launch", "-d", spec, "--notify", TO_FILE)
    distrun("kill")
    assert told(tmp_path)["state"] == "stopped"
    job_id = distrun("launch", "-d", spec, "--notify", TO_FILE).stdout.strip()
    os.kill(status()["supervisor_pid"], signal.SIGKILL)
    job = told(tmp_path)
    assert (job["job_id"], job["state"]) == (job_id, "lost")
    wait_until(lambda: not survivors(job_id), timeout=30)
    waited = distrun("wait", job_id, "--notify", TO_FILE)
    assert waited.returncode == 70
    assert told(tmp_path)["state"] == "lost"


def test_a_launch_in_the_foreground_tells(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path, terminal: OpenTerminal
) -> None:
    assert distrun("launch", write_spec("exit 4"), "--notify", TO_FILE).returncode == 4
    assert told(tmp_path)["exit_code"] == 4
    window = terminal("launch", write_spec("echo up; exec sleep 600"), "--notify", TO_FILE)
    wait_until(lambda: "worker:* | up (2 tasks)" in window.text())
    window.type("\x03")
    wait_until(window.ended)
    assert window.process.returncode == 130
    assert told(tmp_path)["state"] == "stopped"


def test_nothing_is_told_before_the_end(distrun: Distrun, detached: Detach, tmp_path: Path) -> None:
    job_id = detached("exec sleep 600")
    assert distrun("wait", "--timeout", "200ms", "--notify", TO_FILE).returncode == 124
    waiting = distrun.start("wait", job_id, "--notify", TO_FILE)
    waiting.send_signal(signal.SIGINT)
    waiting.wait(30)
    assert not (tmp_path / "told").exists()
    distrun("kill")


def test_a_command_that_fails_changes_nothing(distrun: Distrun, detached: Detach) -> None:
    detached("exit 0")
    done = distrun("wait", "--notify", "exit 9")
    assert done.returncode == 0
    assert "the command of --notify exited with 9" in done.stderr
    killed = distrun("wait", "--notify", "kill -9 $$")
    assert killed.returncode == 0
    assert "the command of --notify was killed by SIGKILL" in killed.stderr
    missing = distrun("wait", "--notify", "./no-such-program")
    assert missing.returncode == 0
    assert "exited with 127" in missing.stderr
    unread = distrun("wait", "--notify", "exec true <&-")
    assert unread.returncode == 0
    assert re.fullmatch(r"job-\w+ succeeded in .* logs: distrun logs job-\w+\n", unread.stderr)


def test_an_interrupted_wait_ends_the_command(
    distrun: Distrun, detached: Detach, tmp_path: Path
) -> None:
    detached("exit 0")
    distrun("wait")
    command = "echo $$ > pid; sleep 600 & wait"
    waiting = distrun.start("wait", "--notify", command, stderr=subprocess.PIPE)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    pid = int((tmp_path / "pid").read_text())
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(30) == 130
    wait_until(lambda: not alive(pid))
    assert b"Traceback" not in not_none(waiting.stderr).read()


IGNORES_SIGTERM = '(trap "" TERM; echo $$ > shell; exec sleep 600) & echo $! > pid; wait'


def written_pid(folder: Path) -> int:
    path = folder / "pid"
    wait_until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def test_an_interrupted_command_ends_with_what_ignores_sigterm(
    distrun: Distrun, detached: Detach, tmp_path: Path
) -> None:
    detached("exit 0")
    distrun("wait")
    waiting = distrun.start("wait", "--notify", IGNORES_SIGTERM)
    pid = written_pid(tmp_path)
    wait_until((tmp_path / "shell").exists)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(30) == 143
    wait_until(lambda: not alive(pid))


def test_a_command_that_takes_too_long_ends_with_what_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notify, "_SECONDS", 1.0)
    monkeypatch.chdir(tmp_path)
    notify.run_notify_command(IGNORES_SIGTERM, job_folders.add(JobStore(tmp_path), "job"))
    assert not alive(written_pid(tmp_path))
    assert "took over 1 s and was ended" in capsys.readouterr().err


def test_a_command_leaves_nothing_in_the_background(
    distrun: Distrun, detached: Detach, tmp_path: Path
) -> None:
    detached("exit 0")
    done = distrun("wait", "--notify", "sleep 600 >&- 2>&- & echo $! > pid; exit 5")
    assert done.returncode == 0
    assert "exited with 5" in done.stderr
    wait_until(lambda: not alive(written_pid(tmp_path)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("code", [0, 4])
def test_a_signal_ends_the_command_and_the_exit_code_stays_the_job_s(
    distrun: Distrun, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = "echo $$ > pid; exec sleep 600"
    running = distrun.start(
        *("run", "--notify", command, "sh", "-c", f"exit {code}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    pid = written_pid(tmp_path)
    running.send_signal(number)
    assert running.wait(30) == code
    assert not alive(pid)
    *report, last = not_none(running.stderr).read().decode().splitlines()
    assert last == f"distrun: {number.name} ended the command of --notify"
    assert not code or f"exit code {code}, worker:0's own" in report[-1]

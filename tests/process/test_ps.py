"""`ps`: why each job ended, in a word, how far each is, and which jobs are listed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from harness.command import Distrun
from harness.processes import survivors
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

REPORTS = """\
import os, socket, sys, time
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
speak.sendto(b"STEP=120 EPOCH=3 LOSS=0.164", "\\0" + os.environ["DISTRUN_NOTIFY"][1:])
exec(sys.argv[1])
"""


def launch(distrun: Distrun, name: str, then: str) -> str:
    (distrun.cwd / "reports.py").write_text(REPORTS)
    program = {"script": "reports.py", "args": [then]}
    return distrun.detached("", workers=1, name=name, program=program)


def test_which_jobs_are_listed_with_a_cause_in_a_word_and_the_last_metric(
    distrun: Distrun, terminal: OpenTerminal
) -> None:
    good = launch(distrun, "good", "pass")
    bad = launch(distrun, "bad", "import no_such_module")
    distrun("wait", good, bad)

    def has_reported() -> bool:
        return "LOSS" in distrun.status()["tasks"][0]["progress"]

    killed = launch(distrun, "killed", "time.sleep(600)")
    wait_until(has_reported)
    distrun("kill", killed)
    lost = launch(distrun, "lost", "time.sleep(600)")
    os.kill(distrun.status()["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not survivors(lost))
    running = launch(distrun, "running", "time.sleep(600)")
    wait_until(has_reported)
    rows = {
        each["job_id"]: each for each in json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]
    }
    causes = {job_id: row["cause"] for job_id, row in rows.items()}
    told = {bad: "import_error", killed: "kill", lost: "supervisor_died"}
    assert causes == {good: None, **told, running: None}
    for job_id in (good, bad, killed, running):
        assert rows[job_id]["progress"]["LOSS"] == 0.164, job_id

    def ids(*args: str) -> list[str]:
        return str(distrun.asked("ps", "-q", *args)).split()

    assert ids() == [running]
    assert ids("-a") == [good, bad, killed, lost, running]
    assert ids("-n", "2") == [lost, running]
    assert ids("--failed") == [bad, lost]
    assert ids("--failed", "-n", "1") == [lost]
    assert distrun("ps", "-n", "0").returncode == 2
    window = terminal("ps", "-a", columns=80)
    wait_until(window.ended)
    lines = window.text().splitlines()
    assert max(map(len, lines)) <= 80
    [line] = [line for line in lines if line.startswith(bad)]
    assert "import_error" in line
    assert "epoch 3 step 120 loss 0.164" in line
    distrun("kill")


STEPS = (
    "pause=0.1; test $DISTRUN_TASK = worker:1 && pause=0.4; i=0; "
    "while [ ! -e {go} ]; do i=$((i+1)); echo step $i/9000 loss 0.$i; sleep $pause; done"
)


def test_status_and_ps_say_how_far_it_is_and_which_task_is_behind(
    distrun: Distrun, tmp_path: Path
) -> None:
    script = STEPS.format(go=tmp_path / "go")
    job = distrun.detached(script, workers=3)
    wait_until(lambda: (distrun.status()["behind"] or "").startswith("worker:1"))
    wait_until(lambda: distrun.status()["seconds_left"] is not None)
    found = distrun.status()
    assert found["seconds_left"] > 1
    for task in found["tasks"]:
        assert 0 < task["progress_at"] - task["started_at"] < 60
        assert 0 < task["last_output_at"] - task["started_at"] < 60
    text = distrun.asked("status")
    assert "worker:1 is behind: step " in text
    assert " left\n" in text
    assert " s ago" in text
    listed = distrun("ps")
    assert " s ago" in listed.stdout
    assert f"distrun: {job}: worker:1 is behind: step" in listed.stderr
    (tmp_path / "go").touch()
    assert distrun("wait", job).returncode == 0
    ended = distrun.status(job)
    assert (ended["behind"], ended["seconds_left"], ended["progress_at"]) == (None,) * 3
    assert "ago" not in distrun.asked("status", job)

"""`distrun resume`: what it continues, what it refuses, and that no two attempts live at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from distrun.jobstore import JobStore
from harness.command import Distrun, Status, recorded_events
from harness.processes import alive, survivors
from harness.requirements import need_root
from harness.waiting import wait_until

# A second attempt beside the first one could not lock the file.
GUARDED = """\
exec 9>lock-$DISTRUN_JOB_ID-$DISTRUN_TASK; flock -n 9 || { echo TWO AT ONCE; exit 9; }
echo attempt $DISTRUN_ATTEMPT; touch up-$DISTRUN_TASK-$DISTRUN_ATTEMPT
"""
ALL_ARE_UP = (
    "until set -- up-*-$DISTRUN_ATTEMPT; [ $# -ge $DISTRUN_WORLD_SIZE ]; do sleep 0.02; done"
)
UNTIL_REPAIRED = GUARDED + f"[ -e repaired ] && exit 0; {ALL_ARE_UP}; exit 3"
SLEEPS = GUARDED + "[ -e repaired ] && exit 0; setsid sleep 600 & exec sleep 600"


def attempts(distrun: Distrun, job: str, task: str = "worker:0") -> list[int]:
    events = recorded_events(distrun, job)
    return [e["attempt"] for e in events if e["event"] == "TaskStarted" and e["task"] == task]


def kill_supervisor(status: Status, job: str) -> None:
    pid = status(job)["supervisor_pid"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: status(job)["state"] == "lost")


def repair(distrun: Distrun) -> None:
    (distrun.cwd / "repaired").touch()


def test_a_job_whose_program_was_repaired_continues_with_the_next_attempts(
    distrun: Distrun,
) -> None:
    assert distrun.launch(UNTIL_REPAIRED).returncode == 3
    job = distrun.status()["job_id"]
    assert distrun("resume", job).returncode == 3
    repair(distrun)
    done = distrun("resume", job)
    assert done.returncode == 0, done.stderr
    # Only the output since the resume is shown, and all of it is in the same log.
    assert "attempt 0" not in done.stdout
    assert "worker:1 | attempt 2" in done.stdout
    text = distrun("logs", job, "-t", "worker:0", "--raw").stdout.splitlines()
    assert [line for line in text if line.startswith("attempt")] == [
        f"attempt {number}" for number in attempts(distrun, job)
    ]
    assert attempts(distrun, job)[-1] == 2
    after = distrun.status(job)
    assert (after["job_id"], after["state"], after["resumed"]) == (job, "succeeded", 2)
    assert len(JobStore(distrun.home).folders()) == 1


def test_a_lost_job_is_listed_with_its_command_and_continues(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    kill_supervisor(distrun.status, job)
    listed = distrun("ps", "-a")
    assert f"job {job} is lost; to continue it: distrun resume {job}" in listed.stderr
    rows = json.loads(distrun("ps", "-a", "--json").stdout)["jobs"]
    assert [row["resume_command"] for row in rows] == [f"distrun resume {job}"]
    assert f"to continue it: distrun resume {job}" in distrun("status", job).stdout
    repair(distrun)
    done = distrun("resume", job)  # its agent may still be ending the tasks
    assert done.returncode == 0, done.stderr
    assert attempts(distrun, job) == [0, 1]
    assert "TWO AT ONCE" not in distrun("logs", job, "--raw").stdout
    assert not survivors(job)
    assert distrun.status(job)["resume_command"] is None


def test_a_killed_job_continues(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    assert distrun("kill", job).returncode == 0
    repair(distrun)
    failed = distrun("resume", "-d", job, "--set", "hosts=[nowhere.invalid]")
    assert (failed.returncode, failed.stdout) == (69, ""), "it has not started"
    resumed = distrun("resume", "-d", job, "--set", "hosts=[localhost]")
    assert (resumed.returncode, resumed.stdout) == (0, f"{job}\n")
    assert distrun("wait", job).returncode == 0
    assert distrun.status(job)["state"] == "succeeded"


@pytest.mark.parametrize("suspended", [(), ("agent",), ("agent", "guard")], ids=str)
def test_what_the_dead_supervisor_has_left_here_is_ended_first(
    suspended: tuple[str, ...], distrun: Distrun
) -> None:
    job = distrun.detached(
        GUARDED + "[ -e repaired ] && exit 0; trap '' TERM; while :; do sleep 1; done"
    )
    before = [psutil.Process(task["pid"]) for task in distrun.status(job)["tasks"]]
    agent = psutil.Process(distrun.status(job)["hosts"][0]["agent_pid"])
    guard = agent.parent()
    assert guard is not None
    supervisor = psutil.Process(distrun.status(job)["supervisor_pid"])
    supervisor.suspend()
    for name in reversed(suspended):
        {"agent": agent, "guard": guard}[name].suspend()
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: not alive(supervisor))
    repair(distrun)
    done = distrun("resume", job)
    assert done.returncode == 0, done.stderr
    assert not any(map(alive, before))
    assert "TWO AT ONCE" not in distrun("logs", job, "--raw").stdout
    assert not survivors(job)


def test_a_running_job_is_refused_also_while_its_supervisor_is_suspended(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    refused = distrun("resume", job)
    assert refused.returncode == 2
    assert f"job {job} is running" in refused.stderr
    assert f"distrun logs -f {job}" in refused.stderr
    supervisor = psutil.Process(distrun.status(job)["supervisor_pid"])
    supervisor.suspend()
    refused = distrun("resume", job)
    assert refused.returncode == 2
    assert "is suspended" in refused.stderr
    assert f"kill -CONT {supervisor.pid}" in refused.stderr
    supervisor.resume()
    assert attempts(distrun, job) == [0]
    assert distrun("kill", job).returncode == 0


def test_a_job_that_has_succeeded_is_refused(distrun: Distrun) -> None:
    assert distrun.launch("exit 0").returncode == 0
    record = Path(distrun.status()["folder"], "events.jsonl").read_bytes()
    refused = distrun("resume")
    assert refused.returncode == 2
    assert "has succeeded: there is nothing to resume" in refused.stderr
    assert Path(distrun.status()["folder"], "events.jsonl").read_bytes() == record


def test_of_two_resumes_at_once_one_is_refused(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    assert distrun("kill", job).returncode == 0
    both = [distrun.start("resume", "-d", job, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [each.communicate(timeout=60)[1] for each in both]
    assert sorted(each.returncode for each in both) == [0, 2], said
    (loser,) = [text for text, each in zip(said, both, strict=True) if each.returncode]
    assert f"job {job} is" in loser
    assert attempts(distrun, job) == [0, 1]
    assert distrun("kill", job).returncode == 0
    assert "TWO AT ONCE" not in distrun("logs", job, "--raw").stdout


def test_a_torn_last_line_is_dropped_and_the_record_stays_readable(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    kill_supervisor(distrun.status, job)
    wait_until(lambda: not survivors(job))
    record = Path(distrun.status(job)["folder"], "events.jsonl")
    with record.open("ab") as file:
        file.write(b'{"event":"TaskExited","at":17')
    repair(distrun)
    assert distrun("resume", job).returncode == 0
    assert all(json.loads(line) for line in record.read_bytes().splitlines())
    assert distrun.status(job)["state"] == "succeeded"


def test_a_damaged_record_is_refused(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    kill_supervisor(distrun.status, job)
    wait_until(lambda: not survivors(job))
    record = Path(distrun.status(job)["folder"], "events.jsonl")
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(lines[0] + b"#" + b"".join(lines[1:]))
    refused = distrun("resume", job)
    assert refused.returncode == 69
    assert "damaged" in refused.stderr
    assert "it is not known where its tasks may run" in refused.stderr


def test_a_job_whose_plan_was_never_made_continues(distrun: Distrun) -> None:
    busy = {"worker": ["localhost:1"]}  # a port of root
    spec = distrun.write_spec("exit 0", cluster=busy, hosts=["nosuchhost.invalid"], workers=1)
    spec.write_text(spec.read_text().replace("localhost:1", "nosuchhost.invalid:12345"))
    assert distrun("launch", spec).returncode == 69
    assert not distrun.status()["tasks"]
    done = distrun("resume", "--set", "hosts=[localhost]", "--set", "cluster.worker=1")
    assert done.returncode == 0, done.stderr
    assert [(t["task"], t["attempt"]) for t in distrun.status()["tasks"]] == [("worker:0", 0)]


def test_changes_last_and_are_told(distrun: Distrun) -> None:
    script = 'echo "$COLOUR $0 $1"; [ -e repaired ] && exit 0; exit 3'
    spec = distrun.write_spec(script, workers=1)
    assert distrun("launch", spec, "--", "first", "more").returncode == 3
    spec.unlink()  # the job has its own copy
    job = distrun.status()["job_id"]
    assert distrun("resume", job, "--set", "program.env.COLOUR=red").returncode == 3
    repair(distrun)
    done = distrun("resume", job, "--set", "restart.max=4")
    assert done.returncode == 0, done.stderr
    assert "worker:0 | red first more" in done.stdout
    assert "--set program.env.COLOUR=red" in distrun("events", job).stdout
    told = distrun.status(job)
    assert told["resumptions"]["changes"] == ["program.env.COLOUR=red", "restart.max=4"]
    assert told["restarts_left"] == 4
    refused = distrun("resume", job)
    assert refused.returncode == 2


def test_an_invalid_change_is_refused_and_changes_nothing(distrun: Distrun) -> None:
    assert distrun.launch("exit 3").returncode == 3
    record = Path(distrun.status()["folder"], "events.jsonl").read_bytes()
    assert distrun("resume", "--set", "cluster.worker=zero").returncode == 65
    assert distrun("resume", "--set", "name=other").returncode == 2
    assert Path(distrun.status()["folder"], "events.jsonl").read_bytes() == record


def test_more_and_fewer_tasks(distrun: Distrun) -> None:
    assert distrun.launch(UNTIL_REPAIRED).returncode == 3
    assert distrun("resume", "--set", "cluster.worker=3").returncode == 3
    found = {task["task"]: task["attempt"] for task in distrun.status()["tasks"]}
    assert found == {"worker:0": 1, "worker:1": 1, "worker:2": 0}
    repair(distrun)
    assert distrun("resume", "--set", "cluster.worker=1").returncode == 0
    assert [task["task"] for task in distrun.status()["tasks"]] == ["worker:0"]


def test_restarts_are_counted_from_0_again(distrun: Distrun) -> None:
    spec = distrun.write_spec("exit 3", workers=1, restart={"max": 1, "backoff": "10ms"})
    assert distrun("launch", spec).returncode == 3
    job = distrun.status()["job_id"]
    done = distrun("resume", job)
    assert done.returncode == 3
    assert attempts(distrun, job) == [0, 1, 2, 3]
    planned = [e for e in recorded_events(distrun, job) if e["event"] == "RestartPlanned"]
    assert [(e["number"], e["left"]) for e in planned] == [(1, 0), (2, 0)]
    assert "it had been resumed 1 time; it was down for" in done.stderr


@pytest.mark.parametrize(
    ("changes", "code", "kind"),
    [
        (["hosts=[host.invalid]"], 69, "host"),
        (["hosts=[host.invalid]", "ssh.options.ProxyCommand=sleep 600", "timeouts.start=2s"],
         75, "host"),
        (["cluster.worker=[localhost:1, localhost:1]"], 65, None),
    ],
)  # fmt: skip
def test_a_resume_that_starts_nothing_has_a_verdict_of_its_own(
    distrun: Distrun, changes: list[str], code: int, kind: str | None
) -> None:
    assert distrun.launch("exit 4").returncode == 4
    earlier = distrun.status()["verdict"]
    assert earlier["kind"] == "exit"
    done = distrun("resume", *(word for each in changes for word in ("--set", each)))
    assert done.returncode == code, done.stderr
    job, told = distrun.status(), distrun("status").stdout
    page = distrun.cwd / "page.html"
    assert distrun("report", "-o", page).returncode == 0
    if kind is None:  # it was refused, and nothing has happened to the job
        assert job["exit_code"] == 4
        assert job["verdict"] == earlier
        return
    assert job["exit_code"] == code
    assert job["verdict"] is None or job["verdict"]["kind"] != "exit"
    assert job["outcome"]["verdict"] == job["verdict"]
    assert "exit code 4" not in told.partition("TASK")[0]
    assert "exit code 4" not in done.stderr
    waited = distrun("wait", job["job_id"])
    assert waited.returncode == code
    assert "exit code 4" not in waited.stderr


def test_a_resume_that_ctrl_c_ends_before_the_start_has_no_verdict(distrun: Distrun) -> None:
    assert distrun.launch("exit 4").returncode == 4
    hangs = ["--set", "hosts=[host.invalid]", "--set", "ssh.options.ProxyCommand=sleep 600"]
    process = distrun.start("resume", *hangs)
    wait_until(lambda: distrun.status()["state"] == "preparing")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert distrun.status()["exit_code"] == 130
    assert distrun.status()["verdict"] is None


def test_a_full_disk_refuses_the_resume_and_the_record_is_unchanged(
    small_disk: Path, distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk))
    assert distrun.launch("exit 3", workers=1).returncode == 3
    (record,) = small_disk.glob("jobs/*/events.jsonl")
    before = record.read_bytes()
    with (small_disk / "full").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    refused = distrun("resume")
    assert refused.returncode == 69
    assert "the job's record" in refused.stderr
    assert "No space left" in refused.stderr
    assert record.read_bytes() == before
    (small_disk / "full").unlink()
    assert distrun("resume").returncode == 3


def test_a_job_of_another_user_is_refused(distrun: Distrun) -> None:
    need_root("only root can give a folder away")
    assert distrun.launch("exit 3", workers=1).returncode == 3
    job = distrun.status()
    os.chown(job["folder"], 12345, 12345)
    refused = distrun("resume", job["job_id"])
    assert refused.returncode == 2
    assert "belongs to another user" in refused.stderr
    assert attempts(distrun, job["job_id"]) == [0]


@pytest.mark.parametrize(
    ("moment", "signals"),
    [("JobResumed", 2), ("HostReady", 1), ("JobPlanned", 2), ("TaskStarted", 1)],
)
def test_ctrl_c_at_each_point_of_a_resume(moment: str, signals: int, distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    kill_supervisor(distrun.status, job)
    record = Path(distrun.status(job)["folder"], "events.jsonl")
    resumed = distrun.start("resume", job, stdout=-3, stderr=-3)

    def has_come() -> bool:
        text = record.read_text()
        return f'"event":"{moment}"' in text[text.find('"event":"JobResumed"') :]

    wait_until(has_come, interval=0.001)
    for _ in range(signals):
        resumed.send_signal(signal.SIGINT)
    assert resumed.wait(30) == 130
    assert distrun.status(job)["state"] == "stopped"
    assert not survivors(job)
    repair(distrun)
    assert distrun("resume", job).returncode == 0
    assert "TWO AT ONCE" not in distrun("logs", job, "--raw").stdout


def test_kill_ends_a_resumed_job_and_wait_and_logs_follow_it(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    kill_supervisor(distrun.status, job)
    assert distrun("resume", "-d", job).returncode == 0
    waiting = distrun.start("wait", job, stdout=-3, stderr=-3)
    logs = distrun.start("logs", "-f", job, stdout=-3, stderr=-3)
    assert distrun("kill", job).returncode == 0
    assert waiting.wait(30) == 137
    assert logs.wait(30) == 0
    assert not survivors(job)


def test_the_supervisor_is_killed_again_while_the_job_is_resumed(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    for _ in range(3):
        kill_supervisor(distrun.status, job)
        assert distrun("resume", "-d", job).returncode == 0
    assert attempts(distrun, job) == [0, 1, 2, 3]
    kill_supervisor(distrun.status, job)
    repair(distrun)
    assert distrun("resume", job).returncode == 0
    assert "TWO AT ONCE" not in distrun("logs", job, "--raw").stdout


def test_resume_lost_takes_up_all_lost_jobs_and_no_other(distrun: Distrun) -> None:
    lost = [distrun.detached(SLEEPS, name=f"lost{n}") for n in range(3)]
    running = distrun.detached("exec sleep 600", name="running")
    assert distrun.launch("exit 3", name="failed").returncode == 3
    killed = distrun.detached("exec sleep 600", name="killed")
    assert distrun("kill", killed).returncode == 0
    for job in lost:
        kill_supervisor(distrun.status, job)
    repair(distrun)
    done = distrun("launch", "--resume-lost")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(lost)
    for job in lost:
        assert distrun("wait", job).returncode == 0
        assert attempts(distrun, job) == [0, 1]
    assert distrun.status(killed)["state"] == "stopped"
    assert distrun.status(running)["state"] == "running"
    assert distrun.status("failed")["resumed"] == 0
    again = distrun("launch", "--resume-lost")
    assert (again.returncode, again.stdout) == (0, "")
    assert distrun("kill", running).returncode == 0


def test_resume_lost_tells_of_a_job_that_it_cannot_take_up_and_takes_up_the_others(
    distrun: Distrun,
) -> None:
    bad, good = distrun.detached(SLEEPS, name="bad"), distrun.detached(SLEEPS, name="good")
    for job in (bad, good):
        kill_supervisor(distrun.status, job)
    wait_until(lambda: not survivors(bad))
    with Path(distrun.status(bad)["folder"], "events.jsonl").open("ab") as file:
        file.write(b"#\n")
    repair(distrun)
    done = distrun("launch", "--resume-lost")
    assert done.returncode == 69
    assert bad in done.stderr
    assert done.stdout.split() == [good]
    assert distrun("wait", good).returncode == 0


def test_resume_lost_takes_nothing_else(distrun: Distrun) -> None:
    for args in ((str(distrun.write_spec("exit 0")),), ("-d",), ("--set", "restart.max=1")):
        assert distrun("launch", "--resume-lost", *args).returncode == 2
    assert distrun("launch").returncode == 2


def test_clean_does_not_remove_a_job_that_is_resumed(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    assert distrun("kill", job).returncode == 0
    folder = JobStore(distrun.home).find(job)
    assert distrun("resume", "-d", job).returncode == 0
    with pytest.raises(BlockingIOError):
        folder.remove()
    assert distrun.status(job)["state"] == "running"
    assert distrun("kill", job).returncode == 0


def test_steps_that_are_trained_again_are_told(distrun: Distrun) -> None:
    notify = (
        'python3 -c "import os,socket;s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM);'
        "a=os.environ['DISTRUN_NOTIFY'];s.sendto(b'STEP=%d',a.replace('@',chr(0),1))\""
    )
    script = f"if [ -e repaired ]; then {notify % 41}; sleep 0.3; exit 0; fi; {notify % 50}; exit 3"
    assert distrun.launch(script, workers=1).returncode == 3
    assert distrun.status()["tasks"][0]["progress"] == {"STEP": 50}
    repair(distrun)
    done = distrun("resume")
    assert done.returncode == 0, done.stderr
    assert "worker:0 trains again at step 41, " in done.stderr
    assert " after step 50: 10 steps repeated" in done.stderr
    assert distrun.status()["resumptions"]["repeated_steps"] == 10
    assert "10 steps trained again" in distrun("status").stdout


def test_the_unit_for_systemd_resumes_at_boot(distrun: Distrun) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "resume.md").read_text()
    unit = page.partition("```ini\n")[2].partition("```")[0]
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert (settings["Type"], settings["RemainAfterExit"]) == ("oneshot", "yes")
    # As systemd does it: %h is the home folder, and hardly anything is in the environment.
    tool = distrun.cwd / ".local" / "bin" / "distrun"
    tool.parent.mkdir(parents=True)
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m distrun "$@"\n')
    tool.chmod(0o755)
    command = settings["ExecStart"].replace("%h", str(distrun.cwd)).split()
    if shutil.which("systemd-analyze"):
        file = distrun.cwd / "distrun.service"
        file.write_text(unit.replace("%h", str(distrun.cwd)))
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", file], capture_output=True, check=False
        )
        assert b"distrun.service" not in verified.stderr, verified.stderr
    job = distrun.detached(SLEEPS)
    kill_supervisor(distrun.status, job)
    repair(distrun)
    names = ("DISTRUN_HOME", "PYTHONPATH")
    done = subprocess.run(
        command,
        env={
            "HOME": str(distrun.cwd),
            "PATH": "/usr/bin:/bin",
            **{n: os.environ[n] for n in names},
        },
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{job}\n"
    assert distrun("wait", job).returncode == 0
    assert attempts(distrun, job) == [0, 1]

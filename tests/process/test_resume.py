"""`distrun resume`: what it continues, what it refuses, and that no two attempts live at once."""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun, recorded_events, write_program
from harness.disks import fill
from harness.parts.records import JobStore
from harness.processes import alive, captured, survivors
from harness.waiting import wait_until

# A second attempt beside the first one could not lock the file.
GUARDED = """\
exec 9>lock-$DISTRUN_JOB_ID-$DISTRUN_TASK; flock -n 9 || { echo TWO AT ONCE; exit 9; }
echo attempt $DISTRUN_ATTEMPT; touch up-$DISTRUN_TASK-$DISTRUN_ATTEMPT
"""
ALL_ARE_UP = (  # the attempts of a worker that is new have other numbers
    "touch in-$DISTRUN_WORLD_SIZE-$DISTRUN_TASK; "
    "until set -- in-$DISTRUN_WORLD_SIZE-*; [ $# -ge $DISTRUN_WORLD_SIZE ]; do sleep 0.02; done"
)
UNTIL_REPAIRED = GUARDED + f"[ -e repaired ] && exit 0; {ALL_ARE_UP}; exit 3"
SLEEPS = GUARDED + "[ -e repaired ] && exit 0; setsid sleep 600 & exec sleep 600"


def attempts(distrun: Distrun, job: str, task: str = "worker:0") -> list[int]:
    events = recorded_events(distrun, job)
    return [e["attempt"] for e in events if e["event"] == "TaskStarted" and e["task"] == task]


def kill_supervisor(distrun: Distrun, job: str) -> None:
    supervisor = psutil.Process(distrun.status(job)["supervisor_pid"])
    supervisor.kill()
    wait_until(lambda: not alive(supervisor))


def record_of(distrun: Distrun, job: str) -> Path:
    return distrun.home / "jobs" / job / "events.jsonl"


def repair(distrun: Distrun) -> None:
    (distrun.cwd / "repaired").touch()


def none_were_two_at_once(distrun: Distrun, job: str) -> bool:
    return "TWO AT ONCE" not in distrun.asked("logs", job, "--raw") and not survivors(job)


def test_a_failed_job_continues_with_changes_that_last(distrun: Distrun) -> None:
    spec = distrun.write_spec(f'echo "$COLOUR $0 $1"; {UNTIL_REPAIRED}')
    assert distrun("launch", spec, "--", "first", "more").returncode == 3
    spec.unlink()  # the job has its own copy
    job, verdict = distrun.status()["job_id"], distrun.status()["verdict"]
    record = record_of(distrun, job)
    before = record.read_bytes()
    for change, code in (("cluster.worker=zero", 65), ("name=other", 2)):
        assert distrun("resume", "--set", change).returncode == code
    assert record.read_bytes() == before
    assert (distrun.status()["exit_code"], distrun.status()["verdict"]) == (3, verdict)

    first = ["--set", "program.env.COLOUR=red", "--set", "cluster.worker=3"]
    second = ["--set", "restart.max=4", "--set", "cluster.worker=2"]
    assert "distrun resume -d -- --lr" in distrun.told(2, "resume", "-d", "--lr", "1")
    assert "follow `--`" in distrun.told(2, "resume", job, "new")
    assert distrun("resume", job, *first).returncode == 3
    found = [(task["task"], task["attempt"]) for task in distrun.status()["tasks"]]
    assert found == [("worker:0", 1), ("worker:1", 1), ("worker:2", 0)]
    repair(distrun)
    done = distrun.checked("resume", job, *second, "--", "new", "--lr")
    # Only the output since the resume is shown, and all of it is in the same log.
    assert "attempt 1" not in done.stdout
    assert "worker:1 | attempt 2" in done.stdout
    assert "worker:0 | red new --lr" in done.stdout
    assert "<summary>worker:2</summary>" in distrun.asked("report", "-t", "worker:2", "-o", "-")
    text = distrun.asked("logs", job, "-t", "worker:0", "--raw").splitlines()
    numbers = attempts(distrun, job)
    assert [it for it in text if it.startswith("attempt")] == [f"attempt {n}" for n in numbers]
    assert numbers[-1] == 2
    after = distrun.status(job)
    assert (after["job_id"], after["state"], after["resumed"]) == (job, "succeeded", 2)
    assert after["resumptions"]["changes"] == [*first[1::2], *second[1::2], "-- new --lr"]
    assert (after["restarts_left"], len(after["tasks"])) == (4, 2)
    assert len(JobStore(distrun.home).folders()) == 1
    before = record.read_bytes()
    assert "there is nothing to resume" in distrun.told(2, "resume")
    assert record.read_bytes() == before


def test_a_job_whose_folder_has_moved_is_resumed_there(distrun: Distrun) -> None:
    old, new = distrun.cwd / "old", distrun.cwd / "new"
    old.mkdir()
    (old / "loop.sh").write_text("[ -e repaired ] || exit 3")
    (old / "job.yaml").write_text(
        "cluster: {worker: 1}\nstrategy: default\nprogram: {command: [sh, ./loop.sh], workdir: .}\n"
    )
    assert distrun("launch", "job.yaml", cwd=old).returncode == 3
    old.rename(new)
    (new / "repaired").touch()
    said = distrun.told(2, "resume", cwd=new)
    assert "which is gone" in said
    command = re.search(r"distrun (resume .*)", said)
    assert command is not None
    assert distrun(*command[1].split(), cwd=new).returncode == 0
    assert distrun.status()["resumed"] == 1


def test_a_lost_job_is_listed_with_its_command_and_continues(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    kill_supervisor(distrun, job)
    refused = distrun.told(2, "resume", job, "--assume-dead", "h7")
    assert "may be left on localhost" in refused
    record = record_of(distrun, job)
    resumed = distrun.start("resume", job, stdout=-3, stderr=-3)
    wait_until(lambda: record.read_text().count('"event":"JobPlanned"') == 2, interval=0.001)
    resumed.send_signal(signal.SIGINT)
    assert resumed.wait(30) == 130
    assert distrun.status(job)["state"] == "stopped"
    assert not survivors(job)
    assert distrun("resume", "-d", job).returncode == 0
    kill_supervisor(distrun, job)
    assert f"to continue it: distrun resume {job}" in distrun("ps", "-a").stderr
    rows = json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]
    found = [(row["resume_command"], row["running_task_count"]) for row in rows]
    assert found == [(f"distrun resume {job}", 0)]
    with record.open("ab") as file:  # the last line is torn
        file.write(b'{"event":"TaskExited","at":17')
    repair(distrun)
    distrun.checked("resume", job)  # its agent may still be ending the tasks
    assert all(json.loads(line) for line in record.read_bytes().splitlines())
    assert none_were_two_at_once(distrun, job)
    assert distrun.status(job)["resume_command"] is None


def test_what_failed_before_a_restart_is_not_why_it_is_lost(distrun: Distrun) -> None:
    fails_once = "case $DISTRUN_TASK.$DISTRUN_ATTEMPT in worker:1.0) exit 3;; esac; exec sleep 600"
    job = distrun.detached(fails_once, restart={"max": 1, "backoff": "50ms"})
    wait_until(lambda: {each["attempt"] for each in distrun.status(job)["tasks"]} == {1})
    wait_until(lambda: distrun.status(job)["state"] == "running")
    before = distrun.asked("status", job)
    kill_supervisor(distrun, job)
    for shown in (before, distrun.asked("status", job)):
        assert "\n  earlier       worker:1 exited 3" in shown
        assert "\n  cause " not in shown


def test_a_killed_job_continues_once_and_is_a_running_job_again(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    assert distrun("kill", job).returncode == 0
    folder = JobStore(distrun.home).find(job)
    both = [distrun.start("resume", "-d", job, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [each.communicate(timeout=60) for each in both]
    assert sorted(each.returncode for each in both) == [0, 2], said
    assert sorted(stdout for stdout, _ in said) == ["", f"{job}\n"]
    (loser,) = [text for (_, text), each in zip(said, both, strict=True) if each.returncode]
    assert f"job {job} is" in loser

    refused = distrun.told(2, "resume", job)
    assert f"job {job} is running" in refused
    assert f"distrun logs -f {job}" in refused
    supervisor = psutil.Process(distrun.status(job)["supervisor_pid"])
    supervisor.suspend()
    refused = distrun.told(2, "resume", job)
    assert ", suspended)" in refused
    assert f"kill -CONT {supervisor.pid}" in refused
    supervisor.resume()
    with pytest.raises(BlockingIOError):
        folder.remove()
    assert attempts(distrun, job) == [0, 1]

    assert distrun("kill", job).returncode == 0
    assert distrun("wait", job).returncode == 137
    assert none_were_two_at_once(distrun, job)


def test_what_the_dead_supervisor_has_left_here_is_ended_first(distrun: Distrun) -> None:
    job = distrun.detached(
        GUARDED + "[ -e repaired ] && exit 0; trap '' TERM; while :; do sleep 1; done"
    )
    before = [psutil.Process(task["pid"]) for task in distrun.status(job)["tasks"]]
    ours = [psutil.Process(distrun.victim_of(who, None)) for who in ("guard", "agent")]
    for process in ours:
        process.suspend()
    kill_supervisor(distrun, job)
    repair(distrun)
    distrun.checked("resume", job)
    assert not any(map(alive, before))
    assert none_were_two_at_once(distrun, job)


def test_each_resume_has_restarts_and_a_verdict_of_its_own(distrun: Distrun) -> None:
    """Also after a launch that has made no plan, and if it starts nothing."""
    spec = distrun.write_spec(
        "exit 4",
        restart={"max": 1, "backoff": "10ms"},
        cluster={"worker": ["nosuchhost.invalid:12345"]},
        hosts=["nosuchhost.invalid"],
    )
    assert distrun("launch", spec).returncode == 69
    assert not distrun.status()["tasks"]
    job = distrun.status()["job_id"]
    here = ("--set", "hosts=[localhost]", "--set", "cluster.worker=1")
    assert distrun("resume", *here).returncode == 4
    assert distrun.status()["verdict"]["kind"] == "exit"
    done = distrun("resume", job)
    assert (done.returncode, attempts(distrun, job)) == (4, [0, 1, 2, 3])
    planned = [e for e in recorded_events(distrun, job) if e["event"] == "RestartPlanned"]
    assert [(e["number"], e["left"]) for e in planned] == [(1, 0), (2, 0)]
    assert "it had been resumed 2 times with --set hosts" in done.stderr

    refused = distrun.told(69, "resume", "-d", "--set", "hosts=[host.invalid, localhost]")
    assert f"without it    distrun resume {job} --set 'hosts=[localhost]'\n" in refused
    after = distrun.status()
    assert (after["exit_code"], after["verdict"]["kind"]) == (69, "host_unknown")
    assert after["outcome"]["verdict"] == after["verdict"]
    waited = distrun.told(69, "wait", job)
    for said in (distrun.asked("status").partition("TASK")[0], refused, waited):
        assert "exit code 4" not in said

    hangs = ("--set", "ssh.options.ProxyCommand=sleep 600", "--set", "ssh.connect_timeout=10m")
    process = distrun.start("resume", *hangs)
    wait_until(lambda: distrun.status()["state"] == "preparing")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, "the login was waited for"
    assert (distrun.status()["exit_code"], distrun.status()["verdict"]) == (130, None)


def test_a_full_disk_or_another_user_refuses_and_the_record_is_unchanged(
    small_disk: Path, distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk))
    assert distrun.launch("exit 3", workers=1).returncode == 3
    folder = Path(distrun.status()["folder"])
    before = (folder / "events.jsonl").read_bytes()
    os.chown(folder, 12345, 12345)
    assert "belongs to another user" in distrun.told(2, "resume")
    os.chown(folder, 0, 0)
    fill(small_disk)
    refused = distrun.told(69, "resume")
    assert "the job's record" in refused
    assert "No space left" in refused
    assert (folder / "events.jsonl").read_bytes() == before


def systemd_command(folder: Path) -> list[str]:
    """What the page's unit for systemd starts at boot; %h is the home folder."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "resume.md").read_text()
    unit = page.partition("```ini\n")[2].partition("```")[0]
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert (settings["Type"], settings["RemainAfterExit"]) == ("oneshot", "yes")
    tool = folder / ".local" / "bin" / "distrun"
    write_program(tool, f'#!/bin/sh\nexec {sys.executable} -m distrun "$@"\n')
    return settings["ExecStart"].replace("%h", str(folder)).split()


def test_at_boot_all_lost_jobs_are_taken_up_and_no_other(distrun: Distrun) -> None:
    lost, other, bad = (distrun.detached(SLEEPS, name=n, workers=1) for n in ("lost", "x", "bad"))
    assert distrun.launch("exit 3", name="failed", workers=1).returncode == 3
    for job in (lost, bad):
        kill_supervisor(distrun, job)
    wait_until(lambda: not survivors(bad))
    record = record_of(distrun, bad)
    record.write_bytes(record.read_bytes().replace(b"\n", b"\n#", 1))
    refused = distrun.told(69, "resume", bad)
    assert "damaged" in refused
    assert "it is not known where its tasks may run" in refused
    repair(distrun)
    # As systemd does it: hardly anything is in the environment.
    env = {name: os.environ[name] for name in ("DISTRUN_HOME", "PYTHONPATH")}
    done = captured(
        systemd_command(distrun.cwd),
        env={"HOME": str(distrun.cwd), "PATH": "/usr/bin:/bin", **env},
        cwd="/",
    )
    assert (done.returncode, done.stdout.split()) == (69, [lost])
    assert bad in done.stderr
    assert (distrun("wait", lost).returncode, attempts(distrun, lost)) == (0, [0, 1])
    assert distrun.status(other)["state"] == "running"
    assert distrun.status("failed")["resumed"] == 0
    shutil.rmtree(record.parent)
    distrun.told(0, "launch", "--resume-lost")
    for args in ((str(distrun.write_spec("exit 0")),), ("-d",), ("--set", "restart.max=1")):
        assert distrun("launch", "--resume-lost", *args).returncode == 2
    assert distrun("launch").returncode == 2
    assert distrun("kill", other).returncode == 0

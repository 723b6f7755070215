"""Jobs for Slurm: the batch script, and its commands that are missing, slow, or tell of an end."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import distrun as package
from harness.command import Distrun, write_program
from harness.parts.cli import batch_run
from harness.parts.job import Outcome, left, resumption
from harness.parts.lifecycle import JobState
from harness.parts.protocol import Cause, Code
from harness.parts.records import JobStore
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

SPEC = """\
name: job
strategy: multi_worker_mirrored
cluster: {worker: 2}
program: {command: [sh, -c, exit]}
slurm: {partition: gpu, requeue: true, options: {comment: 'a "b" \\c', hold: true}}
"""


class FakeSlurm:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.says("sbatch", "cat >> $0.log; echo '7;c'; echo It costs 3 units")
        self.says("squeue", "echo CLUSTER: c; echo '7|PENDING|2026-01-02T03:04:05|N/A|Priority'")
        self.says("sacct", "exit 1")

    def says(self, name: str, script: str) -> None:
        write_program(self.folder / name, f"#!/bin/sh\n{script}\n")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{fake.folder}:/usr/bin:/bin")
    return fake


@pytest.fixture
def job_id(slurm: FakeSlurm, distrun: Distrun) -> str:
    (distrun.cwd / "job.yaml").write_text(SPEC)
    done = distrun.checked("submit", distrun.cwd / "job.yaml")
    assert "pending in Slurm as job 7 (Priority); it starts at about" in done.stderr
    return str(done.stdout.strip())


def state(distrun: Distrun, job_id: str) -> str:
    return str(distrun.status(job_id)["state"])


def test_the_script_has_what_the_spec_asks_for(slurm: FakeSlurm, job_id: str) -> None:
    script = (slurm.folder / "sbatch.log").read_text()
    of_job = ("job-name=job", "nodes=2", "partition=gpu", "requeue", "signal=B:TERM@120", "hold")
    for line in (*of_job, 'comment="a \\"b\\" \\\\c"'):
        assert f"\n#SBATCH --{line}\n" in script
    last = script.rstrip().splitlines()[-1]
    assert re.match(rf"exec .*\bbatch-run\b.* --job {job_id}\b", last)


ENDS = [
    ("TIMEOUT", 69, "at the time limit of job 7", "failed"),
    ("CANCELLED", 143, "was cancelled in Slurm", "stopped"), ("FAILED", 69, "_HOME", "failed"),
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_what_ended_a_job_before_it_wrote_anything_is_told(
    slurm: FakeSlurm, distrun: Distrun, job_id: str, end: tuple[str, int, str, str]
) -> None:
    answer, code, words, left = end
    slurm.says("squeue", "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1")
    slurm.says("sacct", f"echo '7|{answer} by 1000|2026-01-02T03:04:05|Unknown|None'")
    waited = distrun("wait", job_id)
    assert (waited.returncode, words in waited.stderr) == (code, True)
    assert state(distrun, job_id) == left


def test_a_job_slurm_has_forgotten_is_lost(
    slurm: FakeSlurm, distrun: Distrun, job_id: str, terminal: OpenTerminal
) -> None:
    slurm.says("squeue", "echo >> $0.log")
    assert state(distrun, job_id) == "stopped", "it never began: it was cancelled"
    (distrun.home / "jobs" / job_id / "batch.log").touch()
    assert (distrun.status()["state"], state(distrun, job_id)) == ("lost", "lost")
    assert len((slurm.folder / "squeue.log").read_text()) == 3, "each command asks once"
    waited = distrun("wait", job_id)
    assert (waited.returncode, "Slurm no longer knows job 7" in waited.stderr) == (69, True)
    assert "Slurm no longer knows its job 7" in distrun.asked("status", job_id)
    killed = distrun("kill", job_id)
    lost = f"job {job_id} is lost: Slurm does not know it any more"
    assert (killed.returncode, lost in killed.stderr) == (2, True)
    with pytest.raises(package.UsageError, match=lost):
        package.job(job_id).kill()
    distrun.checked("run", "--name", "job", "true")
    assert job_id not in distrun("kill", "job").stderr, "it does not run"
    assert job_id not in distrun.asked("status"), "it is neither the newest job nor a running one"
    assert "only --set and" in distrun.told(2, "resume", job_id, "--strict")
    asked = terminal("clean")
    wait_until(lambda: asked.text().endswith("[y/N] "))
    distrun.checked("resume", job_id, "--set=slurm.time=3h", "--", "a b")
    assert "#SBATCH --time=180" in (slurm.folder / "sbatch.log").read_text()
    assert resumption.recorded_spec(JobStore(distrun.home).find(job_id)).program.args == ("a b",)
    slurm.says("squeue", "echo '7|PENDING|N/A|N/A|Priority'")
    asked.type("y\r")
    assert asked.finish() == 0
    assert distrun("clean", "--all").stdout == "", "it waits in the queue"
    assert state(distrun, job_id) == "pending"
    slurm.says("squeue", "echo '7|RUNNING|2026-01-02T03:04:05|N/A|None'")
    assert state(distrun, job_id) == "preparing"
    slurm.says("squeue", "echo '7|SUSPENDED|2026-01-02T03:04:05|N/A|None'")
    assert "to let it continue: scontrol resume 7" in distrun.told(69, "stacks", job_id)


def test_without_slurm_nothing_is_left_of_a_submission(slurm: FakeSlurm, distrun: Distrun) -> None:
    (distrun.cwd / "job.yaml").write_text(SPEC)
    distrun.checked("validate", "job.yaml", "--set=hosts=slurm")
    launched = distrun.told(65, "launch", "job.yaml", "--set=hosts=slurm")
    assert "not a Slurm allocation; queue the job with `distrun submit` (`distrun run" in launched
    assert distrun("run", "-n", "auto", "true").returncode == 65
    distrun.checked("run", "--print-spec", "-n", "2", "--on", "slurm", "true")
    slurm.says("sbatch", "case $1 in --parsable) echo full >&2; exit 1;; esac")
    assert "sbatch failed (code 1): full" in distrun.told(69, "submit", distrun.cwd / "job.yaml")
    for said in ("Requested node configuration is not available", "invalid partition specified"):
        slurm.says("sbatch", f"echo {said} >&2; exit 1")
        assert "sinfo" in distrun.told(69, "submit", distrun.cwd / "job.yaml")
    assert "distrun run --print-spec train.py > job.yaml" in distrun.told(2, "submit", "train.py")
    wanted = ("--set=cluster.worker={count: 2, gpus: 3}", "--set=program.pass_env=[OF_SETUP]")
    prepared = "--set=slurm.setup=[export OF_SETUP=1]"
    told = distrun.checked("submit", "job.yaml", "--dry-run", *wanted, prepared).stderr
    assert "asked for none; write slurm.gpus_per_node: 3" in told
    assert "not set here" in distrun.told(65, "submit", "job.yaml", *wanted)
    assert json.loads(distrun.asked("ps", "-a", "--json"))["jobs"] == []
    inside = distrun.checked("run", "-n2", "true", env={**os.environ, "SLURM_JOB_NUM_NODES": "3"})
    assert "this Slurm allocation has 3 nodes; to use them: --set hosts=slurm" in inside.stderr


def queue_of(slurm: FakeSlurm, state: str) -> None:
    """Let scancel end a job that squeue shows in that state."""
    slurm.says("scancel", "echo $* >>$0.log")
    line = "'7|%s|2026-01-02T03:04:05|N/A|None'"
    cancelled, waits = line % "CANCELLED", line % state
    slurm.says("squeue", f"if test -e $(dirname $0)/scancel.log; then echo {cancelled}; "
                         f"else echo {waits}; fi")  # fmt: skip


@pytest.mark.parametrize("state_of_slurm", ["PENDING", "OF_A_LATER_VERSION"])
def test_a_queued_job_that_is_killed_has_left_the_queue(
    state_of_slurm: str, slurm: FakeSlurm, job_id: str, distrun: Distrun
) -> None:
    queue_of(slurm, state_of_slurm)
    done = distrun("kill", job_id, "--grace", "0s")
    assert (done.returncode, "has ended" in done.stderr) == (0, True)
    assert (slurm.folder / "scancel.log").exists()
    assert state(distrun, job_id) == "stopped"
    folder = JobStore(distrun.home).find(job_id)
    assert left(folder) is not None
    distrun.checked("resume", job_id)
    assert left(folder) is None, "it would be stopped at its start"


GO_BACK = [("RUNNING", True, True), ("COMPLETING", True, False), ("CANCELLED", False, False)]


@pytest.mark.parametrize(("state", "goes_back", "by_distrun"), GO_BACK)
def test_what_scancel_has_ended_does_not_go_back_to_the_queue(
    state: str, goes_back: bool, by_distrun: bool, slurm: FakeSlurm, job_id: str, distrun: Distrun
) -> None:
    slurm.says("squeue", f"echo '7|{state}|2026-01-02T03:04:05|N/A|None'")
    slurm.says("scontrol", f"echo $* >>$0.log; echo JobId=7 Restarts={int(goes_back)}")
    folder = JobStore(distrun.home).find(job_id)
    cause, silent = Cause(Code.SLURM_PREEMPTED, name="7"), Cause(Code.HOST_SILENT_TOO_LONG)
    assert batch_run._interruption(JobState(outcome=Outcome.stopped(69, silent))) == silent
    batch_run._requeue(folder, resumption.recorded_spec(folder), "7", cause)
    assert ("requeue" in (slurm.folder / "scontrol.log").read_text()) is by_distrun
    assert ("again: Slurm preempted job 7" in distrun.asked("events", job_id)) is goes_back


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_job_whose_submission_died_is_looked_for_in_the_queue(
    is_recorded: bool, slurm: FakeSlurm, job_id: str, distrun: Distrun
) -> None:
    folder = distrun.home / "jobs" / job_id
    (folder / "batch.json").unlink()
    if not is_recorded:
        (folder / "events.jsonl").unlink()
    queue_of(slurm, "PENDING")
    done = distrun("kill", job_id)
    assert done.returncode == (0 if is_recorded else 69), done.stderr
    assert (slurm.folder / "scancel.log").exists() is is_recorded
    if not is_recorded:
        with pytest.raises(package.HostError, match="not known whether Slurm has queued"):
            package.job(job_id).kill()


ONE_WORKER = (
    'name: j\nstrategy: multi_worker_mirrored\ncluster: {worker: 1}\nprogram: {command: ["true"]}\n'
)
NAMES = (
    *(b"a b  c", b"a\nb", b"a\n#SBATCH --output=x\nb", b"a\ntouch owned\nb", b"a\rb", b"it's"),
    *(b'say "x"', b"$(touch owned)`touch owned`${HOME}", b"a\\nb\\", b"a\xff\xfeb", b"--help"),
    *("Jürgen 数据".encode(), b"a\x1b[31mred\x1b]0;title\x07", b"%j-%x", b"*?[a]{b,c}~!#&;|<>"),
    b"a\n",
)
FOLDER = os.fsdecode(b"/".join([*NAMES, b"a" * 250]))


def written(distrun: Distrun, *args: str, cwd: Path | None = None) -> bytes:
    done = distrun.checked(
        "submit", "job.yaml", "--dry-run", *args, text=False, cwd=cwd or distrun.cwd
    )
    return bytes(done.stdout)


def run(script: bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script as Slurm does, but in no allocation: distrun ends soon."""
    env = {**os.environ, "SLURM_JOB_ID": "7", **variables}
    return subprocess.run(
        ["bash"], input=script, capture_output=True, env=env, cwd="/", timeout=60, check=False
    )


def test_any_name_of_a_folder_works(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the names is that of a folder above the job's, and above DISTRUN_HOME."""
    folder, home = distrun.cwd / FOLDER, distrun.cwd / f"home {FOLDER}"
    folder.mkdir(parents=True)
    home.mkdir(mode=0o700, parents=True)
    (folder / "job.yaml").write_text(ONE_WORKER)
    monkeypatch.setenv("DISTRUN_HOME", str(home))
    script = written(distrun, "--name=-x", "--set=program.args=[--help]", cwd=folder)
    assert script.isascii()
    assert all(line.decode().isprintable() for line in script.splitlines())
    # On this machine, as there is no allocation.
    done = run(script.replace(b" --set=hosts=slurm", b""), DISTRUN_HOME="/nowhere")
    assert done.returncode == 0, done.stderr
    (job,) = (home / "jobs").iterdir()
    assert job.name.endswith("-7"), "it has become the job of Slurm's number"
    assert (job / "spec.yaml").read_text() == ONE_WORKER
    assert not list(distrun.cwd.rglob("owned"))


def test_it_imports_nothing_of_the_job(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    (distrun.cwd / "job.yaml").write_text(ONE_WORKER)
    script = written(distrun)
    for module in ("click", "distrun", "sitecustomize", "linecache"):
        owned = str(distrun.cwd / f"owned-{module}")
        (distrun.cwd / f"{module}.py").write_text(f"open({owned!r}, 'w').close()\n")
    monkeypatch.delenv("PYTHONPATH")
    for python_path in (None, "."):
        done = run(script, **({} if python_path is None else {"PYTHONPATH": python_path}))
        assert b"Traceback" not in done.stderr
        assert b"distrun: " in done.stderr
        assert not list(distrun.cwd.glob("owned*")), python_path

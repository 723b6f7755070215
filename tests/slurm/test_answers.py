"""What Slurm's commands answer: other versions and sites, or nothing that is expected.

There is no accounting on the tests' cluster, and no cgroup confines its memory: programs in place
of Slurm's commands give the answers that both give elsewhere.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.command import write_program
from harness.parts.hosts import SrunReach
from harness.parts.linux import fingerprint
from harness.parts.protocol import Cause, Code
from harness.parts.records import BatchJob, JobFolder, MissingCommandError, SchedulerError
from harness.parts.settings import SlurmNode
from harness.parts.slurm import allocation, batch_job, commands, step_end
from harness.parts.top import UsageError
from harness.values import not_none

Provide = Callable[[str, str], None]
STEP = "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-01-01T00:00:00"
JOB = "JobId=7 JobState=RUNNING NodeList={} NumNodes=1   {} MinCPUsNode=2"


@pytest.fixture
def provide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Provide:
    """Have a shell script found in place of a command; no other command of Slurm is found."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(name: str, script: str) -> None:
        write_program(tmp_path / name, f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")

    return write


def test_a_command_that_is_missing_slow_or_fails_is_told(provide: Provide) -> None:
    with pytest.raises(MissingCommandError, match=r"squeue was not found.*PATH"):
        commands.run("squeue", "-h")
    provide("squeue", "exec sleep 600")
    with pytest.raises(SchedulerError, match=r"squeue has not answered within 0\.2 s"):
        commands.run("squeue", limit=0.2)
    provide("squeue", "echo 'it is off' >&2; exit 1")
    with pytest.raises(commands.FailedCommandError, match="it is off") as failed:
        commands.run("squeue", "-h")
    assert failed.value.exit_code == 69
    provide("sinfo", "echo 'a*|1:00:00'; echo 'b|infinite'")
    assert [*map(batch_job.longest, (None, "a", "b", "a,b"))] == [3600.0, 3600.0, None, None]


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("GRES=gpu(IDX:0)", 1), ("GRES=gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2)", 3),
        ("GRES=gpu:4(CNT:4)", 4), ("GRES=", None), ("GRES=gpu(IDX:N/A)", 1), ("GRES=gpu:0", 0),
    ],
)  # fmt: skip
def test_gpus_are_counted(provide: Provide, gres: str, count: int | None) -> None:
    detail = f"Nodes=n1 CPU_IDs=0-3,8 Mem=100 {gres}"
    provide("scontrol", f"[ $3 = job ] && echo '{JOB.format('n1', detail)}' || true")
    (node,) = allocation.of_job("7")
    given = not_none(node.slurm)
    assert (given.cores, given.gpus, node.gpus) == (5, count, () if count == 0 else None)
    assert node.address is None


def test_the_order_is_that_of_slurm(provide: Provide) -> None:
    first = "Nodes=b2 CPU_IDs=0 Mem=0 GRES= Nodes=a1 CPU_IDs=0-1 Mem=0 GRES="
    provide("scontrol", f"[ $3 = job ] && echo '{JOB.format('b2,a1', first)}' || true")
    found = allocation.of_job("7")
    given = [not_none(node.slurm) for node in found]
    assert [node.name for node in found] == ["b2", "a1"]
    assert [each.cores for each in given] == [1, 2]
    assert given[0].memory is None  # Slurm does not count it


def test_the_supervisor_is_reached_without_options_of_the_shell(
    provide: Provide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide("squeue", "echo n1")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "99")  # in the shell of an allocation
    monkeypatch.setenv("SLURM_CONF", "/slurm.conf")
    command = batch_job.python_beside(JobFolder(tmp_path), BatchJob(id="7"), "")
    unset = command[: command.index("srun")]
    assert "-uSLURM_CPUS_PER_TASK" in unset
    assert "-uSLURM_CONF" not in unset
    assert {"--jobid=7", "--nodelist=n1"} < {*command}


@pytest.mark.parametrize("answer", ["", "<html>busy</html>", "JobId=7 NodeList=(null)"])
def test_an_unexpected_answer_is_quoted(provide: Provide, answer: str) -> None:
    provide("scontrol", f"echo '{answer}'")
    with pytest.raises(SchedulerError) as raised:
        allocation.of_job("7")
    assert "scontrol -o show job -d 7 answered in an unexpected form" in str(raised.value)
    assert (answer or "nothing") in str(raised.value)


def test_heterogeneous_jobs_and_one_launch_a_node_are_refused() -> None:
    for sign in ("SLURM_HET_SIZE", "SLURM_STEP_NUM_TASKS"):
        with pytest.raises(UsageError):
            allocation.current({"SLURM_JOB_ID": "7", sign: "2"})


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        (f"{STEP} DUE TO TIME LIMIT ***", Code.SLURM_TIME_LIMIT),
        (f"{STEP} DUE TO PREEMPTION ***", Code.SLURM_PREEMPTED),
        (f"{STEP} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", Code.SLURM_NODE_FAILED),
        ("srun: error: n1: task 0: Out Of Memory", Code.SLURM_OUT_OF_MEMORY),
        ("slurmstepd: error: Exceeded step memory limit at some point.", Code.SLURM_OUT_OF_MEMORY),
        (f"{STEP} ***", Code.SLURM_CANCELLED),
    ],
)
def test_why_a_step_ended_is_read_from_what_srun_prints(printed: str, code: Code) -> None:
    around = f"srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n{printed}"
    found = not_none(step_end.find(f"{around}\nsrun: error: n1: task 0: Killed", "5"))
    assert (found.code, found.name) == (code, "5")
    said = "Unable to create step for job 5: Invalid partition"
    found = step_end.cause(f"srun: error: {said}", 1, "5")
    assert (found.code, found.status, found.text) == (Code.SRUN_FAILED, 1, said)
    reach = SrunReach("n1", SlurmNode(job="5", cores=1), (), None)
    for text, may_pass in (("Unable to contact slurm controller", True), (said, False)):
        ended: Any = SimpleNamespace(stderr_text=f"srun: error: {text}")
        assert reach.diagnose(ended, 1, was_up=False)[1] is may_pass


def test_the_accounting_is_asked_where_slurmctld_has_forgotten_the_job(provide: Provide) -> None:
    provide("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert step_end.of_job("5") is None  # there is no sacct
    with pytest.raises(SchedulerError, match="or unset SLURM_JOB_ID"):
        allocation.current({"SLURM_JOB_ID": "5"})
    provide("sacct", "echo 'CANCELLED by 1000'")
    said = "srun: error: Slurm job 6 has expired"
    assert step_end.may_be_of_job(said, step_end.cause(said, 1, "6"))
    assert not_none(step_end.ask("6")).code is Code.SLURM_CANCELLED
    provide("sacct", "echo DEADLINE")
    assert not_none(step_end.of_job("6")).code is Code.SLURM_TIME_LIMIT


def test_a_job_that_is_preempted_is_told_from_one_that_is_cancelled(provide: Provide) -> None:
    words = not_none(step_end.find(f"{STEP} ***", "5"))
    assert step_end.may_be_of_job(words.text, words)
    for at, code in (("2026-01-01T00:00:00", Code.SLURM_PREEMPTED), ("None", Code.SLURM_CANCELLED)):
        provide("scontrol", f"echo 'JobId=5 JobState=RUNNING PreemptTime={at}'")
        found = not_none(step_end.joined(words, step_end.ask("5")))
        assert (found.code, found.text) == (code, words.text)
    late = words._replace(code=Code.SLURM_TIME_LIMIT)
    assert step_end.joined(late, Cause(Code.SLURM_PREEMPTED)) == late


def test_files_are_the_same_only_if_nothing_about_them_has_changed(tmp_path: Path) -> None:
    for name in ("here", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("pass")
    before = fingerprint(str(tmp_path / "here"), ["train.py"])
    assert before == fingerprint(str(tmp_path / "here"), ["train.py"])
    assert before != fingerprint(str(tmp_path / "copy"), ["train.py"])
    assert fingerprint(str(tmp_path / "here"), ["train.py", "lacking.py"]) == 0
    (tmp_path / "here" / "train.py").write_text("exit")
    assert before != fingerprint(str(tmp_path / "here"), ["train.py"])

"""What the report on a failed job shows of its record, and `status` of an earlier failure."""

import contextlib
import time
from pathlib import Path

import pytest

from harness.histories import MWM, Job, because, running
from harness.long_job import write_long_job
from harness.parts.job import Job as RecordedJob
from harness.parts.job import end_line, events, failure_report, job_notes
from harness.parts.protocol import Cause, Code
from harness.parts.records import EventLog, HistoryLog, JobFolder, Sample, headline
from harness.parts.report import Report, Run, plots, thinned
from harness.parts.top import replace
from harness.parts.verdict import Kind, Verdict
from harness.parts.words import cause_advice, cause_text
from harness.scenarios import play, verdicts

MARKER = "--- attempt 1, 2026-03-01 12:00:01: restarted after worker:0 exited 5 ---\n"
SAMPLE = Sample(
    at=1.0, attempt=0, cpu_seconds=1.0, memory_bytes=1, peak_memory_bytes=1, processes=1,
    read_bytes=0, written_bytes=0, progress={"STEP": 7.0},
)  # fmt: skip
STARTS = "To enable them in other operations, rebuild TensorFlow with the appropriate flags.\n"


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder(tmp_path)
    made.logs.mkdir()
    return made


def keep(folder: JobFolder, job: Job) -> None:
    with contextlib.closing(EventLog(str(folder.events_file))) as record:
        for event in job.history:
            record.append(event)


def failed() -> Job:
    return play(["mwm worker:2", "worker:0 gone 5", "worker:1 gone -15"])


def report(folder: JobFolder, job: Job, *shown: str) -> str:
    return "\n".join(failure_report(RecordedJob(folder, job.state), shown=shown))


def test_a_job_that_was_only_sampled_has_its_last_step(folder: JobFolder) -> None:
    keep(folder, failed())
    HistoryLog(folder).append("worker:0", SAMPLE)
    assert Run(folder).numbers["step"] == 7.0


def test_hosts_that_were_lost_alike_are_named_together(folder: JobFolder) -> None:
    job = running(MWM, "worker:0", "worker:1", places={"worker:0": "h1", "worker:1": "h2"})
    for host, address in (("h1", "10.0.0.1"), ("h2", "10.0.0.22")):
        silence = Cause(Code.SSH_TIMED_OUT, text=f"ssh: connect to host {address} port 22")
        job(events.HostLost, host=host, cause=Cause(Code.HOST_SILENT_TOO_LONG, within=(silence,)))
    lost = [each for each in job_notes(RecordedJob(folder, job.state)) if " lost: " in each]
    assert len(lost) == 1
    assert lost[0].startswith("h1, h2 are lost: since ")


def test_last_lines_are_those_of_the_last_attempt(folder: JobFolder) -> None:
    folder.log_of("worker:0").write_text("old\n" + MARKER + "new\n" + MARKER + "forged\n")
    job = failed()
    began = replace(job.state.tasks["worker:0"], output_start=len("old\n" + MARKER))
    job.state = job.state.with_tasks([began])
    shown = report(folder, job)
    assert "| new" in shown
    assert "old" not in shown
    assert "| forged" in shown, "a line of the program that looks like distrun's begins nothing"
    folder.log_of("worker:0").write_text("cut\n")
    assert "| cut" in report(folder, job), "the task has cut its log off"


def test_a_long_line_is_cut_and_harmless_lines_after_errors_are_left_out(folder: JobFolder) -> None:
    log = folder.log_of("worker:0")
    assert "its log cannot be read" in report(folder, failed())
    log.write_text("")
    assert "it had printed nothing" in report(folder, failed())
    log.write_text("n" * 10_000 + "\n")
    assert "| " + "n" * 400 + "…\n" in report(folder, failed())
    log.write_text("Fatal Python error: Aborted\nExtension modules: numpy (total: 1)\n\nend\n")
    shown = report(folder, failed())
    assert all(each in shown for each in ("| Fatal Python error: Aborted", "| end"))
    assert "Extension modules" not in shown
    log.write_text(STARTS)
    assert "To enable them" in report(folder, failed()), "as it had printed nothing else"
    assert "To enable them" in report(folder, failed(), "worker:0"), "though lines of it were shown"
    job = play(["mwm worker:2"])
    job(events.ClusterMismatched, cause=Cause(Code.SERVED_ELSEWHERE, task="worker:0"))
    job.gone("worker:0", -15)
    assert "To enable them" not in report(folder, job, "worker:0"), "it was running"
    log.write_text("of tf\n" + 12 * STARTS)
    assert "last lines    of worker:0:\n    | of tf\n" in report(folder, failed())


def test_why_a_host_is_lost_or_a_task_could_not_start_is_told_once(folder: JobFolder) -> None:
    job = play(["mwm worker:3 | worker:1@h2", "lost h2", "worker:0 worker:2 gone -9"])
    (verdict,) = verdicts(job)
    job(events.VerdictReached, verdict=verdict)
    assert report(folder, job).count(cause_text(verdict.cause.within[0])) == 1
    assert "stopped  worker:0, worker:2 (were killed by SIGKILL)" in report(folder, job)
    job = play(["mwm worker | planned", "worker:0 refused"])
    assert report(folder, job).count("there is no program") == 1
    job = failed()
    assert "stopped" in report(folder, job)
    job.now = 99.0
    job.resumed()
    job(events.Aborted, cause=Cause(Code.NO_ROOM), exit_code=69)
    job(events.JobEnded, outcome=job.outcome)
    assert "stopped" not in report(folder, job), "it was before the resume"


def test_an_evaluators_restarts_are_not_the_jobs(folder: JobFolder) -> None:
    job = play(["mwm worker evaluator | max=1", "worker:0 gone 5", "evaluator:0 gone 9",
                "timer restart:1", "timer restart:2", "worker:0 start",
                "worker:0 gone 5"])  # fmt: skip
    planned = next(each for each in job.history if isinstance(each, events.RestartPlanned))
    ended = events.JobEnded(at=99.0, outcome=job.outcome)
    why = replace(verdicts(job)[-1], task=None)  # of the tasks of several hosts
    job.history.insert(1 + job.history.index(planned),
                       events.VerdictReached(at=9.0, verdict=why, before_restart=True))  # fmt: skip
    job.history += [*[replace(planned, number=9)] * 2, ended]  # one replaces one; it is not made
    keep(folder, job)
    said = "earlier failures  1 restart after worker:0 exited 5; not restarted: "
    assert said in report(folder, job)
    shown = [(each["what"], *each["tasks"]) for each in Report(folder).interruptions()]
    assert shown == [("restart", "worker:0"), *[("restart, not made",)] * 3]
    assert Report(folder).interruptions()[0]["verdict"]
    assert len(RecordedJob(folder).timing) == 2


def test_all_in_which_a_task_differs_is_in_its_row(folder: JobFolder) -> None:
    first = ["worker:0 first", *["worker:0 reports STEP=100"] * 2]
    ends = ["worker:1 first", "worker:1 reports STEP=40", "worker:0 gone 0", "worker:1 gone 0"]
    job = play(["mwm worker:2", *first, *ends])
    (late,) = (e for e in job.history if isinstance(e, events.FirstStep) and e.task == "worker:1")
    job.history[job.history.index(late)] = replace(late, at=late.at + 20)
    keep(folder, job)
    found = "slowest: 24 s until its first step; usual: 2.0 s; slowest: 40 steps; usual: 100"
    assert Report(folder).marks == {"worker:1": found}
    drawn = {task: each[-1].progress for task, each in Report(folder).samples.items()}
    assert drawn == {"worker:0": {"STEP": 100}, "worker:1": {"STEP": 40}}, "also without samples"


RESTARTED = ["mwm worker | max=9", "worker:0 first STEP=1", "worker:0 reports STEP=5"]
AGAIN = ["worker:0 gone 1", "backoff", "worker:0 start"]


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        (["mwm worker", "worker:0 gone 0"], ["succeeded in 6.0 s"]),
        ([*RESTARTED, *AGAIN, "worker:0 gone 0"], ["after 1 restart"]),
        ([*RESTARTED, *AGAIN, "worker:0 first STEP=3", "worker:0 gone 0"],
         ["after 1 restart: 6.0 s without a step, 3 steps repeated"]),
        ([*RESTARTED, *AGAIN, "worker:0 first STEP=3 printed=1", "worker:0 gone 0"],
         ["after 1 restart: 6.0 s without a step, the number of repeated steps is not known"]),
        (["mwm worker", "worker:0 gone 3"], ["failed after 6.0 s", "exit code 3, worker:0's own"]),
        (["mwm worker", "stop", "worker:0 gone -15"], ["was stopped", "exit code 137, distrun's"]),
    ],
)  # fmt: skip
def test_the_line_of_an_end(scenario: list[str], told: list[str], folder: JobFolder) -> None:
    job = play(scenario)
    job(events.JobEnded, outcome=job.outcome)
    said = end_line(RecordedJob(folder, job.state)).split(" · ")
    assert all(any(each in part for part in said) for each in told), said


@pytest.mark.parametrize(("lived", "is_told"), [(5.0, True), (50.0, False)])
def test_a_program_left_behind(lived: float, is_told: bool, folder: JobFolder) -> None:
    job = play(["mwm worker", f"worker:0 exit 0 after {lived}"])
    job(events.TaskEnded, task="worker:0", attempt=0, left=("python train.py",))
    job(events.JobEnded, outcome=job.outcome)
    advice = cause_advice(Cause(Code.LEFT_AT_WORK))
    assert (str(advice) in end_line(RecordedJob(folder, job.state))) is is_told


@pytest.mark.parametrize("values", [(2e303, 3e303), (0.0, 4.4e-323), (-1e308, 1e308), (1e-302, 0)])
def test_an_axis_has_labels_for_metrics_of_any_size(values: tuple[float, float]) -> None:
    ticks = plots._value_ticks(*plots._range(values, is_metric=True))
    assert len({plots._number(each) for each in ticks}) > 1


# What `status` says -------------------------------------------------------------------------


def aborted(kind: Kind) -> Job:
    job = play(["mwm worker | created"])
    cause = Cause(Code.HOST_LOST, host="h2", within=(because("silent"),))
    job(events.Aborted, cause=cause, exit_code=69)
    job(events.VerdictReached, verdict=Verdict(task=None, kind=kind, cause=cause))
    job(events.JobEnded, outcome=job.outcome)
    return job


def notes(folder: JobFolder, job: Job) -> str:
    return "\n".join(job_notes(RecordedJob(folder, job.state)))


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (["mwm worker", "worker:0 exit 5", "wait 14"], []),
        (["mwm worker", "worker:0 exit 5", "wait 17"], ["do not die"]),
        (["mwm worker", "worker:0 exit 5", "stop", "wait 17"], ["do not die"]),
        (["mwm worker", "stop", "worker:0 exit -15 asked", "wait 99"], []),
        (["mwm worker:2 | rooms worker:1@h2 never_on=1", "link-lost h2", "worker:0 gone 1"],
         ["ends the job, unless the loss of a host", "h2: the link has been lost for"]),
        (["mwm worker:2 | rooms worker:1@h2", "link-lost h2", "wait 20", "link-lost h2"],
         ["h2: the link has been lost for 20 s"]),
    ],
)  # fmt: skip
def test_what_the_end_waits_for_is_told(
    scenario: list[str], words: list[str], folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = play(scenario[:-1] if "wait" in scenario[-1] else scenario)
    now = job.history[-1].at + float(scenario[-1].split()[1] if "wait" in scenario[-1] else 0)
    monkeypatch.setattr(time, "time", lambda: now)
    recorded = RecordedJob(folder, job.state)
    recorded.supervisor = 1
    all_words = ("do not die", "ends the job", "link has been lost")
    found = [each for each in job_notes(recorded) if any(word in each for word in all_words)]
    assert len(found) == len(words), found
    assert all(each in note for each, note in zip(words, found, strict=True))


@pytest.mark.parametrize("kind", [Kind.OTHER, Kind.HOST_LOST])
def test_a_job_that_succeeds_after_a_resume_needs_no_advice(kind: Kind, folder: JobFolder) -> None:
    job = aborted(kind)
    assert "  try  " in notes(folder, job)
    job.happened(events.JobResumed(**{**vars(job.history[0]), "at": 9.0}))
    job.planned("worker:0")
    job.started("worker:0")
    assert kind is not Kind.OTHER or "  try  " not in notes(folder, job)
    job.gone("worker:0")
    job(events.JobEnded, outcome=job.outcome)
    assert "  try  " not in notes(folder, job)


def test_the_row_of_a_job_with_a_long_name_fits_into_a_narrow_terminal(tmp_path: Path) -> None:
    job = RecordedJob(write_long_job(tmp_path / "jobs" / f"{'a' * 30}-aaaaaa", hosts=2))
    for columns, rows in ((120, 1), (80, 1), (60, 2)):
        lines = headline(job, columns).plain.splitlines()
        assert len(lines) == rows
        assert max(map(len, lines)) <= columns


def test_a_curve_with_fewer_points_keeps_its_order_and_its_ends() -> None:
    points = [(float(at), float(at * 7919 % 1009)) for at in range(3000)]
    kept = thinned(points, 100)
    assert kept == sorted(kept)
    assert len(kept) <= 100
    assert {0.0, 1008.0} <= {value for _, value in kept}

"""Jobs' folders: names, looking them up, the lock that tells a living supervisor, the socket."""

import contextlib
import errno
import os
import pwd
import shutil
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from harness.command import run_here
from harness.histories import Job
from harness.parts.agent import write_marker
from harness.parts.cli import kill
from harness.parts.job import control, events, leftovers, queued_job, record, resumption
from harness.parts.job import folder as job_folder
from harness.parts.linux import private_dir
from harness.parts.protocol import Cause, Code
from harness.parts.records import EventLog, JobFolder, JobStore, QueueEntry
from harness.parts.top import HostError, InternalError, UsageError, api, replace
from harness.parts.words import queue_text
from harness.values import not_none

STRANGE = 'it\'s "a" path\nwith $(touch oops) and ü'


def add(store: JobStore, name: str, *, order: int = 0, **about: Any) -> JobFolder:
    """The folder of a job whose record has only begun."""
    folder = store.new_folder(name)
    folder.logs.mkdir(parents=True)
    folder.spec_file.write_text("x")
    os.utime(folder.spec_file, ns=(order, order))
    job = Job()
    job.created("default", job_id=folder.job_id, name=name, **about)
    log = EventLog(str(folder.events_file))
    log.append(job.history[0])
    log.close()
    return folder


@pytest.fixture(params=["plain", STRANGE, "/".join(["deep" * 20] * 3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / request.param)


@pytest.mark.parametrize(
    "name",
    ["", " ", "-", "-x", ".", "..", ".x", "a/b", "/", "a\0b", "A B", "x" * 300, "é" * 300, "日本",
     "\U0001f600", "a\nb", "1", "_", "$(x)", STRANGE],
    ids=ascii,
)  # fmt: skip
def test_whatever_a_job_is_called_its_folder_is_one_plain_name(name: str) -> None:
    store = JobStore(Path("/state"))
    folder = store.new_folder(name)
    assert folder.path.parent == store.jobs
    assert set(folder.job_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not folder.job_id.startswith(("-", "."))
    assert len(os.fsencode(folder.job_id)) < 64


def test_a_job_is_found_by_id_name_prefix(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old = add(store, "mnist", order=1)
    new = add(store, "mnist", order=2)
    other = add(store, "other job", order=3)
    assert [folder.path for folder in store.folders()] == [old.path, new.path, other.path]
    found = {old.job_id: old, "mnist": new, "other job": other, "other-j": other}
    assert all(store.find(name).path == each.path for name, each in found.items())
    for running, job in (([], other), ([old], old), ([old, new], other)):
        monkeypatch.setattr(JobStore, "running", lambda _, now=running: now)
        monkeypatch.setattr(JobStore, "default", lambda: store)
        assert queued_job.find(None).path == job.path


@pytest.mark.parametrize("is_suspended", [True, False])
def test_a_suspended_supervisor_can_be_resumed(is_suspended: bool) -> None:
    folder = Mock(job_id="job-a", is_suspended=is_suspended, **{"supervisor_pid.return_value": 7})
    folder.state().hosts = {}
    hint = str(control.unanswered(folder).hint)
    assert ("kill -CONT 7" in hint) is is_suspended
    assert "kill -KILL 7; distrun kill job-a" in hint


def test_a_supervisor_that_only_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Mock(is_elsewhere=False, **{"supervisor_pid.return_value": 7})
    folder.connect.side_effect = [None, None, Mock(**{"detach.return_value": -1})]
    monkeypatch.setattr(control, "held_package", Mock())
    monkeypatch.setattr(control, "Channel", Mock())
    assert control.connect(folder) is not None
    folder.connect.side_effect, folder.state().hosts = None, {}
    folder.connect.return_value = None
    with pytest.raises(InternalError):
        control.connect(folder, patience=0.0)


def test_a_job_that_has_ended_and_left_tasks_may_be_killed(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = add(store, "mnist", order=1)
    monkeypatch.setattr(JobFolder, "state", lambda _: Mock(phase=Mock(is_final=True)))
    for places, may_run in (([], False), (["h1"], True)):
        monkeypatch.setattr(leftovers, "places", lambda *_, found=places: found)
        assert kill._may_run(folder) is may_run


def test_ps_lists_the_last_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISTRUN_HOME", "~/own")
    jobs = [add(JobStore.default(), name, order=n).job_id for n, name in enumerate("abc", 1)]
    assert (tmp_path / "own" / "jobs" / jobs[0]).is_dir()
    for words, shown in (("", []), ("-a", jobs), ("-n 2", jobs[1:]), ("--failed -n 1", jobs[2:])):
        assert run_here(["ps", "-q", *words.split()])[1].split() == shown


def test_what_cannot_be_found_names_what_is_there(store: JobStore) -> None:
    with pytest.raises(UsageError, match="no job 'x'") as error:
        store.find("x")
    assert error.value.hint == "there are no jobs yet"
    with pytest.raises(UsageError, match="no jobs yet"):
        store.newest()
    with pytest.raises(UsageError, match="cannot be empty"):
        store.find("")
    ids = [add(store, "mnist", order=order).job_id for order in range(3)]
    with pytest.raises(UsageError, match="fits several jobs") as error:
        store.find("mnist-")
    assert all(job_id in error.value.message for job_id in ids)
    with pytest.raises(UsageError, match="no job 'x'") as error:
        store.find("x")
    assert all(job_id in str(error.value.hint) for job_id in ids)


def test_a_folder_appears_whole_or_not_at_all(store: JobStore) -> None:
    folder = job_folder.create(store.new_folder("mnist"), b"name: mnist\n")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.logs.is_dir()
    assert folder.spec_file.read_bytes() == b"name: mnist\n"
    with pytest.raises(OSError, match=r"not empty|exists"):
        job_folder.create(folder, b"another\n")
    assert folder.spec_file.read_bytes() == b"name: mnist\n"
    assert os.listdir(store.jobs) == [folder.job_id], "and nothing half made is left"
    # Its supervisor is reached, though the path of a socket has at most 108 bytes.
    with folder.listen(), not_none(JobFolder(folder.path).connect()):
        pass
    assert folder.connect() is None
    folder.remove()
    assert os.listdir(store.jobs) == []


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\udcffb"])
def test_what_is_no_job_or_broken_is_in_nobodys_way(store: JobStore, name: str) -> None:
    job = add(store, "mnist")
    shutil.copytree(job.path, store.jobs / name)
    unfinished = store.jobs / f".new-{name}"
    unfinished.mkdir()
    os.utime(unfinished, (0, 0))
    broken = add(store, "broken", order=-1)
    broken.events_file.write_bytes(b"\x00\xff garbage\n[1]\n{}\n")
    (store.jobs / "a file").write_text("x")
    assert [folder.job_id for folder in store.folders()] == [broken.job_id, job.job_id]
    assert store.unfinished() == []
    with pytest.raises(UsageError, match="no job"):
        store.find(name)


def test_a_job_of_another_user_is_ignored(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that root has copied into the folder."""
    job, foreign = add(store, "mnist"), add(store, "foreign", order=1)
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def refuse(path: Path) -> bool:
        if path.parent.name == foreign.job_id:
            raise refused
        return os.path.exists(path)

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.exists", refuse)
        assert [each.job_id for each in store.folders()] == [job.job_id]
    monkeypatch.setattr(record, "open_regular_file", Mock(side_effect=refused))
    assert foreign.record_fault() == "cannot be read (Permission denied)"
    assert not foreign.state().phase.is_final


def test_a_host_of_a_lost_job_may_run_its_tasks_until_the_lease_is_over(tmp_path: Path) -> None:
    job = Job()
    job.created("default", link_timeout=60.0)
    job.ready("h1", token="h1")
    folder = JobFolder(tmp_path)
    folder.events_file.touch()
    assert leftovers.places(folder, job.state) == ("on h1",)
    os.utime(folder.events_file, (0, 0))
    assert leftovers.places(folder, job.state) == ()


def test_only_a_host_of_the_job_can_be_assumed_dead() -> None:
    job = Job()
    job.created("default")
    job.planned("worker:0", host="h3")  # of which nothing is left, as a resume has found
    job.ready("h1")
    job.ready("h2")
    former = {"h1": job.state.hosts["h1"]}
    state = replace(job.state, former_hosts=former, hosts={"h2": job.state.hosts["h2"]})
    resumption.require_former_hosts(state, ["h1", "h2", "h3"])
    with pytest.raises(UsageError, match="h1, h2, h3"):
        resumption.require_former_hosts(state, ["h1", "h4"])


@pytest.mark.parametrize(
    ("starts_at", "expected", "words"),
    [(None, None, "no estimate"), (6e9, None, ", in "), (None, 6e9, ", in "), (6e9, 1.0, ", in "),
     (3e5, None, "; it starts at about 1970-01-04")],
)  # fmt: skip
def test_when_a_queued_job_starts(starts_at: float, expected: float, words: str) -> None:
    entry = QueueEntry(
        id="7", scheduler="Slurm", state="PENDING", starts_at=starts_at, is_pending=True
    )
    assert words in queue_text(entry, expected)
    assert ", until 1970-01-04" in queue_text(replace(entry, is_pending=False, ends_at=3e5))


def test_a_lost_job_is_stopped_once_all_of_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(tmp_path))
    job = add(JobStore.default(), "lost")
    with monkeypatch.context() as patched:
        patched.setattr(leftovers, "end_here", Mock(side_effect=HostError("it does not end")))
        assert run_here(["kill", "lost"])[0] == 69
        with pytest.raises(HostError, match="it does not end"):
            api.job("lost").kill()
        patched.setattr(leftovers, "_LOCK_SECONDS", 0.0)
        patched.setattr(JobFolder, "acquire_lock", Mock(side_effect=BlockingIOError))
        assert run_here(["kill", "lost"])[0] == 2, "another command resumes it"
        patched.setattr(leftovers, "_LOCK_SECONDS", 9.0)
        held = Mock(side_effect=[BlockingIOError, os.open(os.devnull, os.O_RDONLY)])
        patched.setattr(JobFolder, "acquire_lock", held)
        assert run_here(["kill", "lost"])[0] == 69, "it has ended meanwhile"
    assert not job.state().phase.is_final
    assert run_here(["kill", "--all"])[0] == 0
    assert job.state().phase.value == "stopped"


def test_at_boot_a_job_is_resumed_that_the_shutdown_has_ended(tmp_path: Path) -> None:
    outcome = events.Outcome.stopped(143, Cause(Code.SUPERVISOR_SIGNALLED, signal=15))
    for ended_at, is_resumed in ((0.0, True), (time.time(), False)):
        job = add(JobStore(tmp_path), "ended")
        with contextlib.closing(EventLog(str(job.events_file))) as log:
            log.append(events.JobEnded(at=ended_at, outcome=outcome))
        assert resumption.was_interrupted(job) is is_resumed


def test_a_file_is_not_replaced_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("important")
    (tmp_path / ".plan.json").symlink_to(other)
    job_folder.replace_file(tmp_path / "plan.json", "{}")
    assert (tmp_path / "plan.json").read_text() == "{}"
    assert other.read_text() == "important"


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_where_jobs_are(home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISTRUN_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    account = pwd.struct_passwd(("user", "x", 1, 1, "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account)
    assert JobStore.default().jobs == tmp_path / ".local" / "state" / "distrun" / "jobs"

    def no_account(_: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", no_account)
    with pytest.raises(UsageError, match="has no home") as caught:
        JobStore.default()
    assert caught.value.hint == "set DISTRUN_HOME to a folder of your own"
    monkeypatch.setenv("DISTRUN_HOME", "own")
    with pytest.raises(UsageError, match="relative path: 'own'; write DISTRUN_HOME=/"):
        JobStore.default()
    assert private_dir.state_folder() == "", "an agent looks for another place"


@pytest.mark.parametrize(("text", "ended"), [("", ""), ("a\n", "a\n"), ("a\nb", "a\nb\n")])
def test_an_unfinished_line_is_ended(tmp_path: Path, text: str, ended: str) -> None:
    folder = JobFolder(tmp_path)
    folder.logs.mkdir()
    folder.log_of("worker:0").write_text(text)
    assert folder.end_line("worker:0") == len(ended)
    assert folder.log_of("worker:0").read_text() == ended
    folder.log_of("worker:0").write_text(text)  # and before an agent's own line
    write_marker(str(folder.log_of("worker:0")), "--- attempt 1")
    assert folder.log_of("worker:0").read_text() == f"{ended}--- attempt 1\n"
    assert folder.end_line("worker:1") == 0
    assert not folder.log_of("worker:1").exists()


@pytest.mark.parametrize("words", [["kill", "--all"], ["ps", "-a"]])
def test_a_record_that_is_removed_meanwhile_is_passed_over(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(tmp_path))
    gone = JobFolder(tmp_path / "jobs" / "job-000000")
    monkeypatch.setattr(JobStore, "folders", lambda _: [gone])
    code, shown, said = run_here(words)
    assert (code, "job-000000" in shown + said) == (0, False)


@pytest.mark.parametrize("link", [60.0, None])
def test_a_job_is_kept_while_its_tasks_may_run_on_a_host(
    link: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(tmp_path))
    folder, job = add(JobStore.default(), "lost", link_timeout=link), Job()
    job.ready("h2", token="1")
    job(events.HostLost, host="h2", cause=Cause(Code.AGENT_ABANDONED))
    outcome = events.Outcome.stopped(0, Cause(Code.JOB_SUCCEEDED))
    with contextlib.closing(EventLog(str(folder.events_file))) as log:
        for each in (*job.history, events.JobEnded(at=9.0, outcome=outcome)):
            log.append(each)
    assert run_here(["wait", "lost"])[0] == 69
    for age, is_kept in ((50.0, True), (61.0, link is None)):
        os.utime(folder.events_file, (time.time() - age,) * 2)
        assert run_here(["clean", "--all"])[0] == 0
        assert folder.path.exists() is is_kept

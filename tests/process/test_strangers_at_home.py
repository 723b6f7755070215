"""Another user of the host attacks the folders of a user's jobs."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from distrun.errors import UsageError
from distrun.job import folder as job_folder
from distrun.job.folder import JobStore
from distrun.job.record import EventLog
from harness import strangers
from harness.command import Distrun
from harness.strangers import Stranger

SECRET = "a file of root\n"


@pytest.fixture
def home(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DISTRUN_HOME in a private folder, which a job has used."""
    (distrun.cwd / "home" / "jobs").mkdir(parents=True)
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "home"))
    return distrun.cwd / "home"


def test_a_home_to_which_others_can_write_is_refused(distrun: Distrun, home: Path) -> None:
    spec = distrun.write_spec("exit 0")
    for path, mode in ((home, 0o770), (home / "jobs", 0o1777)):
        path.chmod(mode)
        for args in (("launch", spec), ("ps",)):
            done = distrun(*args)
            assert (done.returncode, f"other users can write to {path}," in done.stderr) == (2, 1)
            assert f"chmod go-w {path}" in done.stderr
        path.chmod(mode & ~0o022)
    assert not os.listdir(home / "jobs")
    assert distrun("launch", spec).returncode == 0


def check_refused(home: Path, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        JobStore(home).check()


@pytest.mark.parametrize("path", [".", "jobs"])
def test_a_home_of_another_user_is_refused(home: Path, path: str) -> None:
    strangers.give(home / path)
    check_refused(home, f"{home / path} belongs to another user (user {strangers.UID})")


def test_a_home_that_others_can_exchange_is_refused(home: Path, public_folder: Path) -> None:
    inner = public_folder / "projects" / "user" / "home"
    inner.mkdir(parents=True)
    for each in (inner, inner.parent, inner.parent.parent):
        each.chmod(0o700)
    check_refused(inner, f"write to {public_folder}, and so change")
    public_folder.chmod(0o1777)
    link = public_folder / "home"
    link.symlink_to(home)
    strangers.give(link)
    check_refused(link, f"{link} belongs to another user (user ")


def test_a_home_in_a_sticky_folder_and_behind_own_links_is_used(
    distrun: Distrun, public_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public_folder.chmod(0o1777)
    (public_folder / "disk").mkdir()
    (public_folder / "link").symlink_to("disk")
    (distrun.cwd / "link").symlink_to(public_folder / "link")
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "link" / "a" / "home"))
    distrun.checked("launch", distrun.write_spec("exit 0"))
    assert len(os.listdir(public_folder / "disk" / "a" / "home" / "jobs")) == 1


def test_folders_above_the_users_home_are_the_administrators(
    monkeypatch: pytest.MonkeyPatch, public_folder: Path
) -> None:
    """And one in it may be writable for the user's own group."""
    home, group = public_folder / "user", ("user", "x", os.getegid())
    home.mkdir(mode=0o755)
    account = pwd.struct_passwd((*group[:2], os.geteuid(), group[2], "", str(home), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account)
    folder = home / ".local"
    JobStore(folder / "state").check()
    check_refused(public_folder / "other", "other users can write to")
    folder.mkdir()
    for mode, members in ((0o775, []), (0o775, ["user"]), (0o775, ["user", "other"]), (0o777, [])):
        folder.chmod(mode)
        of_group = grp.struct_group((*group, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=of_group: group)
        if mode == 0o775 and "other" not in members:
            JobStore(folder / "state").check()
        else:
            check_refused(folder / "state", "other users can write to")


def test_a_supervisor_creates_no_job_in_a_folder_that_others_can_change(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "home")
    store.jobs.mkdir(parents=True)
    store.jobs.chmod(0o777)
    with pytest.raises(PermissionError):
        job_folder.create(store.new_folder("job"), b"x")
    assert os.listdir(store.jobs) == []


def test_a_supervisor_writes_to_its_folder_whatever_takes_the_folders_place(
    public_folder: Path, tmp_path: Path
) -> None:
    """A stranger replaces a folder by one with a symbolic link in it."""
    strangers.give(public_folder)
    secret, top = tmp_path / "secret", public_folder / "taken"
    secret.write_text(SECRET)
    store = JobStore(top)
    folder = job_folder.create(store.new_folder("job"), b"x")

    def exchange(report: Callable[[str], None]) -> None:
        top.rename(public_folder / "moved")
        (folder.path / "logs").mkdir(parents=True)
        folder.path.chmod(0o777)
        (folder.path / "plan.json").symlink_to(secret)
        report("done")

    with Stranger(exchange) as stranger:
        assert stranger.report() == "done"
    folder.plan_file.write_text("the plan")
    EventLog(str(folder.events_file)).close()
    folder.listen().close()
    assert secret.read_text() == SECRET
    moved = public_folder / "moved" / "jobs" / folder.job_id
    assert (moved / "plan.json").read_text() == "the plan"
    assert sorted(os.listdir(folder.path)) == ["logs", "plan.json"], "the stranger's alone"
    assert folder.shown(folder.plan_file) == str(folder.path / "plan.json")

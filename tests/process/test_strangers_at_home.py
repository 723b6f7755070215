"""Another user of the host attacks the folders of a user's jobs."""

from __future__ import annotations

import grp
import os
import pwd
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
def foreign_folder(public_folder: Path) -> Path:
    """A folder of a stranger, in which everybody may create something."""
    strangers.give(public_folder)
    return public_folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def home(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DISTRUN_HOME in a private folder, which a job has used."""
    (distrun.cwd / "home" / "jobs").mkdir(parents=True)
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "home"))
    return distrun.cwd / "home"


def refuses(distrun: Distrun, home: Path, words: str) -> None:
    for args in (("launch", distrun.write_spec("exit 0")), ("ps",)):
        done = distrun(*args)
        assert done.returncode == 2
        assert words in done.stderr
    assert not home.exists() or not [*home.rglob("*.yaml"), *home.rglob("*.jsonl")]


@pytest.mark.parametrize("path", [".", "jobs"])
def test_a_home_of_another_user_is_refused(distrun: Distrun, home: Path, path: str) -> None:
    strangers.give(home / path)
    refuses(distrun, home, f"{home / path} belongs to another user (user {strangers.UID})")
    assert "set DISTRUN_HOME to a folder of your own" in distrun("ps").stderr


@pytest.mark.parametrize(("path", "mode"), [(".", 0o770), ("jobs", 0o1777)])
def test_a_home_to_which_others_can_write_is_refused(
    distrun: Distrun, home: Path, path: str, mode: int
) -> None:
    (home / path).chmod(mode)
    refuses(distrun, home, f"other users can write to {home / path},")
    assert f"chmod go-w {home / path}" in distrun("ps").stderr
    (home / path).chmod(mode & ~0o022)
    assert distrun.launch("exit 0").returncode == 0


def test_a_home_in_a_folder_of_others_is_refused(
    distrun: Distrun, public_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could exchange it."""
    home = public_folder / "projects" / "user" / "home"
    home.mkdir(parents=True)
    for each in (home, home.parent, home.parent.parent):
        each.chmod(0o700)
    monkeypatch.setenv("DISTRUN_HOME", str(home))
    refuses(distrun, home, f"write to {public_folder}, and so change")


def test_a_home_behind_a_link_of_another_user_is_refused(
    distrun: Distrun, home: Path, public_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public_folder.chmod(0o1777)
    (public_folder / "home").symlink_to(home)
    strangers.give(public_folder / "home")
    monkeypatch.setenv("DISTRUN_HOME", str(public_folder / "home"))
    refuses(distrun, home, f"{public_folder / 'home'} belongs to another user (user ")


def test_a_home_in_a_sticky_folder_and_behind_own_links_is_used(
    distrun: Distrun, public_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public_folder.chmod(0o1777)
    (public_folder / "disk").mkdir()
    (public_folder / "link").symlink_to("disk")
    (distrun.cwd / "link").symlink_to(public_folder / "link")
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "link" / "a" / "home"))
    assert distrun.launch("exit 0").returncode == 0
    assert len(os.listdir(public_folder / "disk" / "a" / "home" / "jobs")) == 1


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, public_folder: Path) -> pwd.struct_passwd:
    """This user's account, with a home in a folder that others can change."""
    home = public_folder / "user"
    home.mkdir(mode=0o755)
    ids = os.geteuid(), os.getegid()
    entry = pwd.struct_passwd(("user", "x", *ids, "", str(home), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    return entry


def test_folders_above_the_users_home_are_the_administrators(account: pwd.struct_passwd) -> None:
    JobStore(Path(account.pw_dir) / ".local" / "state").check()
    with pytest.raises(UsageError, match="other users can write to"):
        JobStore(Path(account.pw_dir).parent / "other").check()


def test_a_folder_may_be_writable_for_the_users_own_group(
    account: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(account.pw_dir) / ".local"
    folder.mkdir()

    def check(mode: int, *members: str) -> None:
        folder.chmod(mode)
        group = grp.struct_group((account.pw_name, "x", account.pw_gid, list(members)))
        monkeypatch.setattr(grp, "getgrgid", lambda _: group)
        JobStore(folder / "state").check()

    check(0o775)
    check(0o775, "user")
    for mode, members in ((0o775, ("user", "other")), (0o777, ())):
        with pytest.raises(UsageError):
            check(mode, *members)


def test_a_supervisor_creates_no_job_in_a_folder_that_others_can_change(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "home")
    store.jobs.mkdir(parents=True)
    store.jobs.chmod(0o777)
    with pytest.raises(PermissionError):
        job_folder.create(store.new_folder("job"), b"x")
    assert os.listdir(store.jobs) == []


def exchange(folder: Path, link: str, target: Path) -> Callable[[Callable[[str], None]], None]:
    """Return an attack that replaces a folder by one with a symbolic link in it."""

    def attack(report: Callable[[str], None]) -> None:
        parts = folder.parts
        top = Path(*parts[: parts.index("taken") + 1])
        top.rename(top.with_name("moved"))
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        (folder / "logs").mkdir(exist_ok=True)
        (folder / link).symlink_to(target)
        report("done")

    return attack


def test_a_supervisor_writes_to_its_folder_whatever_takes_the_folders_place(
    foreign_folder: Path, secret: Path
) -> None:
    store = JobStore(foreign_folder / "taken")
    folder = job_folder.create(store.new_folder("job"), b"x")
    with Stranger(exchange(folder.path, "plan.json", secret)) as stranger:
        assert stranger.report() == "done"
    folder.plan_file.write_text("the plan")
    EventLog(str(folder.events_file)).close()
    folder.listen().close()
    assert secret.read_text() == SECRET
    moved = foreign_folder / "moved" / "jobs" / folder.job_id
    assert (moved / "plan.json").read_text() == "the plan"
    assert sorted(os.listdir(folder.path)) == ["logs", "plan.json"], "the stranger's alone"
    assert folder.shown(folder.plan_file) == str(folder.path / "plan.json")

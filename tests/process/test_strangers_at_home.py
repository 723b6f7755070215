"""Another user of the host attacks the folders of a user's jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrun import jobstore
from distrun.jobstore import JobStore
from distrun.record import EventLog
from harness import strangers
from harness.command import Distrun, WriteSpec
from harness.strangers import Stranger

SECRET = "a file of root\n"


@pytest.fixture
def foreign_folder(public_folder: Path) -> Path:
    """A folder of a stranger, in which everybody may create something."""
    os.chown(public_folder, strangers.UID, strangers.UID)
    return public_folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("path", ["home", "home/jobs"])
def test_a_home_of_another_user_is_refused(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path, path: str
) -> None:
    (tmp_path / "home" / "jobs").mkdir(parents=True, mode=0o700)
    os.chown(tmp_path / path, strangers.UID, strangers.UID)
    for args in (("launch", write_spec("exit 0")), ("ps",)):
        done = distrun(*args, env={**os.environ, "DISTRUN_HOME": str(tmp_path / "home")})
        assert done.returncode == 2
        assert f"{tmp_path / path} belongs to another user (user {strangers.UID})" in done.stderr
        assert "set DISTRUN_HOME to a folder of your own" in done.stderr
    assert os.listdir(tmp_path / "home" / "jobs") == []


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
@pytest.mark.parametrize("path", ["home", "home/jobs"])
def test_a_home_to_which_others_can_write_is_refused(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path, path: str, mode: int
) -> None:
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    (tmp_path / path).chmod(mode)
    env = {**os.environ, "DISTRUN_HOME": str(tmp_path / "home")}
    done = distrun("launch", write_spec("exit 0"), env=env)
    assert done.returncode == 2
    assert f"other users can write to {tmp_path / path}," in done.stderr
    assert f"chmod go-w {tmp_path / path}" in done.stderr
    (tmp_path / path).chmod(mode & ~0o022)
    assert distrun("launch", write_spec("exit 0"), env=env).returncode == 0


def test_a_supervisor_creates_no_job_in_a_folder_that_others_can_change(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "home")
    store.jobs.mkdir(parents=True)
    store.jobs.chmod(0o777)
    with pytest.raises(PermissionError):
        jobstore.create(store.new_folder("job"), b"x")
    assert os.listdir(store.jobs) == []


@pytest.mark.usefixtures("no_umask")
def test_all_parents_that_are_missing_are_private_whatever_the_umask(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "a" / "b" / "home")
    folder = jobstore.create(store.new_folder("job"), b"x")
    for path in (folder.path, *folder.path.parents):
        if path == tmp_path:
            break
        assert path.stat().st_mode & 0o777 == 0o700


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
    folder = jobstore.create(store.new_folder("job"), b"x")
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

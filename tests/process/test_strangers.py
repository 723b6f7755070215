"""Another user of the host attacks the folders of a user's jobs, or distrun's sockets."""

import array
import contextlib
import grp
import os
import pwd
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import strangers
from harness.command import Distrun
from harness.loops import SimulatedLoop
from harness.parts.agent import ReattachListener, inspect, reattach
from harness.parts.hosts import bootstrap
from harness.parts.job import folder as job_folder
from harness.parts.linux import job_processes
from harness.parts.protocol import Code, Inspect, Program
from harness.parts.records import EventLog, JobFolder, JobStore
from harness.parts.supervisor import Clients
from harness.parts.top import UsageError
from harness.strangers import Stranger, need_stranger
from harness.waiting import wait_until

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


def test_folders_above_a_users_home(monkeypatch: pytest.MonkeyPatch, public_folder: Path) -> None:
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


def test_a_supervisor_writes_to_its_folder_only(public_folder: Path, tmp_path: Path) -> None:
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


MARK = b"the link begins here"
Report = Callable[[str], None]


def test_a_dead_agents_name_does_not_give_a_stranger_the_link() -> None:
    token = os.urandom(12).hex()

    def take_the_name(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(f"\0distrun-agent-{token}")
            server.listen()
            report("listening")
            client, _ = server.accept()
            _, ancillary, _, _ = client.recvmsg(1, socket.CMSG_SPACE(8))
            report(f"{len(ancillary)} messages with descriptors")

    with Stranger(take_the_name) as stranger:
        assert stranger.report() == "listening"
        reattaching = subprocess.run(
            [sys.executable, "-I", "-S", "-c", bootstrap.COMMAND.split(' -c "')[1].rstrip('"')],
            input=bootstrap.run(reattach.__name__, MARK, token, "a-1", {"worker:0": 0}),
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert stranger.report() == "0 messages with descriptors"
    assert reattaching.returncode == job_processes.EXIT_NO_AGENT
    assert job_processes.NO_AGENT.encode() in reattaching.stderr
    assert MARK not in reattaching.stdout


def test_a_living_agent_takes_no_link_from_a_stranger() -> None:
    need_stranger()
    listener = ReattachListener(os.urandom(12).hex(), lambda *_: None)

    def pass_a_link(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(f"\0distrun-agent-{listener.token}")
            link = array.array("i", [0, 1])
            client.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, link)])
            report("sent")
            client.recv(1)

    with Stranger(pass_a_link) as stranger:
        assert stranger.report() == "sent"
        assert listener.accept() is None
    listener._socket.close()


def test_a_program_in_the_home_of_others_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    tmp_path.chmod(0o700)
    asked = Inspect([Program([f"{tmp_path}/python"], "/", {}, [])], 9.0)
    with Stranger(lambda report: report(str(inspect(asked, "/tmp/job").programs))) as stranger:
        assert Code.PROGRAM_NOT_EXECUTABLE in stranger.report()


@pytest.fixture
def open_folder(public_folder: Path) -> JobFolder:
    """A job's folder whose permissions somebody has opened to everybody."""
    store = JobStore(public_folder / "home")
    folder = job_folder.create(store.new_folder("job"), b"x")
    for each in (store.jobs.parent, store.jobs, folder.path):
        each.chmod(0o777)
    return JobFolder(folder.path)


def test_a_supervisor_executes_no_request_of_a_stranger(open_folder: JobFolder) -> None:
    requests: list[Any] = []
    path = str(open_folder.path / "control.sock")

    def ask(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(path)
            report("connected")
            report(f"answered {client.recv(100)!r}")

    with open_folder.listen() as server, contextlib.closing(SimulatedLoop()) as loop:
        os.chmod(path, 0o777)
        clients = Clients(loop, server, lambda *given: requests.append(given), lambda _: None)
        with Stranger(ask) as stranger:
            assert stranger.report() == "connected"
            wait_until(lambda: loop.turn(0.0))
            assert stranger.report() == "answered b''"
        assert not clients._clients
    assert requests == []


def test_a_command_talks_to_no_supervisor_of_a_stranger(open_folder: JobFolder) -> None:
    path = open_folder.path / "control.sock"

    def listen(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(path))
            os.chmod(path, 0o777)
            server.listen()
            report("listening")
            client, _ = server.accept()
            report(f"received {client.recv(100)!r}")

    with Stranger(listen) as stranger:
        assert stranger.report() == "listening"
        wait_until(path.is_socket)
        assert open_folder.connect() is None
        assert stranger.report() == "received b''"

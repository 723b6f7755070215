"""Another user of the host attacks the folder to which an agent writes its tasks' logs."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from distrun.agent import agent_dir, protocol
from distrun.agent.protocol import Code
from harness import strangers
from harness.agents import MakeHost
from harness.strangers import Stranger


def test_an_agent_uses_no_log_folder_of_another_user(make_host: MakeHost) -> None:
    for mode, owner in ((0o700, strangers.UID), (0o777, os.geteuid())):
        host = make_host(configured=False)
        host.folder.mkdir()
        strangers.give(host.folder, owner, -1)
        host.folder.chmod(mode)
        host.send(protocol.Configure(protocol.PROTOCOL, host.job_id, str(host.folder), 0.0))
        cause = host.expect(protocol.Fault).cause
        assert (cause.code, cause.errno) == (Code.LOG_DIR_NOT_CREATED, errno.EPERM)


def test_a_folder_that_takes_the_place_of_the_logs_gets_nothing(
    make_host: MakeHost, public_folder: Path
) -> None:
    strangers.give(public_folder)
    host = make_host(configured=False)
    host.folder = public_folder / "logs"
    host.configure()

    def exchange(report: Callable[[str], None]) -> None:
        host.folder.rename(public_folder / "moved")
        host.folder.mkdir()
        host.folder.chmod(0o777)
        report("done")

    with Stranger(exchange) as stranger:
        assert stranger.report() == "done"
    host.run("worker:0", "echo", "a secret")
    host.expect(protocol.TaskEnded)
    assert os.listdir(host.folder) == []
    assert (public_folder / "moved" / "worker-0.log").read_text() == "a secret\n"


def exchange(folder: Path, files: Path) -> None:
    """A stranger replaces a folder that may be above the agent's files, and adds a script."""

    def attack(report: Callable[[str], None]) -> None:
        folder.rename(folder.with_name("moved"))
        with contextlib.suppress(OSError):
            files.mkdir(parents=True)
            (files / "train.py").write_text("attack()")
        report("done")

    with Stranger(attack) as stranger:
        assert stranger.report() == "done"
    assert not (files / "train.py").exists()


@pytest.mark.parametrize("way", ["of a stranger", "writable", "far above", "a link"])
def test_a_private_folder_cannot_be_exchanged_with_one_around_it(
    way: str, monkeypatch: pytest.MonkeyPatch, public_folder: Path, tmp_path: Path
) -> None:
    around = public_folder / "distrun"
    exchanged, state = around / "agents", public_folder
    if way in ("far above", "a link"):
        exchanged, state = around, around / "user" / "state"
        state.mkdir(parents=True)
    else:
        public_folder.chmod(0o1777)
        around.mkdir()
        around.chmod(0o777)
    if way == "of a stranger":
        strangers.give(around)
    if way == "a link":
        (tmp_path / "link").symlink_to(around)
        state = tmp_path / "link" / "user" / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    files = Path(agent_dir.create("job", "host").files_path)

    exchange(exchanged, files)
    assert files.parent.parent == tmp_path

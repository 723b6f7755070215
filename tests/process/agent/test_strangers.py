"""Another user of the host attacks the logs of tasks, or sends to their DISTRUN_NOTIFY."""

import contextlib
import errno
import itertools
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness import strangers
from harness.agents import PLAIN_PYTHON, TIMEOUT, Host, MakeHost, script
from harness.parts.agent import agent_dir, protocol
from harness.parts.protocol import Code
from harness.strangers import Stranger
from harness.waiting import wait_until


def test_an_agent_uses_no_log_folder_of_another_user(make_host: MakeHost) -> None:
    for mode, owner in ((0o700, strangers.UID), (0o777, os.geteuid())):
        host = make_host(configured=False)
        host.folder.mkdir()
        strangers.give(host.folder, owner, -1)
        host.folder.chmod(mode)
        host.send(protocol.Configure(protocol.PROTOCOL, host.job_id, str(host.folder), 0.0))
        cause = host.expect(protocol.Fault).cause
        assert (cause.code, cause.errno) == (Code.LOG_DIR_NOT_CREATED, errno.EPERM)


def test_a_folder_in_place_of_the_logs_gets_none(make_host: MakeHost, public_folder: Path) -> None:
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


# Prints its address; at each SIGUSR1 it has a child report the next step.
SPEAKER = """
import os, signal, socket
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(os.environ["DISTRUN_NOTIFY"], flush=True)
step = 0
while True:
    signal.sigwait([signal.SIGUSR1])
    step += 1
    if os.fork() == 0:  # a child of the task's first process is a process of the task, too
        os.setsid()
        sender.send(b"STEP=%d" % step)
        signal.pause()
"""


@pytest.fixture
def address(host: Host, tmp_path: Path) -> str:
    """Where a task takes reports, which reports a step whenever it is asked to."""
    host.run("worker:0", *script(tmp_path, "speaker.py", SPEAKER))
    wait_until(lambda: host.lines("worker:0"), timeout=TIMEOUT)
    return "\0" + host.lines("worker:0")[0][1:]


def next_step(host: Host) -> dict[str, str]:
    """Have the task report its next step, and return the values that the supervisor receives."""
    os.kill(host.all(protocol.TaskStarted)[0].pid, signal.SIGUSR1)
    return host.expect(protocol.Progress, "worker:0").values


def test_a_stranger_cannot_report_and_its_flood_harms_nothing(host: Host, address: str) -> None:
    def flood(report: Callable[[str], None]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"STEP=1000000", address)
            report("sent")
            for number in itertools.count():
                keys = (b"KEY%d%d=%s" % (number, each, b"x" * 100) for each in range(30))
                sender.sendto(b" ".join(keys), address)

    with Stranger(flood) as stranger:
        assert stranger.report() == "sent"
        told = host.expect(protocol.ProgressIgnored)
        cause = (told.task, told.cause.code, told.cause.pid)
        assert cause == ("worker:0", Code.PROGRESS_FROM_STRANGER, stranger.pid)
        for step in range(1, 3):
            assert next_step(host) == {"STEP": str(step)}
        assert psutil.Process(host.pid).memory_info().rss < 40_000_000  # it needs half
        began = time.monotonic()
        host.stop("worker:0", signal.SIGKILL)
        host.expect(protocol.TaskEnded, "worker:0")
        assert time.monotonic() - began < 5.0
    assert len(host.all(protocol.ProgressIgnored)) == 1


def test_a_task_does_not_speak_for_another(host: Host, address: str) -> None:
    send = f"s.sendto(b'STEP=1000000', {address!r}); time.sleep(600)"
    program = f"import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); {send}"
    host.run("worker:1", *PLAIN_PYTHON, "-c", program)
    assert host.expect(protocol.ProgressIgnored).task == "worker:0"
    assert next_step(host) == {"STEP": "1"}

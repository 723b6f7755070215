"""How the agent executes a program, what it says where it cannot, and what comes of a task."""

import errno
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from harness.agents import TIMEOUT, Host, MakeHost, open_local, script, with_stub
from harness.parts.agent import Loop, program, protocol
from harness.parts.hosts import local, open_connection
from harness.parts.linux import ForkedCall
from harness.parts.protocol import Cause, CauseError, Code
from harness.parts.words import cause_text
from harness.requirements import AS_ROOT, skip
from harness.waiting import wait_until


def refusal(host: Host, *argv: str, **options: Any) -> Cause:
    host.start("worker:0", *argv, **options)
    return host.expect(protocol.TaskNotStarted).cause


def test_why_a_program_cannot_be_executed_is_said(any_host: Host, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo hello\n")
    assert refusal(any_host, "./no-such").code is Code.PROGRAM_NOT_FOUND
    assert refusal(any_host, str(plain)).code is Code.PROGRAM_NOT_EXECUTABLE
    plain.chmod(0o755)
    assert refusal(any_host, str(plain)).code is Code.PROGRAM_FORMAT_UNKNOWN
    gone = str(tmp_path / "gone")
    found = refusal(any_host, "true", workdir=gone)
    assert (found.code, found.path) == (Code.WORKDIR_NOT_ENTERED, gone)
    longest = {"TF_CONFIG": "x" * (128 * 1024)}
    assert refusal(any_host, "true", env=longest).code is Code.ARGUMENTS_TOO_LONG
    assert "null byte" in cause_text(refusal(any_host, "true", "a\0b"))
    for written, told in (("/opt/no/python -u\n", "/opt/no/python"), ("/bin/sh\r\n", "/bin/sh\r")):
        plain.write_bytes(f"#!{written}".encode())  # what is missing is its interpreter
        assert refusal(any_host, "./plain", workdir=str(tmp_path)).path == told
    (tmp_path / "closed").mkdir(mode=0o000)
    env = {"PATH": f"{tmp_path}/closed:{tmp_path}"}
    assert refusal(any_host, "no-such", env=env).code is Code.PROGRAM_NOT_FOUND
    assert program._reason([b"no-such"], {b"PATH": b"/no"}) == errno.ENOENT  # root enters all
    (any_host.folder / "link.log").symlink_to(tmp_path / "elsewhere")
    assert refusal(any_host, "true", log="link.log").code is Code.LOG_NOT_OPENED
    assert not (tmp_path / "elsewhere").exists()
    assert not any_host.all(protocol.TaskStarted)


def test_environment(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(os.environb, b"RAW", b"caf\xe9")
    monkeypatch.setenv("TF_CONFIG", "from the shell")
    monkeypatch.setenv("DISTRUN_HOME", "/nowhere")
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("OVERWRITTEN", "old")
    host = make_host()
    show = script(tmp_path, "show.py", "import os; os.write(1, repr(dict(os.environb)).encode())")
    env = {"OVERWRITTEN": "new", "BYTES": b"\xff\n'".decode("utf-8", "surrogateescape")}
    host.run("worker:0", *show, env=env, unset=["TF_CONFIG"])
    host.expect(protocol.TaskEnded)
    shown = eval(host.log("worker:0"))
    names = (b"RAW", b"BYTES", b"KEPT", b"OVERWRITTEN", b"TF_CONFIG")
    assert [shown.get(name) for name in names] == [b"caf\xe9", b"\xff\n'", b"kept", b"new", None]
    own = {b"DISTRUN_JOB_ID", b"DISTRUN_TASK", b"DISTRUN_NOTIFY"}
    assert {name for name in shown if name.startswith(b"DISTRUN_")} == own
    show = script(tmp_path, "show2.py", "import os; print(os.environ['TF_CONFIG'], end='')")
    host.run("worker:1", *show, tf_config=['{"cluster": ', "{}", ', "task": {}}'])
    host.expect(protocol.TaskEnded, "worker:1")
    assert host.log("worker:1") == b'{"cluster": {}, "task": {}}'


INSPECT = """
import os, signal
state = {line.split(":")[0]: line.split(":")[1].strip() for line in open("/proc/self/status")}
print("stdin", repr(os.read(0, 10)))
print("umask", state["Umask"])
print("session", os.getsid(0) == os.getpid() == os.getpgid(0))
print("descriptors", sorted(os.listdir("/proc/self/fd")))
"""


def test_a_task_starts_with_nothing_of_the_agents(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a shell script with `trap '' ...` or nohup would leave them.
    ignored = [signal.SIGUSR1, signal.SIGTTOU, signal.SIGALRM, signal.SIGHUP, signal.SIGRTMIN]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        host = make_host()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for number, handler in before.items():
            signal.signal(number, handler)
    host.send(protocol.HoldPorts(3, []))
    host.run("worker:1", "sleep", "60")
    # Python ignores SIGPIPE and SIGXFSZ itself; the shell shows what it was given.
    host.run("worker:2", "sh", "-c", "exec cat /proc/self/status")
    host.expect(protocol.TaskEnded, "worker:2")
    status = {line.partition(":")[0]: line.partition(":")[2] for line in host.lines("worker:2")}
    for mask in (int(status["SigIgn"], 16), int(status["SigBlk"], 16)):
        # Not 32 and 33: they are the C library's own, and posix_spawn, as make uses it, ignores
        # them for its children; no program can tell or change it.
        assert [number for number in signal.valid_signals() if mask >> (number - 1) & 1] == []
    host.run("worker:0", *script(tmp_path, "inspect.py", INSPECT))
    host.expect(protocol.TaskEnded, "worker:0")
    shown = dict(line.split(" ", 1) for line in host.lines("worker:0"))
    umask = os.umask(0)
    os.umask(umask)
    assert shown["stdin"] == "b''"
    assert int(shown["umask"], 8) == umask
    assert shown["session"] == "True"
    assert shown["descriptors"] == "['0', '1', '2', '3']", "3 is the listing's"


# An agent that can make no process while there is a file `full` beside it.
FULL = """\
import errno, os, sys
sys.path.insert(0, sys.argv.pop(1))
forked = os.fork
def fork():
    if os.path.exists({full!r}):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return forked()
os.fork = fork
from {{module}} import main
main()
"""


CASES: dict[str, Callable[[Loop], object]] = {
    "a call in a child": lambda loop: ForkedCall(loop, bytes, 0.0, print),
    "the agent": lambda _: [f() for f in (local.become_supervisor, partial(open_local, "job-a"))],
    "an ssh client": lambda _: open_connection(["no-such-ssh"], "job-a", Code.SSH_NOT_STARTED),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_stays_open(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    monkeypatch.setattr(os, "fork", Mock(side_effect=full))
    monkeypatch.setattr(local, "_is_supervisor", False)
    before = descriptors("self")
    for _ in range(2):
        with closing(Loop()) as loop, suppress(OSError, CauseError):
            CASES[case](loop)
    assert descriptors("self") == before


def test_an_agent_that_cannot_start_keeps_nothing_open(make_host: MakeHost, tmp_path: Path) -> None:
    full = tmp_path / "full"
    stub = FULL.format(full=str(full))
    host = make_host(changed=partial(with_stub, stub))
    notify = {"notify": True}
    host.run("worker:0", "true", **notify)
    host.expect(protocol.TaskEnded)
    full.touch()
    argv = script(tmp_path, "program.py", "")
    before = pipes(host.pid)
    for _ in range(2):
        host.start("worker:0", *argv, **notify)
        assert host.expect(protocol.TaskNotStarted).cause.errno == errno.EAGAIN
    assert pipes(host.pid) == before
    full.unlink()
    host.run("worker:0", "true", **notify)  # and it goes on once there is room
    host.expect(protocol.TaskEnded)


def pipes(pid: int) -> list[str]:
    """Its pipes and sockets: the files of logs are opened and closed as they are needed."""
    return [each for each in descriptors(pid) if ": pipe" in each or ": socket" in each]


def descriptors(pid: int | str) -> list[str]:
    """What a process has open, without what is closed by the time that it is looked at."""
    found = []
    for each in sorted(os.listdir(f"/proc/{pid}/fd")):
        with suppress(FileNotFoundError):
            found.append(f"{each}: {os.readlink(f'/proc/{pid}/fd/{each}')}")
    return found


def test_a_log_is_appended_to_and_its_index_says_when(any_host: Host) -> None:
    before = time.time()
    any_host.run("worker:0", "sh", "-c", "echo one; echo two >&2")
    any_host.expect(protocol.TaskEnded)
    any_host.run("worker:0", "sh", "-c", "printf three", attempt=1)
    any_host.expect(protocol.TaskEnded)
    assert any_host.log("worker:0") == b"one\ntwo\nthree"
    raw = (any_host.folder / "worker-0.idx").read_bytes()
    records = list(struct.iter_unpack("<dQ", raw))
    assert records[-1][1] == 13
    assert [size for _, size in records] == sorted({size for _, size in records})
    assert all(before <= at <= time.time() for at, _ in records)


def test_logs_are_indexed_without_inotify_too(make_host: MakeHost) -> None:
    if subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        skip("user namespaces cannot be made here", AS_ROOT)
    setting = 'echo 0 > /proc/sys/user/max_inotify_watches && exec "$@"'

    unshare = ["unshare", "-Ur", "sh", "-c", setting, "sh"]
    host = make_host(changed=lambda command: [*unshare, *command])
    host.run("worker:0", "sh", "-c", "echo ready; exec sleep 60")
    index = host.folder / "worker-0.idx"
    wait_until(lambda: index.stat().st_size > 0, timeout=TIMEOUT)


NOTIFY = """
import os, socket, sys, time
address = "\\0" + os.environ["DISTRUN_NOTIFY"][1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    for step in range(int(sys.argv[1])):
        sender.sendto(b"STEP=%d " % step + b" ".join(b"K%d=1" % n for n in range(31)), address)
"""


def test_progress_is_passed_on_and_its_last_never_lost(any_host: Host, tmp_path: Path) -> None:
    any_host.run("worker:0", *script(tmp_path, "notify.py", NOTIFY), "50")
    any_host.expect(protocol.TaskEnded)
    told = any_host.all(protocol.Progress)
    assert told[-1].values == {"STEP": "49", **{f"K{n}": "1" for n in range(31)}}
    assert any_host.said.index(told[-1]) < any_host.said.index(any_host.all(protocol.TaskEnded)[0])

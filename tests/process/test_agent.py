"""The real agent as a process, driven over its protocol by what a supervisor uses."""

from __future__ import annotations

import collections
import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrun import transport
from distrun.agent import wire

TIMEOUT = 20.0
PLAIN_PYTHON = [sys.executable, "-I", "-S"]


def _python38() -> str | None:
    choices = [*Path.home().glob(".pyenv/versions/3.8.*/bin/python3"), shutil.which("python3.8")]
    for each in choices:  # a shim of pyenv's need not have any Python behind it
        if (
            each
            and subprocess.run([each, "--version"], capture_output=True, check=False).returncode
            == 0
        ):
            return str(each)
    return None


class Host:
    """An agent and what it has said; `job_id` is in its tasks' environment."""

    def __init__(self, folder: Path, job_id: str) -> None:
        self.folder = folder
        self.job_id = job_id
        self.link = transport.start_local_agent("localhost", job_id)
        self.said: list[Any] = []
        self.seqs: list[int] = []
        self._unseen: collections.deque[Any] = collections.deque()
        self.pid = 0

    @property
    def guard(self) -> int:
        return self.link.process.pid

    def configure(self, lease: float | None = 0.0) -> wire.Hello:
        self.send(wire.Configure(wire.PROTOCOL, self.job_id, str(self.folder), lease))
        hello = self.expect(wire.Hello)
        self.pid = hello.pid
        return hello

    def send(self, message: Any) -> None:
        self.link.channel.send(message)
        deadline = time.monotonic() + TIMEOUT
        while self.link.channel.pending and time.monotonic() < deadline:
            self._wait(0.01)
            self.link.channel.flush()

    def start(self, task: str, *argv: str, **options: Any) -> None:
        """Start `argv`; `env` and wire.StartTask's other fields as options."""
        given = options.pop("env", {})
        fields = {
            "attempt": 0,
            "workdir": str(self.folder),
            "log": f"{task.replace(':', '-')}.log",
            "unset": [],
            **options,
        }
        env = {"DISTRUN_JOB_ID": self.job_id, "DISTRUN_TASK": task, **given}
        self.send(wire.StartTask(task=task, argv=list(argv), env=env, **fields))

    def run(self, task: str, *argv: str, **options: Any) -> wire.TaskStarted:
        self.start(task, *argv, **options)
        return self.expect(wire.TaskStarted, task)

    def stop(self, task: str, signum: int = signal.SIGTERM, grace: float = 10.0) -> None:
        self.send(wire.StopTask(task, signum, grace))

    def expect(self, kind: type[Any], task: str | None = None, timeout: float = TIMEOUT) -> Any:
        """The next report of that kind (and task); what else came stays for later calls."""
        deadline = time.monotonic() + timeout
        passed: list[Any] = []
        while True:
            while self._unseen:
                message = self._unseen.popleft()
                if isinstance(message, kind) and task in (None, getattr(message, "task", None)):
                    self._unseen.extendleft(reversed(passed))
                    return message
                passed.append(message)
            if self.link.channel.ended or time.monotonic() > deadline:
                pytest.fail(f"no {kind.__name__} of {task}; it said {self.said}")
            self._wait(deadline - time.monotonic())

    def _wait(self, timeout: float) -> None:
        import select

        select.select([self.link.channel.reader], [], [], max(0.0, timeout))
        for seq, message in self.link.channel.receive():
            self.said.append(message)
            self.seqs.append(seq)
            self._unseen.append(message)

    def expect_end(self, timeout: float = TIMEOUT) -> int:
        """The guard's exit status, once the link has ended and all it said is read."""
        deadline = time.monotonic() + timeout
        while not self.link.channel.ended and time.monotonic() < deadline:
            self._wait(deadline - time.monotonic())
        return self.link.process.wait(max(0.1, deadline - time.monotonic()))

    def all(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.said if isinstance(message, kind)]

    def log(self, task: str) -> bytes:
        return (self.folder / f"{task.replace(':', '-')}.log").read_bytes()

    def lines(self, task: str) -> list[str]:
        return self.log(task).decode().splitlines()

    def hang_up(self) -> None:
        if not (self.link.channel.broken and self.link.channel.ended):
            self.link.channel.close()

    def close(self) -> None:
        if self.link.process.poll() is None:
            for pid in (self.pid, self.guard):
                with contextlib.suppress(ProcessLookupError):
                    if pid:
                        os.kill(pid, signal.SIGCONT)
        self.hang_up()
        try:
            self.link.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.link.process.kill()
            self.link.process.wait()
            raise


class MakeHost:
    """Starts agents, and sees that they are gone at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.hosts: list[Host] = []

    def __call__(self, *, configured: bool = True, job_id: str = "job-a") -> Host:
        host = Host(self._folder / f"logs {len(self.hosts)} 'of' it\n", job_id)
        self.hosts.append(host)
        if configured:
            host.configure()
        return host


@pytest.fixture
def make_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeHost]:
    for name in list(os.environ):
        if name.startswith("DISTRUN_"):
            monkeypatch.delenv(name)
    make = MakeHost(tmp_path)
    yield make
    for host in make.hosts:
        host.close()


@pytest.fixture
def host(make_host: MakeHost) -> Host:
    return make_host()


@pytest.fixture(params=["this python", "python 3.8"])
def any_host(
    request: pytest.FixtureRequest, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> Host:
    """The agent on this Python, and on the oldest that remote hosts may have."""
    if request.param == "python 3.8":
        python = _python38()
        if python is None:
            pytest.skip("no python3.8 here")
        monkeypatch.setattr(transport.sys, "executable", python)
    host = make_host()
    monkeypatch.undo()
    return host


def script(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(text)
    return [*PLAIN_PYTHON, str(path)]


# Catches SIGTERM and says so; argv: its name, and how its child is to leave it.
CATCHER = """
import os, signal, sys, time
name = sys.argv[1]
signal.signal(signal.SIGTERM, lambda *_: os.write(1, f"{name} told\\n".encode()))
os.write(1, f"{name} ready {os.getpid()}\\n".encode())
while True:  # not pause(): the signal may come just before it
    time.sleep(0.05)
"""

# Starts `sys.argv[1:]` by a double fork in a session of its own, with an empty environment, and
# every descriptor closed where the first argument is "closed".
DAEMON = """
import os, sys
how, *argv = sys.argv[1:]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if how == "closed":
            os.closerange(0, 64)
        os.execve(argv[0], argv, {})
    os._exit(0)
os.wait()
"""

SLEEP = shutil.which("sleep") or "/bin/sleep"


def pids_of(host: Host, task: str, count: int, wait_until: Any) -> list[int]:
    """The process ids that `ready PID` lines of a log name, once there are `count`."""
    found = wait_until(
        lambda: (
            [line.split() for line in host.lines(task) if " ready " in line][:count][count - 1 :]
            and [int(line.split()[2]) for line in host.lines(task) if " ready " in line]
        ),
        timeout=TIMEOUT,
        what=f"{count} processes of {task} ready",
    )
    return list(found)


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


# Hello --------------------------------------------------------------------------------------


def test_it_says_what_it_is(any_host: Host):
    hello = any_host.all(wire.Hello)[0]
    assert hello.protocol == wire.PROTOCOL
    assert hello.hostname == socket.gethostname()
    assert 0 < hello.cores <= (os.cpu_count() or 1)
    assert psutil.Process(hello.pid).ppid() == any_host.guard
    assert any_host.folder.stat().st_mode & 0o777 == 0o700


def test_it_refuses_another_protocol(make_host: MakeHost):
    host = make_host(configured=False)
    host.send(wire.Configure(999, "job", str(host.folder), 0.0))
    assert "protocol 999" in host.expect(wire.Fault).reason
    assert host.expect_end() == 0


def test_its_reports_are_numbered_without_a_gap(host: Host):
    for index in range(3):
        host.start(f"worker:{index}", "true", notify=False)
    for index in range(3):
        host.expect(wire.TaskEnded, f"worker:{index}")
    assert host.seqs == list(range(1, 11))


def test_it_sends_again_what_was_not_acknowledged(host: Host):
    host.run("worker:0", "true")
    host.expect(wire.TaskEnded)
    host.send(wire.Ack(2))
    host.send(wire.Attach(wire.PROTOCOL, host.job_id, 0))
    host.send(wire.HoldPorts(0, []))
    host.expect(wire.PortsHeld)
    assert host.seqs == [1, 2, 3, 4, 3, 4, 5]


def test_noise_on_the_link_ends_it_with_one_fault(any_host: Host):
    any_host.run("worker:0", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    os.write(any_host.link.channel.writer, b"Welcome to Linux!\n" * 3)
    with socket.socket(fileno=os.dup(any_host.link.channel.writer)) as link:
        link.shutdown(socket.SHUT_WR)
    any_host.expect_end()
    assert len(any_host.all(wire.Fault)) == 1
    assert any_host.all(wire.TaskEnded)


def test_the_last_reports_reach_a_reader_that_was_slow(host: Host):
    # An empty range: each is refused at once.
    orders = wire.encode(wire.HoldPorts(1, [], 2, 1)) * 2000 + wire.encode(wire.Shutdown())
    with socket.socket(fileno=os.dup(host.link.channel.writer)) as link:
        link.setblocking(True)
        link.sendall(orders)
    os.set_blocking(host.link.channel.reader, False)
    with contextlib.suppress(subprocess.TimeoutExpired):  # nobody reads meanwhile
        host.link.process.wait(0.5)
    host.expect_end()
    assert len(host.all(wire.PortsRefused)) == 2000


# Ports --------------------------------------------------------------------------------------


def bind(port: int, family: int, *options: int, v6only: bool = False) -> socket.socket:
    taker = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            taker.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            taker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
        taker.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
        taker.listen()
    except OSError:
        taker.close()
        raise
    return taker


def test_a_held_port_cannot_be_taken(any_host: Host):
    any_host.send(wire.HoldPorts(2, []))
    ports = any_host.expect(wire.PortsHeld).chosen
    assert len(set(ports)) == 2
    for port in ports:
        for family, v6only in (
            (socket.AF_INET, False),
            (socket.AF_INET6, False),
            (socket.AF_INET6, True),
        ):
            for options in ((), (socket.SO_REUSEADDR,)):
                with pytest.raises(OSError, match="in use"):
                    bind(port, family, *options, v6only=v6only).close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_task_that_shares_a_held_port_is_reached_on_it(host: Host, family: int):
    host.send(wire.HoldPorts(1, []))
    (port,) = host.expect(wire.PortsHeld).chosen
    with bind(port, family, socket.SO_REUSEPORT) as server:
        for _ in range(20):
            address = "127.0.0.1" if family == socket.AF_INET else "::1"
            with (
                socket.create_connection((address, port), timeout=TIMEOUT),
                server.accept()[0],
            ):
                pass


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("option", [socket.SO_REUSEPORT, socket.SO_REUSEADDR])
def test_a_wanted_port_with_a_stale_server_is_refused_and_named(
    host: Host, family: int, option: int
):
    with bind(0, family, option) as stale:
        port = stale.getsockname()[1]
        host.send(wire.HoldPorts(0, [port]))
        refused = host.expect(wire.PortsRefused)
    assert str(os.getpid()) in refused.taken[str(port)]
    host.send(wire.HoldPorts(0, [port]))
    assert host.expect(wire.PortsHeld).wanted == [port], "it can be had once the server is gone"


def test_a_port_is_held_by_one_agent_only_and_free_after_it(make_host: MakeHost):
    first, second = make_host(), make_host()
    first.send(wire.HoldPorts(1, []))
    ports = first.expect(wire.PortsHeld).chosen
    second.send(wire.HoldPorts(0, ports))
    assert "another distrun job" in second.expect(wire.PortsRefused).taken[str(ports[0])]
    first.send(wire.Shutdown())
    first.expect_end()
    second.send(wire.HoldPorts(0, ports))
    assert second.expect(wire.PortsHeld).wanted == ports


def test_of_several_wanted_ports_none_is_held_if_one_is_taken(make_host: MakeHost):
    host, other = make_host(), make_host()
    host.send(wire.HoldPorts(1, []))
    (free,) = host.expect(wire.PortsHeld).chosen
    with bind(0, socket.AF_INET) as server:
        other.send(wire.HoldPorts(1, [server.getsockname()[1]]))
        refused = other.expect(wire.PortsRefused)
        assert list(refused.taken) == [str(server.getsockname()[1])]
    other.send(wire.HoldPorts(0, [free]))
    other.expect(wire.PortsRefused)


def test_ports_come_from_the_range_that_is_asked_for(make_host: MakeHost):
    host, other = make_host(), make_host()
    host.send(wire.HoldPorts(20, []))
    held = sorted(host.expect(wire.PortsHeld).chosen)
    first, last = held[0], held[-1]
    other.send(wire.HoldPorts(1, [], first, last))
    answer = other.expect(wire.PortsHeld if last - first > 19 else wire.PortsRefused)
    if isinstance(answer, wire.PortsHeld):
        assert first < answer.chosen[0] < last
        assert answer.chosen[0] not in held
    other.send(wire.HoldPorts(1, [], first, first))
    assert f"from {first} to {first}" in other.expect(wire.PortsRefused).reason


def test_too_many_ports_for_its_descriptors_are_refused(host: Host):
    resource.prlimit(host.pid, resource.RLIMIT_NOFILE, (64, 64))
    host.send(wire.HoldPorts(100, []))
    assert "Too many open files" in host.expect(wire.PortsRefused).reason
    host.run("worker:0", "true")
    host.expect(wire.TaskEnded)


# Executing ----------------------------------------------------------------------------------


def refusal(host: Host, *argv: str, **options: Any) -> str:
    host.start("worker:0", *argv, **options)
    return str(host.expect(wire.TaskNotStarted).reason)


def test_why_a_program_cannot_be_executed_is_said(any_host: Host, tmp_path: Path):
    plain = tmp_path / "plain"
    plain.write_text("echo hello\n")
    assert "there is no program 'no-such' in PATH" in refusal(any_host, "no-such")
    assert "there is no program './no-such'" in refusal(any_host, "./no-such")
    assert "may not be executed" in refusal(any_host, str(plain))
    assert "may not be executed" in refusal(any_host, str(tmp_path))
    plain.chmod(0o755)
    assert "its first line should be like #!/bin/sh" in refusal(any_host, str(plain))
    gone = str(tmp_path / "gone")
    assert f"working folder '{gone}'" in refusal(any_host, "true", workdir=gone)
    assert f"working folder '{plain}'" in refusal(any_host, "true", workdir=str(plain))
    assert "128 KiB" in refusal(any_host, "true", env={"TF_CONFIG": "x" * (128 * 1024)})
    assert "null byte" in refusal(any_host, "true", "a\0b")
    assert not any_host.all(wire.TaskStarted)
    any_host.run("worker:0", "true")  # and the agent is none the worse
    any_host.expect(wire.TaskEnded)


def test_a_script_whose_interpreter_is_missing_is_not_called_missing(host: Host, tmp_path: Path):
    path = tmp_path / "job.py"
    path.write_text("#!/opt/no/python\n")
    path.chmod(0o755)
    assert "/opt/no/python" in refusal(host, str(path))
    assert "/opt/no/python" in refusal(host, "./job.py", workdir=str(tmp_path))


def test_a_log_that_cannot_be_opened_is_said(host: Host, tmp_path: Path):
    (host.folder / "link.log").symlink_to(tmp_path / "elsewhere")
    assert "cannot be started" in refusal(host, "true", log="link.log")
    assert not (tmp_path / "elsewhere").exists()


def test_a_tasks_environment(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(os.environb, b"RAW", b"caf\xe9")  # type: ignore[misc]
    monkeypatch.setenv("TF_CONFIG", "from the shell")
    monkeypatch.setenv("DISTRUN_HOME", "/nowhere")
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("OVERWRITTEN", "old")
    host = make_host()
    show = script(tmp_path, "show.py", "import os; os.write(1, repr(dict(os.environb)).encode())")
    env = {"OVERWRITTEN": "new", "BYTES": b"\xff\n'".decode("utf-8", "surrogateescape")}
    host.run("worker:0", *show, env=env, unset=["TF_CONFIG"])
    host.expect(wire.TaskEnded)
    shown = eval(host.log("worker:0"))
    assert shown[b"RAW"] == b"caf\xe9"
    assert shown[b"BYTES"] == b"\xff\n'"
    assert shown[b"KEPT"] == b"kept"
    assert shown[b"OVERWRITTEN"] == b"new"
    assert b"TF_CONFIG" not in shown
    assert {name for name in shown if name.startswith(b"DISTRUN_")} == {
        b"DISTRUN_JOB_ID",
        b"DISTRUN_TASK",
        b"DISTRUN_NOTIFY",
    }


INSPECT = """
import os, signal
state = {line.split(":")[0]: line.split(":")[1].strip() for line in open("/proc/self/status")}
print("stdin", repr(os.read(0, 10)))
print("ignored", state["SigIgn"])
print("blocked", state["SigBlk"])
print("umask", state["Umask"])
print("session", os.getsid(0) == os.getpid() == os.getpgid(0))
print("descriptors", sorted(os.listdir("/proc/self/fd")))
"""


def test_a_task_starts_with_nothing_of_the_agents(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # As a shell script with `trap '' ...` or nohup would leave them.
    ignored = [signal.SIGUSR1, signal.SIGTTOU, signal.SIGALRM, signal.SIGHUP, signal.SIGRTMIN]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    try:
        host = make_host()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    host.send(wire.HoldPorts(3, []))
    host.run("worker:1", "sleep", "60")
    # Python ignores SIGPIPE and SIGXFSZ itself; the shell shows what it was given.
    host.run("worker:2", "sh", "-c", "exec cat /proc/self/status")
    host.expect(wire.TaskEnded, "worker:2")
    status = {line.partition(":")[0]: line.partition(":")[2] for line in host.lines("worker:2")}
    for mask in (int(status["SigIgn"], 16), int(status["SigBlk"], 16)):
        # Not 32 and 33: they are the C library's own, and posix_spawn, as make uses it, ignores
        # them for its children; no program can tell or change it.
        assert [number for number in signal.valid_signals() if mask >> (number - 1) & 1] == []
    host.run("worker:0", *script(tmp_path, "inspect.py", INSPECT))
    host.expect(wire.TaskEnded, "worker:0")
    shown = dict(line.split(" ", 1) for line in host.lines("worker:0"))
    umask = os.umask(0)
    os.umask(umask)
    assert shown["stdin"] == "b''"
    assert int(shown["umask"], 8) == umask
    assert shown["session"] == "True"
    assert shown["descriptors"] == "['0', '1', '2', '3']", "3 is the listing's"


def test_exits_are_told_apart(any_host: Host):
    for code in (0, 1, 3, 42, 255):
        any_host.run("worker:0", "sh", "-c", f"exit {code}")
        exited = any_host.expect(wire.TaskExited)
        assert (exited.code, exited.signal) == (code, None)
        any_host.expect(wire.TaskEnded)
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        any_host.run("worker:0", "sh", "-c", f"kill -{number.value} $$")
        exited = any_host.expect(wire.TaskExited)
        assert (exited.code, exited.signal) == (None, number)
        any_host.expect(wire.TaskEnded)


def test_many_that_end_at_once_are_all_reported(host: Host):
    names = [f"worker:{index}" for index in range(60)]
    for name in names:
        host.start(name, "sh", "-c", "exit 3")
    for name in names:
        host.expect(wire.TaskStarted, name)
        assert host.expect(wire.TaskExited, name).code == 3
        host.expect(wire.TaskEnded, name)


# Logs ---------------------------------------------------------------------------------------


def test_a_log_is_appended_to_and_its_index_says_when(any_host: Host):
    before = time.time()
    any_host.run("worker:0", "sh", "-c", "echo one; echo two >&2")
    any_host.expect(wire.TaskEnded)
    any_host.run("worker:0", "sh", "-c", "printf three", attempt=1)
    any_host.expect(wire.TaskEnded)
    assert any_host.log("worker:0") == b"one\ntwo\nthree"
    raw = (any_host.folder / "worker-0.idx").read_bytes()
    records = list(struct.iter_unpack("<dQ", raw))
    assert records[-1][1] == 13
    assert [size for _, size in records] == sorted({size for _, size in records})
    assert all(before <= at <= time.time() for at, _ in records)


@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_logs_are_indexed_without_inotify_too(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, wait_until: Any, limit: str
):
    if subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        pytest.skip("user namespaces are not to be had here")
    isolated = transport.isolated_python
    setting = f'echo 0 > /proc/sys/user/{limit} && exec "$@"'
    monkeypatch.setattr(
        transport,
        "isolated_python",
        lambda *args: ["unshare", "-Ur", "sh", "-c", setting, "sh", *isolated(*args)],
    )
    host = make_host()
    host.send(wire.HoldPorts(2, []))
    host.expect(wire.PortsHeld)
    for index in range(3):
        host.run(f"worker:{index}", "sh", "-c", "echo ready; exec sleep 60")
    for index in range(3):
        path = host.folder / f"worker-{index}.idx"
        wait_until(lambda path=path: path.stat().st_size, timeout=TIMEOUT)


def test_a_thousand_lines_of_four_tasks_are_all_in_their_logs(host: Host, tmp_path: Path):
    write = script(
        tmp_path,
        "write.py",
        "import sys\nfor n in range(1000): print(sys.argv[1], n, flush=True)",
    )
    names = [f"worker:{index}" for index in range(4)]
    for name in names:
        host.start(name, *write, name)
    for name in names:
        host.expect(wire.TaskEnded, name)
        assert host.lines(name) == [f"{name} {number}" for number in range(1000)]
        raw = (host.folder / f"{name.replace(':', '-')}.idx").read_bytes()
        assert list(struct.iter_unpack("<dQ", raw))[-1][1] == len(host.log(name))


# Progress -----------------------------------------------------------------------------------

NOTIFY = """
import os, socket, sys, time
address = "\\0" + os.environ["DISTRUN_NOTIFY"][1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    for step in range(int(sys.argv[1])):
        sender.sendto(b"STEP=%d LOSS=0.5" % step, address)
"""


def test_progress_is_passed_on_and_the_last_of_it_never_lost(any_host: Host, tmp_path: Path):
    any_host.run("worker:0", *script(tmp_path, "notify.py", NOTIFY), "50")
    any_host.expect(wire.TaskEnded)
    told = any_host.all(wire.Progress)
    assert told[-1].values == {"STEP": "49", "LOSS": "0.5"}
    assert any_host.said.index(told[-1]) < any_host.said.index(any_host.all(wire.TaskEnded)[0])


def test_tasks_that_never_stop_talking_can_be_stopped(host: Host, tmp_path: Path):
    names = [f"worker:{index}" for index in range(2)]
    talk = script(tmp_path, "notify.py", "import os; os.fork(); os.fork()" + NOTIFY)
    for name in names:
        host.run(name, *talk, str(10**12))
    for name in names:
        host.expect(wire.Progress, name)
        host.stop(name)
    for name in names:
        host.expect(wire.TaskEnded, name)


TALK_LAST = """
import os, signal, socket
address = "\\0" + os.environ["DISTRUN_NOTIFY"][1:]
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("it is ready", flush=True)
signal.sigwait([signal.SIGUSR1])
sender.sendto(b"STEP=9", address)
"""


def test_a_last_word_that_comes_with_anothers_exit(host: Host, tmp_path: Path, wait_until: Any):
    first = host.run("worker:0", "sleep", "60")
    second = host.run("worker:1", *script(tmp_path, "talk.py", TALK_LAST))
    wait_until(lambda: host.lines("worker:1"), timeout=TIMEOUT)
    host.send(wire.HoldPorts(1, []))
    (port,) = host.expect(wire.PortsHeld).chosen

    def is_zombie(pid: int) -> Callable[[], bool]:
        return lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    # Busy for a while, so that both ends wait for it when it looks again, the first one first.
    agent = psutil.Process(host.pid)
    used = agent.cpu_times().user
    host.send(wire.HoldPorts(0, [port] * 50_000))
    wait_until(lambda: agent.cpu_times().user - used > 0.05, timeout=TIMEOUT)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(is_zombie(first.pid), timeout=TIMEOUT)
    os.kill(second.pid, signal.SIGUSR1)
    wait_until(is_zombie(second.pid), timeout=TIMEOUT)
    host.expect(wire.PortsRefused)
    host.expect(wire.TaskEnded, "worker:0")
    host.expect(wire.TaskEnded, "worker:1")
    assert host.all(wire.Progress)[-1].values == {"STEP": "9"}
    host.run("worker:2", "true")  # and the agent has survived it
    host.expect(wire.TaskEnded)


# Stopping -----------------------------------------------------------------------------------


def test_a_child_that_ignores_sigterm_is_killed_at_the_grace(any_host: Host, wait_until: Any):
    loop = "trap '' TERM; echo it ready $$; while :; do sleep 0.1; done"
    any_host.run("worker:0", "sh", "-c", loop)
    pids_of(any_host, "worker:0", 1, wait_until)
    begun = time.monotonic()
    any_host.stop("worker:0", grace=0.5)
    assert any_host.expect(wire.TaskExited).signal == signal.SIGKILL
    assert 0.45 < time.monotonic() - begun < 5
    any_host.expect(wire.TaskEnded)


def test_a_second_stop_shortens_the_grace_and_never_extends_it(host: Host, wait_until: Any):
    loop = "trap '' TERM; echo it ready $$; while :; do sleep 0.1; done"
    for name in ("worker:0", "worker:1"):
        host.run(name, "sh", "-c", loop)
        pids_of(host, name, 1, wait_until)
    begun = time.monotonic()
    host.stop("worker:0", grace=3600)
    host.stop("worker:0", signal.SIGKILL, grace=0.0)
    host.expect(wire.TaskEnded, "worker:0")
    host.stop("worker:1", grace=0.5)
    host.stop("worker:1", grace=3600)
    host.expect(wire.TaskEnded, "worker:1")
    assert time.monotonic() - begun < TIMEOUT


def test_a_stopped_task_can_be_ended(any_host: Host, wait_until: Any):
    started = any_host.run("worker:0", "sleep", "60")
    os.kill(started.pid, signal.SIGSTOP)
    stopped = psutil.Process(started.pid)
    wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, timeout=TIMEOUT)
    any_host.stop("worker:0", grace=60)
    assert any_host.expect(wire.TaskExited).signal == signal.SIGTERM
    any_host.expect(wire.TaskEnded)


def test_a_stop_that_comes_with_the_start(host: Host):
    for attempt in range(10):
        host.start("worker:0", "sleep", "60", attempt=attempt)
        host.stop("worker:0", grace=60)
        exited = host.expect(wire.TaskExited)
        assert (exited.attempt, exited.signal) == (attempt, signal.SIGTERM)
        host.expect(wire.TaskEnded)
        host.start("worker:0", "sleep", "60", attempt=attempt)
        host.stop("worker:0", signal.SIGKILL, grace=0.0)
        assert host.expect(wire.TaskExited).signal == signal.SIGKILL
        host.expect(wire.TaskEnded)


def test_any_signal_can_be_asked_for(host: Host):
    number = signal.SIGRTMIN + 2
    host.run("worker:0", "sleep", "60")
    host.stop("worker:0", number)
    assert host.expect(wire.TaskExited).signal == number


def test_stopping_what_is_not_there_does_nothing(host: Host):
    host.stop("worker:7")
    host.run("worker:0", "true")
    host.expect(wire.TaskEnded)


def family_of_catchers(host: Host, tmp_path: Path, wait_until: Any) -> list[int]:
    """A task of four processes that catch SIGTERM: leader, child, group of its own, session."""
    catcher = " ".join(f"'{word}'" for word in script(tmp_path, "catcher.py", CATCHER))
    # A process group of its own within the session: what an interactive shell or timeout makes.
    regroup = "import os, sys; os.setpgid(0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    grouped = f"exec {sys.executable} -c '{regroup}' {catcher} grouped"
    shell = f"{catcher} child & ({grouped}) & setsid {catcher} setsid & exec {catcher} leader"
    host.run("worker:0", "sh", "-c", shell)
    return pids_of(host, "worker:0", 4, wait_until)


def test_each_process_gets_sigterm_exactly_once(
    any_host: Host, tmp_path: Path, wait_until: Any, alive: Any
):
    pids = family_of_catchers(any_host, tmp_path, wait_until)
    any_host.stop("worker:0", grace=1.0)
    any_host.stop("worker:0", grace=1.0)
    any_host.expect(wire.TaskEnded)
    told = [line for line in any_host.lines("worker:0") if line.endswith("told")]
    assert sorted(told) == ["child told", "grouped told", "leader told", "setsid told"]
    assert not any(alive(pid) for pid in pids)


def test_what_is_being_stopped_is_not_told_again_when_all_ends(
    host: Host, tmp_path: Path, wait_until: Any
):
    family_of_catchers(host, tmp_path, wait_until)
    host.stop("worker:0", grace=60.0)
    wait_until(lambda: len([x for x in host.lines("worker:0") if x.endswith("told")]) == 4)
    host.send(wire.Shutdown())
    host.expect_end()
    assert len([line for line in host.lines("worker:0") if line.endswith("told")]) == 4


def test_what_a_leader_leaves_is_told_once_though_its_failure_stops_the_group(
    host: Host, tmp_path: Path, wait_until: Any
):
    catcher = " ".join(f"'{word}'" for word in script(tmp_path, "catcher.py", CATCHER))
    start = host.run("worker:0", "sh", "-c", f"{catcher} child & exec sleep 60")
    pids_of(host, "worker:0", 1, wait_until)
    os.kill(start.pid, signal.SIGKILL)
    host.expect(wire.TaskExited)
    host.stop("worker:0", grace=1.0)
    host.expect(wire.TaskEnded)
    assert host.lines("worker:0").count("child told") == 1


# Families -----------------------------------------------------------------------------------


def test_an_exit_is_reported_at_once_and_the_end_when_all_are_gone(
    any_host: Host, wait_until: Any, alive: Any
):
    child = 'trap "" TERM; echo it ready $$; touch up; while :; do sleep 0.1; done'
    leader = f"sh -c '{child}' & until [ -e up ]; do sleep 0.02; done"
    any_host.run("worker:0", "sh", "-c", leader)
    (pid,) = pids_of(any_host, "worker:0", 1, wait_until)
    assert any_host.expect(wire.TaskExited).code is not None
    assert alive(pid)
    assert not any_host.all(wire.TaskEnded)
    any_host.expect(wire.TaskEnded)
    assert not alive(pid)


@pytest.mark.parametrize(
    "daemon",
    [
        "setsid sleep 600 &",
        "timeout 600 sleep 600 &",
        "env -i sleep 600 &",
        "env -i setsid sleep 600 &",
        "(setsid sleep 600 &);",
        "(env -i setsid sh -c 'sleep 600 & sleep 601' &);",
        "(setsid env -i sleep 600 >/dev/null 2>&1 &);",
    ],
)
@pytest.mark.parametrize("end", ["exit 0", "exec sleep 600"])
def test_no_relative_of_a_task_outlives_it(
    host: Host, wait_until: Any, alive: Any, daemon: str, end: str
):
    task = host.run("worker:0", "sh", "-c", f"{daemon} echo done; {end}")
    if end == "exit 0":
        host.expect(wire.TaskExited)
    else:
        wait_until(lambda: host.lines("worker:0"), timeout=TIMEOUT)
        wait_until(lambda: len(children_of(host.pid)) >= 2, timeout=TIMEOUT)
        before = children_of(host.pid)
        assert alive(task.pid)
        host.stop("worker:0")
    host.expect(wire.TaskEnded)
    wait_until(lambda: not [each for each in children_of(host.pid) if alive(each)])
    if end != "exit 0":
        assert not any(alive(each) for each in before)


@pytest.mark.parametrize("how", ["open", "closed"])
def test_a_task_that_ends_leaves_anothers_daemons_alone(
    host: Host, tmp_path: Path, wait_until: Any, alive: Any, how: str
):
    daemon = " ".join(f"'{word}'" for word in script(tmp_path, "daemon.py", DAEMON))
    host.run("worker:0", "sh", "-c", f"{daemon} {how} {SLEEP} 600; echo done; exec sleep 601")
    host.run("worker:1", "sleep", "602")
    wait_until(lambda: host.log("worker:0"), timeout=TIMEOUT)
    (pid,) = wait_until(
        lambda: [each.pid for each in children_of(host.pid) if "600" in each.cmdline()],
        timeout=TIMEOUT,
    )
    host.stop("worker:1")
    host.expect(wire.TaskEnded, "worker:1")
    host.run("worker:2", "true")
    host.expect(wire.TaskEnded, "worker:2")
    assert alive(pid)
    host.stop("worker:0")
    host.expect(wire.TaskEnded, "worker:0")
    assert how == "closed" or not alive(pid)


# Each link starts the next one and exits; SIGTERM is ignored, so only patience ends it.
RELAY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
until = time.monotonic() + 0.5
while time.monotonic() < until:
    time.sleep(0.001)
    if os.fork():
        os._exit(0)
"""


def test_a_task_has_not_ended_while_orphans_follow_one_another(
    host: Host, tmp_path: Path, alive: Any
):
    relay = script(tmp_path, "relay.py", RELAY)
    for attempt in range(3):
        host.run("worker:0", *relay, attempt=attempt)
        host.expect(wire.TaskEnded)
        assert not [each for each in children_of(host.pid) if alive(each)]


# Deaths -------------------------------------------------------------------------------------

MIXED = (
    "setsid sleep 600 & timeout 600 sleep 600 & (env -i setsid sleep 600 &); "
    "sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo it ready $$; exec sleep 600"
)


def mixed_family(host: Host, wait_until: Any) -> list[psutil.Process]:
    for name in ("worker:0", "worker:1"):
        host.run(name, "sh", "-c", MIXED)
        pids_of(host, name, 1, wait_until)
    wait_until(lambda: len(children_of(host.pid)) >= 14, timeout=TIMEOUT, what="all of them")
    return children_of(host.pid)


def test_the_links_end_ends_all(any_host: Host, wait_until: Any, alive: Any):
    family = mixed_family(any_host, wait_until)
    begun = time.monotonic()
    any_host.hang_up()
    assert any_host.link.process.wait(TIMEOUT) == 0
    assert not [each for each in family if alive(each)]
    assert time.monotonic() - begun < 5


def test_a_lease_lets_tasks_live_on_without_a_supervisor(
    make_host: MakeHost, wait_until: Any, alive: Any
):
    host = make_host(configured=False)
    host.configure(lease=1.0)
    task = host.run("worker:0", "sleep", "600")
    begun = time.monotonic()
    host.hang_up()
    wait_until(lambda: not alive(task.pid), timeout=TIMEOUT)
    assert time.monotonic() - begun > 0.9
    assert host.link.process.wait(TIMEOUT) == 0


def test_the_agents_death_ends_all_and_is_told(any_host: Host, wait_until: Any, alive: Any):
    family = mixed_family(any_host, wait_until)
    os.kill(any_host.pid, signal.SIGKILL)
    wait_until(lambda: not [each for each in family if alive(each)], timeout=5.0)
    assert any_host.expect_end() == 128 + signal.SIGKILL
    assert any_host.link.death == "its agent was killed by SIGKILL"


def test_the_guards_death_ends_all_and_the_agent(any_host: Host, wait_until: Any, alive: Any):
    family = mixed_family(any_host, wait_until)
    os.kill(any_host.guard, signal.SIGKILL)
    wait_until(lambda: not [each for each in family if alive(each)], timeout=5.0)
    any_host.expect(wire.Fault)
    assert any_host.expect_end() == -signal.SIGKILL
    wait_until(lambda: not alive(any_host.pid), timeout=5.0)


def test_sigterm_to_the_agent_is_a_fault_and_ends_all(host: Host, wait_until: Any, alive: Any):
    family = mixed_family(host, wait_until)
    os.kill(host.pid, signal.SIGTERM)
    assert "SIGTERM" in host.expect(wire.Fault).reason
    assert host.expect_end() == 0
    assert not [each for each in family if alive(each)]
    assert {message.task for message in host.all(wire.TaskEnded)} == {"worker:0", "worker:1"}


# Idle ---------------------------------------------------------------------------------------


def test_it_costs_nothing_while_its_tasks_sleep(host: Host):
    for index in range(16):
        host.run(f"worker:{index}", "sleep", "600")
    agent = psutil.Process(host.pid)
    deadline = time.monotonic() + TIMEOUT

    def used_in_two_seconds() -> float:
        before = agent.cpu_times()
        host._wait(2.0)
        after = agent.cpu_times()
        return (after.user + after.system) - (before.user + before.system)

    while used_in_two_seconds() > 0.02:
        assert time.monotonic() < deadline

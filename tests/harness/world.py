"""A job in simulated time: the real supervisor, and a real agent with its guard on each host.

    with World(tmp_path, hosts=3, cluster={"worker": 2}, spares=1) as world:
        world.launch()
        world.cut("h2")
        world.advance(60)
        world.expect(hosts={"h2": "lost"}, tasks={"worker:1": "h3"})
        world.exit_all()
        assert world.end() == 0

What is real: the supervisor, its record and its folder; the agents' loop, lease, reattachment,
outbox, logs and ends of tasks; their guards; the messages and the checks of them; what the commands
show. What is emulated (:mod:`harness.machines`): time, processes, signals, ssh and the network.

Tests speak of hosts, tasks, links, time, files, signals and what a user reads. Only this module and
:mod:`harness.machines` know the modules of distrun.

At each moment at which nothing more happens, no two attempts of a task live (a machine that is
suspended executes nothing). After the end of a history, :meth:`World.check` compares the record's
replay with the supervisor's state.
"""

from __future__ import annotations

import array
import contextlib
import errno
import importlib
import json
import os
import platform
import re
import signal
import socket
import stat
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import click
from click.testing import CliRunner

from distrun import frozen
from distrun.agent import former, orphans, protocol, reattach
from distrun.agent import main as agent_main
from distrun.agent.agent import Agent
from distrun.agent.link import Link
from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.channel import Channel, ChecksummedSender
from distrun.agent.tasks import runner
from distrun.cli import console
from distrun.codec import to_json
from distrun.job import folder as job_folder
from distrun.job import py_spy
from distrun.job.folder import JobFolder, JobStore
from distrun.job.stop_order import order_of
from distrun.job.stopping import StoppedJob
from distrun.lifecycle import JobState
from distrun.spec import loader
from distrun.spec.model import Spec
from distrun.supervisor.hosts import ssh
from distrun.supervisor.hosts.host_channel import ChecksummedReceiver
from distrun.supervisor.hosts.reach import Connection as HostConnection
from distrun.supervisor.hosts.reach import Login, Purpose
from distrun.supervisor.supervisor import Supervisor
from harness import machines
from harness.machines import Connection, Machines, Program, Task
from harness.values import not_none

HERE = "here"
"""The launching machine."""
_MARK = b"\ndistrun:simulated\n"


class World:
    """A job on hosts, `h1` and so on: how many, or the spec's list; its other keys as words."""

    def __init__(self, folder: Path, *, hosts: int | list[Any] = 2, **spec: Any) -> None:
        self.machines = Machines(folder)
        listed = [f"h{n}" for n in range(1, hosts + 1)] if isinstance(hosts, int) else hosts
        whole = {
            "name": "job",
            "strategy": "multi_worker_mirrored",
            "program": {"command": ["train"], "sync": "off"},
            "hosts": listed,
            **spec,
        }
        path = folder / "job.yaml"
        path.write_text(json.dumps(whole))
        self._spec = loader.load(path, cwd=str(folder))
        names = [each if isinstance(each, str) else each["name"] for each in listed]
        self.hosts = {name: self.machines.add(name) for name in [*names, HERE]}
        self._home = folder / "distrun"
        self._runner = CliRunner()
        self._supervisor: Supervisor | None = None
        self._process: Program | None = None
        self._folder: JobFolder | None = None
        self._states: tuple[int, dict[str, str]] = 0, {}
        self._launch: Channel[Any, Any] | None = None
        self.clients: list[Connection] = []
        """The connections of the supervisor that lives."""
        self.attempts: list[Task] = []
        """All attempts of all tasks that were executed, in order."""
        self.on_start: Callable[[Task], object] = bool
        """Called with each attempt when it has been executed."""
        self.machines.watchers.append(self._on_start)
        self.machines.checks.append(self._check_attempts)
        self.machines.pumps.append(self._read_notices)
        self._patches = contextlib.ExitStack()
        for target, name, value in (
            (ssh, "make_reach", lambda host, spec, *_: _Reach(host.name, spec, self)),
            (runner, "NotifySocket", self._notify_socket),
            (importlib.import_module("distrun.agent.agent"), "PortHolder", machines.Ports),
            (py_spy, "find", lambda: None),
            # A fork would be a process of this machine, and keep links open.
            (syscalls, "fork_with_pipe", mock.Mock(side_effect=BlockingIOError)),
            (orphans, "sys", types.SimpleNamespace(stderr=self)),
            (agent_main, "move_stdio", self._take_streams),
            (JobFolder, "_lock_holder", lambda _: os.getpid() if self.is_running else None),
        ):
            self._patches.enter_context(mock.patch.object(target, name, value))
        environ = {"DISTRUN_HOME": str(self._home), "COLUMNS": "200"}
        self._patches.enter_context(mock.patch.dict(os.environ, environ))

    def __enter__(self) -> World:  # noqa: PYI034 - Self is 3.11's
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.kill_supervisor()
        self.machines.close()
        self._patches.close()
        # What real processes would have held until their end: their folders, and a job's lock.
        for each in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{each}")
                is_held = stat.S_ISDIR(os.fstat(each).st_mode) or path.endswith("/supervisor.lock")
                if is_held and path.startswith(f"{self._home.parent}/"):
                    os.close(each)

    # The job ------------------------------------------------------------------------------

    def launch(self) -> None:
        folder = JobStore(self._home).new_folder(self._spec.name)
        self._start(job_folder.create(folder, b"{}"), None, ())

    def resume(self, *, assumed_dead: tuple[str, ...] = (), hosts: str = "", **limits: Any) -> None:
        """Resume the job, whose supervisor has ended; on some `hosts` alone, by other timeouts."""
        assert self._folder is not None
        assert not self.is_running
        if hosts:
            chosen = [each for each in self._spec.hosts if each.name in hosts.split()]
            self._spec = frozen.replace(self._spec, hosts=tuple(chosen))
        timeouts = frozen.replace(self._spec.timeouts, **limits)
        self._spec = frozen.replace(self._spec, timeouts=timeouts)
        folder = job_folder.reopen(self._folder.path)
        self._start(folder, folder.state(), assumed_dead)

    def _start(
        self, folder: JobFolder, former_state: JobState | None, assumed_dead: tuple[str, ...]
    ) -> None:
        self._folder = folder
        ours, theirs = socket.socketpair()
        self._launch = Channel(ours.fileno(), ours.detach(), protocol.Notice)
        reader = theirs.detach()
        writer = os.dup(reader)

        def main() -> None:
            launch: Any = Channel(reader, writer, protocol.Request)
            self._supervisor = Supervisor(
                *(folder, self._spec, launch),
                protocol.OpenJob("", "", {}, "", preflight=False, assumed_dead=assumed_dead),
                former=former_state,
            )
            job_folder.replace_file(folder.resolved_spec_file, json.dumps(to_json(self._spec)))
            self._supervisor.run([])

        self._process = Program(self.hosts[HERE], "supervisor", main, streams=[reader, writer])
        self._process.closers.append(self._on_supervisor_end)
        self.machines.settle()

    def _on_supervisor_end(self, _: int) -> None:
        """Close what a process that has ended holds."""
        supervisor, folder, launch = self._supervisor, self._folder, self._launch
        self._supervisor = self._launch = None
        if launch is not None:
            launch.close()
        if folder is not None:
            folder.release_lock()
        if supervisor is not None:
            self.last_state = supervisor._job.state
            supervisor._clients._server.close()
            supervisor._running.close()
            with contextlib.suppress(OSError):
                supervisor._job.record._log.close()
        for connection in list(self.clients):
            if connection.near is self._process and not connection.is_closed:
                connection.is_closed = True
                for each in (connection.reader, connection.writer, connection.stderr):
                    os.close(each)
        self.clients.clear()

    def _read_notices(self) -> bool:
        return self._launch is not None and bool(self._launch.receive())

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.lives

    def kill_supervisor(self) -> None:
        """Kill the job's supervisor, as the death of the launching machine does."""
        if self._process is not None:
            self._process.kill()

    def kill(self, code: int = 137) -> None:
        """Have the job killed, as `distrun kill` or the second Ctrl-C does."""
        self._request(Cause(Code.STOPPED_BY_COMMAND, name="distrun kill"), 0.0, code)

    def stop(self, code: int = 130) -> None:
        """Have the job stopped gracefully, as Ctrl-C does."""
        self._request(Cause(Code.LAUNCH_SIGNALLED, signal=signal.SIGINT), None, code)

    def ask_to_stop(self) -> str:
        """Begin as `distrun kill` does. Returns what it prints before it waits for the end."""
        said: list[str] = []
        order, folder = order_of("distrun kill"), not_none(self._folder)
        StoppedJob(folder, order, say=said.append, on_error=lambda _: None).ask()
        self.machines.settle()
        return "\n".join(said)

    def _request(self, cause: Cause, grace: float | None, code: int) -> None:
        if self._launch is not None:
            self._launch.send(protocol.StopJob(cause, signal.SIGTERM, grace, code))
            self._launch.flush()
        self.machines.settle()

    # Time ---------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The simulated clock, in seconds."""
        return self.machines.now

    def advance(self, seconds: float) -> None:
        self.machines.advance(seconds)

    def until(
        self, condition: Callable[[], object], seconds: float = 300.0, what: str = ""
    ) -> None:
        """Let time pass until something holds. Raises AssertionError if it does not in time."""
        limit = self.now + seconds
        self.machines.settle()
        while not condition():
            if not self.machines.step(limit):
                assert condition(), what or f"not within {seconds} s: {self.said()}"
                return

    def end(self, seconds: float = 900.0) -> int:
        """Let time pass until the job has ended. Returns its exit code."""
        self.until(lambda: not self.is_running, seconds, what="the job does not end")
        code = self.status()["exit_code"]
        assert isinstance(code, int)
        return code

    # Hosts --------------------------------------------------------------------------------

    def cut(self, *hosts: str) -> None:
        """Let nothing pass to or from hosts."""
        for host in hosts:
            self.hosts[host].is_cut = True

    def mend(self, *hosts: str) -> None:
        for host in hosts:
            self.hosts[host].is_cut = False
        self.machines.settle()

    def delay(self, host: str, seconds: float) -> None:
        """Let all that goes to and from a host take so long."""
        self.hosts[host].delay = seconds

    def set_clock(self, host: str, ahead: float) -> None:
        self.hosts[host].clock_ahead = ahead

    def drop_links(self, host: str) -> None:
        for connection in list(self.hosts[host].connections):
            connection.finish(255)
        self.machines.settle()

    def stall_links(self, host: str) -> None:
        """Let nothing pass over the present connections to a host, for ever."""
        for connection in self.hosts[host].connections:
            connection.is_stalled = True

    def damage(self, host: str) -> None:
        """Change a byte of the next thing that arrives from a host."""
        for connection in self.hosts[host].connections:
            connection.is_noisy = True

    def power_off(self, *hosts: str) -> None:
        for host in hosts:
            self.hosts[host].power_off()

    def power_on(self, host: str) -> None:
        self.hosts[host].is_off = False
        self.machines.settle()

    def freeze(self, host: str) -> None:
        """Suspend a machine: it executes nothing, and its clock goes on."""
        self.hosts[host].is_frozen = self.hosts[host].was_frozen = True

    def thaw(self, host: str) -> None:
        self.hosts[host].is_frozen = False
        self.machines.settle()

    def hang_agent(self, host: str) -> None:
        """Let the agent hang in the kernel: its guard and the tasks go on."""
        self._agent(host).is_hung = True

    def resume_agent(self, host: str) -> None:
        for each in self.hosts[host].living:
            if isinstance(each, Program):
                each.is_hung = False
        self.machines.settle()

    def kill_agent(self, host: str, number: int = signal.SIGKILL) -> None:
        self._agent(host).send(number)
        self.machines.settle()

    def has_agent(self, host: str) -> bool:
        return any(each.name == "agent" for each in self.hosts[host].living)

    def _agent(self, host: str) -> Program:
        found = [each for each in self.hosts[host].living if each.name == "agent"]
        assert isinstance(found[-1], Program)
        return found[-1]

    def files_left_on(self, host: str) -> list[Path]:
        return list(self.hosts[host].home.glob("agents/*"))

    def fill_disk(self, host: str) -> None:
        self.hosts[host].disk_fault = errno.ENOSPC

    def make_read_only(self, host: str) -> None:
        self.hosts[host].disk_fault = errno.EROFS

    def mend_disk(self, host: str) -> None:
        self.hosts[host].disk_fault = 0

    def break_program(self, host: str, fault: str = f"program {errno.ENOENT}") -> None:
        """Have no program be executed there from now on: at what that fails, and its errno."""
        self.hosts[host].exec_fault = fault

    def take_port(self, host: str, port: int) -> None:
        self.hosts[host].taken_ports.add(port)

    def processes_on(self, host: str) -> list[str]:
        return [each.name for each in self.hosts[host].living]

    # Tasks --------------------------------------------------------------------------------

    def _on_start(self, task: Task) -> None:
        self.attempts.append(task)
        rank, size = (
            task.env.get(name, b"").decode() for name in (b"DISTRUN_RANK", b"DISTRUN_WORLD_SIZE")
        )
        task.print(f"began on {task.machine.name} as {rank} of {size}, attempt {task.attempt}\n")
        self.on_start(task)

    @property
    def running(self) -> dict[str, str]:
        """The tasks that run, and where."""
        return {each.name: each.machine.name for each in self.attempts if each.lives}

    def task(self, name: str) -> Task:
        return [each for each in self.attempts if each.name == name][-1]

    def hosts_of(self, name: str) -> list[str]:
        """Where each attempt of a task has run."""
        return [each.machine.name for each in self.attempts if each.name == name]

    def cluster_of(self, name: str) -> Any:
        """The TF_CONFIG of a task's last attempt."""
        return json.loads(self.task(name).env[b"TF_CONFIG"])

    def print(self, name: str, text: str) -> None:
        self.task(name).print(text)
        self.machines.settle()

    def print_lines(self, name: str, first: int, last: int) -> None:
        """Have a task print numbered lines, one each 20 ms."""
        for number in range(first, last + 1):
            self.print(name, f"attempt {self.task(name).attempt} line {number}\n")
            self.advance(0.02)

    def lines(self, name: str, *options: str) -> list[tuple[int, int]]:
        """The attempt and the number of each such line, as `logs` shows them."""
        found = re.findall(r"attempt (\d+) line (\d+)", self._command("logs", "-t", name, *options))
        return [(int(attempt), int(number)) for attempt, number in found]

    def exit(self, name: str, code: int = 0) -> None:
        self.task(name).end(code << 8)
        self.machines.settle()

    def die(self, name: str, number: int = signal.SIGKILL) -> None:
        self.task(name).end(number)
        self.machines.settle()

    def exit_all(self, code: int = 0) -> None:
        for each in self.attempts:
            if each.lives:
                each.end(code << 8)
        self.machines.settle()

    def succeed(self) -> None:
        """Let all tasks exit with 0, and see that the job ends with 0."""
        self.exit_all()
        assert self.end() == 0

    # What a user reads --------------------------------------------------------------------

    def _command(self, name: str, *arguments: str) -> str:
        command: click.Command = importlib.import_module(f"distrun.cli.{name}").command
        done = self._runner.invoke(command, list(arguments), catch_exceptions=False)
        return done.output

    def shown(self, columns: int, name: str, *arguments: str) -> str:
        """What a command shows in so many columns, without what each run of a test changes."""
        with mock.patch.object(console, "_PIPE_WIDTH", columns):
            text = self._command(name, *arguments)
        for varying, same in (
            (re.escape(str(self.machines.folder)), "/home/ada"),
            (re.escape(not_none(self._folder).job_id), "job-000000"),
            (re.escape(platform.python_version()), "3.11.0"),
            (r"\b5000\d{3}\b", "5000000"),  # process ids
            (r"-[0-9a-f]{12}\b", "-000000000000"),
        ):
            text = re.sub(varying, same, text)
        return text

    def status(self) -> Any:
        return json.loads(self._command("status", "--json"))["job"]

    def state_of(self, host: str) -> str:
        size = os.stat(not_none(self._folder).events_file).st_size
        if size != self._states[0]:  # asked at each moment, and only an event changes it
            states = {each["name"]: each["state"] for each in self.status()["hosts"]}
            self._states = size, states
        return self._states[1].get(host, "")

    def said(self) -> str:
        return self._command("status")

    def told(self) -> str:
        return self._command("events")

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened, as `events --json` prints it."""
        return [json.loads(line) for line in self._command("events", "--json").splitlines()]

    @property
    def kinds(self) -> list[str]:
        assert self._folder is not None
        with open(self._folder.events_file, encoding="ascii") as file:
            return [str(json.loads(line)["event"]) for line in file]

    @property
    def causes(self) -> list[str]:
        """The kind of each event that has a cause, its host, and the codes, the outermost first."""
        found = [(each["event"], each.get("host", ""), *_codes(each)) for each in self.events]
        return [" ".join(filter(None, each)) for each in found if len(each) > 2]

    @property
    def outcome(self) -> list[str]:
        """The codes of the cause of the job's end, the outermost first."""
        return [*_codes(self.status()["outcome"]["cause_code"])]

    def log(self, task: str) -> str:
        return self._command("logs", "--raw", "-t", task)

    def expect(
        self,
        *,
        hosts: Mapping[str, str] | None = None,
        tasks: Mapping[str, str] | None = None,
        **shown: Any,
    ) -> None:
        """Compare states of hosts, where tasks run, and other fields of `status --json`."""
        found = self.status()
        if hosts is not None:
            states = {each["name"]: each["state"] for each in found["hosts"]}
            assert {name: states.get(name) for name in hosts} == dict(hosts)
        if tasks is not None:
            assert self.running == dict(tasks)
        assert {key: found[key] for key in shown} == shown

    # What must hold -----------------------------------------------------------------------

    def _check_attempts(self) -> None:
        # A suspended machine ends its tasks when it continues: until then, and while they die,
        # they execute nothing.
        alive = [
            each
            for each in self.attempts
            if each.lives and not each.machine.is_frozen
            if not (each.is_dying and each.machine.was_frozen)
        ]
        names = [each.name for each in alive]
        twice = [each for each in alive if names.count(each.name) > 1]
        where = [f"{each.name} attempt {each.attempt} on {each.machine.name}" for each in twice]
        assert not twice, f"two attempts live at {self.now}: {where}"

    def check(self) -> None:
        """Check a job that has ended: the record's replay is its state, and nothing is left.

        Machines that are cut, off or suspended may still have something.
        """
        assert self._folder is not None
        assert self._folder.state() == self.last_state
        for name, machine in self.hosts.items():
            if machine.is_reachable:
                assert not machine.living, f"left on {name}: {self.processes_on(name)}"

    # Programs on hosts --------------------------------------------------------------------

    def _notify_socket(self, *arguments: Any) -> Any:
        from distrun.agent.tasks.notify import NotifySocket

        made = NotifySocket(*arguments)
        self.machines.closers.append(made.close)
        return made

    def _take_streams(self) -> tuple[int, int]:
        current = not_none(self.machines.current)
        reader, writer = current.streams
        return reader, writer

    def write(self, text: str) -> None:
        """Print on the standard error of the program that runs."""
        current = not_none(self.machines.current)
        current.say(text.encode())

    def flush(self) -> None:
        return

    def start_agent(self, connection: Connection) -> Program:
        """Start an agent and its guard, as the command over a login does."""
        machine, (reader, writer) = connection.machine, connection.streams
        world = self.machines
        timer = world.make_timer()
        liveness = reattach.LivenessSocket()

        def run_agent() -> None:
            os.write(writer, _MARK)
            listener = _Listener(agent, liveness.token)
            agent.closers.append(lambda _: listener._socket.close())
            link = Link(_Sender(agent, reader, writer), listener, timer)
            number = list(self.hosts).index(machine.name) + 1
            Agent(link, ("10.0.0.99", f"10.0.0.{number}")).run()

        guard = Program(machine, "guard", lambda: agent_main._guard(agent.pid, timer))
        agent = Program(machine, "agent", run_agent, guard.pid, streams=(reader, writer))
        guard.closers += [lambda _: liveness._socket.close(), connection.end_far]
        return agent

    def reattach(
        self, connection: Connection, token: str, job_id: str, attempts: dict[str, int]
    ) -> Program:
        """Pass a new link to a running agent, as :func:`.reattach.main` does in a login."""
        reader, writer = connection.streams

        def run() -> None:
            client = reattach.connect(token)
            if client is None:
                left = orphans.wait_for_guard(reattach.liveness_name(token))
                left = left or orphans.end(job_id, attempts)
                orphans.end_login(left)
            os.write(writer, _MARK)
            rights = array.array("i", [reader, writer])
            client.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            for descriptor in (reader, writer):
                os.close(descriptor)
            login.streams.clear()
            login.closers.append(lambda _: client.close())
            with contextlib.suppress(OSError):
                self.machines._wait_until_ready([client.fileno()])

        login = Program(connection.machine, "login", run, streams=(reader, writer))
        login.say = connection.say
        login.closers.append(connection.end_far)
        return login

    def end_former(self, connection: Connection, *arguments: object) -> Program:
        main: Any = former.main
        run, streams = (lambda: main(_MARK, *arguments)), connection.streams
        login = Program(connection.machine, "login", run, streams=streams)
        login.say = connection.say
        login.closers.append(connection.end_far)
        return login


def _codes(shown: Any) -> Iterator[str]:
    """Yield the codes of the causes in JSON, from the outside in."""
    if isinstance(shown, dict) and isinstance(shown.get("code"), str):
        yield shown["code"]
    for each in shown.values() if isinstance(shown, dict) else shown:
        if isinstance(each, (dict, list)):
            yield from _codes(each)


class _Listener(reattach.ReattachListener):
    """An agent's listening socket. The agent's death closes those that it has accepted, too."""

    def __init__(self, agent: Program, token: str) -> None:
        super().__init__(token, lambda reader, writer: _Sender(agent, reader, writer))
        self._agent = agent

    def accept(self) -> socket.socket | None:
        client = super().accept()
        if client is not None:
            self._agent.closers.append(lambda _: client.close())
        return client


class _Sender(ChecksummedSender):
    """An agent's end of a link. The agent's death closes it."""

    def __init__(self, agent: Program, reader: int, writer: int) -> None:
        super().__init__(reader, writer)
        self._agent = agent
        agent.streams[:] = [reader, writer]

    def close(self) -> None:
        super().close()
        self._agent.streams.clear()


class _Receiver(ChecksummedReceiver):
    """The supervisor's end of a link."""

    def __init__(self, client: Connection) -> None:
        super().__init__(client.reader, client.writer, _MARK)
        self._client = client

    def close(self) -> None:
        super().close()
        self._client.is_closed = True


class _Reach(ssh.SshReach):
    """The reach over ssh, with an emulated client."""

    def __init__(self, host: str, spec: Spec, world: World) -> None:
        super().__init__(host, spec)
        self._world = world

    def _login(self, limit: float, start: Callable[[Connection], Program]) -> HostConnection:
        client = Connection(self._world.hosts[self._host], limit, start)
        self._world.clients.append(client)
        channel = _Receiver(client)
        return HostConnection(client, channel, client.stderr, log_window=1 << 16, mark=_MARK)  # type: ignore[arg-type]

    def open(self, job_id: str, login: Login) -> HostConnection:
        starts: dict[Purpose, Callable[..., Program]] = {
            Purpose.AGENT: self._world.start_agent,
            Purpose.REATTACH: self._world.reattach,
            Purpose.FORMER: self._world.end_former,
        }
        attempt, start = login.attempt, starts[login.purpose]
        return self._login(
            self.connect_timeout if attempt is None else attempt.connect_timeout,
            lambda connection: start(connection, *login.arguments),
        )

    def question(self, *_: Any) -> None:
        return None

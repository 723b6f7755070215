"""The supervisor as a process, driven over its protocol as its launch command does."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distrun import events, lifecycle, record
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.channel import Channel, encode
from distrun.cli.cause_text import cause_text
from distrun.codec import to_json
from distrun.jobstore import JobFolder
from distrun.spec.model import (
    HostSpec,
    ProgramKind,
    ProgramSpec,
    RestartSpec,
    RoleSpec,
    Spec,
)
from distrun.strategies import Role, Success
from distrun.supervisor.hosts import local
from harness.values import not_none

TIMEOUT = 60.0
STOP = protocol.StopJob(Cause(Code.LAUNCH_SIGNALLED, signal=2), 2, None, 130)


class Launch:
    """A launch command, as far as a supervisor can tell. `command` replaces the supervisor's."""

    def __init__(self, path: Path, command: list[str] | None = None) -> None:
        self.folder = JobFolder(path / "jobs" / "job-1")
        ours, theirs = socket.socketpair()
        with theirs:
            if command is None:
                command = local.isolated_python("distrun.supervisor.main")
            self.process = subprocess.Popen(
                [*command, "job-1", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        descriptor = ours.detach()
        self.channel: Channel[protocol.Notice, Any] = Channel(
            descriptor, descriptor, protocol.Notice
        )
        self.state = lifecycle.JobState()
        self.history: list[events.Event] = []

    def open(self, spec: Spec, *more: Any) -> None:
        order = protocol.OpenJob(
            protocol.PROTOCOL, "job-1", str(self.folder.path), to_json(spec), spec.source
        )
        frames = b"".join(encode(message) for message in (order, *more))
        with socket.socket(fileno=self.channel.writer) as link:  # all in one piece
            link.setblocking(True)
            link.sendall(frames)
            link.setblocking(False)
            link.detach()

    def until_end(self) -> lifecycle.JobState:
        """What it told until its end. It is gone then."""
        deadline = time.monotonic() + TIMEOUT
        while not self.channel.ended:
            assert time.monotonic() < deadline, f"it has not ended: {self.history}"
            select.select([self.channel.reader], [], [], 0.1)
            for _, message in self.channel.receive():
                assert isinstance(message, protocol.JobEvent), message
                event = events.decode(message.event)
                assert event is not None
                self.history.append(event)
                self.state, _ = lifecycle.step(self.state, event)
        assert self.folder.supervisor_pid() is None, "who saw its end finds its lock free"
        assert self.process.wait(TIMEOUT) == 0
        return self.state


@pytest.fixture
def launches(distrun_home: Path) -> Iterator[list[Launch]]:
    made: list[Launch] = []
    yield made
    for launch in made:
        launch.channel.close()
        try:
            launch.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            launch.process.kill()
            launch.process.wait()


@pytest.fixture
def launch(launches: list[Launch], distrun_home: Path) -> Launch:
    launches.append(Launch(distrun_home))
    return launches[-1]


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    program = ProgramSpec(
        kind=ProgramKind.COMMAND, target="", argv=("sh", "-c", "sleep 60"), workdir=str(tmp_path)
    )
    return Spec(
        name="job",
        strategy="multi_worker_mirrored",
        roles=(RoleSpec(role=Role.WORKER, count=2),),
        program=program,
        success=Success.CHIEF_AND_WORKERS,
    )


def test_it_runs_a_job_to_its_end_and_records_what_it_tells(launch: Launch, spec: Spec) -> None:
    launch.open(replace(spec, program=replace(spec.program, argv=("sh", "-c", "exit 3"))))
    state = launch.until_end()
    assert state.outcome is not None
    assert state.outcome.exit_code == 3
    assert state == launch.folder.state()
    assert launch.history == list(record.read(str(launch.folder.events_file)))


def test_a_stop_on_the_heels_of_the_job_is_not_lost(launch: Launch, spec: Spec) -> None:
    launch.open(spec, STOP)
    state = launch.until_end()
    assert state.phase is lifecycle.JobPhase.STOPPED
    assert not_none(state.outcome).exit_code == 130


def test_a_job_that_cannot_be_placed_ends_at_once(launch: Launch, spec: Spec) -> None:
    launch.open(replace(spec, hosts=(HostSpec(slots=1),)))
    state = launch.until_end()
    assert not_none(state.outcome).exit_code == 65
    assert "2 tasks do not fit" in cause_text(not_none(state.outcome).cause)


def test_a_job_whose_record_cannot_be_written_ends_and_says_so(
    launches: list[Launch], spec: Spec, distrun_home: Path
) -> None:
    command = local.isolated_python("distrun.supervisor.main")
    # 512 bytes are enough for the job's token, and for no event.
    launches.append(Launch(distrun_home, ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *command]))
    launches[0].open(spec)
    state = launches[0].until_end()
    assert not_none(state.outcome).exit_code == 69
    assert "record" in cause_text(not_none(state.outcome).cause)
    assert not any(isinstance(event, events.TaskStarted) for event in launches[0].history)


# An agent that says `noise` once its tasks run, and ends only when it is told to.
FAKE_AGENT = """
    import os, select, sys, time
    sys.path.insert(0, sys.argv[1])
    from distrun.agent import protocol
    from distrun.agent.protocol.channel import Channel
    link = Channel(os.dup(0), os.dup(1), protocol.Order)
    while not link.ended:
        select.select([link.reader], [], [])
        for _, order in link.receive():
            if isinstance(order, protocol.Configure):
                link.send(protocol.Hello(1, os.getpid(), "here", "3.11", 2.0, [], time.time()))
            elif isinstance(order, protocol.HoldPorts):
                link.send(protocol.PortsHeld([20001 + n for n in range(order.free)], []))
            elif isinstance(order, protocol.StartTask):
                link.send(protocol.TaskStarted(order.task, 0, 1, time.time()))
                if order.task == "worker:1":
                    os.write(link.writer, b"Segmentation fault\\n")
            elif isinstance(order, protocol.Shutdown):
                sys.exit(0)
"""
WITH_FAKE_AGENT = """
    import subprocess, sys
    sources, fake = sys.argv.pop(1), sys.argv.pop(1)
    sys.path.insert(0, sources)
    from distrun.supervisor.main import main
    from distrun.supervisor.hosts import local
    command = [sys.executable, "-I", "-S", fake, sources]
    local._fork = lambda _, stream, *__: subprocess.Popen(command, stdin=stream, stdout=stream)
    main()
"""


def test_an_agent_that_sends_noise_is_let_go(
    launches: list[Launch], spec: Spec, distrun_home: Path, tmp_path: Path
) -> None:
    fake = tmp_path / "agent.py"
    fake.write_text(textwrap.dedent(FAKE_AGENT))
    sources = local.isolated_python("x")[-1]
    code = textwrap.dedent(WITH_FAKE_AGENT)
    command = [sys.executable, "-I", "-S", "-c", code, sources, str(fake)]
    launches.append(Launch(distrun_home, command))
    launches[0].open(spec)
    state = launches[0].until_end()
    assert not_none(state.outcome).exit_code == 69
    assert "noise on the link" in cause_text(not_none(state.outcome).cause)


WITH_JUMPING_CLOCK = """
    import itertools, sys, time
    sys.path.insert(0, sys.argv.pop(1))
    real, jumps = time.time, itertools.cycle((0, -86400, 86400, -3600))
    time.time = lambda: real() + next(jumps)
    from distrun.supervisor.main import main
    main()
"""


def test_a_clock_that_jumps_moves_no_deadline(
    launches: list[Launch], spec: Spec, distrun_home: Path
) -> None:
    """By a day with every look at it; backoff and timeouts go by another clock."""
    sources = local.isolated_python("x")[-1]
    code = textwrap.dedent(WITH_JUMPING_CLOCK)
    launches.append(Launch(distrun_home, [sys.executable, "-I", "-S", "-c", code, sources]))
    program = replace(spec.program, argv=("sh", "-c", "test $DISTRUN_ATTEMPT = 1 || exit 3"))
    restart = RestartSpec(max=1, backoff=0.3)
    began = time.monotonic()
    launches[0].open(replace(spec, program=program, restart=restart))
    state = launches[0].until_end()
    assert time.monotonic() - began > 0.2
    assert not_none(state.outcome).result == "succeeded", launches[0].history
    assert state == launches[0].folder.state()
    assert {task.attempt for task in state.tasks.values()} == {1}
    assert all(not_none(task.lived) >= 0 for task in state.tasks.values())
    times = [event.at for event in launches[0].history]
    assert times != sorted(times), "it did not jump"

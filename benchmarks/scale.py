"""What is measured of many hosts: until all tasks run, idling, and the end after a failure.

The hosts are agents on this machine. A stand-in for ssh starts them: it has no key exchange, or
uses so much of a core as one. So the launching side has as much to do as with real hosts, and the
agents' own work, which real hosts would share, is on the same cores.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measures
import psutil
from launchers import Launcher

RUNS = (
    *((16, 0.0, False), (64, 0.0, False), (256, 0.0, False), (1000, 0.0, False)),
    *((1000, 0.1, True), (1000, 0.0, True), (4000, 0.0, True)),
)
"""The numbers of hosts, the seconds of a core that a key exchange takes, and whether the agents are
simulated."""
_MEGABYTES_A_HOST = 14
_MEGABYTES_A_SIMULATED_HOST = 2
_IDLE_SECONDS = 10.0
_DEADLINE = 600.0
_LOOPS = 200_000
_STAND_IN = """\
#!/bin/sh
case "$1" in -V | -G) exec {ssh} "$@" ;; esac
i=0
while [ "$i" -lt {loops} ]; do i=$((i + 1)); done
for command; do :; done
{then}
"""
_AGENT = 'SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" exec sh -c "$command"'
_SIMULATED = (
    "(echo $$ >> {fifo}); "  # in a subshell: its output is the link
    "exec tail ---disable-inotify --pid=$PPID --sleep-interval=5 -f /dev/null"
)
"""It ends with its parent, as ssh does, but reads nothing: the simulation reads its link."""


@dataclass(frozen=True)
class Scale:
    """The figures of one launch on so many hosts; times in seconds, memory in MB."""

    hosts: int
    key_exchange: float
    is_simulated: bool
    until_all_run: float
    supervisor_cpu: float
    supervisor_memory: float
    idle_cpu: float
    """Milliseconds of the supervisor in 10 s."""
    status: float
    logs: float
    """Until `distrun logs` has merged all logs."""
    logs_follow: float | None
    """Until `distrun logs -f` has shown a line of each; None: simulated tasks print nothing."""
    until_end: float
    """From the death of a task until the launch has ended."""
    end_cpu: float
    """What the supervisor has used until then, since the death."""
    events_size: float
    plan: float
    """`distrun plan`, which connects to all hosts, too."""


def fits(count: int, *, is_simulated: bool) -> bool:
    """Whether this machine has the memory for so many agents."""
    size = _MEGABYTES_A_SIMULATED_HOST if is_simulated else _MEGABYTES_A_HOST
    return bool(psutil.virtual_memory().available > count * size * 1e6)


def measure(launcher: Launcher, count: int, key_exchange: float, *, is_simulated: bool) -> Scale:
    """The figures of one launch.

    Raises:
        measures.HangError: the job did not start or end.
    """
    with measures.new_folder() as folder:
        simulator = _start_simulator(folder) if is_simulated else None
        variables = _variables(folder, key_exchange, is_simulated=is_simulated)
        spec = folder / "job.yaml"
        spec.write_text(_spec(count))
        home = folder / "home"
        run = _Runner(launcher, folder, variables)
        began = time.time()
        process = run.start("launch", "--no-preflight", str(spec))
        try:
            job = _wait_for(lambda: next((home / "jobs").glob("job-*/events.jsonl"), None))
            events = _Events(job)
            started = _wait_for(lambda: events.times("TaskStarted", count))
            supervisor = psutil.Process(int(events.found["JobCreated"][0]["supervisor_pid"]))
            cpu = _cpu(supervisor)
            memory = supervisor.memory_full_info().pss / 1e6
            time.sleep(2.0)
            before = _cpu(supervisor)
            time.sleep(_IDLE_SECONDS)
            idle = (_cpu(supervisor) - before) * 1000
            status = run.seconds("status")
            logs = run.seconds("logs")
            logs_follow = None if is_simulated else run.seconds_until(count, "logs", "-f")
            before = _cpu(supervisor)
            died = time.time()
            if simulator is None:
                os.kill(int(events.found["TaskStarted"][count // 2]["pid"]), signal.SIGKILL)
            else:
                simulator.send_signal(signal.SIGUSR1)
            end_cpu = 0.0
            while process.poll() is None:
                try:
                    end_cpu = _cpu(supervisor) - before
                except (OSError, psutil.Error):
                    break
                time.sleep(0.02)
            process.wait(_DEADLINE)
            ended = time.time()
            plan = run.seconds("plan", str(spec))
        finally:
            measures.end(process, folder)
            if simulator is not None:
                simulator.kill()
                simulator.wait()
        return Scale(
            hosts=count,
            key_exchange=key_exchange,
            is_simulated=is_simulated,
            until_all_run=max(started) - began,
            supervisor_cpu=cpu,
            supervisor_memory=memory,
            idle_cpu=idle,
            status=status,
            logs=logs,
            logs_follow=logs_follow,
            until_end=ended - died,
            end_cpu=end_cpu,
            events_size=job.stat().st_size / 1e6,
            plan=plan,
        )


class _Runner:
    """Runs commands of distrun with the stand-in."""

    def __init__(self, launcher: Launcher, folder: Path, variables: dict[str, str]) -> None:
        self._launcher = launcher
        self._folder = folder
        self._variables = variables

    def start(self, *args: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        argv = ["env", *(f"{name}={value}" for name, value in self._variables.items())]
        return self._launcher.start([*argv, self._launcher.help[0], *args], self._folder, stdout)

    def seconds(self, *args: str) -> float:
        began = time.perf_counter()
        self.start(*args).wait(_DEADLINE)
        return time.perf_counter() - began

    def seconds_until(self, lines: int, *args: str) -> float:
        """Until a command that does not end has printed so many lines."""
        began = time.perf_counter()
        process = self.start(*args, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            for _ in range(lines):
                if not process.stdout.readline():
                    raise measures.HangError
            return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait(_DEADLINE)
            process.stdout.close()


class _Events:
    """The record of a job, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.found: dict[str, list[dict[str, Any]]] = {}

    def times(self, kind: str, count: int) -> list[float] | None:
        """When so many events of a kind happened; None if there are fewer yet."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                event = json.loads(line)
                self.found.setdefault(event["event"], []).append(event)
        if "JobEnded" in self.found:
            raise measures.HangError(str(self.found["JobEnded"]))
        events = self.found.get(kind, [])
        return [each["at"] for each in events] if len(events) >= count else None


def _wait_for(find: Any) -> Any:
    deadline = time.monotonic() + _DEADLINE
    while (found := find()) is None:
        if time.monotonic() > deadline:
            raise measures.HangError
        time.sleep(0.05)
    return found


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _start_simulator(folder: Path) -> subprocess.Popen[bytes]:
    fifo = folder / "processes"
    os.mkfifo(fifo)
    program = Path(__file__).with_name("simulated_hosts.py")
    return subprocess.Popen([sys.executable, str(program), str(fifo)])


def _variables(folder: Path, key_exchange: float, *, is_simulated: bool) -> dict[str, str]:
    """Write the stand-in; return the variables with which it is found."""
    began = time.perf_counter()
    loop = f"i=0; while [ $i -lt {_LOOPS} ]; do i=$((i + 1)); done"
    subprocess.run(["sh", "-c", loop], check=True)
    loops = int(_LOOPS * key_exchange / (time.perf_counter() - began))
    programs = folder / "programs"
    programs.mkdir()
    stand_in = programs / "ssh"
    then = _SIMULATED.format(fifo=folder / "processes") if is_simulated else _AGENT
    stand_in.write_text(_STAND_IN.format(ssh="/usr/bin/ssh", loops=loops, then=then))
    stand_in.chmod(0o755)
    # The agents' python3 is the launching one: no other may be on this machine.
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    return {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_STATE_HOME": str(folder / "state")}


def _spec(count: int) -> str:
    hosts = "".join(f"  - h{number}\n" for number in range(count))
    return (
        f"strategy: multi_worker_mirrored\ncluster: {{worker: {count}}}\nhosts:\n{hosts}"
        'program: {command: [sh, -c, "echo here; exec sleep 3600"], sync: "off"}\n'
        "timeouts: {start: 10m}\n"
    )

"""Runs the bundled job as processes: reads their lines, and ends them when the test is over."""

import json
import os
import queue
import re
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from harness.preloaded import PreloadedPython

MAIN = Path(__file__).parents[2] / "jobs" / "mnist" / "main.py"
DEADLINE = 240.0
"""Seconds that one step of a test may take on a machine that others use too."""

Alone: TypeAlias = Callable[..., AbstractContextManager["Process"]]
"""The fixture `alone`."""
Workers: TypeAlias = Callable[..., AbstractContextManager[list["Process"]]]
"""The fixture `workers`."""
RunPython: TypeAlias = Callable[..., str]
"""The fixture `run_python`."""

EPOCH_LINE = re.compile(
    r"epoch (?P<epoch>\d+)/\d+  step (?P<step>\d+)  accuracy (?P<accuracy>[\d.]+)  "
    r"loss (?P<loss>[\d.]+)  test_accuracy (?P<test_accuracy>[\d.]+)  images/s (?P<speed>\d+)  "
    r"seconds (?P<seconds>[\d.]+)  test_loss (?P<test_loss>[\d.]+)"
)


class Process:
    """A Python program; a thread reads its lines, so that waiting for a line has a deadline."""

    def __init__(
        self, python: PreloadedPython, argv: Sequence[str], env: Any, cwd: Any, stderr: Any = None
    ) -> None:
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        reading, writing = os.pipe()
        stderr = writing if stderr is None else stderr
        self._fork = python.start(argv, cwd=cwd, env=env, stdout=writing, stderr=stderr)
        os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with open(descriptor, errors="replace") as output:
            for line in output:
                self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def _next_line(self, deadline: float) -> str | None:
        try:
            line = self._queue.get(timeout=max(deadline - time.monotonic(), 0.001))
        except queue.Empty:
            raise AssertionError(f"nothing for too long; so far:\n{self.output}") from None
        if line is not None:
            self.lines.append(line)
        return line

    @property
    def pid(self) -> int:
        return self._fork.pid

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = DEADLINE) -> re.Match[str]:
        """Returns the match in the next line that has one."""
        deadline = time.monotonic() + seconds
        while (line := self._next_line(deadline)) is not None:
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"it ended without a line like {pattern!r}:\n{self.output}")

    def send(self, number: signal.Signals) -> None:
        self._fork.send_signal(number)

    def finish(self, seconds: float = DEADLINE) -> int:
        """Returns the exit code, negative for a signal, as subprocess does."""
        deadline = time.monotonic() + seconds
        while self._next_line(deadline) is not None:
            pass
        return self._fork.wait(max(deadline - time.monotonic(), 0.001))

    def close(self) -> None:
        self._fork.kill()
        self._fork.wait()
        self._reader.join()

    @property
    def epochs(self) -> list[dict[str, float]]:
        matches = (EPOCH_LINE.fullmatch(line) for line in self.lines)
        return [
            {name: float(value) for name, value in match.groupdict().items()}
            for match in matches
            if match
        ]


def tf_config(**config: Any) -> dict[str, str]:
    """The variable of the second of two workers; keys that are otherwise."""
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    return {"TF_CONFIG": json.dumps({**cluster, **config})}


def environment(**more: str) -> dict[str, str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if name != "TF_CONFIG" and not name.startswith("DISTRUN_")
    }
    threads = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
    return {**env, **threads, "PYTHONUNBUFFERED": "1", "no_proxy": "localhost", **more}


@contextmanager
def alone(python: PreloadedPython, *arguments: str, **env: str) -> Iterator[Process]:
    process = Process(python, [str(MAIN), *arguments], environment(**env), os.getcwd())
    try:
        yield process
    finally:
        process.close()


def run_python(python: PreloadedPython, *argv: str, cwd: str | Path, **env: str) -> str:
    with tempfile.TemporaryFile() as errors:
        process = Process(python, argv, environment(**env), cwd, errors.fileno())
        try:
            code = process.finish(780.0)
        finally:
            process.close()
        errors.seek(0)
        assert code == 0, process.output + errors.read().decode(errors="replace")
    return process.output


@contextmanager
def cluster(
    python: PreloadedPython,
    argv: Sequence[str],
    tasks: Sequence[str],
    *arguments: str,
    cwd: str | Path,
    each: Sequence[Sequence[str]] = (),
    **env: str,
) -> Iterator[list[Process]]:
    """A program once for each task of a cluster, with its TF_CONFIG.

    `each` has more arguments for each task.
    """
    with ExitStack() as stack:
        addresses: dict[str, list[str]] = {}
        for task in tasks:
            address = f"localhost:{stack.enter_context(held_port())}"
            addresses.setdefault(task.partition(":")[0], []).append(address)
        processes = []
        for number, task in enumerate(tasks):
            role, _, index = task.partition(":")
            config = {"cluster": addresses, "task": {"type": role, "index": int(index)}}
            own = environment(TF_CONFIG=json.dumps(config), TF_GRPC_REUSE_PORT="true", **env)
            more = each[number] if each else ()
            processes.append(Process(python, [*argv, *arguments, *more], own, cwd))
            stack.callback(processes[-1].close)
        yield processes


def workers(
    python: PreloadedPython, count: int, *arguments: str, **options: Any
) -> AbstractContextManager[list[Process]]:
    """The job as a cluster of workers; options as for :func:`cluster`, and variables."""
    tasks = [f"worker:{index}" for index in range(count)]
    return cluster(python, [str(MAIN)], tasks, *arguments, cwd=os.getcwd(), **options)


@contextmanager
def notified() -> Iterator[tuple[str, Callable[[], list[dict[str, str]]]]]:
    """A socket for DISTRUN_NOTIFY, by its name, and all that was sent to it, once a job has ended.

    It is read while the job runs: the kernel keeps about ten datagrams, and what is sent to a
    full socket is lost.
    """
    datagrams: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        name = f"distrun-job-test-{uuid.uuid4().hex}"
        notify.bind(f"\0{name}")

        def read() -> None:
            while datagram := notify.recv(4096):
                datagrams.append(datagram)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()

        def end() -> None:
            # What has been sent is still received; then recv returns nothing.
            notify.shutdown(socket.SHUT_RD)
            reader.join()

        def told() -> list[dict[str, str]]:
            end()
            words = (datagram.decode().split() for datagram in datagrams)
            return [dict(word.split("=", 1) for word in each) for each in words]

        try:
            yield f"@{name}", told
        finally:
            end()


@contextmanager
def held_port() -> Iterator[int]:
    """A free port that nobody else is given before TensorFlow's server, or distrun, shares it."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # distrun looks whether anybody listens, by a socket that shares ports in this way alone.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("::", 0))
        yield held.getsockname()[1]

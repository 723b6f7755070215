"""The command line as tests run it, and what its fixtures are."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import yaml

from harness.processes import descendants
from harness.waiting import SOON, wait_until

if TYPE_CHECKING:
    from harness.preloaded import PreloadedPython

Json = dict[str, Any]
"""An object that `--json` printed."""
Detach = Callable[..., str]
"""Starts a job in the background; returns its id."""
Launch = Callable[..., subprocess.Popen[str]]
"""Launches a job in the foreground; returns once each task's script runs."""


class WriteSpec(Protocol):
    """Writes a spec of `workers` that run a shell script; more keys as keywords."""

    def __call__(self, script: str, workers: int = 2, name: str = "job", **keys: Any) -> Path: ...


def write_spec(folder: Path, script: str, workers: int = 2, name: str = "job", **keys: Any) -> Path:
    """Write a spec of `workers` that run a shell script; more keys as keywords."""
    document = {
        "name": name,
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": workers},
        "program": {"command": ["sh", "-c", script]},
        **keys,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Status(Protocol):
    """Asks `distrun status --json` for a job; the newest by default."""

    def __call__(self, *job: str) -> Json: ...


class Distrun:
    """The command line of this checkout, with its records in a home of the test's own.

    Commands without options of their own process are forks of `preloaded`, if it is given: the
    start of Python and the import of distrun took most of their time.
    """

    def __init__(self, home: Path, cwd: Path, preloaded: PreloadedPython | None = None) -> None:
        self.home = home
        self._preloaded = preloaded
        self.cwd = cwd
        self.argv = (sys.executable, "-m", "distrun")
        self._started: list[subprocess.Popen[Any]] = []

    def __call__(
        self,
        *args: str | os.PathLike[str],
        timeout: float = 120.0,
        cwd: Path | None = None,
        text: bool = True,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Run to the end; stdout and stderr are text unless `text=False`.

        Raises:
            subprocess.TimeoutExpired: it had not ended after `timeout` seconds.
        """
        cwd = cwd or self.cwd
        if self._preloaded and not options:
            done = self._fork(self._preloaded, [os.fsdecode(each) for each in args], cwd, timeout)
            if text:
                done.stdout, done.stderr = _as_text(done.stdout), _as_text(done.stderr)
            return done
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options = {"text": text, "cwd": cwd, **pipes, **options}
        return subprocess.run(
            [*self.argv, *args], timeout=timeout, check=False, **self._with_defaults(options)
        )

    def checked(self, *args: str | os.PathLike[str], **options: Any) -> Any:
        """Run to the end, which must be a success."""
        done = self(*args, **options)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done

    def _fork(
        self, preloaded: PreloadedPython, args: Sequence[str], cwd: Path, timeout: float
    ) -> subprocess.CompletedProcess[Any]:
        deadline = time.monotonic() + timeout
        argv = ["-m", "distrun", *args]
        readers = [_Reader(), _Reader()]
        stdout, stderr = (reader.writing for reader in readers)
        try:
            fork = preloaded.start(
                argv, cwd=cwd, env=dict(os.environ), stdout=stdout, stderr=stderr
            )
        finally:
            os.close(stdout)
            os.close(stderr)
        try:
            code = fork.wait(timeout)
        except BaseException:
            fork.kill()
            fork.wait()
            raise
        for reader in readers:  # processes that it has left may still write
            reader.join(max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(argv, timeout)
        return subprocess.CompletedProcess(argv, code, *(reader.output for reader in readers))

    def start(
        self, *args: str | os.PathLike[str], below: Any = (), **options: Any
    ) -> subprocess.Popen[Any]:
        """Start in the background, by the command `below`; killed at the test's end if it runs.

        Its pipes, if `options` ask for any, are the caller's to read.
        """
        process = subprocess.Popen([*below, *self.argv, *args], **self._with_defaults(options))
        self._started.append(process)
        return process

    def write_tool(self) -> Path:
        """Write an executable `distrun` for shells to find; returns its folder."""
        assert self._preloaded is not None
        tool = self.cwd / "bin" / "distrun"
        tool.parent.mkdir()
        tool.write_text(f"#!/bin/sh\n{self._preloaded.command('-m', 'distrun')}")
        tool.chmod(0o755)
        return tool.parent

    # Jobs ----------------------------------------------------------------------------------

    def write_spec(self, script: str, workers: int = 2, name: str = "job", **keys: Any) -> Path:
        """Write a spec of `workers` that run a shell script; more keys as keywords."""
        return write_spec(self.cwd, script, workers, name, **keys)

    def launch(self, script: str, *args: Any, **keys: Any) -> subprocess.CompletedProcess[str]:
        """Write a spec and launch it, to its end."""
        return self("launch", self.write_spec(script, *args, **keys))

    def detached(self, script: str, *args: str, **keys: Any) -> str:
        """Start a job in the background. Returns its id."""
        done = self("launch", "-d", self.write_spec(script, **keys), *args)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        return str(done.stdout.strip())

    def launched(self, script: str, workers: int = 2, **keys: Any) -> subprocess.Popen[str]:
        """Launch a job in the foreground. Returns once each task's script runs."""
        spec = self.write_spec(f"touch up-$DISTRUN_TASK; {script}", workers, **keys)
        process = self.start("launch", spec, stdout=subprocess.DEVNULL, stderr=-1, text=True)
        wait_until(lambda: len(list(self.cwd.glob("up-*"))) == workers, what="its tasks run")
        return process

    def status(self, *job: str) -> Json:
        """Ask `status --json` for a job; the newest by default."""
        done = self("status", "--json", *job)
        assert done.returncode == 0, done.stderr
        asked: Json = json.loads(done.stdout)["job"]
        return asked

    def victim_of(self, who: str, launch: subprocess.Popen[Any] | None) -> int:
        """Find the process to kill: `launch`, `supervisor`, `agent` or its `guard`."""
        if who == "launch":
            assert launch is not None
            return launch.pid
        job = self.status()
        if who == "supervisor":
            return int(job["supervisor_pid"])
        agent = int(job["hosts"][0]["agent_pid"])
        return agent if who == "agent" else psutil.Process(agent).ppid()

    def lose(self, job: str) -> int:
        """Kill a job's supervisor, guard and agent at once. Returns the task that lives on."""
        shown = self.status(job)
        agent = int(shown["hosts"][0]["agent_pid"])
        for pid in (psutil.Process(agent).ppid(), agent, int(shown["supervisor_pid"])):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.status(job)["state"] == "lost")
        return int(shown["tasks"][0]["pid"])

    def _with_defaults(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"stdin": subprocess.DEVNULL, "cwd": self.cwd, **options}

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                if process.args[0] != self.argv[0]:  # type: ignore[index]  # it would leave distrun
                    for each in descendants(process.pid):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            each.kill()
                process.send_signal(signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait(SOON)


class _Reader(threading.Thread):
    """Reads a pipe to its end; `writing` is the other end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._reading, self.writing = os.pipe()
        self.output = b""
        self.start()

    def run(self) -> None:
        with open(self._reading, "rb") as pipe:
            self.output = pipe.read()


def _as_text(output: bytes) -> str:
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")


def recorded_events(distrun: Distrun, *job: str) -> list[dict[str, Any]]:
    """The events of a job, as `distrun events --json` prints them."""
    lines = distrun("events", *job, "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]

"""The command line as tests run it, and what its fixtures are."""

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml

from harness.preloaded import PreloadedPopen, PreloadedPython
from harness.processes import captured, descendants
from harness.terminal import popen_session
from harness.waiting import SOON, wait_until

Json = dict[str, Any]
"""An object that `--json` printed."""
PLAIN = (sys.executable, "-m", "distrun")
FORKED = {"stdin", "stdout", "stderr", "text", "cwd", "env", "start_new_session"}
"""The options of subprocess that a fork of a preloaded Python can have."""
READ_AT_START = ("PYTHON", "LANG", "LC_")
"""What the names of variables begin with that Python reads when it starts."""


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


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def python(script: str) -> str:
    """A shell script that becomes this Python, which runs that script."""
    return f"exec {shlex.quote(sys.executable)} -c {shlex.quote(script)}"


class Distrun:
    """The command line of this checkout, with its records in a home of the test's own.

    Commands without options of their own process are forks of `preloaded`, if it is given: the
    start of Python and the import of distrun took most of their time.
    """

    def __init__(self, home: Path, cwd: Path, preloaded: PreloadedPython | None = None) -> None:
        self.home = home
        self._preloaded = preloaded
        self.cwd = cwd
        self.argv = PLAIN
        self.asks_here = True
        """Whether this process may run what only reads: not where that starts what ends with it."""
        self._started: list[subprocess.Popen[Any]] = []
        self._above: list[subprocess.Popen[Any]] = []
        """Those of another command, which starts distrun's."""

    def __call__(
        self,
        *args: str | os.PathLike[str],
        timeout: float = 120.0,
        cwd: Path | None = None,
        text: bool = True,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Run to the end, for so many seconds; stdout and stderr are text unless `text=False`."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self.popen(args, cwd=cwd or self.cwd, text=text, **{**pipes, **options})
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def checked(self, *args: str | os.PathLike[str], **options: Any) -> Any:
        """Run to the end, which must be a success."""
        done = self(*args, **options)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done

    def elsewhere(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run where no other process can be seen; the hosts' are this machine's. It needs root."""
        namespace = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        return captured([*namespace, *self.argv, *args], cwd=self.cwd)

    def told(self, code: int, *args: str | os.PathLike[str], **options: Any) -> str:
        """Run to the end: with this exit code, and nothing on stdout. Returns what is said."""
        done = self(*args, **options)
        assert (done.returncode, done.stdout) == (code, ""), f"{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return str(done.stderr)

    def popen(
        self, args: Sequence[Any], below: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[Any]:
        """Start it as `subprocess.Popen` does; if nothing speaks against it, as a fork."""
        options = {"stdin": subprocess.DEVNULL, "cwd": self.cwd, **options}
        argv = [*below, *self.argv, *map(os.fsdecode, args)]
        can_fork = argv[:3] == [*PLAIN] and options.keys() <= FORKED
        if self._preloaded and can_fork and _at_start(options.get("env")) == _at_start(None):
            return PreloadedPopen(self._preloaded, argv[1:], **options)
        popen = popen_session if options.get("start_new_session") else subprocess.Popen
        return popen(argv, **options)

    def start(
        self, *args: str | os.PathLike[str], below: Any = (), **options: Any
    ) -> subprocess.Popen[Any]:
        """Start in the background, by the command `below`; killed at the test's end if it runs."""
        process = self.popen(args, below, **options)
        self._started.append(process)
        if below:
            self._above.append(process)
        return process

    def write_tool(self) -> Path:
        """Write an executable `distrun` for shells to find; returns its folder."""
        assert self._preloaded is not None
        tool = self.cwd / "bin" / "distrun"
        write_program(tool, f"#!/bin/sh\n{self._preloaded.command('-m', 'distrun')}")
        return tool.parent

    # Jobs ----------------------------------------------------------------------------------

    def write_spec(self, script: str, workers: int = 2, name: str = "job", **keys: Any) -> Path:
        return write_spec(self.cwd, script, workers, name, **keys)

    def launch(self, script: str, *args: Any, **keys: Any) -> subprocess.CompletedProcess[str]:
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

    def asked(self, *words: str | os.PathLike[str]) -> str:
        """What a command prints that only reads, and succeeds; mostly without a process."""
        if self.asks_here and self.argv == PLAIN:
            code, printed, said = run_here([*map(os.fsdecode, words)])
        else:
            done = self(*words)
            code, printed, said = done.returncode, done.stdout, done.stderr
        assert code == 0, said
        return printed

    def status(self, *job: str) -> Json:
        asked: Json = json.loads(self.asked("status", "--json", *job))["job"]
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
        lost = (psutil.Process(agent).ppid(), agent, int(shown["supervisor_pid"]))
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees another's death
            for pid in lost:
                os.kill(pid, number)
        wait_until(lambda: self.status(job)["state"] == "lost")
        return int(shown["tasks"][0]["pid"])

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                if process in self._above:  # it would leave distrun
                    for each in descendants(process.pid):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            each.kill()
                process.send_signal(signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait(SOON)


def _at_start(env: dict[str, str] | None) -> dict[str, str]:
    """What Python reads of an environment when it starts."""
    given = os.environ if env is None else env
    return {name: value for name, value in given.items() if name.startswith(READ_AT_START)}


def run_here(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in this process. Returns its exit code, output and errors."""
    from distrun.cli import console, main
    from distrun.errors import DistrunError

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main.distrun.main(list(words), prog_name="distrun", standalone_mode=False)
        except DistrunError as error:
            console.print_error(error)
            code = error.exit_code
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return int(code or 0), texts[0], texts[1]


def recorded_events(distrun: Distrun, *job: str) -> list[dict[str, Any]]:
    """The events of a job, as `distrun events --json` prints them."""
    return [json.loads(line) for line in distrun.asked("events", *job, "--json").splitlines()]

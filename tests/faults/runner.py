"""Runs one cell: launches a job, injects the fault, compares the result with the expectation."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from cells import MID_EPOCH, PS, SAVE_EVERY, SIGNALS, STEPS, TASKS, Cell, expected
from controller import Attempt, Controller
from harness.command import Distrun, write_spec

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
STOPPED_SECONDS = 1.0
GONE_WITHIN = 10.0
PATIENCE = 240.0


@dataclass(frozen=True)
class Result:
    cell: Cell
    seconds: float
    state: str
    code: int | None
    verdicts: list[tuple[str | None, str]]
    restarts: int
    lost: int | None
    """Steps that had to be repeated after a restart."""
    survivors: int
    violations: list[str]
    """How the result differs from the expectation."""

    def __str__(self) -> str:
        said = ", ".join(f"{task} {kind}" for task, kind in self.verdicts) or "none"
        lost = "-" if self.lost is None else self.lost
        found = (
            f"{self.state:<10}{self.code!s:>4}  verdict {said:<24}restarts {self.restarts}  "
            f"lost {lost}  left {self.survivors}"
        )
        mark = "holds" if not self.violations else "BROKEN"
        row = f"{mark:<7}{self.cell!s:<44}{found}  {self.seconds:.0f} s"
        return "\n       ".join([row, *self.violations])


def _is_dead(attempt: Attempt | None) -> bool:
    """Whether the process is dead. Its end of the socket closes a while before."""
    if attempt is None or not attempt.has_ended:
        return False
    try:
        return psutil.Process(attempt.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class CellRun:
    """Launches the job of one cell in its own folder. The folder is kept if the cell fails."""

    def __init__(self, cell: Cell, python: str) -> None:
        self._cell = cell
        self._python = python
        self._folder = Path(tempfile.mkdtemp(prefix="faults-"))
        self._home = self._folder / "home"
        self._paused: Attempt | None = None
        self._controller = Controller(self._folder / "controller", self._must_pause)
        self._distrun = Distrun(self._home, self._folder)
        self._launch = self._start()

    def run(self) -> Result:
        began = time.monotonic()
        try:
            violations = self._inject_fault()
            result = self._result(violations, began)
        finally:
            self._close()
        if not result.violations:
            shutil.rmtree(self._folder)
        else:
            result.violations.append(f"kept: {self._folder}")
        return result

    # The job -------------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        cell = self._cell
        environ = {
            "CONTROLLER": str(self._folder / "controller"),
            "SCHEDULE": f"{STEPS} {SAVE_EVERY} {MID_EPOCH}",
        }
        spec = write_spec(
            self._folder, "", strategy=cell.strategy, cluster=cell.cluster,
            program={"command": [self._python, str(PROGRAM)], "env": environ},
            restart={"max": 2, "backoff": "100ms", "backoff_max": "100ms"},
            timeouts={"run": f"{PATIENCE:.0f}s", "grace": "5s"},
        )  # fmt: skip
        with (self._folder / "launch.log").open("ab") as log:
            return self._distrun.start("launch", spec, env=self._environ, stdout=log, stderr=log)

    @property
    def _environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DISTRUN_")}
        kept.pop("TF_CONFIG", None)
        path = f"{ROOT / 'launcher'}"
        return {**kept, "DISTRUN_HOME": str(self._home), "PYTHONPATH": path}

    def _query(self, *args: str) -> str:
        return str(self._distrun(*args, env=self._environ).stdout)

    def _status(self) -> dict[str, Any]:
        job: dict[str, Any] = json.loads(self._query("status", "--json"))["job"]
        return job

    # The fault -----------------------------------------------------------------------------

    def _must_pause(self, attempt: Attempt, moment: str) -> bool:
        is_it = attempt.attempt == 0 and attempt.task == self._cell.reporter
        if not is_it or moment != self._cell.moment:
            return False
        self._paused = attempt
        return True

    def _inject_fault(self) -> list[str]:
        is_there = lambda: self._paused is not None or self._launch.poll() is not None  # noqa: E731
        if not self._controller.serve_until(is_there, PATIENCE) or self._paused is None:
            return [f"{self._cell.reporter} never came to {self._cell.moment}"]
        violations = self._inject(self._paused)
        if not self._controller.serve_until(lambda: self._launch.poll() is not None, PATIENCE):
            violations.append("the job did not end")
            self._launch.terminate()
            self._controller.serve_until(lambda: self._launch.poll() is not None, 20)
        return violations

    def _inject(self, paused: Attempt) -> list[str]:
        cell = self._cell
        if cell.fault not in SIGNALS:
            return self._inject_inside(paused)
        if (pid := self._pid()) is None:
            return [f"{cell.victim} is not there"]
        if cell.fault == "SIGSTOP":
            return self._stop_for_a_while(pid, paused)
        os.kill(pid, getattr(signal, cell.fault))
        return self._release(paused)

    def _inject_inside(self, paused: Attempt) -> list[str]:
        victim = self._victim()
        if victim is None:
            return [f"{self._cell.victim} is not there"]
        victim.answer(f"inject {self._cell.fault}")
        return self._release(paused)

    def _victim(self) -> Attempt | None:
        """The victim's first attempt. It can connect after another task has reached the moment."""
        self._controller.serve_until(
            lambda: self._controller.attempt(self._cell.victim) is not None, PATIENCE
        )
        return self._controller.attempt(self._cell.victim)

    def _release(self, paused: Attempt) -> list[str]:
        cell = self._cell
        victim = self._controller.attempt(cell.victim)
        must_die = victim is not None and cell.fault != "SIGTERM"
        if must_die and not self._controller.serve_until(
            lambda: victim is None or _is_dead(victim), PATIENCE
        ):
            return [f"{cell.victim} did not die of it"]
        restarts_alone = cell.strategy == PS and cell.victim.startswith("worker")
        if restarts_alone and expected(cell).restarts == (1,):  # the chief may finish without it
            is_back = lambda: self._controller.attempt(cell.victim, 1) is not None  # noqa: E731
            if not self._controller.serve_until(is_back, PATIENCE):
                return [f"{cell.victim} did not start again"]
        if paused is not victim or cell.fault == "SIGTERM":
            paused.answer("go")
        return []

    def _stop_for_a_while(self, pid: int, paused: Attempt) -> list[str]:
        process = psutil.Process(pid)
        process.suspend()
        stopped = lambda: (  # noqa: E731 - an agent is resumed by its guard, perhaps at once
            self._cell.victim == "agent" or process.status() == psutil.STATUS_STOPPED
        )
        violations = (
            [] if self._controller.serve_until(stopped, PATIENCE) else ["it was not stopped"]
        )
        paused.answer("go")
        self._controller.serve_until(lambda: False, STOPPED_SECONDS)
        with contextlib.suppress(psutil.NoSuchProcess):  # the job's success ended it
            process.resume()
        return violations

    def _pid(self) -> int | None:
        """The victim's process id, or None if it has none. Never 0, which means a whole group."""
        if self._cell.victim in TASKS:
            victim = self._victim()
            return None if victim is None else victim.pid
        if self._cell.victim == "launch":
            return self._launch.pid
        job = self._status()
        agent = job["hosts"][0]["agent_pid"] if job["hosts"] else None
        return agent if self._cell.victim == "agent" else job["supervisor_pid"]

    # The result ----------------------------------------------------------------------------

    def _result(self, violations: list[str], began: float) -> Result:
        survivors = self._survivors()
        job = self._status()
        told = [json.loads(line) for line in self._query("events", "--json").splitlines()]
        verdicts = [
            (event["verdict"]["task"], event["verdict"]["kind"])
            for event in told
            if event["event"] == "VerdictReached"
        ]
        lost = self._lost()
        result = Result(
            cell=self._cell, seconds=time.monotonic() - began, state=job["state"],
            code=self._launch.returncode, verdicts=verdicts, restarts=job["restarts"], lost=lost,
            survivors=len(survivors), violations=violations,
        )  # fmt: skip
        violations += self._violations(result, self._to_be_named(job))
        return result

    def _to_be_named(self, job: dict[str, Any]) -> str | None:
        """The task that the verdict must name: the victim, or the only task lost with the agent."""
        if self._cell.victim in TASKS:
            return self._cell.victim
        lost = [task["task"] for task in job["tasks"] if task["state"] == "failed"]
        return lost[0] if self._cell.victim == "agent" and len(lost) == 1 else None

    def _violations(self, found: Result, victim: str | None) -> list[str]:
        wanted = expected(self._cell)
        violations = []
        if found.state not in wanted.results or found.code not in wanted.codes:
            violations.append(f"wanted {wanted}, exit code {wanted.codes[0]}")
        elif found.restarts not in wanted.restarts:
            violations.append(f"wanted {wanted}")
        said: Sequence[tuple[str | None, str | None]] = found.verdicts or [(victim, None)]
        # A success without a task that was named before says so in a second verdict.
        allowed = [(victim, kind) for kind in wanted.kinds]
        if len(said) > 1:
            allowed.append((None, "qualified"))
        if any(each not in allowed for each in said):
            violations.append(f"wanted {wanted}, of {victim}")
        if found.survivors:
            violations.append("processes were left")
        if found.state == "succeeded":
            violations += self._unfinished(found)
        return violations

    def _unfinished(self, found: Result) -> list[str]:
        """Violations if the training is incomplete, or if it repeated too many steps."""
        trainers = [each for each in self._controller.attempts if each.task == self._cell.trainer]
        violations = []
        last = max([each.resumed for each in trainers] + [s for t in trainers for s in t.steps])
        if last != STEPS:
            violations.append(f"{self._cell.trainer} came to step {last} of {STEPS}")
        if found.lost is not None and found.lost > SAVE_EVERY:
            violations.append(f"{found.lost} steps were lost, of {SAVE_EVERY} between checkpoints")
        return violations

    def _lost(self) -> int | None:
        """Steps that the restarted trainer repeated; None if it was not restarted."""
        first, second = (self._controller.attempt(self._cell.trainer, number) for number in (0, 1))
        if first is None or second is None:
            return None
        return max(first.steps, default=0) - second.resumed

    def _survivors(self) -> list[psutil.Process]:
        """Processes with this cell's home in their environment, or connected to its controller."""
        deadline = time.monotonic() + GONE_WITHIN
        while (left := self._living()) and time.monotonic() < deadline:
            self._controller.serve_until(lambda: False, 0.05)
        return left

    def _living(self) -> list[psutil.Process]:
        mark = f"DISTRUN_HOME={self._home}".encode()
        pids = {attempt.pid for attempt in self._controller.attempts if not attempt.has_ended}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if (mark in environ or process.pid in pids) and process.status() != "zombie":
                    found.append(process)
        return found

    def _close(self) -> None:
        for process in self._living():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._launch.wait(10)
        self._controller.close()


def run_cell(cell: Cell, python: str = sys.executable) -> Result:
    return CellRun(cell, python).run()

"""Runs one training, by hand or with distrun, and records its lines with their times."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT = 900.0
"""Time limit of a training, in seconds."""
FIRST_STEP = re.compile(r"first (?:step|\d+ steps) after [\d.]+ s")
_EPOCH = re.compile(r"(?:(?P<task>\S+) +\| )?epoch \d+/\d+  (?P<figures>.*)")
_FIGURE = re.compile(r"(\S+) ([-\d.]+|nan)")


class FailedRunError(Exception):
    """A training failed."""


@dataclass
class Run:
    """The output of one training; times in seconds since its start."""

    name: str
    total: float = 0.0
    first_step: float | None = None
    epochs: list[dict[str, float]] = field(default_factory=list)
    """The figures of each epoch, from the first task that prints them."""
    lines: list[str] = field(default_factory=list)

    def take(self, at: float, line: str) -> None:
        """Records a line and the time at which it was printed."""
        self.lines.append(line)
        if self.first_step is None and FIRST_STEP.search(line):
            self.first_step = at
        match = _EPOCH.match(line)
        if match:
            figures = {name: float(value) for name, value in _FIGURE.findall(match["figures"])}
            if len(self.epochs) < int(line.partition("epoch ")[2].partition("/")[0]):
                self.epochs.append({**figures, "at": at})


@dataclass(frozen=True)
class Process:
    """One process of a training by hand."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    is_server: bool = False
    """Whether it never ends by itself. Then it is killed when the others have ended."""


def by_hand(name: str, processes: list[Process]) -> Run:
    """Starts processes as a person would, in the background, and waits for them."""
    run, began, lock = Run(name), time.monotonic(), threading.Lock()
    with ExitStack() as stack:
        started: list[tuple[Process, subprocess.Popen[str], threading.Thread]] = []
        for process in processes:
            popen = subprocess.Popen(
                process.argv,
                env={**_environment(), **process.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            stack.callback(_end, popen)
            reader = threading.Thread(target=_read, args=(popen, run, began, lock), daemon=True)
            reader.start()
            started.append((process, popen, reader))
        for process, popen, reader in started:
            if process.is_server:
                continue
            code = popen.wait(max(1.0, began + TIMEOUT - time.monotonic()))
            reader.join()
            if code:
                raise FailedRunError(f"{name}: exit {code}\n" + "\n".join(run.lines[-30:]))
        run.total = time.monotonic() - began
    return run


def with_distrun(name: str, spec: dict[str, object], folder: Path, *args: str) -> Run:
    """Launches a spec in the foreground."""
    path = folder / "job.yaml"
    path.write_text(json.dumps(spec))  # JSON is YAML
    argv = [sys.executable, "-m", "distrun", "launch", str(path), *(["--", *args] if args else [])]
    return by_hand(name, [Process(argv, {"DISTRUN_HOME": str(folder / "home")})])


def cluster(argv: list[str], env: Mapping[str, str] | None = None, **counts: int) -> list[Process]:
    """A cluster by hand on this machine: the same program for each task, and TF_CONFIG."""
    with ExitStack() as stack:
        addresses = {
            role: [f"localhost:{stack.enter_context(_free()).getsockname()[1]}" for _ in range(n)]
            for role, n in counts.items()
        }
    return [
        Process(
            argv,
            {
                **(env or {}),
                "TF_CONFIG": json.dumps({"cluster": addresses, "task": {"type": role, "index": i}}),
            },
            is_server="ps" in counts and role in ("worker", "ps"),
        )
        for role, n in counts.items()
        for i in range(n)
    ]


def _free() -> socket.socket:
    return socket.create_server(("", 0))


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "TF_CONFIG" and not k.startswith("DISTRUN")}
    return {**kept, "PYTHONUNBUFFERED": "1", "no_proxy": "localhost"}


def _read(popen: subprocess.Popen[str], run: Run, began: float, lock: threading.Lock) -> None:
    assert popen.stdout is not None
    for line in popen.stdout:
        with lock:
            run.take(time.monotonic() - began, line.rstrip("\n"))


def _end(popen: subprocess.Popen[str]) -> None:
    if popen.poll() is None:
        popen.kill()
    popen.wait()

"""Two checkouts of distrun side by side: starting, stopping, output and idling.

    python benchmarks/checkouts.py OLD NEW --rounds 5

OLD and NEW are checkouts, for example made with `git worktree add OLD REVISION`. Both run with
the interpreter that runs this script, in turn, in rounds. Machines differ, so the ratio counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_IDLE_SECONDS = 10.0
_WRITER_BYTES = 64 << 20
_DEADLINE = 120.0


@dataclass(frozen=True)
class Checkout:
    """A checkout, and the folder in which it keeps its jobs during the benchmark."""

    path: Path
    home: Path

    def distrun(self, *args: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command of this checkout."""
        return subprocess.Popen(
            [sys.executable, "-m", "distrun", *args],
            env={
                # Without compiled modules every command would compile all of them again.
                **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
                "PYTHONPATH": str(self.path / "launcher"),
                "DISTRUN_HOME": str(self.home),
            },
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=self.home,
        )

    def empty_folder(self) -> Path:
        """Return an empty folder in which tasks say that they are ready."""
        folder = self.home / "ready"
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            file.unlink()
        return folder

    def launch(self, tasks: int, script: str, stdout: int = subprocess.DEVNULL) -> _Launch:
        """Launch so many workers that run a shell script."""
        spec = self.home / "job.yaml"
        spec.write_text(
            f"strategy: multi_worker_mirrored\ncluster: {{worker: {tasks}}}\n"
            "timeouts: {grace: 5s}\n"
            f"program: {{command: [sh, -c, {_quoted(script)}]}}\n"
        )
        return _Launch(self.distrun("launch", str(spec), stdout=stdout))


class _Launch:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def wait(self, expected: int) -> None:
        code = self.process.wait(_DEADLINE)
        if code != expected:
            sys.exit(f"a launch exited {code} where {expected} was expected")

    def own_processes(self) -> list[psutil.Process]:
        """The launcher's processes: all that it has started, but for the tasks."""
        root = psutil.Process(self.process.pid)
        found = [root]
        for process in root.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "DISTRUN_TASK" not in process.environ():
                    found.append(process)
        return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def help_text(checkout: Checkout) -> float:
    """Milliseconds of `distrun --help`."""
    began = time.perf_counter()
    checkout.distrun("--help").wait(_DEADLINE)
    return _milliseconds_since(began)


def start(tasks: int) -> Callable[[Checkout], float]:
    def measure(checkout: Checkout) -> float:
        began = time.perf_counter()
        checkout.launch(tasks, "true").wait(0)
        return _milliseconds_since(began)

    measure.__doc__ = f"Milliseconds to start and finish {tasks} tasks that do nothing."
    return measure


def failure(checkout: Checkout) -> float:
    """Milliseconds from the exit of one of 8 tasks until the launch has ended."""
    ready = checkout.empty_folder()
    script = (
        f"sleep 600 & touch {ready}/$DISTRUN_TASK; "
        f"if [ $DISTRUN_TASK = worker:3 ]; then while [ ! -e {ready}/go ]; do sleep 0.01; done; "
        f"date +%s.%N > {ready}/failed; exit 3; fi; wait"
    )
    launch = checkout.launch(8, script)
    _wait_for(lambda: len(list(ready.iterdir())) == 8)
    (ready / "go").touch()
    launch.wait(3)
    return (time.time() - float((ready / "failed").read_text())) * 1000


def interrupt(checkout: Checkout) -> float:
    """Milliseconds from SIGINT to the end, where each of 8 tasks cleans up for 0.5 s."""
    ready = checkout.empty_folder()
    script = (
        "trap 'sleep 0.5; exit 0' TERM; "
        f"touch {ready}/$DISTRUN_TASK; while :; do sleep 0.05 & wait $!; done"
    )
    launch = checkout.launch(8, script)
    _wait_for(lambda: len(list(ready.iterdir())) == 8)
    began = time.perf_counter()
    launch.process.send_signal(signal.SIGINT)
    launch.wait(130)
    return _milliseconds_since(began)


def output(checkout: Checkout) -> float:
    """MB/s of prefixed output that 4 tasks write at once."""
    line = "step 0001234 loss 0.12345 accuracy 0.98765 images/s 1843.2 and some more text"
    began = time.perf_counter()
    launch = checkout.launch(4, f"yes '{line}' | head -c {_WRITER_BYTES}", subprocess.PIPE)
    size = 0
    assert launch.process.stdout is not None
    while block := launch.process.stdout.read(1 << 20):
        size += len(block)
    launch.wait(0)
    if size < 4 * _WRITER_BYTES:
        sys.exit(f"only {size} bytes of output came")
    return size / (time.perf_counter() - began) / 1e6


def idle(checkout: Checkout) -> tuple[float, float]:
    """Milliseconds of CPU in 10 s, and MB of memory (PSS), beside 16 tasks that sleep."""
    ready = checkout.empty_folder()
    launch = checkout.launch(16, f"touch {ready}/$DISTRUN_TASK; exec sleep 600")
    _wait_for(lambda: len(list(ready.iterdir())) == 16)
    time.sleep(1.0)  # what follows a start is not idling
    before = _cpu(launch.own_processes())
    time.sleep(_IDLE_SECONDS)
    processes = launch.own_processes()
    used = _cpu(processes) - before
    memory = sum(process.memory_full_info().pss for process in processes)
    launch.process.send_signal(signal.SIGTERM)
    launch.wait(143)
    return used * 1000, memory / 1e6


def _cpu(processes: list[psutil.Process]) -> float:
    """Seconds, by the scheduler's own account: ticks of 10 ms are too coarse here."""
    total = 0.0
    for process in processes:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("the tasks did not start in time")
        time.sleep(0.005)


def _milliseconds_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


MEASURES: dict[str, Callable[[Checkout], float]] = {
    "--help, ms": help_text,
    "2 no-op tasks, ms": start(2),
    "16 no-op tasks, ms": start(16),
    "64 no-op tasks, ms": start(64),
    "one of 8 fails, ms": failure,
    "SIGINT, 0.5 s of clean-up, ms": interrupt,
    "prefixed output, MB/s": output,
}
IDLE = ("16 idle tasks: CPU in 10 s, ms", "16 idle tasks: memory, MB")


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="distrun-bench-") as folder:
        checkouts = list(_checkouts(options, Path(folder)))
        names = [name for name in (*MEASURES, *IDLE) if re.search(options.only, name)]
        found: dict[str, list[list[float]]] = {name: [[], []] for name in names}
        for number in range(options.rounds + 1):
            for place in (0, 1) if number % 2 else (1, 0):
                for name, value in _measured(checkouts[place], names):
                    if number:  # the first round warms caches up
                        found[name][place].append(value)
    print(_table(found, options.rounds))
    return 0


def _checkouts(options: argparse.Namespace, folder: Path) -> Iterator[Checkout]:
    for name, path in (("old", options.old), ("new", options.new)):
        home = folder / name
        home.mkdir()
        yield Checkout(path.resolve(), home)


def _measured(checkout: Checkout, names: list[str]) -> Iterator[tuple[str, float]]:
    for name in names:
        if name in MEASURES:
            yield name, MEASURES[name](checkout)
    if any(name in IDLE for name in names):
        yield from (pair for pair in zip(IDLE, idle(checkout), strict=True) if pair[0] in names)


def _table(found: dict[str, list[list[float]]], rounds: int) -> str:
    lines = [
        f"{os.cpu_count()} cores, medians of {rounds} rounds:",
        "",
        "| | old | new | new / old |",
        "| --- | --- | --- | --- |",
    ]
    for name, (old, new) in found.items():
        ratio = statistics.median(b / a for a, b in zip(old, new, strict=True))
        lines.append(
            f"| {name} | {statistics.median(old):.1f} | {statistics.median(new):.1f}"
            f" | {ratio:.2f} |"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--only", default="", metavar="RE", help="only measures whose name fits")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

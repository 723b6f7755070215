"""What is measured of a launcher: starting, failing, output, idling and stopping.

Each task is a shell script. The scripts tell by files what happens in them, so that every launcher
is measured in the same way, from outside.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from launchers import SCRIPT, Launcher

DEADLINE = 20.0
"""Seconds after which a launcher hangs, or does not do at all what is measured."""
LINE = "step 0001234 loss 0.12345 accuracy 0.98765 images/s 1843.2 and some more text"
_IDLE_SECONDS = 10.0
_BLOCKS = f"yes '{LINE}' | head -n {{lines}}"
SINGLE_LINES = f"""exec python3 -S -c 'import os
for _ in range({{lines}}):
    os.write(1, b"{LINE}\\n")'"""
_PROGRAM = "sleep"
"""The name of a task's processes that are no launcher's, in the measure of idling."""

Figures = tuple[float | None, ...]
"""None: it never happened."""
Measure = Callable[[Launcher, Path], Figures]


class HangError(Exception):
    """A launcher failed, or did not do what is measured before the deadline."""


@dataclass(frozen=True)
class Row:
    """A row of the table: what is measured, and how its figures are written."""

    name: str
    measure: Measure
    text: Callable[..., str]

    def cell(self, figures: Figures | None) -> str:
        """The text of figures; None: the launcher hung or failed."""
        if figures is None:
            return "hung"
        return "never" if figures[0] is None else self.text(*figures)


def number_text(value: float) -> str:
    return f"{value:,.0f}"


def ends_text(ended: float, gone: float | None) -> str:
    return f"{ended:,.0f} ({'never' if gone is None else number_text(gone)})"


def _rate_text(rate: float, damaged: float) -> str:
    return f"{rate:,.0f} damaged" if damaged else f"{rate:,.0f}"


def _idle_text(milliseconds: float, megabytes: float) -> str:
    return f"{milliseconds:,.1f}; {megabytes:,.0f}"


def help_text(launcher: Launcher, folder: Path) -> Figures:
    """Milliseconds until the help is printed."""
    began = time.perf_counter()
    _wait(launcher.start(launcher.help, folder), folder)
    return (_milliseconds_since(began),)


def start(count: int) -> Measure:
    def measure(launcher: Launcher, folder: Path) -> Figures:
        return start_of(launcher, launcher.here(count, folder), folder)

    return measure


def start_of(launcher: Launcher, argv: list[str], folder: Path) -> Figures:
    """Milliseconds to start and finish tasks that do nothing.

    Raises:
        HangError: it has not ended, or not with 0.
    """
    _write_script(folder, "exit 0")
    began = time.perf_counter()
    process = launcher.start(argv, folder)
    _wait(process, folder)
    took = _milliseconds_since(began)
    if process.returncode != 0:
        raise HangError
    return (took,)


def failure(launcher: Launcher, folder: Path) -> Figures:
    """See :func:`failure_of`, for 8 tasks on this machine."""
    return failure_of(launcher, launcher.here(8, folder), 8, folder)


def failure_of(launcher: Launcher, argv: list[str], count: int, folder: Path) -> Figures:
    """Milliseconds from the exit of one task until the launcher has ended, and all processes.

    Each task is a shell with a child.
    """
    _write_script(
        folder,
        f"""sleep 600 &
        {_say_ready(folder)}
        if mkdir {folder}/fails 2>/dev/null; then
            while [ ! -e {folder}/go ]; do sleep 0.01; done
            date +%s.%N > {folder}/failed; exit 3
        fi
        wait""",
    )
    process = launcher.start(argv, folder)
    try:
        _wait_until_ready(folder, count)
        tasks = _tasks(folder)
        (folder / "go").touch()
        ended = gone = None
        deadline = time.monotonic() + DEADLINE / 4
        while (ended is None or gone is None) and time.monotonic() < deadline:
            if ended is None and process.poll() is not None:
                ended = time.time()
            if gone is None and not any(map(_is_alive, tasks)):
                gone = time.time()
            time.sleep(0.002)
        failed = float((folder / "failed").read_text())
    finally:
        end(process, folder)
    return tuple(None if each is None else (each - failed) * 1000 for each in (ended, gone))


def interrupt(launcher: Launcher, folder: Path) -> Figures:
    """Milliseconds from SIGINT to the end, and how many of 8 tasks have cleaned up for 0.5 s."""
    _write_script(
        folder,
        f"""trap 'sleep 0.5; touch {folder}/cleaned/$$; exit 0' INT TERM
        {_say_ready(folder)}
        while :; do sleep 0.05 & wait $!; done""",
    )
    (folder / "cleaned").mkdir()
    process = launcher.start(launcher.here(8, folder), folder)
    try:
        _wait_until_ready(folder, 8)
        began = time.perf_counter()
        process.send_signal(signal.SIGINT)
        if not _has_ended(process):
            return (None, 0.0)
        took = _milliseconds_since(began)
        count = len(list((folder / "cleaned").iterdir()))
    finally:
        end(process, folder)
    return (took, float(count))


def output(script: str, lines: int) -> Measure:
    def measure(launcher: Launcher, folder: Path) -> Figures:
        """MB/s of what 4 tasks print at once, and how many lines are damaged or missing."""
        _write_script(folder, script.replace("{lines}", str(lines)))
        argv = launcher.here(4, folder)
        began = time.perf_counter()
        process = launcher.start(argv, folder, subprocess.PIPE)
        blocks = []
        assert isinstance(process.stdout, io.BufferedReader)
        try:
            while block := process.stdout.read1(1 << 20):
                blocks.append(block)
                if time.perf_counter() - began > DEADLINE:
                    return (None, 0.0)
            took = time.perf_counter() - began
        finally:
            end(process, folder)
            process.stdout.close()
        text = b"".join(blocks)
        tail = LINE.encode()
        whole = sum(each.count(tail) == 1 and each.endswith(tail) for each in text.split(b"\n"))
        return (4 * lines * (len(tail) + 1) / took / 1e6, float(4 * lines - whole))

    return measure


def idle(launcher: Launcher, folder: Path) -> Figures:
    """Milliseconds of CPU in 10 s, and MB of memory (PSS), beside 16 tasks that sleep."""
    _write_script(folder, f"{_say_ready(folder)}; exec {_PROGRAM} 600")
    process = launcher.start(launcher.here(16, folder), folder)
    try:
        _wait_until_ready(folder, 16)
        time.sleep(2.0)  # what follows a start is not idling
        before = _cpu(_own_processes(process))
        time.sleep(_IDLE_SECONDS)
        found = _own_processes(process)
        used = _cpu(found) - before
        memory = sum(each.memory_full_info().pss for each in found)
    finally:
        end(process, folder)
    return (used * 1000, memory / 1e6)


ROWS = (
    Row("`--help`, ms", help_text, number_text),
    *(Row(f"start and finish {n} tasks, ms", start(n), number_text) for n in (2, 16, 64)),
    Row("one of 8 tasks fails: until the launcher (all) has ended, ms", failure, ends_text),
    Row("prefixed output in blocks, MB/s", output(_BLOCKS, 800_000), _rate_text),
    Row("prefixed output in single lines, MB/s", output(SINGLE_LINES, 200_000), _rate_text),
    Row("16 idle tasks: CPU in 10 s, ms; memory (PSS), MB", idle, _idle_text),
    Row("SIGINT, 0.5 s of clean-up: until the end, ms (tasks that did)", interrupt, ends_text),
)


def in_rounds(row: Row, launchers: Sequence[Launcher], rounds: int) -> dict[str, Figures | None]:
    """Medians by launcher. All run in turn; who comes first changes from round to round.

    A first round does not count. A launcher that hangs in it has no other.
    """
    found: dict[str, list[Figures | None]] = {each.name: [] for each in launchers}
    for number in range(rounds + 1):
        shift = number % len(launchers)
        for launcher in (*launchers[shift:], *launchers[:shift]):
            runs = found[launcher.name]
            if number == 0 or runs != [None]:
                runs.append(measured(row, launcher))
            if number == 0 and runs != [None]:
                runs.clear()
    return {name: medians(runs) for name, runs in found.items()}


def medians(runs: Sequence[Figures | None]) -> Figures | None:
    """The median of each figure; None, if it never happened or the launcher hung in most runs."""
    done = [run for run in runs if run is not None]
    if not done or len(done) * 2 < len(runs):
        return None
    return tuple(_median(each) for each in zip(*done, strict=True))


def _median(values: Sequence[float | None]) -> float | None:
    """The median, where "never" is longer than anything."""
    infinite = float("inf")
    found = statistics.median_low([infinite if each is None else each for each in values])
    if None not in values:
        return statistics.median([each for each in values if each is not None])
    return None if found == infinite else found


def measured(row: Row, launcher: Launcher) -> Figures | None:
    """The figures of one run in a new folder; None if the launcher hung."""
    with new_folder() as folder:
        try:
            return row.measure(launcher, folder)
        except HangError:
            return None


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """A folder for one run. Its `ready` is where the tasks say that they run."""
    with tempfile.TemporaryDirectory(prefix="distrun-bench-") as name:
        (Path(name) / "ready").mkdir()
        (Path(name) / "home").mkdir(mode=0o700)
        yield Path(name)


def _write_script(folder: Path, text: str) -> None:
    (folder / SCRIPT).write_text(text + "\n")


def _say_ready(folder: Path) -> str:
    """A command by which a task says that it runs. Hosts may have the same process ids."""
    return f"mktemp -q {folder}/ready/XXXXXXXX >/dev/null"


def _wait_until_ready(folder: Path, count: int) -> None:
    """Wait until so many tasks have said that they run. Raises HangError if they never do."""
    deadline = time.monotonic() + DEADLINE
    while len(list((folder / "ready").iterdir())) < count:
        if time.monotonic() > deadline:
            raise HangError
        time.sleep(0.002)


def _tasks(folder: Path) -> list[psutil.Process]:
    """The processes of tasks: the shells that run the folder's script, and their children."""
    script, found = str(folder / SCRIPT), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline() == ["sh", script]:
                found += [process, *process.children(recursive=True)]
    return found


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait for the end of a launcher.

    Raises:
        HangError: it has not come.
    """
    if not _has_ended(process):
        end(process, folder)
        raise HangError


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of a launcher, without the pauses of Popen.wait; false: it never came."""
    descriptor = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([descriptor], [], [], DEADLINE)
    finally:
        os.close(descriptor)
    return bool(ready) and process.wait() is not None


def end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Kill what is left of a launcher and its tasks, also in other sessions and on hosts."""
    left = []
    with contextlib.suppress(psutil.Error):
        left = psutil.Process(process.pid).children(recursive=True)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3.0)
    for each in (*left, *_tasks(folder)):
        with contextlib.suppress(psutil.Error):
            each.kill()
    if process.poll() is None:
        process.kill()
    process.wait()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _own_processes(launcher: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The launcher's processes: all that it has started, but for the tasks."""
    root = psutil.Process(launcher.pid)
    return [root, *(each for each in root.children(recursive=True) if each.name() != _PROGRAM)]


def _cpu(processes: list[psutil.Process]) -> float:
    """Seconds, by the scheduler's own account: ticks of 10 ms are too coarse here."""
    total = 0.0
    for process in processes:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def _milliseconds_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000

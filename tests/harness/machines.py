"""Machines in simulated time: a clock, processes, disks, and lines that can be cut.

A :class:`Program` is code of distrun that runs as it is, in a thread of its own. Whatever would
block (a selector, a timer, the wait for a child) hands over to the simulation, which wakes it once
something is ready, or simulated time has come to its deadline. Only one thread runs at a time, in
an order that depends on nothing else, so the same history always ends in the same way. A
:class:`Task` is a process without code: a test says when it prints, exits or ignores a signal.

Files, pipes and sockets are real. While a :class:`Machines` is open, clocks, process ids, signals
and /proc are those of the simulation. Guards that are killed, logins and TCP itself are not
emulated: `tests/ssh` has those.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import io
import itertools
import math
import os
import select
import selectors
import signal
import threading
import time
import traceback
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from distrun.agent import agent_dir, orphans
from distrun.agent.linux import (
    child_deaths,
    job_processes,
    labels,
    oom,
    private_dir,
    processes,
    syscalls,
)
from distrun.agent.logs import task_logs
from distrun.agent.protocol import Cause, Code
from distrun.agent.tasks import program
from distrun.agent.tasks.ports import PortHolder, PortTakenError
from harness.values import not_none

NOW = 1.7e9
"""Unix time at the beginning."""
_MOST_TURNS = 5_000
"""Of all programs at one moment: more are a loop without an end."""
_REAL_PID = os.getpid()


class Exited(BaseException):
    """A program ends, or was killed."""

    def __init__(self, status: int) -> None:
        self.status = status


class Process:
    """A process of a machine. `status` is None while it lives, and then as waitpid has it."""

    def __init__(self, machine: Machine, parent: int, name: str = "") -> None:
        self.machine, self.parent, self.name = machine, parent, name
        self.pid = next(machine.world.pids)
        self.started = self.pid
        self.status: int | None = None
        self.env: dict[bytes, bytes] = {}
        self.label: int | None = None
        self.log = ""
        machine.world.processes[self.pid] = self

    @property
    def lives(self) -> bool:
        return self.status is None

    def send(self, number: int) -> None:
        """Receive a signal."""

    def end(self, status: int) -> None:
        """End. The parent may reap it; its children get the parent's parent."""
        if self.status is not None:
            return
        self.status = status
        world = self.machine.world
        for each in list(world.processes.values()):
            if each.parent == self.pid:
                each.parent = self.parent
                if each.status is not None:
                    world.note_end(each)
        world.note_end(self)


class Task(Process):
    """The first process of a task's attempt, which does what a test says."""

    def __init__(self, machine: Machine, parent: int, start: program.Start) -> None:
        super().__init__(machine, parent, start.order.task)
        self.attempt = start.order.attempt
        self.env, self.log, self.label = dict(start.env), start.log, start.label
        self.stops_after: float | None = 0.0
        """Seconds from SIGTERM to its end; None: it ignores SIGTERM."""
        self.stop_code: int | None = None
        """Its exit code after SIGTERM; None: it dies of the signal."""
        self.dies_after = 0.0
        """Seconds from SIGKILL to its end, for example to free its memory."""
        self.is_suspended = False
        self._waits = self._is_stopping = self.is_dying = False

    def send(self, number: int) -> None:
        world = self.machine.world
        self.is_suspended &= number != signal.SIGCONT
        number = signal.SIGTERM if number == signal.SIGCONT and self._waits else number
        self._waits = number == signal.SIGTERM and self.is_suspended
        if self._waits:
            return
        if number == signal.SIGKILL and not self.is_dying:
            self.is_dying = True
            world.call_at(world.now + self.dies_after, lambda: self.end(number))
        elif number == signal.SIGTERM and self.stops_after is not None and not self._is_stopping:
            self._is_stopping = True
            status = number if self.stop_code is None else self.stop_code << 8
            world.call_at(world.now + self.stops_after, lambda: self.end(status))

    def print(self, text: str) -> None:
        if self.lives and not self.machine.disk_fault:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(text)


class Program(Process):
    """A process that executes `main` in a thread of its own, and closes its streams at its end."""

    def __init__(
        self,
        machine: Machine,
        name: str,
        main: Callable[[], object],
        parent: int = 1,
        streams: Sequence[int] = (),
    ) -> None:
        super().__init__(machine, parent, name)
        self.streams = list(streams)
        self.is_hung = False
        self.wakeup: int | None = None
        """The writing end of its pipe for signals."""
        self.closers: list[Callable[[int], object]] = []
        """Called with its exit code, as a shell has it, when it has ended."""
        self.say: Callable[[bytes], object] = len
        """Prints on its standard error."""
        self._main = main
        self._ready: Callable[[], object] | None = None
        self.due: float | None = machine.world.now
        self._killed: int | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        status = 0
        try:
            if self._killed is None:
                self._main()
        except Exited as error:
            status = error.status
        except BaseException:  # noqa: BLE001 - a defect, which the test is to show
            status = 70 << 8
            self.machine.world.defects.append(traceback.format_exc())
        if self._killed is None:
            self.finish(status)
        self._back.release()

    def finish(self, status: int) -> None:
        for descriptor in self.streams:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.streams.clear()
        for close in self.closers:
            close(status >> 8 or (128 + status if status else 0))
        if self.wakeup is not None:
            os.close(self.wakeup)
            self.wakeup = None
        self.end(status)

    @property
    def can_run(self) -> bool:
        return self.lives and not self.is_hung and not self.machine.is_frozen

    @property
    def is_due(self) -> bool:
        if self.due is not None and self.due <= self.machine.world.now:
            return True
        return self._ready is not None and bool(self._ready())

    @property
    def is_killed(self) -> bool:
        return self._killed is not None

    def step(self) -> None:
        """Let it run until it waits again."""
        world = self.machine.world
        before, world.current = world.current, self
        self._go.release()
        self._back.acquire()
        world.current = before

    def wait(self, ready: Callable[[], object] | None, seconds: float | None) -> None:
        """Wait, in its thread, until something is ready, for so many seconds at most."""
        if self._killed is not None:
            raise Exited(self._killed)
        now = self.machine.world.now
        seconds = seconds if seconds is None or seconds <= 0 else max(seconds, 1e-6)
        self._ready, self.due = ready, None if seconds is None else now + seconds
        self._back.release()
        self._go.acquire()
        if self._killed is not None:
            raise Exited(self._killed)

    def send(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.kill(number)
        elif self.wakeup is not None and number not in (0, signal.SIGCONT):
            os.write(self.wakeup, bytes([number]))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it at once; what its code does on the way out reaches nobody."""
        if not self.lives:
            return
        self._killed = number
        self.finish(number)
        self.step()


class Machine:
    """A machine. `disk_fault`: ENOSPC, EROFS, or 0."""

    def __init__(self, world: Machines, name: str, home: Path) -> None:
        self.world, self.name, self.home = world, name, home
        self.is_cut = self.is_frozen = self.was_frozen = self.is_off = False
        self.disk_fault = 0
        self.exec_fault = ""
        """At what the execution of programs fails, and its errno; empty: it does not."""
        self.delay = 0.0
        """Seconds that bytes take to and from it."""
        self.rate = math.inf
        """Bytes a second that come from it over each link."""
        self.refusal = ""
        """What ssh prints, as no login is let in."""
        self.clock_ahead = 0.0
        """By so many seconds its clock is wrong."""
        self.taken_ports: set[int] = set()
        """Those of strangers."""
        self.connections: list[Connection] = []
        home.mkdir(parents=True, exist_ok=True)

    @property
    def is_reachable(self) -> bool:
        return not (self.is_cut or self.is_frozen or self.is_off)

    @property
    def living(self) -> list[Process]:
        return [
            each for each in self.world.processes.values() if each.machine is self and each.lives
        ]

    def power_off(self) -> None:
        self.is_off = True
        for each in self.living:
            each.kill() if isinstance(each, Program) else each.end(signal.SIGKILL)
        for connection in list(self.connections):
            connection.lose()


class _Flow:
    def __init__(self, reader: int, writer: int) -> None:
        self.reader: int | None = reader
        self.writer: int | None = writer
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._free_at = 0.0
        self.has_ended = False
        """Whether its writer has closed it."""
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)

    def pump(self, now: float, delay: float, rate: float = math.inf) -> bool:
        """Move what is there. Returns whether anything moved."""
        moved = False
        while self.reader is not None and not self.has_ended and len(self._chunks) < 64:
            try:
                block = os.read(self.reader, 65536)
            except BlockingIOError:
                break
            moved = True
            if not block:
                self.has_ended = True
                break
            self._free_at = max(now, self._free_at) + len(block) / rate
            self._chunks.append((self._free_at + delay, block))
        while self._chunks and self.writer is not None and self._chunks[0][0] <= now:
            due, block = self._chunks[0]
            try:
                count = os.write(self.writer, block)
            except BlockingIOError:
                break
            except OSError:  # nobody reads it any more
                self.close_writer()
                break
            moved = True
            self._chunks.popleft()
            if count < len(block):
                self._chunks.appendleft((due, block[count:]))
        if self.writer is None:
            self._chunks.clear()
        return moved

    def damage(self) -> bool:
        """Change the last byte that is on its way. Returns whether there was one."""
        if not self._chunks:
            return False
        due, block = self._chunks[-1]
        self._chunks[-1] = due, block[:-1] + bytes([block[-1] ^ 1])
        return True

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    @property
    def due(self) -> float | None:
        return self._chunks[0][0] if self._chunks else None

    def close_writer(self) -> None:
        if self.writer is not None:
            os.close(self.writer)
            self.writer = None

    def close_reader(self) -> None:
        if self.reader is not None:
            os.close(self.reader)
            self.reader = None

    def close(self) -> None:
        self.close_writer()
        self.close_reader()
        self._chunks.clear()


class Connection:
    """A login to a machine, and the client's process on this side, as ssh is.

    The far side's standard input and output are `streams`. If the near side closes its end, the far
    side's standard input ends and its output stays open. If the client is killed, or the machine is
    gone, both end, once the machine can be reached.
    """

    def __init__(
        self, machine: Machine, limit: float, start: Callable[[Connection], Program]
    ) -> None:
        world = machine.world
        self.machine, self._start = machine, start
        self.pid = next(world.pids)
        self.returncode: int | None = None
        far_in, to_far = os.pipe()
        from_near, self.writer = os.pipe()
        from_far, far_out = os.pipe()
        self.reader, to_near = os.pipe()
        self.stderr, self._errors = os.pipe()
        os.set_blocking(self.stderr, False)
        self.streams: tuple[int, ...] = (far_in, far_out)
        self._up, self._down = _Flow(from_near, to_far), _Flow(from_far, to_near)
        self.near = world.current
        self._far: Program | None = None
        self._ends_with: int | None = None
        self.is_closed = False
        """Whether the near side has closed its descriptors."""
        self.is_noisy = False
        """Whether a byte of what next comes from the far side changes on the way."""
        self.is_stalled = False
        """Whether nothing moves in either direction, as on a line that hangs."""
        machine.connections.append(self)
        world.connections.append(self)
        world.call_at(world.now + limit, self._give_up)

    def _give_up(self) -> None:
        if self._far is None and self.returncode is None:
            words = f"ssh: connect to host {self.machine.name} port 22: Connection timed out\n"
            self.say(words.encode())
            self.finish(255)

    def say(self, block: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._errors, block)

    def pump(self) -> bool:
        machine, now = self.machine, self.machine.world.now
        if not machine.is_reachable or self.is_stalled:
            return False
        if self.returncode is not None:
            self.forget()
            return True
        if self._far is None and machine.refusal:
            self.say(machine.refusal.encode())
            self.finish(255)
            return True
        if self._far is None:
            self._far = self._start(self)
            return True
        if self.is_noisy and self._down.damage():
            self.is_noisy = False
        moved = self._up.pump(now, machine.delay)
        moved = self._down.pump(now, machine.delay, machine.rate) or moved
        if self._up.has_ended and self._up.is_empty and self._up.writer is not None:
            self._up.close_writer()
            moved = True
        if self._ends_with is not None and self._down.has_ended and self._down.is_empty:
            self.finish(self._ends_with)
            moved = True
        return moved

    @property
    def due(self) -> float | None:
        if not self.machine.is_reachable or self.is_stalled:
            return None
        return min((d for d in (self._up.due, self._down.due) if d is not None), default=None)

    def end_far(self, status: int) -> None:
        self._ends_with = status

    def finish(self, status: int) -> None:
        if self.returncode is not None:
            return
        self.returncode = status
        self._down.close_writer()
        with contextlib.suppress(OSError):
            os.close(self._errors)
        self._errors = -1
        near = self.near
        if isinstance(near, Program) and near.lives:
            near.send(signal.SIGCHLD)

    def forget(self) -> None:
        """End both directions on the far side."""
        self._up.close()
        self._down.close()
        for listed in (self.machine.connections, self.machine.world.connections):
            if self in listed:
                listed.remove(self)
        if self._far is None:
            for each in self.streams:
                with contextlib.suppress(OSError):
                    os.close(each)
            self.streams = ()

    def lose(self) -> None:
        """Forget the far side, whose machine is gone: the near side hears nothing."""
        self._up.close_writer()
        self._down.close_reader()

    # As subprocess.Popen ------------------------------------------------------------------

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode or 0

    def kill(self) -> None:
        self.finish(-signal.SIGKILL)


class Ports(PortHolder):
    """The ports of an agent's machine, not of this one."""

    def _hold(self, port: int) -> None:
        current = not_none(_world().current)
        if port in current.machine.taken_ports or port in self._holds:
            raise PortTakenError(Cause(Code.PORT_TAKEN, port=port, name="nginx", pid=5))
        self._holds[port] = None  # type: ignore[assignment]

    def release(self, ports: list[int]) -> None:
        for port in ports:
            del self._holds[port]

    def unbind(self, port: int) -> None:
        return

    def rebind(self, port: int) -> bool:
        return False


class Selector(selectors.EpollSelector):
    def __init__(self) -> None:
        super().__init__()
        _world().closers.append(self.close)

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            epoll: Any = self._selector  # type: ignore[attr-defined]
            _world().wait(lambda: epoll.poll(0, 1), timeout)
            found = super().select(0)
        return found


class _Inotify(syscalls.Inotify):
    def __init__(self) -> None:
        super().__init__()
        descriptor = self._fd
        _world().closers.append(lambda: _close(descriptor))


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.close(descriptor)


_open: list[Machines] = []


def _world() -> Machines:
    return _open[-1]


class Machines:
    """All machines, and what happens on them. Close it to have the real clock again."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.folder = folder
        self.pids = itertools.count(5_000_000)  # no real process has such an id (pid_max)
        self.processes: dict[int, Process] = {}
        self.connections: list[Connection] = []
        self.current: Program | None = None
        self.defects: list[str] = []
        """The tracebacks of programs that ended by an error."""
        self.closers: list[Callable[[], object]] = []
        self.pumps: list[Callable[[], object]] = []
        """Called as often as programs: they return whether anything has moved."""
        self.checks: list[Callable[[], object]] = []
        """Called whenever nothing more happens at a moment."""
        self.watchers: list[Callable[[Task], object]] = []
        """Called with each task that was executed."""
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._patches = contextlib.ExitStack()
        _open.append(self)
        for target, name, value in self._replacements():
            self._patches.enter_context(mock.patch.object(target, name, value))

    def close(self) -> None:
        for each in list(self.processes.values()):
            if isinstance(each, Program):
                each.kill()
        for connection in list(self.connections):
            connection.kill()
            connection.forget()
        self._patches.close()
        for close in self.closers:
            close()
        _open.remove(self)

    def add(self, name: str) -> Machine:
        return Machine(self, name, self.folder / "homes" / name)

    # Time ---------------------------------------------------------------------------------

    def call_at(self, when: float, function: Callable[[], object]) -> None:
        heapq.heappush(self._calls, (when, next(self._order), function))

    def settle(self) -> None:
        """Let everything happen that happens at this moment."""
        turns = 0
        is_busy = True
        while is_busy:
            is_busy = False
            while self._calls and self._calls[0][0] <= self.now:
                heapq.heappop(self._calls)[2]()
                is_busy = True
            for connection in list(self.connections):
                is_busy = connection.pump() or is_busy
            for pump in self.pumps:
                is_busy = bool(pump()) or is_busy
            for each in list(self.processes.values()):
                if isinstance(each, Program) and each.can_run and each.is_due:
                    each.step()
                    is_busy = True
                    turns += 1
            assert turns < _MOST_TURNS, f"a loop without an end at {self.now}"
        assert not self.defects, self.defects[0]
        for check in self.checks:
            check()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        moments = 0
        while self.step(end):
            moments += 1
            assert moments < _MOST_TURNS, f"too much happens before {self.now}"

    def wait(self, ready: Callable[[], object], seconds: float | None) -> None:
        """Let the program that runs wait; without one, a command, for which the rest goes on."""
        if self.current is not None:
            self.current.wait(ready, seconds)
            return
        limit = self.now + (3600.0 if seconds is None else seconds)
        self.settle()
        while not ready() and self.step(limit):
            pass

    def step(self, limit: float) -> bool:
        """Let time pass to the next moment at which something happens, `limit` at the latest."""
        self.settle()
        due = self._next_moment()
        is_over = due is None or due > limit
        self.now = limit if due is None else max(self.now, min(due, limit))
        self.settle()
        return not is_over

    def _next_moment(self) -> float | None:
        programs = [each for each in self.processes.values() if isinstance(each, Program)]
        moments = [
            self._calls[0][0] if self._calls else None,
            *(each.due for each in programs if each.can_run),
            *(each.due for each in self.connections),
        ]
        return min((due for due in moments if due is not None), default=None)

    # Processes ----------------------------------------------------------------------------

    def note_end(self, process: Process) -> None:
        """Tell the parent that a child has ended; without one it is reaped."""
        parent = self.processes.get(process.parent)
        if isinstance(parent, Program) and parent.lives:
            parent.send(signal.SIGCHLD)
        else:
            self.processes.pop(process.pid, None)

    def children(self, pid: int) -> list[int]:
        return [each.pid for each in self.processes.values() if each.parent == pid]

    def find(self, pid: int) -> processes.Process | None:
        each, current = self.processes.get(pid), self.current
        if each is None or (current is not None and each.machine is not current.machine):
            return None
        state = "S" if each.lives else "Z"
        return processes.Process(pid, each.parent, pid, pid, each.started, state, 0, 0)

    def _tree(self, pid: int, *_: Any) -> Iterator[processes.Process]:
        for each in [pid, *self.children(pid)]:
            found = self.find(each)
            if found is not None:
                yield found
            if each != pid:
                yield from itertools.islice(self._tree(each), 1, None)

    def _send(self, process: processes.Process, number: int) -> bool:
        found = self.processes.get(process.pid)
        if found is None:
            return False
        found.send(number)
        return True

    def _wait_child(self, pid: int, options: int) -> Process | None:
        child, current = self.processes.get(pid), self.current
        if child is None or current is None or child.parent != current.pid:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        while child.lives:
            if options & os.WNOHANG:
                return None
            current.wait(lambda: not child.lives, None)
        return child

    def _waitpid(self, pid: int, options: int) -> tuple[int, int]:
        child = self._wait_child(pid, options)
        if child is None:
            return 0, 0
        self.processes.pop(pid)
        return pid, child.status or 0

    def _waitid(self, _: int, pid: int, options: int) -> Any:
        child = self._wait_child(pid, options)
        if child is None or child.status is None:
            return None
        number = child.status & 0x7F
        kind = os.CLD_KILLED if number else os.CLD_EXITED
        return types.SimpleNamespace(si_status=number or child.status >> 8, si_code=kind)

    def _reap_child(self, pid: int, options: int = 0) -> processes.ChildUsage | None:
        if self._waitpid(pid, options)[0] == 0:
            return None
        return processes.ChildUsage(0.1, None, None, None)

    def _execute(self, start: program.Start) -> tuple[int, int]:
        current = not_none(self.current)
        machine = current.machine
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        task = Task(machine, current.pid, start)
        if machine.exec_fault:
            os.write(writer, machine.exec_fault.encode())
            task.end(127 << 8)
        os.close(writer)
        if task.lives:
            for watch in self.watchers:
                watch(task)
        return task.pid, reader

    # The system's calls, replaced ---------------------------------------------------------

    def _time(self) -> float:
        ahead = 0.0 if self.current is None else self.current.machine.clock_ahead
        return NOW + self.now + ahead

    def _signal_pipe(self, _: Any) -> io.FileIO:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        current = not_none(self.current)
        current.wakeup = writer
        pipe = io.FileIO(reader)
        self.closers.append(pipe.close)
        return pipe

    def _wait_until_ready(
        self, readers: Any, writers: Any = (), seconds: float | None = None
    ) -> set[int]:
        poll = select.poll()
        for event, descriptors in ((select.POLLIN, readers), (select.POLLOUT, writers)):
            for each in descriptors:
                poll.register(each, event)
        if not poll.poll(0):
            self.wait(lambda: poll.poll(0), seconds)
        return {each for each, _ in poll.poll(0)}

    def make_timer(self) -> int:
        """A descriptor for set_timer."""
        reader, writer = os.pipe()
        self._timers[reader] = [writer, 0]
        self.closers += [lambda: _close(reader), lambda: _close(writer)]
        return reader

    _timers: dict[int, list[int]]

    def _set_timer(self, descriptor: int, seconds: float) -> None:
        timer = self._timers[descriptor]
        timer[1] += 1
        turn = timer[1]
        self.call_at(
            self.now + seconds, lambda: os.write(timer[0], b"!") if timer[1] == turn else None
        )

    def _replacements(self) -> list[tuple[Any, str, Any]]:  # noqa: C901 - one for each call
        self._timers = {}
        here, real = self, types.SimpleNamespace(
            listdir=os.listdir, statvfs=os.statvfs, reserve=syscalls.reserve,
            marker=program.write_marker, trial=agent_dir._try_writing,
            state_folder=private_dir.state_folder, write=os.write,
        )  # fmt: skip

        def fault() -> int:
            return 0 if here.current is None else here.current.machine.disk_fault

        def unless_full(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                if fault():
                    raise OSError(fault(), os.strerror(fault()))
                return function(*arguments)

            return call

        def statvfs(path: Any) -> Any:
            found = real.statvfs(path)
            number = fault()
            if not number:
                return found
            flags = found.f_flag | (os.ST_RDONLY if number == errno.EROFS else 0)
            return types.SimpleNamespace(f_flag=flags, f_bfree=0, f_bavail=0, f_blocks=1)

        def listdir(path: Any = ".") -> list[str]:
            if path == "/proc" and here.current is not None:
                return [str(pid) for pid in here.processes if here.find(pid) is not None]
            return list(real.listdir(path))

        def write(descriptor: int, block: Any) -> int:
            if here.current is not None and here.current.is_killed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return int(real.write(descriptor, block))

        def leave(status: int) -> None:
            raise Exited(status << 8)

        def label_of(pid: int) -> int | None:
            return here.processes[pid].label if pid in here.processes else None

        def environment(pid: int) -> dict[bytes, bytes]:
            return here.processes[pid].env if pid in here.processes else {}

        def outputs(pid: int) -> set[tuple[int, int]]:
            found = here.processes.get(pid)
            return processes.identity(found.log) if found is not None else set()

        def kill(pid: int, number: int) -> None:
            if pid not in here.processes:
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            here.processes[pid].send(number)

        def state_folder() -> str:
            current = here.current
            at_home = current is not None and current.name == "agent"
            return str(current.machine.home) if at_home and current else real.state_folder()

        no_oom = types.SimpleNamespace(
            updated=float("inf"), update=lambda: None, find_kill=lambda *_: None
        )
        return [
            (time, "monotonic", lambda: here.now), (time, "time", self._time),
            (time, "clock_gettime", lambda _: here.now), (time, "thread_time", float),
            (time, "sleep", lambda seconds: here.wait(bool, seconds)),
            (os, "getpid", lambda: _REAL_PID if here.current is None else here.current.pid),
            (os, "getppid", lambda: 1 if here.current is None else here.current.parent),
            (os, "_exit", leave), (os, "waitpid", self._waitpid), (os, "waitid", self._waitid),
            (os, "kill", kill), (os, "killpg", kill), (os, "listdir", listdir),
            (os, "write", write), (os, "statvfs", statvfs), (signal, "signal", lambda *_: None),
            (selectors, "DefaultSelector", Selector), (syscalls, "signal_pipe", self._signal_pipe),
            (syscalls, "wait_until_ready", self._wait_until_ready),
            (syscalls, "timer", self.make_timer), (syscalls, "set_timer", self._set_timer),
            (syscalls, "reserve", unless_full(real.reserve)),
            (processes, "children", self.children), (processes, "find", self.find),
            (processes, "tree", self._tree), (processes, "send", self._send),
            (processes, "reap_child", self._reap_child), (processes, "environment", environment),
            (processes, "outputs", outputs),
            (processes, "handles", lambda *_: False), (processes, "is_hidden", lambda _: False),
            (job_processes, "_user", lambda _: os.getuid()), (labels, "read", label_of),
            (orphans, "_holders", lambda _: []), (private_dir, "state_folder", state_folder),
            (agent_dir, "_try_writing", unless_full(real.trial)),
            (program, "execute", self._execute),
            (program, "write_marker", unless_full(real.marker)), (task_logs, "Inotify", _Inotify),
            (child_deaths, "open_socket", lambda: None), (oom, "OomWatch", lambda: no_oom),
        ]  # fmt: skip

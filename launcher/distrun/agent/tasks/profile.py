"""What the threads of tasks execute over some seconds, by py-spy, and the CPU that they get."""

from __future__ import annotations

import glob
import json
import os
import re
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from distrun.agent.linux import facts, processes, sock_diag
from distrun.agent.linux.gpus import query
from distrun.agent.linux.regular import LARGEST_SCRIPT, open_regular

_RATE, _READINGS, _MOST_READINGS = 20, 50, 10000
"""Per second: samples, which cost a fiftieth of a core per task, and readings of the CPU time; of
these, at most so many are sent."""
_LOOK_SECONDS, _MOST_LOOKS = 2.0, 10
"""How often it is seen what threads do. py-spy records a thread that has ended as it was last, and
threads of TensorFlow are Python's only while they call a function."""
_HOW = ("--full-filenames", "--nonblocking")
_READINGS_PER_DELAY = 12
"""How many readings there are for one of the run queues, which are a file for each thread."""
_SPARE_SECONDS = 10.0
"""How much longer than asked py-spy may take: it first reads the program's symbols."""
_LEAST_SECONDS = 1.0
"""CPU time: what has used less has only started another process."""
_HELPERS = re.compile(r"\b(?:multiprocessing|loky)\b")
"""In the command of a process that Python's libraries start for another one."""
_MOST_FRAMES = 100
_LONGEST_NAME = 300
_MOST_CONNECTIONS = 64
"""How many connections of a process are reported: those with the most bytes."""
_GPU_SECONDS = 5.0
"""How long nvidia-smi may take: if it hangs, what was sampled is sent without it."""
_GPU_VALUES = (
    "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total,clocks.sm,clocks.max.sm,"
    "temperature.gpu,clocks_throttle_reasons.active"
)
_INSTALLED = ("-packages/", "/lib/python3", "<frozen ")


class _Recording:
    """The samples of one process, and readings: milliseconds, CPU ms, ms of waiting for a core."""

    def __init__(
        self,
        task: str,
        pid: int,
        program: Optional[int],
        seconds: int,
        helpers: Tuple[List[int], List[int]],
    ) -> None:
        self._found: Dict[str, Any] = {"task": task, "pid": pid}
        self.pid, self._helpers, self._began = pid, helpers, time.time()
        self._before = _counters(pid, *helpers)
        self._readings: List[Tuple[float, float, float]] = []
        self._delay = 0.0
        self._first_thread: List[Tuple[float, float]] = []
        self._looks: List[Tuple[float, int, Optional[subprocess.Popen[bytes]]]] = []
        self._program, self._pause = program, max(_LOOK_SECONDS, seconds / _MOST_LOOKS)
        self._output, self._messages = os.memfd_create("profile", 0), os.memfd_create("errors", 0)
        self._process: Optional[subprocess.Popen[bytes]] = None
        if program is None:
            return
        options = ["--duration", str(seconds), "--rate", str(_RATE), "--idle", *_HOW]
        options += ["--format", "chrometrace", "--output", "/proc/self/fd/{}".format(self._output)]
        try:
            self._process = self._start(program, ["record", *options], self._messages)
        except OSError as error:
            os.write(self._messages, "py-spy: {}".format(error.strerror).encode())

    def _start(self, program: int, options: List[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/proc/self/fd/{}".format(program), *options, "--pid", str(self.pid)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=self._messages,
            pass_fds=[program, self._output],
            env=dict(os.environ, RUST_BACKTRACE="0"),  # the error is the last line
        )

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def read(self, *, is_late: bool) -> None:
        """Note the CPU time of now. `is_late`: with as many samples as there are."""
        if is_late and self._process is not None:
            self._process.send_signal(signal.SIGINT)
        if len(self._readings) % _READINGS_PER_DELAY == 0:
            self._delay, first = _delay(self.pid)
            self._first_thread.append((round(1e3 * (time.time() - self._began), 1), first))
        now, used = time.time() - self._began, cpu_seconds(self.pid)
        if now > self._pause * (len(self._looks) + 0.5) and not is_late:
            self._looks.append((now, *_try(self._look, (-1, None))))
        if used or not self._readings:  # it has not ended
            self._readings.append((round(1e3 * now, 1), round(1e3 * used, 1), self._delay))

    def _look(self) -> Tuple[int, Optional[subprocess.Popen[bytes]]]:
        answer = os.memfd_create("threads", 0) if self._process is not None else -1
        options = ["dump", "--json", *_HOW]
        return answer, self._process and self._start(self._program or 0, options, answer)

    def result(
        self, traffic: List[Dict[str, sock_diag.Traffic]], gpus: List[List[str]]
    ) -> Dict[str, Any]:
        """Its part of the answer. `traffic`: of all connections, at the beginning and now."""
        if self._process is not None and not self.has_ended:
            self._process.kill()
            self._process.wait()
            os.write(self._messages, b"\npy-spy got no core in time: the host is too busy")
        for look in filter(None, (each[2] for each in self._looks)):
            look.kill()
            look.wait()
        after = _counters(self.pid, *self._helpers)
        recording: Dict[str, Any] = {
            "readings": self._readings,
            "first_thread": self._first_thread,
            **{name: after[name] - before for name, before in self._before.items()},
            **_state(self.pid),
            "connections": _connections(self.pid, *traffic),
            "gpus": _gpus(self.pid, gpus),
        }
        recording.update(frames=[], stacks=[], threads=[])
        self._found["recording"] = recording
        try:
            self._add_stacks(recording)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            why = "there is no py-spy" if self._program is None else "there was no time left"
            why = reason(_content(self._messages)) or why
            self._found["error"] = why[:_LONGEST_NAME]
        self._found.update(suspension(self.pid))
        return self._found

    def _add_stacks(self, recording: Dict[str, Any]) -> None:
        events = json.loads(_content(self._output))
        frames: Dict[Tuple[str, str, int], int] = {}
        stacks: Dict[Tuple[int, ...], int] = {}
        calls: Dict[int, List[int]] = {}
        seen_at: Dict[int, Dict[int, Tuple[int, ...]]] = {}
        for event in events:
            thread, at, where = event["tid"], int(event["ts"]), event["args"]
            open_calls = calls.setdefault(thread, [])
            if event["ph"] == "B":
                key = str(event["name"]), str(where["filename"]), int(where["line"] or 0)
                open_calls.append(frames.setdefault(key, len(frames)))
            else:
                open_calls.pop()
            # The last change of a moment is the stack that was seen.
            seen_at.setdefault(thread, {})[at] = tuple(open_calls[: -_MOST_FRAMES - 1 : -1])
        changes = [
            {at: stacks.setdefault(stack, len(stacks)) for at, stack in each.items()}
            for each in seen_at.values()
        ]
        ended = os.fstat(self._output).st_mtime - self._began
        end = max(int(event["ts"]) for event in events)
        offset = 1e3 * ended - end / 1e3
        seen = [(int(1e3 * (1e3 * at - offset)), _outermost(dump)) for at, dump, _ in self._looks]
        looks = [(at, outermost) for at, outermost in seen if outermost and at < end]
        names, whole = list(frames), range(1, _MOST_FRAMES)
        outer = {n: names[stack[-1]][:2] for stack, n in stacks.items() if len(stack) in whole}
        none = stacks.setdefault((), len(stacks))
        living = (_without_ended(each, looks, outer, none) for each in changes)
        recording["threads"] = [
            [(round(at / 1e3 + offset, 1), stack) for at, stack in each.items()] for each in living
        ]
        recording["stacks"] = list(stacks)
        recording["frames"] = [
            (name[:_LONGEST_NAME], file[:1000], line, _line(self.pid, file, line))
            for name, file, line in frames
        ]


def record(
    program: Optional[int], pids: Dict[str, List[int]], seconds: int, most_bytes: int
) -> List[Dict[str, Any]]:
    """Record, of each task, the process that does its work, all at the same time.

    `program`: a descriptor of py-spy; None: only the CPU time is read. `pids`: by the task.
    `most_bytes`: of all samples.
    """
    chosen = {task: _worker(each) for task, each in pids.items() if each}
    helpers = {t: [pid for pid in each if pid not in chosen.values()] for t, each in pids.items()}
    all_helpers = [pid for each in helpers.values() for pid in each]
    recordings = [
        _Recording(task, pid, program, seconds, (all_helpers, helpers[task]))
        for task, pid in chosen.items()
    ]
    began, traffic = time.monotonic(), sock_diag.traffic()
    pause = max(1 / _READINGS, seconds * len(recordings) / _MOST_READINGS)
    while True:
        passed = time.monotonic() - began
        is_late = passed >= seconds or not any(cpu_seconds(each.pid) for each in recordings)
        is_over = is_late and all(each.has_ended for each in recordings)
        if is_over or passed >= seconds + _SPARE_SECONDS:
            break
        for each in recordings:  # where py-spy gets little of a core, its samples come late
            each.read(is_late=passed >= seconds + _SPARE_SECONDS / 2)
        time.sleep(pause)
    both, size = [traffic, sock_diag.traffic()], 0
    gpus = _try(lambda: query(_GPU_VALUES, _GPU_SECONDS), [])
    found = [each.result(both, gpus) for each in recordings]
    for answer in found:
        size += len(json.dumps(answer))
        if size > most_bytes:
            answer["recording"].update(frames=[], stacks=[], threads=[])
            answer["error"] = "there are too many samples: ask for fewer tasks or seconds"
    return found


def _worker(pids: List[int]) -> int:
    """The first process that is neither a wrapper nor a helper of another one.

    A wrapper such as `conda run` may use seconds until it starts a program, which uses more.
    Helpers have the command of their parent, or one that names their library, or little memory.
    """
    used = {pid: cpu_seconds(pid) for pid in pids}
    used[pids[0]] += 0.05  # others may only have begun
    least = min(_LEAST_SECONDS, max(used.values()) / 2)
    found, *others = [pid for pid in pids if used[pid] >= least]
    for pid in others:
        command = processes.command(pid)
        is_helper = command == processes.command(found) or _HELPERS.search(command)
        if used[pid] > used[found] and not is_helper and 2 * _pages(pid) >= _pages(found):
            found = pid
    return found


def _pages(pid: int) -> int:
    process = processes.find(pid)
    return 0 if process is None else process.pages


def suspension(pid: int) -> Dict[str, str]:
    process = processes.find(pid)
    is_suspended = process is not None and process.is_suspended
    return {"error": "it is suspended; kill -CONT {}".format(pid)} if is_suspended else {}


def reason(messages: bytes) -> str:
    """Why py-spy has failed: the innermost of the causes that it lists, else its last line."""
    said = messages.decode("utf-8", "replace").partition("Stack backtrace:")[0].strip()
    last = (said.splitlines() or [""])[-1]
    return re.sub(r"^\s*\d+: |^Error: |: Try running again .*", "", last)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process, without its children; 0 if it has ended.

    Its clock has nanoseconds, /proc only ticks. See clock_getcpuclockid(3) for its number.
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def _delay(pid: int) -> Tuple[float, float]:
    """Milliseconds for which threads waited for a core, and the first one ran or waited for one."""
    folder = "/proc/{}/task/".format(pid)
    found, first = 0, 0
    for thread in _try(lambda: os.listdir(folder), []):
        path = folder + thread + "/schedstat"
        times = _try(lambda path=path: processes.read_short(path).split(), (0, 0))  # type: ignore[misc]
        ran, waited = map(int, times[:2])
        found += waited
        first += ran + waited if thread == str(pid) else 0
    return round(found / 1e6, 1), round(first / 1e6, 1)


def _counters(pid: int, helpers: List[int], own: List[int]) -> Dict[str, float]:
    """Counters, in seconds. `helpers`: processes that are not recorded; `own`: the task's."""
    helped = sum(map(cpu_seconds, helpers))
    return {
        "throttled": _try(lambda: facts.throttled_seconds(pid), 0.0),
        "host_busy": _try(lambda: processes.core_seconds()[0] - helped, 0.0),
        "helpers_busy": sum(map(cpu_seconds, own)),
    }


def _state(pid: int) -> Dict[str, Any]:
    return {
        "cores": _try(lambda: len(os.sched_getaffinity(pid)), 0),
        "quota": facts.cgroup_quota(pid),
        "nice": _try(lambda: os.getpriority(os.PRIO_PROCESS, pid), 0),
        "swapped_bytes": 1024 * _try(lambda: _number("/proc/{}/status".format(pid), "VmSwap:"), 0),
        "clock_mhz": _try(lambda: _number("/proc/cpuinfo", "cpu MHz"), 0),
        "celsius": max(_temperatures(), default=0),
        "host_cores": os.cpu_count() or 0,
    }


def _temperatures() -> List[int]:
    paths = glob.glob("/sys/class/thermal/thermal_zone*/temp")
    return [_try(lambda path=path: int(processes.read_short(path)) // 1000, 0) for path in paths]  # type: ignore[misc]


def _gpus(pid: int, rows: List[List[str]]) -> List[List[str]]:
    """The values of those GPUs that a process may use."""
    chosen = processes.environment(pid).get(b"CUDA_VISIBLE_DEVICES")
    named = None if chosen is None else chosen.decode("utf-8", "replace").split(",")
    return [row for row in rows if len(row) == 9 and (named is None or {*row[:2]} & {*named})]


def _connections(
    pid: int, before: Dict[str, sock_diag.Traffic], after: Dict[str, sock_diag.Traffic]
) -> List[Tuple[int, ...]]:
    """What was counted of the connections of a process in that time."""
    found = []
    for name in sock_diag.sockets_of(pid) & after.keys():
        now, first = after[name], before.get(name, after[name])
        counted = [now[n] - first[n] for n in range(2, 6)]
        found.append((now.local_port, now.remote_port, *counted, *now[6:]))
    return sorted(found, key=lambda each: each[2] + each[3])[-_MOST_CONNECTIONS:]


def _number(path: str, name: str) -> int:
    """The first whole number in the line of a file that begins with a name."""
    with open(path, encoding="utf-8", errors="replace") as file:
        line = next(line for line in file if line.startswith(name))
    return int(float(next(word for word in line.split() if word[0].isdigit())))


def _try(read: Callable[[], Any], default: Any) -> Any:
    try:
        return read()
    except (OSError, ValueError, LookupError, StopIteration):
        return default


def _line(pid: int, file: str, line: int) -> str:
    """A line of the user's program."""
    if any(each in file for each in _INSTALLED):
        return ""
    path = os.path.join("/proc/{}/cwd".format(pid), file)

    def read() -> str:
        with open(open_regular(path, os.O_RDONLY), "rb") as opened:
            text = opened.read(LARGEST_SCRIPT).split(b"\n")[line - 1]
        return text.strip().decode("utf-8", "replace")[:_LONGEST_NAME]

    return str(_try(read, ""))


def _without_ended(
    changes: Dict[int, int],
    looks: List[Tuple[int, Any]],
    outer: Dict[int, Tuple[str, str]],
    none: int,
) -> Dict[int, int]:
    """Return a thread's changes without the stacks that py-spy repeats once the thread has ended.

    `changes`: the stack from each moment on, in microseconds. `looks`: when there was a dump, and
    the outermost frames of the threads in it. `outer`: that of each stack which is known whole.
    `none`: the stack of no thread.
    """
    found: Dict[int, int] = {}
    shown = none
    for at in sorted({*changes, *(moment for moment, _ in looks if moment > min(changes))}):
        shown = changes.get(at, shown)
        after = sum(moment <= at for moment, _ in looks)
        near = looks[max(0, after - 1) : after + 1]
        is_there = any(outer.get(shown) in there for _, there in near)
        found[at] = none if near and shown in outer and not is_there else shown
    return found


def _outermost(dump: int) -> Any:
    """Function and file of the outermost frame of each thread in a dump; nothing if it failed.

    If the main thread is not seen, its stack was changing.
    """
    stacks = _try(lambda: [each["frames"] for each in json.loads(_content(dump))], [])
    found = {each[-1]["name"]: each[-1]["filename"] for each in stacks if each}
    return found.items() if {*found} & {"<module>", "_run_module_as_main"} else ()


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

"""The Python interface: a typed face of what the commands do. docs/python.md describes it.

It can be used in a process with threads and without a terminal, and in any thread. It changes no
signal handler, and leaves no thread and no child process behind.
"""

from __future__ import annotations

import contextlib
import functools
import html
import json
import math
import numbers
import os
import signal as signals
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, SupportsFloat, TypeVar

from distrun.errors import (
    DistrunError,
    HostError,
    InternalError,
    InterpreterError,
    InvalidSpecError,
    JobFailedError,
    StartTimeoutError,
    UsageError,
    WaitTimeoutError,
)
from distrun.frozen import Frozen

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder
    from distrun.job.job import Job as JobView
    from distrun.job.job import TaskView
    from distrun.spec import model
    from distrun.spec.problems import Problem

__all__ = [
    "DistrunError",
    "HostError",
    "InternalError",
    "InvalidSpecError",
    "Job",
    "JobFailedError",
    "JobStatus",
    "LogLine",
    "Plan",
    "PlannedTask",
    "Spec",
    "StartTimeoutError",
    "TaskStatus",
    "UsageError",
    "WaitTimeoutError",
    "job",
    "jobs",
    "launch",
    "load",
    "report",
    "run",
]
_Filled = TypeVar("_Filled", bound=Frozen)
_MOST_TOLD = 8
_ERRORS = (UsageError, InvalidSpecError, HostError, InternalError, StartTimeoutError)
_ERROR_OF_CODE = {kind.exit_code: kind for kind in _ERRORS}


class PlannedTask(Frozen, kw_only=True):
    """A task as a launch would start it.

    Attributes:
        name: such as `worker:0`.
        host: the host that would run it.
        address: `host:port` in the cluster; its port is provisional. None: it has none.
        argv: the command.
        workdir: the working directory.
        env: the variables that distrun sets; values that look like secrets are `***`.
        tf_config: its TF_CONFIG; None if it gets none.
    """

    name: str
    host: str
    address: str | None
    argv: tuple[str, ...]
    workdir: str
    env: Mapping[str, str]
    tf_config: Mapping[str, Any] | None


class Plan(Frozen, kw_only=True):
    """What a launch would run, as `distrun plan` shows it."""

    name: str
    strategy: str
    hosts: tuple[str, ...]
    tasks: tuple[PlannedTask, ...]


class TaskStatus(Frozen, kw_only=True):
    """A task of a job. Times are Unix seconds.

    Attributes:
        state: as `distrun status` shows it, such as `running` or `failed`.
        attempt: how often it was restarted.
        exit_code: None while it runs, and if a signal ended it.
        signal: the name of the signal that ended it, such as `SIGKILL`.
        reason: why it ended or could not be started, in words, if that is known.
        progress: what it reported last, such as `{"STEP": 120}`.
        cpu_percent: of its whole process tree; None if it does not run on this machine.
        memory_bytes: the same.
        log: its log.
    """

    name: str
    state: str
    host: str
    address: str | None
    pid: int | None
    attempt: int
    exit_code: int | None
    signal: str | None
    reason: str | None
    started_at: float | None
    exited_at: float | None
    progress: Mapping[str, Any]
    cpu_percent: float | None
    memory_bytes: int | None
    log: Path


class JobStatus(Frozen, kw_only=True):
    """A job as `distrun status` shows it. Times are Unix seconds.

    Attributes:
        state: `preparing`, `starting`, `running`, `restarting`, `stopping`, `succeeded`, `failed`,
            `stopped`, or `lost`: its supervisor has died.
        restarts: how often tasks were restarted.
        exit_code: that of `distrun wait`; None until the job has ended.
        origin: `task` or `distrun`: who determined the exit code.
        cause: why the job failed or was stopped, in words.
        cause_kind: the kind of failure, such as `host_memory` (`distrun explain` lists them).
        advice: what to do about it.
        warnings: what went wrong although its tasks exited 0.
        tensorboard: the URL of the job's TensorBoard.
        folder: the job's record.
    """

    job_id: str
    name: str
    state: str
    is_running: bool
    strategy: str
    restarts: int
    created_at: float
    ended_at: float | None
    exit_code: int | None
    origin: str | None
    cause: str | None
    cause_kind: str | None
    advice: str | None
    warnings: tuple[str, ...]
    tensorboard: str | None
    tasks: tuple[TaskStatus, ...]
    folder: Path

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0

    def __repr__(self) -> str:
        code = "" if self.exit_code is None else f", exit code {self.exit_code}"
        why = f": {self.cause}" if self.cause else ""
        return f"<distrun.JobStatus {self.job_id}: {self.state}{code}{why}>"


class LogLine(Frozen):
    """A line that a task printed, without colours and control characters.

    Attributes:
        written: when, in Unix seconds, to 0.1 s.
    """

    task: str
    text: str
    written: float


class Spec:
    """A checked spec; :func:`load` returns it."""

    def __init__(self, spec: model.Spec) -> None:
        self._spec = spec

    def __repr__(self) -> str:
        return f"<distrun.Spec {self.name!r}: {self.strategy}, {self.tasks}>"

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def strategy(self) -> str:
        return self._spec.strategy

    @property
    def tasks(self) -> dict[str, int]:
        """How many tasks each role has."""
        return {str(role.role.value): role.count for role in self._spec.roles}

    def warnings(self) -> list[str]:
        """Return what `distrun launch` warns of, each with file, line and column.

        A check that could not be made is a warning, too.
        """
        answer = _ask("warnings", self._spec)
        return [str(each) for each in _problems(answer["warnings"])]

    def plan(self) -> Plan:
        """Return what a launch would run. No task is started.

        Raises:
            HostError: a host cannot be used.
            InvalidSpecError: no plan can be made.
            UsageError: the job runs in pods; its tasks are planned once they run.
        """
        answer = _ask("plan", self._spec)
        tasks = tuple(
            _filled(PlannedTask, task, name=task["task"], argv=tuple(task["argv"]))
            for task in answer["tasks"]
        )
        hosts = tuple(answer["hosts"])
        return Plan(name=self.name, strategy=self.strategy, hosts=hosts, tasks=tasks)


class Job:
    """A job of this user, running or ended; :func:`launch` and :func:`job` return it."""

    def __init__(self, folder: JobFolder) -> None:
        # Not in wait(): Python may lose a Ctrl-C that comes in an import, see _get_module_lock of
        # importlib.
        from distrun.job import control, history  # noqa: F401
        from distrun.words import progress  # noqa: F401

        self._folder = folder

    def __repr__(self) -> str:
        return f"<distrun.Job {self.job_id}>"

    def _repr_html_(self) -> str:
        from distrun.job.job import read_job
        from distrun.job.status_view import status_html
        from distrun.words.causes import advise_about

        advise_about(self.job_id)
        try:
            return status_html(read_job(self._existing()))
        except DistrunError as error:  # a cell that shows it has not failed
            return f"<pre>{html.escape(str(error))}</pre>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.folder == self.folder

    def __hash__(self) -> int:
        return hash(self.folder)

    @property
    def job_id(self) -> str:
        """The job's id, as `ps` shows it and all commands take it."""
        return self._folder.job_id

    @property
    def folder(self) -> Path:
        """The job's record."""
        return self._folder.path

    def status(self) -> JobStatus:
        """Return the state of the job and of its tasks, as `distrun status` shows it."""
        from distrun.job.job import read_job

        return _status(read_job(self._existing()))

    def wait(self, timeout: float | None = None, *, check: bool = False) -> JobStatus:
        """Block until the job has ended, and return how.

        Ctrl-C raises KeyboardInterrupt here and leaves the job running.

        Args:
            timeout: seconds; None: no limit.
            check: raise an error if the job has not succeeded. Its text is the end of the launch:
                the cause and the last lines of the task that failed.

        Raises:
            JobFailedError: the job failed or was stopped, and `check` is set.
            UsageError: `timeout` is not a number.
            WaitTimeoutError: the job has not ended in that time; it continues. The error says where
                its tasks are.
            HostError: the record is damaged and does not have the job's end.
            InternalError: the supervisor died, so the record does not have the job's end.
        """
        from distrun.job.control import wait_for_final_state

        timeout = _number("timeout", timeout, -math.inf)
        try:
            wait_for_final_state(self._existing(), timeout)
        except WaitTimeoutError as late:
            with contextlib.suppress(OSError, DistrunError):
                late.hint = self._where()
            raise
        status = self.status()
        if check and not status.succeeded:
            raise _failure(self._folder, {})
        return status

    def _where(self) -> str:
        """Return where its tasks are, in words."""
        from distrun.job import history
        from distrun.words.progress import progress_words

        tasks, told = self._folder.state().tasks, []
        for name in list(tasks)[:_MOST_TOLD]:
            samples = history.last(self._folder, name, 1)  # its supervisor may not answer in time
            values = {key: f"{value:.12g}" for s in samples for key, value in s.progress.items()}
            told.append(" ".join((name, tasks[name].phase.value, *progress_words(values))))
        return "; ".join([*told, *(["..."] if len(tasks) > _MOST_TOLD else [])])

    def metrics(self) -> Any:
        """Return what tasks reported or printed over time: about 1,000 rows of a task at most.

        A row has `task`, `attempt`, `at` (Unix seconds) and the numbers by their names in lower
        case, such as `step` and `loss`; `TaskStatus.progress` has them in capitals. There is one
        every few seconds, and the last of each attempt.

        Returns:
            A DataFrame where pandas is installed, else a list of dicts.
        """
        from distrun.job.job import Job as RecordedJob

        samples = RecordedJob(self._existing()).samples
        rows = []
        for task, each in ((task, each) for task, its in samples.items() for each in its):
            row: dict[str, Any] = {"task": task, "attempt": each.attempt, "at": each.at}
            # A metric of such a name does not replace what the row is about.
            found = {name.lower(): value for name, value in each.progress.items()}
            rows += [row | found | row] if found else []
        try:
            import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except Exception:  # noqa: BLE001 - ValueError if it does not fit numpy
            return rows
        return pd.DataFrame(rows, columns=None if rows else ["task", "attempt", "at"])

    def tail(self, lines: int = 10, *tasks: str) -> None:
        """Print the last lines of the tasks' output, as `distrun logs -n` does.

        Raises:
            UsageError: as :meth:`logs`.
        """
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a notebook's, too, or None
        for line in self.logs(*tasks, lines=lines):
            text = f"{line.task}: {line.text}"
            print(text.encode(encoding, "replace").decode(encoding))  # noqa: T201

    def logs(
        self,
        *tasks: str,
        follow: bool = False,
        lines: int | None = None,
        since: float | None = None,
    ) -> Iterator[LogLine]:
        """Yield the tasks' output, merged by time.

        Args:
            tasks: names such as `worker:0`, or roles; none: all tasks.
            follow: continue until the job ends.
            lines: only the last so many.
            since: only what was written in the last so many seconds.

        Raises:
            UsageError: the job has no such task, or a number is negative or, of lines, not whole.
        """
        from distrun.codec import JSON_VERSION
        from distrun.job import chosen_logs
        from distrun.job.control import watch
        from distrun.logs import View, merged

        _require(all(isinstance(each, str) for each in tasks), "tasks", tasks)
        most = _number("lines", lines)
        _require(most is None or most.is_integer(), "lines", lines)
        _number("since", since)
        folder = self._existing()
        after = None if since is None else time.time() - since
        with contextlib.ExitStack() as stack:
            supervised = None
            if follow:
                supervised = stack.enter_context(contextlib.closing(watch(folder)))
            names = chosen_logs.planned_tasks(folder, supervised)
            chosen_logs.check_choice([names], tasks)
            names = chosen_logs.chosen_tasks(names, tasks)
            logs = chosen_logs.output_logs(folder, names, labelled=True)
            view = View([each.task for each in logs], json_version=JSON_VERSION)
            if supervised is None:
                blocks = merged(logs, view, last=lines, since=after)
            else:
                blocks = chosen_logs.followed(
                    folder, logs, view, supervised, last=lines, since=after
                )
            for block in blocks:
                for fields in map(json.loads, block.splitlines()):
                    yield LogLine(fields["task"], fields["line"], fields["at"])

    def kill(self, *, grace: float | None = None, signal: int = signals.SIGTERM) -> None:
        """Stop the job, and return when nothing of it is left. A job that has ended is left alone.

        Args:
            grace: seconds from the signal to SIGKILL. None: `timeouts.grace` of the spec.
            signal: the first signal to send to the tasks.

        Raises:
            UsageError: there is no such signal, `grace` is no time, or the job is lost.
            HostError: something may be left, for example on a host out of reach.
            InternalError: its supervisor does not answer.
        """
        from distrun.job.stop_order import order_of
        from distrun.job.stopping import StoppedJob

        seconds = _number("grace", grace)
        _require(seconds != math.inf, "grace", grace)
        _require(signal in signals.valid_signals(), "signal", signal)
        order = order_of("Job.kill()", signal, seconds)
        errors: list[DistrunError] = []
        stop = StoppedJob(self._existing(), order, on_error=errors.append)
        stop.ask()
        stop.wait()
        for error in errors:
            raise error

    def _existing(self) -> JobFolder:
        if not self.folder.exists():
            raise UsageError(f"job {self.job_id} is gone", hint="its record has been removed")
        return self._folder


def load(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    args: Sequence[str | SupportsFloat | os.PathLike[str]] = (),
    name: str | None = None,
) -> Spec:
    """Read and check a spec, as `distrun validate` does.

    Args:
        spec: a YAML file; or what it would say, as a dict. Then paths are relative to the current
            folder, and the place of a problem is its key, such as `cluster.worker`.
        overrides: `PATH=VALUE` each, as for `--set`.
        args: appended to the program's arguments.
        name: the job's name. Default: the name in the file.

    Raises:
        UsageError: there is no such file, or an argument cannot be used.
        InvalidSpecError: the spec is invalid; `problems` has each problem with its position.
    """
    from distrun.spec import loader

    words = _words("args", args)
    overrides = _words("overrides", overrides)
    _require(spec != "" and isinstance(spec, (str, os.PathLike, Mapping)), "spec", spec)
    _require(name is None or isinstance(name, str), "name", name)
    if isinstance(spec, Mapping):
        read = loader.load_mapping(spec, overrides=overrides, extra_args=words, name=name)
    else:
        read = loader.load(spec, overrides=overrides, extra_args=words, name=name)
    return Spec(read)


def run(  # noqa: PLR0913 - all but two are optional, by name
    program: str | os.PathLike[str],
    args: Sequence[str | SupportsFloat | os.PathLike[str]] = (),
    *,
    workers: int | None = None,
    ps: int | None = None,
    chief: bool = False,
    strategy: str | None = None,
    hosts: Sequence[str] = (),
    hostfile: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    module: bool = False,
    name: str | None = None,
    overrides: Sequence[str] = (),
    preflight: bool = True,
    strict: bool = False,
    force: bool = False,
) -> Job:
    """Start a script as a job, without a YAML file, as `distrun run --detach` does.

    Args:
        program: a script, a bundled job's name or, with `module`, a module; or another program.
        args: the program's arguments.
        workers: how many. Default: one for each slot of the hosts, else 1.
        ps: how many parameter servers.
        chief: start a chief beside the workers.
        strategy: the tf.distribute strategy. Default: the one that the script creates.
        hosts: names, ranges or `name:slots`. Default: this machine.
        hostfile: a file with one host per line.
        python: the interpreter.
        env: variables of the tasks.
        module: `program` is a module's name.
        name: the job's name. Default: the program's.
        overrides: `PATH=VALUE` each, as for `--set`: all other keys of a spec.
        preflight: as for :func:`launch`.
        strict: as for :func:`launch`.
        force: as for :func:`launch`.

    Raises:
        UsageError: an argument cannot be used.
        InvalidSpecError: as :func:`load`; the place of a problem is the option of `distrun run`.
        DistrunError: as :func:`launch`.
    """
    from distrun.job import run_spec

    _require(isinstance(program, (str, os.PathLike)), "program", program)
    settings = _words("overrides", overrides)
    _number("workers", workers, 1)
    _number("ps", ps, 1)
    _require(isinstance(env or {}, Mapping), "env", env)
    variables = (env or {}).items()
    _require(not any("=" in str(name) or value is None for name, value in variables), "env", env)
    options = run_spec.RunOptions(
        program=os.fspath(program),
        args=_words("args", args),
        is_module=module,
        name=name,
        strategy=strategy,
        workers=workers,
        ps=ps,
        has_chief=chief,
        hosts=_words("hosts", hosts),
        hostfile=None if hostfile is None else os.fspath(hostfile),
        python=None if python is None else os.fspath(python),
        env=tuple(f"{name}={value}" for name, value in variables),
    )
    spec, _ = run_spec.load(options, "# distrun.run()\n", overrides=settings, is_forced=force)
    return _launch(Spec(spec), preflight=preflight, strict=strict, force=force)


def launch(spec: Spec, *, preflight: bool = True, strict: bool = False, force: bool = False) -> Job:
    """Start a job, and return when every task's program has been executed.

    The job runs in the background, as with `distrun launch --detach`, and outlives this process.
    Ctrl-C before this function returns stops the job. What `distrun launch` warns of becomes a
    `UserWarning`, see :mod:`warnings`.

    Args:
        spec: what :func:`load` returned.
        preflight: check other hosts before the first task starts.
        strict: make warnings about the program errors, as with `--strict`.
        force: start a program that certainly fails, as with `--force`.

    Raises:
        JobFailedError: a task could not be executed, or the job ended before all were.
        HostError: a host could not be reached or prepared.
        InvalidSpecError: the spec does not fit its hosts, its files cannot be sent, its program
            certainly fails, or there are warnings and `strict` is set.
        StartTimeoutError: the job could not start in time.
    """
    what = repr(spec) if isinstance(spec, str) else "..."
    hint = f"load it first: distrun.launch(distrun.load({what}))"
    _require(isinstance(spec, Spec), "spec", spec, hint)
    return _launch(spec, preflight=preflight, strict=strict, force=force)


def _launch(spec: Spec, **how: bool) -> Job:
    from distrun.supervisor import tensorboard

    warn = functools.partial(warnings.warn, stacklevel=4)
    chosen = tensorboard.without_missing(spec._spec, warn)  # noqa: SLF001 - the class is here
    answer = _ask("launch", chosen, **how)
    started = job(answer["job_id"])
    try:
        for each in _problems(answer["warnings"]):
            warnings.warn(str(each), stacklevel=3)
    except UserWarning:  # the program has made them errors
        if answer["started"]:
            started.kill()  # nobody would know of it
            raise
    if not answer["started"]:
        raise _failure(started._folder, _ERROR_OF_CODE)  # noqa: SLF001
    return started


def job(name: str | None = None) -> Job:
    """Return a job by its id, its name (the newest job of that name) or a unique prefix.

    None stands for the only running job; if none or several run, for the newest one.

    Raises:
        UsageError: there is no such job, or the prefix fits several.
    """
    from distrun.job.queued_job import find

    _require(name is None or isinstance(name, str), "name", name)
    return Job(find(name))


def jobs(*, running: bool = False) -> list[Job]:
    """Return all jobs, the oldest first, or only those that run."""
    from distrun.job import queued_job
    from distrun.job.folder import JobStore

    store = JobStore.default()
    return [Job(each) for each in (queued_job.running(store) if running else store.folders())]


def report(**values: SupportsFloat) -> None:
    """Report the progress of this task: `distrun.report(step=120, steps=500, loss=0.12)`.

    `status`, the launch and the report show it, and `stall` counts it as a sign of life. The names
    are those of docs/progress.md, in lower case; others are metrics, with `_` for spaces and `=`.
    It costs microseconds and never blocks. Without distrun, it sends nothing.

    Raises:
        UsageError: a value is not a number.
    """
    found = []
    for name, value in values.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"what is reported must be numbers: {name} ({error})") from None
        digits = 15 if number.is_integer() else 9
        found.append(f"{'_'.join(name.upper().replace('=', ' ').split())}={number:.{digits}g}")
    address = os.environ.get("DISTRUN_NOTIFY")
    if not address or not found:
        return
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.sendto(
            " ".join(found).encode(), "\0" + address[1:] if address[0] == "@" else address
        )


def _require(condition: bool, name: str, value: object, hint: str | None = None) -> None:
    if not condition:
        hint = hint or _EXPECTED[name.partition("[")[0]]
        raise UsageError(f"{name} cannot be {value!r}", hint=hint)


def _number(name: str, value: Any, least: float = 0) -> float | None:
    """Return a number, also one of numpy; raises UsageError if it is none, or below `least`."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    _require(value is None or (is_number and value >= least), name, value)
    return None if value is None else float(value)


_NO_LISTS = (str, bytes, bytearray, Mapping, AbstractSet)
_EXPECTED = {
    "args": "write a list, a word for each: ['--lr', 1]",
    "env": "write a dict: {'LR': '0.1'}",
    "hosts": "write a list: ['gpu1', 'gpu2']",
    "lines": "write a whole number",
    "name": "write a text",
    "overrides": "write a list: ['program.env.LR=1']",
    "program": "write a script's path (%%writefile train.py makes one in a notebook), or a name",
    "signal": "write one of Python's module signal: signal.SIGINT",
    "spec": "write a file's path, or a dict",
    "tasks": "write each as an argument: 'worker:0', 'ps'",
    **dict.fromkeys(("grace", "since", "timeout"), "write a number of seconds"),
    **dict.fromkeys(("ps", "workers"), "write a whole number of 1 or more"),
}


def _words(name: str, words: Sequence[object]) -> tuple[str, ...]:
    """Return words as text. A text in place of them would become a word for each character.

    A dict would lose its values, and a set the order.
    """
    is_list = isinstance(words, Iterable) and not isinstance(words, _NO_LISTS)
    _require(is_list, name, words)
    words = tuple(words)
    for at, word in enumerate(words):
        _require(word is not None and not isinstance(word, bytes), f"{name}[{at}]", word)
    return tuple(map(str, words))


def _status(view: JobView) -> JobStatus:
    from distrun.words.causes import advise_about, cause_advice, cause_text

    advise_about(view.folder.job_id)
    outcome = view.outcome
    verdict = None if outcome is None else outcome.verdict
    cause = None
    if outcome is not None and outcome.exit_code:
        cause = outcome.cause if verdict is None else verdict.cause
    return _filled(
        JobStatus,
        view.summary(),
        is_running=view.is_running,
        cause=None if cause is None else cause_text(cause),
        cause_kind=None if verdict is None else verdict.kind.value,
        advice=None if cause is None else cause_advice(cause),
        warnings=tuple(view.warnings),
        tensorboard=view.tensorboard,
        tasks=tuple(map(_task_status, view.tasks)),
        folder=view.folder.path,
    )


def _task_status(view: TaskView) -> TaskStatus:
    fields = view.to_json()
    usage = fields["usage"] or {}
    return _filled(
        TaskStatus,
        fields,
        name=fields["task"],
        cpu_percent=usage.get("cpu_percent"),
        memory_bytes=usage.get("memory_bytes"),
        log=Path(fields["log"]),
    )


def _filled(kind: type[_Filled], fields: Mapping[str, Any], **own: Any) -> _Filled:
    """Return one of these whose fields are those of the same names, unless they are given."""
    names = kind.__dataclass_fields__
    return kind(**{name: own[name] if name in own else fields[name] for name in names})


def _failure(folder: JobFolder, kinds: Mapping[int, type[DistrunError]]) -> DistrunError:
    """Return the error for a job that has ended: JobFailedError if none of `kinds` has its code."""
    from distrun.job.end_report import failure_report
    from distrun.job.events import Origin
    from distrun.job.job import Job as RecordedJob

    ended = RecordedJob(folder, folder.state())
    outcome = ended.state.outcome
    text = "\n".join(failure_report(ended)).strip()
    if outcome is None:
        return InternalError(text)
    is_own = outcome.origin is Origin.DISTRUN
    kind = kinds.get(outcome.exit_code, JobFailedError) if is_own else JobFailedError
    error = kind(text)
    error.exit_code = outcome.exit_code
    return error


def _ask(operation: str, spec: model.Spec, **how: bool) -> Any:
    """Return the answer of a process that does what needs signals and child processes.

    If this is interrupted, nothing is left of what that process has started.

    Raises:
        DistrunError: its error.
    """
    from distrun.codec import to_json
    from distrun.supervisor.hosts.local import isolated_python

    if not sys.executable:
        raise InterpreterError
    request = {"operation": operation, "spec": to_json(spec), "parent": os.getpid(), **how}
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            isolated_python("distrun.cli.api_child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,  # a Ctrl-C in the terminal is for this process
        )
        try:
            asked = json.dumps(request).encode() + b"\n"
            text = _exchange(process, asked, operation == "launch")
        except BaseException:
            process.kill()  # then the supervisor ends the job
            raise
        finally:
            process.wait()
        messages.seek(0)
        words = messages.read().decode("utf-8", "replace")
    if process.returncode or not text:
        raise InternalError(f"starting a process for the job failed: {words.strip()}")
    answer = json.loads(text)
    if "exit_code" in answer:
        raise _error(answer)
    return answer


def _exchange(process: subprocess.Popen[bytes], request: bytes, starts_job: bool) -> bytes:
    """Send a request to the process, and return its answer."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None  # noqa: S101
    assert stdout is not None  # noqa: S101
    with stdout:
        try:
            with contextlib.suppress(BrokenPipeError):  # it has died
                stdin.write(request)
                stdin.flush()
            return stdout.read()
        except BaseException:
            if starts_job:
                stdin.write(b"\n")  # which stops the job
            else:
                process.terminate()  # it ends what it has started
            _close(stdin)
            answer = json.loads(stdout.read() or "{}")
            if answer.get("started"):
                job(answer["job_id"]).kill()
            raise
        finally:
            _close(stdin)


def _close(stream: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def _problems(fields: list[dict[str, Any]]) -> list[Problem]:
    from distrun.codec import from_json
    from distrun.spec.problems import Problem

    return [from_json(Problem, each) for each in fields]


def _error(answer: dict[str, Any]) -> DistrunError:
    """Return the error that another process met."""
    kind = _ERROR_OF_CODE.get(answer["exit_code"], DistrunError)
    error = kind(answer["message"], hint=answer["hint"])
    error.exit_code = answer["exit_code"]
    if isinstance(error, InvalidSpecError):
        error.problems = tuple(_problems(answer["problems"]))
    return error

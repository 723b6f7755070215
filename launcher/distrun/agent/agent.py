"""The agent: it executes orders, and reports what its tasks do in between.

One thread and one loop. Nothing is polled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

from distrun.agent import protocol
from distrun.agent.link import Link
from distrun.agent.linux import facts, labels, private_dir, processes, syscalls
from distrun.agent.linux.regular import open_to_append
from distrun.agent.logs.task_logs import TaskLogs
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, CauseError, Code
from distrun.agent.tasks.ports import PortHolder
from distrun.agent.tasks.runner import TaskRunner

if TYPE_CHECKING:
    from distrun.agent.agent_dir import AgentDir
    from distrun.agent.files.receiver import FileReceiver
    from distrun.agent.probe.probe import Probe
    from distrun.agent.tasks.stacks import StackDumper


_EXIT_DEFECT = 70  # distrun's own, as sysexits.h's EX_SOFTWARE
_RECORDED = (protocol.TaskStarted, protocol.TaskNotStarted, protocol.TaskExited, protocol.TaskEnded)
_MOST_CHARACTERS = 4000


class Agent:
    """Runs one job's tasks on this host for the supervisor at the other end of `link`.

    If :class:`.Configure` names no folder, the launching side cannot see this host's files: the
    agent then has a private folder, streams its logs and receives files.

    Args:
        addresses: those of the supervisor's connection: the client's, and this host's.
        digest: the SHA-256 of the agent's own modules.
        modules: these, packed, if the host is to keep them.
    """

    def __init__(
        self,
        link: Link,
        addresses: Tuple[str, str] = ("", ""),
        digest: str = "",
        modules: bytes = b"",
    ) -> None:
        self._link = link
        self._addresses = addresses
        self._digest, self._modules = digest, modules
        self._loop = Loop()
        self._ports = PortHolder()
        self._tasks = TaskRunner(self._loop, link, self._ports)
        self._probe: Optional[Probe] = None
        self._stacks: Optional[StackDumper] = None
        self._logs: Optional[TaskLogs] = None
        self._dir: Optional[AgentDir] = None
        self._files: Optional[FileReceiver] = None
        self._is_ending = self._is_killing = False
        self._grace = protocol.KILL_GRACE
        self._has_started = False
        self._guard = os.getppid()
        self.is_abandoned = False
        """Whether no supervisor will receive the logs any more."""
        self._loop.watch_signals((signal.SIGCHLD, signal.SIGTERM), self._on_signals)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> None:
        """Serve until a shutdown or the end of the link; leaves no process behind."""
        try:
            self._serve()
        except BaseException:  # noqa: BLE001 - whatever it is
            import traceback  # a tenth of an agent's start

            self._report_defect(traceback.format_exc())
            os._exit(_EXIT_DEFECT)

    def _report_defect(self, text: str) -> None:
        with contextlib.suppress(Exception):
            self._link.report_fault(Cause(Code.AGENT_FAILED, text=text[-_MOST_CHARACTERS:]))
            self._link.channel.flush()
        if self._link.channel.pending or self._link.channel.broken:
            with contextlib.suppress(OSError):
                os.write(2, text.encode("utf-8", "backslashreplace"))

    def _serve(self) -> None:
        self._link.open(self._loop, self)
        self._loop.before_wait.append(self._begin_turn)
        while self._has_work():
            has_files_to_copy = self._files is not None and self._files.has_work
            self._loop.turn(0.0 if has_files_to_copy and not self._is_ending else None)
            if self._files is not None and not self._is_ending:
                self._files.work()
        self._finish()

    def _begin_turn(self) -> None:
        self._tasks.execute_prepared()
        if self._logs is not None:
            self._logs.stream()
        self._link.channel.watch_writing(self._loop)

    def _has_work(self) -> bool:
        if not self._is_ending or self._tasks.has_tasks:
            return True
        # What distrun has asked, such as nvidia-smi, may hang in the kernel: the guard kills it.
        if processes.reap(labels.runs_no_task if self._is_killing else lambda _: False):
            return True
        return self._logs is not None and not (self.is_abandoned or self._logs.are_streamed)

    def _finish(self) -> None:
        if self._dir is not None:
            has_all_logs = self._logs is None or self._logs.are_streamed
            if self._files is not None:
                self._files.close()
            if has_all_logs:
                self._dir.remove()
            preserved = "" if has_all_logs else self._dir.path
            self._link.send(protocol.AgentExiting(preserved, self._keep_modules(self._dir)))
        unsent = self._link.close()
        if self._logs is not None:
            write_unsent(self._logs.path(protocol.UNSENT_REPORTS), unsent)

    def _keep_modules(self, own: AgentDir) -> str:
        """Keep the modules for later jobs, if it has started a task. Returns their path, or ''."""
        if not self._modules or not self._has_started or own.cache_path is None:
            return ""
        from distrun.agent.files.blob_cache import BlobCache

        cache = BlobCache(os.fsencode(own.cache_path))
        return os.fsdecode(cache.store(self._digest, self._modules))

    # The link ------------------------------------------------------------------------------

    @property
    def has_tasks(self) -> bool:
        return self._tasks.has_tasks

    def execute(self, order: protocol.Order) -> None:
        if isinstance(order, protocol.StartTask):
            self._has_started = True
            self._tasks.start(order)
            return
        self._tasks.execute_prepared()
        if isinstance(order, protocol.StopTask):
            self._tasks.stop(order)
        elif isinstance(order, protocol.MeasureCpu):
            self._tasks.measure_cpu()
        elif isinstance(order, (protocol.FollowLogs, protocol.LogReceived)):
            if self._logs is not None and self._logs.streamer is not None:
                self._logs.streamer.execute(order)
        elif isinstance(order, protocol.Configure):
            self._configure(order)
        elif isinstance(order, protocol.HoldPorts):
            self._hold_ports(order)
        elif isinstance(order, protocol.Shutdown):
            if order.preserve_logs:
                self.is_abandoned = True
            self.end_tasks()
        else:
            self._execute_rare(order)

    def _execute_rare(self, order: protocol.Order) -> None:
        """Execute an order about files, stacks or the preflight: few jobs need their modules."""
        from distrun.agent.protocol.file_messages import FileData, FileList
        from distrun.agent.protocol.stack_messages import DumpStacks, ProgramData

        if isinstance(order, (DumpStacks, ProgramData)):
            self._dump_stacks(order)
        elif not isinstance(order, (FileList, FileData)):
            if self._probe is None:
                from distrun.agent.probe.probe import Probe

                self._probe = Probe(self._loop, self._ports, self._link.report)
            self._probe.execute(order, "" if self._logs is None else self._logs.folder)
        elif self._dir is not None:
            if self._files is None:
                from distrun.agent.files.receiver import FileReceiver

                self._files = FileReceiver(self._dir, self._link)
            self._files.execute(order)

    def _dump_stacks(self, order: protocol.Order) -> None:
        if self._stacks is None:
            from distrun.agent.tasks.stacks import StackDumper

            own = "" if self._dir is None else os.path.join(self._dir.path, "programs")
            cache = (None if self._dir is None else self._dir.cache_path) or own
            report, pids_of = self._link.report, self._tasks.pids_of
            self._stacks = StackDumper(self._loop, report, pids_of, cache)
        if not self._is_ending:
            self._stacks.execute(order)

    def on_link_lost(self) -> None:
        """Stop sending until the supervisor says, on the next link, what is missing."""
        if self._logs is not None and self._logs.streamer is not None:
            self._logs.streamer.pause()
        if self._files is not None:
            self._files.pause()

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers and not self._is_ending:
            # The kernel sends this signal, too, when the guard has died.
            has_guard = os.getppid() == self._guard
            self._link.report_fault(Cause(Code.AGENT_TERMINATED if has_guard else Code.GUARD_DIED))
            self.end_tasks(self._grace if has_guard else protocol.KILL_GRACE)
        self._tasks.on_child_exit()

    def end_tasks(self, grace: float = protocol.KILL_GRACE) -> None:
        """End everything, then the agent: SIGTERM now, SIGKILL after `grace` seconds."""
        if not self._is_ending:
            self._is_ending = True
            self._loop.call_at(self._loop.now() + grace, self._kill_rest)
            if self._stacks is not None:
                self._stacks.close()
            self._tasks.stop_all(grace)
            if self._probe is not None:
                self._probe.remove_marks()

    def _kill_rest(self) -> None:
        self._is_killing = True
        self._tasks.signal_strays(signal.SIGKILL)
        if processes.children(os.getpid()):
            self._loop.call_at(self._loop.now() + processes.KILL_INTERVAL, self._kill_rest)

    def abandon(self, grace: float = protocol.KILL_GRACE) -> None:
        """End everything; no supervisor will come back for the logs."""
        self.is_abandoned = True
        self.end_tasks(grace)

    # The job -------------------------------------------------------------------------------

    def _configure(self, order: protocol.Configure) -> None:
        try:
            _check(order)
            self._logs = logs = self._open_logs(order)
        except CauseError as error:
            self._link.report_fault(error.cause)
            self.abandon()
            return
        self._grace = order.grace
        self._link.configure(order.lease)
        self._tasks.configure(order.job_id, logs)
        if facts.find_nvidia_smi() is None:
            self._link.report(self._hello(order, logs.folder))
        else:
            self._greet_later(order, logs.folder)

    def _greet_later(self, order: protocol.Configure, folder: str) -> None:
        """Greet the supervisor once nvidia-smi has answered: it may take long, or hang."""
        from distrun.agent.linux.forked_call import report_call

        def work() -> protocol.Hello:
            try:
                return self._hello(order, folder, facts.gpus())
            except facts.NvidiaSmiError as error:
                failed = Cause(Code.GPUS_UNKNOWN, status=error.status, text=error.text)
                return self._hello(order, folder, gpu_failure=failed)

        def follow(found: Union[protocol.Message, Cause]) -> None:
            if isinstance(found, protocol.Hello):
                hello = found
            else:
                hello = self._hello(order, folder, gpu_failure=Cause(Code.GPUS_UNKNOWN))
            self._link.report(hello._replace(pid=os.getpid(), at=time.time()))

        report_call(self._loop, work, facts.NVIDIA_SMI_SECONDS, follow)

    def _open_logs(self, order: protocol.Configure) -> TaskLogs:
        """Create the folder of the logs. Raises CauseError if that fails."""
        if not order.folder:
            return self._open_private_logs(order)
        try:
            if not os.path.isdir(order.folder):
                os.mkdir(order.folder, 0o700)
            opened = private_dir.path_of(private_dir.open_checked(order.folder))
        except OSError as error:
            cause = Cause(Code.LOG_DIR_NOT_CREATED, path=order.folder, errno=error.errno or 0)
            raise CauseError(cause) from error
        return TaskLogs(order.folder, None, self._link, self._loop, opened, limit=order.log_limit)

    def _open_private_logs(self, order: protocol.Configure) -> TaskLogs:
        # Imported here because most jobs run on the launching machine.
        from distrun.agent import agent_dir
        from distrun.agent.logs.streamer import LogStreamer

        self._dir = agent_dir.create(order.job_id, order.host)
        self._loop.call_at(self._loop.now() + agent_dir.TOUCH_SECONDS, self._touch)
        folder = self._dir.path
        if order.log_limit is not None:
            try:
                syscalls.check_holes(folder)
            except OSError as error:
                cause = Cause(Code.LOGS_NOT_LIMITED, path=folder, errno=error.errno or 0)
                raise CauseError(cause) from error
        return TaskLogs(folder, LogStreamer(folder), self._link, self._loop, limit=order.log_limit)

    def _touch(self) -> None:
        from distrun.agent import agent_dir

        if self._dir is not None:
            self._dir.touch()
        self._loop.call_at(self._loop.now() + agent_dir.TOUCH_SECONDS, self._touch)

    def _hello(
        self,
        order: protocol.Configure,
        folder: str,
        gpus: Sequence[int] = (),
        gpu_failure: Optional[Cause] = None,
    ) -> protocol.Hello:
        client, own = self._addresses
        return protocol.Hello(
            pid=os.getpid(),
            hostname=socket.gethostname(),
            python=".".join(str(part) for part in sys.version_info[:3]),
            cores=facts.usable_cores(),
            gpus=list(gpus),
            gpu_failure=gpu_failure,
            at=time.time(),
            pid_namespace=facts.pid_namespace(),
            environ={
                name: value
                for name, value in os.environ.items()
                if any(fnmatchcase(name, each) for each in order.variables)
            },
            address=own,
            seen_from=client,
            token=self._link.token,
            folder="" if self._dir is None else folder,
            files="" if self._dir is None else self._dir.files_path,
            libc=facts.libc(),
        )

    def _hold_ports(self, order: protocol.HoldPorts) -> None:
        causes: List[Cause] = []
        held: List[int] = []
        # A round that was given up may have held some of them.
        for port in [each for each in order.wanted if each not in self._ports.held]:
            try:
                self._ports.hold(port)
                held.append(port)
            except CauseError as error:
                causes.append(error.cause)
        chosen: List[int] = []
        if not causes:
            try:
                chosen = self._ports.hold_free(order.free, order.first, order.last)
            except CauseError as error:
                causes.append(error.cause)
        if causes:
            self._ports.release(held)
            self._link.report(protocol.PortsRefused(causes))
        else:
            self._link.report(protocol.PortsHeld(chosen, list(order.wanted)))


def write_unsent(path: str, unsent: List[protocol.Report]) -> None:
    """Write the reports on tasks that no supervisor has received, if there are any.

    Each line is an event, as in the job's record, after one that says why the tasks were ended.
    """
    found = [report for report in unsent if isinstance(report, _RECORDED)]
    if not found:
        return
    aborted: Dict[str, Any] = {"event": "Aborted", "at": time.time()}
    aborted.update(cause=Cause(Code.SUPERVISOR_DIED), exit_code=_EXIT_DEFECT)
    events = [aborted, *({"event": type(each).__name__, **each._asdict()} for each in found)]
    text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    with contextlib.suppress(OSError), open_to_append(path) as file:  # its folder may be gone
        file.write(text.encode("ascii"))


def _check(order: protocol.Configure) -> None:
    """End what a lost agent of the job has left on this host. Raises CauseError."""
    if order.protocol != protocol.PROTOCOL:
        cause = Cause(Code.PROTOCOL_DIFFERS, count=order.protocol, total=protocol.PROTOCOL)
        raise CauseError(cause)
    if not order.former:
        return
    # Imported here because few hosts are lost.
    from distrun.agent import orphans

    left = orphans.end(order.job_id, dict(order.former))
    if left:
        pids = " ".join(map(str, left))
        raise CauseError(Cause(Code.FORMER_TASKS_ALIVE, host=order.host, text=pids))

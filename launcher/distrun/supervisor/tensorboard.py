"""TensorBoard for a job, on this machine. It ends with the job; the job does not depend on it."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.linux import job_processes, port_owners
from distrun.agent.protocol import Cause, Code, Report
from distrun.frozen import replace
from distrun.job import events
from distrun.spec.model import Spec, TensorBoardSpec
from distrun.supervisor import forked_process
from distrun.supervisor.hosts.local import python_with_packages
from distrun.words.formats import install_command

if TYPE_CHECKING:
    from distrun.supervisor.running_job import RunningJob

NAME = "tensorboard"
"""The name of its task at the agent; no task of a cluster has such a name."""
LOG = "tensorboard.log"
_HOST = "127.0.0.1"
"""Not localhost: a browser may try ::1 first, where anybody can listen."""
_RUN = "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
_ANSWER_SECONDS = 60.0
"""It imports TensorFlow first, which takes seconds, on a busy machine many."""


class TensorBoard:
    """The TensorBoard of a job: started with its first tasks, and reported when it answers."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self._port = 0
        self._is_started = job.spec.tensorboard is None
        self._deadline = job.loop.call_at(None, self._report_silence)

    def on_event(self, _: object, event: events.Event, __: object) -> None:
        if isinstance(event, events.JobPlanned) and not self._is_started:
            self._is_started = True
            self._job.call_after(self.start)

    def start(self) -> None:
        """Start it below an agent on this machine, which ends it with the job."""
        spec, host = self._job.spec.tensorboard, self._job.hosts.below_supervisor
        if spec is None:
            return
        if host is None:
            self._end(Cause(Code.TENSORBOARD_WITHOUT_HOST))
            return
        try:
            self._port = choose_port(spec)
        except OSError as error:
            self._end(_start_failure(spec.port or 0, error))
            return
        workdir, job_id = self._job.spec.program.workdir, self._job.folder.job_id
        self._job.hosts.order(host, start_order(spec, self._port, workdir, job_id))
        self._deadline.move(self._job.loop.now() + _ANSWER_SECONDS)

    def receive(self, report: Report) -> None:
        if isinstance(report, protocol.TaskListening) and self._port in report.ports:
            self._deadline.cancel()
            started = events.TensorBoardStarted(at=time.time(), address=address(self._port))
            self._job.emit(started)
        elif isinstance(report, protocol.TaskNotStarted):
            self._end(Cause(Code.TENSORBOARD_NOT_STARTED, within=(report.cause,)))
        elif isinstance(report, protocol.TaskExited):
            code, number = Code.TENSORBOARD_EXITED, report.signal or 0
            self._end(Cause(code, status=report.code, signal=number, path=self._log))

    @property
    def _log(self) -> str:
        return self._job.folder.shown(self._job.folder.logs / LOG)

    def _report_silence(self) -> None:
        cause = Cause(Code.TENSORBOARD_SILENT, seconds=_ANSWER_SECONDS, path=self._log)
        self._job.emit(events.TensorBoardSilent(at=time.time(), cause=cause))

    def _end(self, cause: Cause) -> None:
        self._deadline.cancel()
        self._job.emit(events.TensorBoardEnded(at=time.time(), cause=cause))


def _start_failure(port: int, error: OSError) -> Cause:
    if error.errno == errno.EACCES:
        why = Cause(Code.PORT_PRIVILEGED, port=port)
    elif port and error.errno == errno.EADDRINUSE:
        why = [*port_owners.of_ports([port]), Cause(Code.PORT_TAKEN, port=port)][0]
    else:
        return Cause(Code.TENSORBOARD_NOT_STARTED, errno=error.errno or 0)
    return Cause(Code.TENSORBOARD_NOT_STARTED, within=(why,))


def without_missing(spec: Spec, warn: Callable[[str], None]) -> Spec:
    """Return the spec without TensorBoard if that is not installed, and warn."""
    if spec.tensorboard is None or is_installed():
        return spec
    install = install_command(sys.executable, "tensorboard")
    warn(f"TensorBoard is not installed ({install}); the job runs without it")
    return replace(spec, tensorboard=None)


def is_installed() -> bool:
    """Whether this interpreter can run TensorBoard, an extra of the package."""
    found = find_spec("tensorboard")
    # A folder with that name, for example of logs, is a package without origin.
    return found is not None and found.origin is not None


def choose_port(spec: TensorBoardSpec) -> int:
    """Return the spec's port, or one that is free now. Raises OSError: none is free."""
    with socket.create_server((_HOST, spec.port or 0)) as server:
        port: int = server.getsockname()[1]
    return port


def address(port: int) -> str:
    return f"http://{_HOST}:{port}/"


def start_order(spec: TensorBoardSpec, port: int, workdir: str, job_id: str) -> protocol.StartTask:
    """Return the order that makes an agent start it like a task."""
    command = python_with_packages(_RUN, "tensorboard.main", "--logdir", spec.logdir)
    return protocol.StartTask(
        task=NAME,
        attempt=0,
        argv=[*command, "--host", _HOST, "--port", str(port)],
        workdir=workdir,
        log=LOG,
        env={
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            # `distrun kill` finds it by these if supervisor and agent have both died.
            "DISTRUN_JOB_ID": job_id,
            "DISTRUN_TASK": NAME,
            job_processes.VARIABLE: forked_process.token(),
        },
        port=port,
        unset=["TF_CONFIG", *(name for name in os.environ if name.startswith("OMP_"))],
        notify=False,
    )

"""The reach of the nodes of a Slurm allocation: each agent is a step of its own, started by srun.

A step ends with its srun, so a lost link is never reconnected. Its agent has a lease, because
Slurm takes minutes to notice that a node is silent.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from distrun.agent.linux.same_files import ANSWER, fingerprint
from distrun.agent.protocol import Cause, Code, Hello
from distrun.slurm import commands, step_end
from distrun.spec.host_spec import HostSpec, SlurmNode
from distrun.spec.model import Spec
from distrun.supervisor.hosts import bootstrap
from distrun.supervisor.hosts.addresses import login_address
from distrun.supervisor.hosts.background_calls import Question
from distrun.supervisor.hosts.reach import Connection, HostView, Login, Reach, agent_exited
from distrun.supervisor.hosts.ssh import open_connection
from distrun.sync.manifest import Manifest

_CONNECT_SECONDS = 60.0
"""A busy slurmctld lets srun wait, and srun tries again by itself."""
_COMMAND = (
    *("/bin/sh", "-c", 'test -x "$0" || exec python3 "$@"; exec "$0" "$@"'),
    os.path.realpath(sys.executable),  # without the start of a virtual environment or a shim
    *bootstrap.ARGUMENTS,
)
"""The interpreter of the launching side is on the nodes, too, where they share its file system."""
_TERMINATED = (Code.AGENT_TERMINATED, Code.GUARD_DIED, Code.SUPERVISOR_SIGNALLED)
"""Slurm sends SIGTERM to end a step or a job."""
_NO_GPUS = "NoDevFiles"
"""What some versions of Slurm set CUDA_VISIBLE_DEVICES to where a step has no GPUs."""


class SrunReach(Reach):
    """A node by its name in Slurm."""

    def __init__(
        self, host: str, given: SlurmNode, scripts: tuple[str, ...], files: Manifest | None
    ) -> None:
        self._host = host
        self._given = given
        self._scripts, self._files = scripts, files
        self._connection: Connection | None = None
        self.connect_timeout: float = _CONNECT_SECONDS

    def open(self, job_id: str, login: Login) -> Connection:
        command = ["srun", f"--jobid={self._given.job}", *commands.STEP_OPTIONS]
        command += [f"--cpus-per-task={self._given.cores}", f"--nodelist={self._host}", *_COMMAND]
        environ = _environment(self._given)
        connection = open_connection(command, job_id, Code.SRUN_NOT_STARTED, environ)
        connection.begin(login, partial(self._start_agent, connection.mark))
        self._connection = connection
        return connection

    def _start_agent(self, mark: bytes) -> bytes:
        base, names = self._names()
        expected = fingerprint(base, names)
        return bootstrap.start_agent_beside_files(mark, base, names, expected, sys.executable)

    def _names(self) -> tuple[str, list[str]]:
        """The files that tasks need, relative to a folder."""
        if self._files is None:
            return "/", list(self._scripts)
        files, links = self._files.files, self._files.links
        return self._files.base, [each.path for each in files] + [each.path for each in links]

    def describe(self, hello: Hello) -> HostView:
        """Return a node's facts without what Slurm has not given to the job."""
        seen = {} if self._connection is None else self._connection.answer(ANSWER)
        environ = dict(hello.environ)
        if environ.get("CUDA_VISIBLE_DEVICES") == _NO_GPUS:
            environ["CUDA_VISIBLE_DEVICES"] = ""
        cores = min(hello.cores, float(self._given.cores))
        usable = hello._replace(cores=cores, environ=environ)
        return HostView(usable, seen.get("files") is True, seen.get("python") is True)

    def address(self, hello: Hello, hosts: int, own: str | None) -> str | None:
        return "localhost" if hosts == 1 else login_address(hello, hosts, own)

    def diagnose(
        self, connection: Connection, status: int | None, *, was_up: bool
    ) -> tuple[Cause, bool]:
        text = connection.stderr_text
        if was_up:
            return self._loss(text, status or 0), False
        if "python3" in text and ("No such file" in text or "not found" in text):
            return Cause(Code.PYTHON_MISSING, text=step_end.last_words(text)), False
        may_pass = "Unable to contact slurm controller" in text  # as while it restarts
        return step_end.cause(text, status, self._given.job), may_pass

    def question(self, connection: Connection, cause: Cause) -> Question | None:
        job, text = self._given.job, connection.stderr_text
        is_asked = cause.code in _TERMINATED or step_end.may_be_of_job(text, cause)
        if not is_asked:
            return None

        def join(answer: Cause | None) -> Cause:
            words = step_end.find(connection.stderr_text, job)
            return step_end.joined(words, answer) or cause

        return Question(job, partial(step_end.ask, job), join=join)

    def _loss(self, text: str, status: int) -> Cause:
        job = self._given.job
        if status < 0 or step_end.is_from_slurm(text) or step_end.find(text, job) is not None:
            return step_end.cause(text, status, job)
        return agent_exited(status, step_end.last_words(text))


def _environment(given: SlurmNode) -> dict[str, str]:
    """Return the environment of srun, which tasks inherit.

    Slurm's variables are options of srun, too: those of the shell are for the job as a whole.
    """
    options = commands.option_variables()
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in options and not name.startswith("DISTRUN_")
    }
    if given.gpus is not None:
        kept.pop("CUDA_VISIBLE_DEVICES", None)  # each step has its own
    return kept


def make_reach(host: HostSpec, spec: Spec, files: Manifest | None, _found_as: str) -> Reach:
    assert host.slurm is not None  # noqa: S101 - only such hosts are reached by srun
    return SrunReach(host.name, host.slurm, spec.scripts, files)

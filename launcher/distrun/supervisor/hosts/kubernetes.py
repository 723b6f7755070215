"""The reach of pods: each is a host, and its agent is started by `kubectl exec`.

The pods belong to Jobs, which a process of this job's supervisor keeps: see
:mod:`distrun.kubernetes.keeper`. A connection begins as a shell that waits for the host's pod.
"""

# ruff: noqa: ARG002 - all reaches have the same parameters

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from functools import partial
from typing import Any

from distrun.agent.linux import job_processes
from distrun.agent.protocol import Cause, Code, Hello
from distrun.agent.protocol.causes import CauseError
from distrun.codec import decode
from distrun.kubernetes import kubectl, manifest, pods
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Spec
from distrun.supervisor.forked_process import Process
from distrun.supervisor.guard import KEEPER
from distrun.supervisor.hosts import bootstrap
from distrun.supervisor.hosts.background_calls import Question
from distrun.supervisor.hosts.local import isolated_python
from distrun.supervisor.hosts.reach import (
    Connection,
    HostView,
    Lifetime,
    Login,
    Purpose,
    Reach,
    agent_exited,
)
from distrun.supervisor.hosts.ssh import open_connection

_NO_LIMIT = 1e8
_EXIT_NO_POD = 71
_FACTS = b"distrun-pod "
_PYTHON = ("python3", *bootstrap.ARGUMENTS)
_SCRIPT = """\
read -r word pod facts </dev/fd/{answer} || exit {no_pod}
case $word in
run) ;;
gone) printf '%s\\n%s\\n' "$facts" '{no_agent}' >&2; exit {exit_no_agent} ;;
*) printf '%s\\n' "$facts" >&2; exit {no_pod} ;;
esac
printf '%s%s\\n' '{facts}' "$facts"
exec {kubectl} exec -i -c {container} "$pod" -- {python}
"""
_ENDED = re.compile(r"command terminated with exit code \d+")
"""kubectl says so of what it ran; otherwise its exit says nothing of that."""
_STATUS_SECONDS, _STATUS_INTERVAL = 4.0, 0.5
"""How long process 1 and the kubelet need to say that a pod has ended for want of memory."""
_TERMINATED = (
    *(Code.AGENT_TERMINATED, Code.GUARD_DIED, Code.AGENT_EXITED, Code.KUBECTL_ENDED),
    Code.KUBECTL_FAILED,
)


class _Keeper:
    """The process that keeps the pods of the job. One serves all hosts of this process."""

    def __init__(self, spec: Spec, job_id: str) -> None:
        self._spec, self._job_id = spec, job_id
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, answer: int, **request: Any) -> None:
        """Request the pod of a host. Raises OSError: no process can be created."""
        packet = json.dumps({**request, "asked": time.monotonic()}).encode()
        with contextlib.suppress(OSError):
            if self._control is not None:
                socket.send_fds(self._control, [packet], [answer])
                return
        self._start()
        assert self._control is not None  # noqa: S101 - it was just made
        socket.send_fds(self._control, [packet], [answer])

    def _start(self) -> None:
        jobs = manifest.make(self._spec, self._job_id)
        settings = {
            "kubectl": kubectl.prefix(self._spec.kubernetes),
            "jobs": jobs,
            "needs": manifest.references(*jobs),
            "start": self._spec.timeouts.start,
            "lease": math.inf if self._spec.timeouts.link is None else self._spec.timeouts.link,
            "adopts": self._process is not None,
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                isolated_python(KEEPER),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "DISTRUN_JOB_ID": self._job_id},
            )
        if self._control is not None:
            self._control.close()
        self._control = ours
        ours.send(json.dumps(settings).encode())

    def release(self) -> subprocess.Popen[bytes] | None:
        if self._control is not None:
            if self._process is not None and self._process.poll() is not None:
                with contextlib.suppress(CauseError, OSError):
                    self._start()  # somebody has killed it, and the Jobs are still there
            with contextlib.suppress(OSError):
                self._control.send(b"{}")
            self._control.close()
            self._control = None
        return self._process


_keeper: _Keeper | None = None


class KubernetesReach(Reach):
    """A pod. Its agent outlives a lost link for `timeouts.link`."""

    lifetime = Lifetime.LEASE

    def __init__(self, host: HostSpec, spec: Spec, found_as: str) -> None:
        self._host, self._shape, self._spec = host.name, host.role, spec
        self._connection: Connection | None = None
        self._former_pod = found_as
        start = spec.timeouts.start
        self.connect_timeout: float = _NO_LIMIT if start is None else start

    def open(self, job_id: str, login: Login) -> Connection:
        global _keeper  # noqa: PLW0603 - there is one job in a process
        words = kubectl.prefix(self._spec.kubernetes)
        if login.purpose is Purpose.FILES:
            return self._open_for_files(words, job_id, login)
        is_new, is_former = login.purpose is Purpose.AGENT, login.purpose is Purpose.FORMER
        pod = "" if is_new or is_former else self._pod
        reader, writer = os.pipe()
        try:
            _keeper = _keeper or _Keeper(self._spec, job_id)
            asked = {"host": self._host, "shape": self._shape, "pod": pod, "former": is_former}
            _keeper.ask(writer, **asked)
            script = _SCRIPT.format(
                answer=reader,
                no_pod=_EXIT_NO_POD,
                no_agent=job_processes.NO_AGENT,
                exit_no_agent=job_processes.EXIT_NO_AGENT,
                facts=_FACTS.decode(),
                kubectl=shlex.join(words),
                container=pods.CONTAINER,
                python=shlex.join(_PYTHON),
            )
            code, command = Code.KUBECTL_NOT_STARTED, ["/bin/sh", "-c", script]
            connection = open_connection(command, job_id, code, kept=[reader])
        except OSError as error:
            cause = Cause(Code.KUBECTL_NOT_STARTED, errno=error.errno or 0)
            raise CauseError(cause) from error
        finally:
            os.close(reader)
            os.close(writer)
        if is_new:
            self._connection = connection
        if not is_former:  # of what is left, the keeper ends the pod
            connection.begin(login, partial(bootstrap.start_agent, connection.mark, in_pod=True))
        return connection

    def _open_for_files(self, words: list[str], job_id: str, login: Login) -> Connection:
        """Start a process in the pod that the host has or had, whoever keeps it."""
        exec_ = ("exec", "-i", "-c", pods.CONTAINER, f"pod/{self._pod}")  # it is no option
        command = [*words, *exec_, "--", *_PYTHON]
        connection = open_connection(command, job_id, Code.KUBECTL_NOT_STARTED)
        connection.begin(login)
        return connection

    @property
    def _pod(self) -> str:
        return self._facts.get("pod", "") or self._former_pod

    @property
    def _facts(self) -> dict[str, str]:
        """Which pod the host is, from what its connection said first."""
        return {} if self._connection is None else self._connection.answer(_FACTS)

    def describe(self, hello: Hello) -> HostView:
        return HostView(hello, found_as=self._pod)

    def address(self, hello: Hello, hosts: int, own: str | None) -> str | None:
        return "localhost" if hosts == 1 else self._facts.get("ip")

    def diagnose(
        self, connection: Connection, status: int | None, *, was_up: bool
    ) -> tuple[Cause, bool]:
        text = connection.stderr_text
        said = _said_cause(text)
        if said is not None:
            return said, False
        is_of_agent = _ENDED.search(text) is not None
        if not was_up:
            return self._failure(text, status or 0), not is_of_agent
        if is_of_agent:
            return agent_exited(status or 0, kubectl.last_words(text)), False
        return kubectl.failure(status or 0, text, Code.KUBECTL_ENDED), False

    def _failure(self, text: str, status: int) -> Cause:
        old = re.search(rf"{bootstrap.TOO_OLD} (\S+)", text)
        if old is not None:
            return Cause(Code.PYTHON_TOO_OLD, name=old[1])
        if "python3" in text and ("not found" in text or "no such file" in text):
            return Cause(Code.PYTHON_MISSING, text=kubectl.last_words(text))
        return kubectl.failure(status, text)

    def question(self, connection: Connection, cause: Cause) -> Question | None:
        pod = self._pod
        if not pod or cause.code not in _TERMINATED:
            return None
        # For want of memory, the kernel may have ended the agent, or the whole container.
        was_killed = (cause.code, cause.signal) == (Code.AGENT_EXITED, signal.SIGKILL)
        seconds = _STATUS_SECONDS if was_killed else 0.0
        return Question(pod, partial(self._ask, pod, time.monotonic() + seconds))

    def _ask(self, pod: str, due: float) -> Cause | None:
        while (cause := self._ask_once(pod)) is None and time.monotonic() < due:
            time.sleep(_STATUS_INTERVAL)
        return cause

    def _ask_once(self, pod: str) -> Cause | None:
        command = [*kubectl.prefix(self._spec.kubernetes), "get"]
        try:
            found = kubectl.parsed(kubectl.run([*command, "pod", pod, "-o", "json"], seconds=5.0))
            cause, job = pods.end(found, pod), found["metadata"].get("labels", {}).get("job-name")
            is_deleted = job and cause is not None and cause.code is Code.POD_DELETED
            if is_deleted and not kubectl.run([*command, "job", job, "--ignore-not-found"]):
                # No node and no scheduler does that: it is no preemption.
                cause = Cause(Code.POD_ENDED, name=pod, text=f"somebody deleted the Job {job}")
        except CauseError as error:
            return pods.end(None, pod) if "NotFound" in error.cause.text else None
        return cause

    def release(self) -> Process | None:
        return None if _keeper is None else _keeper.release()


def _said_cause(text: str) -> Cause | None:
    """Return the cause that the shell has printed for a host without a pod."""
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                return decode(Cause, line)
    return None


def make_reach(host: HostSpec, spec: Spec, _files: object, found_as: str) -> Reach:
    return KubernetesReach(host, spec, found_as)

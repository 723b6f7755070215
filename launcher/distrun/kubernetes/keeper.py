"""The process that has the pods of a job: it creates their Jobs, watches, and deletes them.

There is one Job a pod shape. Kubernetes replaces a pod that fails, and none that has completed: for
a host whose pod did that while its link was lost, there is one more Job. This process outlives a
supervisor that is killed, and then deletes the Jobs at once. Its standard input is a socket of
packets. The first one has the settings. An empty mapping says that the job needs no pods
any more. Each other is a request for the pod of a host, with a descriptor for the answer:

    run POD {"pod": ..., "ip": ...}     the pod runs
    gone - CAUSE                        the pod that was asked for does not run any more
    failed - CAUSE                      there will be no pod
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from typing import Any, NamedTuple

from distrun.agent.linux import syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.causes import CauseError
from distrun.codec import to_json
from distrun.job.scheduler import SUBMITTED
from distrun.kubernetes import kubectl, pods

MOST_BYTES = 1 << 17
"""Of a packet."""
REMOVAL_SECONDS = 20.0
"""How long the pods are waited for that are being removed."""
_RETRY_SECONDS = 1.0
_COMPLETION_SECONDS = 3.0
"""How long pods may take to complete after their agents."""
_EVENTS_SECONDS = 3.0
"""How long Kubernetes may take to create a pod before it is asked why there is none."""
_WATCH_SECONDS = 15.0
"""How long a watch is trusted while pods are waited for: a connection may hang."""
_OUTAGE = 300.0
"""How long a submitted job waits for an API server that is out of reach."""
_MARGIN = 5.0
"""How long before the end of the time for the start there is an answer, at most."""


def _time_for(start: float) -> float:
    return start - min(_MARGIN, start / 4)


class _Request(NamedTuple):
    host: str
    shape: str
    pod: str
    """The one that the host had; empty: any will do."""
    answer: int


class Keeper:
    """Keeps the pods of one job.

    Args:
        settings: `kubectl`: its first words, `jobs`: the manifests, `needs`: the objects that they
            name, `start`: seconds until all pods must run, or None, `lease`: how long tasks may run
            on a host that is cut off, `adopts`: whether the Jobs of an earlier process are kept.
    """

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._kubectl: list[str] = settings["kubectl"]
        jobs: list[dict[str, Any]] = settings["jobs"]
        self._name = pods.name_of(jobs[0])
        self._manifests = {pods.shape_of(each): each for each in jobs}
        self._jobs = {pods.name_of(each): pods.shape_of(each) for each in jobs}
        """The shape of each Job's pods, by its name."""
        self._needs: list[str] = settings["needs"]
        self._start: float | None = settings["start"]
        self._lease: float = settings["lease"]
        self._is_created: bool = settings["adopts"]
        self._may_exist = False
        """Whether some Jobs may be there although their creation failed."""
        self._loop = Loop()
        self._loop.watch_signals((signal.SIGTERM, signal.SIGCHLD), self._on_signals)
        self._loop.checks.append(self._answer_all)
        self._deadline = self._loop.call_at(None, self._fail_late)
        self._next_watch = self._loop.call_at(None, self._start_watch)
        self._next_look = self._loop.call_at(None, self._look_for_pods)
        self._ends = False
        self._is_released = False
        """Whether all agents have ended."""
        self._requests: list[_Request] = []
        self._pods: dict[str, pods.Pod] = {}
        self._of_host: dict[str, str] = {}
        """The name of each host's pod."""
        self._forgotten: dict[str, float] = {}
        """Pods that were deleted by force, and until when their nodes may run them."""
        self._used: set[str] = set()
        """Pods that were one of the hosts."""
        self._watch: _Watch | None = None
        self._refusal: Cause | None = None
        """Why Kubernetes creates no pods, if it said so."""
        self._failed_at = 0.0
        """When it last created no Jobs."""
        self._told: dict[str, Code | None] = {}
        """Why there are no pods yet, as hosts were told, by the shape; None: it is not known."""

    def run(self) -> None:
        """Serve until the supervisor has gone, or SIGTERM; then delete the Jobs."""
        self._loop.watch(self._control, self._on_request)
        if self._is_created:
            self._next_watch.move(self._loop.now())
        while not self._ends:
            self._loop.turn()
        if self._is_created or self._may_exist:
            self._remove()
        if self._watch is not None:
            self._watch.close()

    def _on_signals(self, numbers: bytes) -> None:
        self._ends = self._ends or signal.SIGTERM in numbers

    # Requests ------------------------------------------------------------------------------

    def _on_request(self) -> None:
        packet, descriptors, _, _ = socket.recv_fds(self._control, MOST_BYTES, 1)
        if not packet:
            self._ends = True
            return
        wanted = json.loads(packet)
        if not wanted:
            self._ends = self._is_released = True
            return
        request = _Request(wanted["host"], wanted["shape"], wanted["pod"], descriptors[0])
        try:
            if wanted["former"]:
                if not self._is_created:  # what runs there is of an earlier supervisor
                    self._remove()
                _reply(request, "gone", Cause(Code.POD_DELETED))
                return
            if not self._is_created:
                self._create(wanted["asked"])
        except CauseError as error:
            _reply(request, "failed", error.cause)
            return
        # A queue may take days.
        is_queued = Code.POD_QUEUED in self._told.values()
        is_due = is_queued or self._deadline.when is not None
        if not request.pod and self._start is not None and not is_due:
            self._deadline.move(wanted["asked"] + _time_for(self._start))
        if not request.pod and self._next_look.when is None:
            self._next_look.move(self._loop.now() + _EVENTS_SECONDS)
        self._requests.append(request)

    def _create(self, asked: float) -> None:
        """Create the Jobs; those of an earlier supervisor are removed first. Raises CauseError."""
        if self._refusal is not None and asked < self._failed_at:
            raise CauseError(self._refusal)
        command = [*self._kubectl, "create", "-f", "-"]
        given = pods.as_list(self._manifests.values())
        try:
            kubectl.require(self._kubectl, self._needs)
            # What hangs is told before the supervisor gives up.
            left = asked + _time_for(self._start or _OUTAGE) - time.monotonic()
            kubectl.run(command, given, min(max(left, _RETRY_SECONDS), kubectl.SECONDS))
        except CauseError as error:
            is_away = re.search("connect|dial tcp", error.cause.text) is not None
            is_early = time.monotonic() < asked + min(self._start or _OUTAGE, _OUTAGE)
            if SUBMITTED in os.environ and is_away and is_early:  # nobody else would try again
                time.sleep(_EVENTS_SECONDS)
                self._create(asked)
                return
            if "AlreadyExists" not in error.cause.text:
                self._refusal, self._failed_at = error.cause, time.monotonic()
                self._may_exist = len(self._jobs) > 1 or bool(error.cause.signal)
                raise
            self._remove()
            kubectl.run(command, given)
        self._is_created, self._refusal = True, None
        self._next_watch.move(self._loop.now())

    def _answer_all(self) -> None:
        if self._ends:
            return
        self._requests = [each for each in self._requests if not self._answer(each)]
        if not self._told and all(each.pod for each in self._requests):
            self._deadline.cancel()

    def _fail_late(self) -> None:
        self._answer_all()
        found = self._obstacles()
        said = max(found, key=lambda each: each[1])[0] if found else self._refusal
        cause = explained(self._kubectl, said) if said else self._why_no_pods()
        self._fail(cause._replace(seconds=self._start or 0.0))

    def _answer(self, request: _Request) -> bool:
        """Answer a request, if that can be done now."""
        if request.pod:
            pod = self._pods.get(request.pod)
            until = self._forgotten.get(request.pod, 0.0)
            if pod is None and (self._watch is None or time.monotonic() < until):
                return False  # what there is will be known soon, or its lease runs out
            cause = pods.end(pod, request.pod)
            if pod is not None and pods.is_running(pod):
                self._run(request, pod)
            else:
                _reply(request, "gone", cause or Cause(Code.POD_DELETED, name=request.pod))
            return True
        taken = {name for host, name in self._of_host.items() if host != request.host}
        own = self._of_host.get(request.host, "")
        for name in sorted(self._pods, key=lambda name: (name != own, name)):
            pod = self._pods[name]
            is_usable = pods.is_running(pod) and not (pods.is_ending(pod) or pods.is_cut_off(pod))
            if name not in taken and is_usable and pods.shape_of(pod) == request.shape:
                self._of_host[request.host] = name
                self._used.add(name)
                self._told.pop(request.shape, None)
                self._run(request, pod)
                return True
        return False

    def _run(self, request: _Request, pod: pods.Pod) -> None:
        name = pods.name_of(pod)
        facts = {"pod": name, "ip": pod["status"]["podIP"]}
        _write(request.answer, f"run {name} {json.dumps(facts)}\n")

    def _fail(self, cause: Cause, hosts: Collection[str] | None = None) -> None:
        """Answer the requests for pods of these hosts; None: all such requests."""
        wanted = [each for each in self._requests if not each.pod]
        failed = [each for each in wanted if hosts is None or each.host in hosts]
        self._requests = [each for each in self._requests if each not in failed]
        for each in failed:
            _reply(each, "failed", cause)

    # Pods ----------------------------------------------------------------------------------

    def _look_for_pods(self) -> None:
        """Ask why pods do not come, and have others created if they never will."""
        wanted = [each for each in self._requests if not each.pod]
        if not wanted or self._ends:
            return
        if self._watch is not None and time.monotonic() > self._watch.begun + _WATCH_SECONDS:
            self._end_watch(self._watch)
            self._start_watch()
        needed = len({*self._of_host, *(each.host for each in wanted)})
        alive = sum(not pods.has_ended(each) for each in self._pods.values())
        self._refusal = self._why_no_pods() if alive < needed else None
        for shape in {each.shape for each in wanted}:
            hosts = [each.host for each in wanted if each.shape == shape]
            try:
                self._create_missing(shape, hosts)
            except CauseError as error:
                if kubectl.is_refused(error.cause):
                    text = error.cause.text
                    self._refusal = Cause(Code.POD_NOT_CREATED, name=self._name, text=text)
                    self._tell(shape, hosts, self._refusal)
        self._next_look.move(self._loop.now() + _EVENTS_SECONDS)

    def _create_missing(self, shape: str, hosts: list[str]) -> None:
        """Create one more Job if there are too few pods for the hosts. Raises CauseError."""
        command = [*self._kubectl, "get", "job", "--ignore-not-found", "-o", "json"]
        missing, is_queued = len(hosts), False
        for name in [each for each, own in self._jobs.items() if own == shape]:
            job = kubectl.parsed(kubectl.run([*command, name]) or "{}")
            status = job.get("status", {})
            ended = [each for each in status.get("conditions", ()) if each.get("status") == "True"]
            if job and not any(each["type"] in ("Complete", "Failed") for each in ended):
                missing -= job["spec"]["parallelism"] - status.get("succeeded", 0)
                is_queued |= bool(job["spec"].get("suspend")) and pods.queue_of(job) != ""
        queued = Cause(Code.POD_QUEUED, name=self._name)
        self._tell(shape, hosts, queued if is_queued else self._why_pending())
        others = [name for host, name in self._of_host.items() if host not in hosts]
        alive = (each for each in map(self._pods.get, others) if each and pods.is_running(each))
        missing += sum(pods.shape_of(each) == shape for each in alive)
        for each in filter(pods.has_ended, self._pods.values()):
            # Kubernetes does not replace a pod whose other containers run.
            is_left = each["status"].get("phase") == "Running" and not pods.is_ending(each)
            missing += is_left and pods.shape_of(each) == shape
        if missing > 0:
            number = next(n for n in itertools.count(2) if f"{self._name}-{n}" not in self._jobs)
            name, like = f"{self._name}-{number}", self._manifests[shape]
            counts = {"parallelism": missing, "completions": missing}
            changes = {"metadata": {**like["metadata"], "name": name}}
            job = {**like, **changes, "spec": {**like["spec"], **counts}}
            kubectl.run([*self._kubectl, "create", "-f", "-"], json.dumps(job))
            self._jobs[name] = shape

    def _why_pending(self) -> Cause:
        found = [each for each, _ in self._obstacles()]
        found.sort(key=lambda each: each.code is Code.POD_PENDING)
        said = [explained(self._kubectl, each) for each in found[:1]]
        if self._refusal is not None and self._refusal.code is Code.POD_NOT_CREATED:
            said.append(self._refusal)
        nothing = Cause(Code.POD_PENDING, name=self._name)
        return next((each for each in said if each.text not in ("Pending", _UNTOLD)), nothing)

    def _tell(self, shape: str, hosts: list[str], cause: Cause) -> None:
        """Tell hosts why pods do not come, once that changes."""
        known = cause.code if cause.code is not Code.POD_PENDING or cause.text else None
        if self._told.get(shape) is not known:
            self._told[shape] = known
            if cause.code is Code.POD_QUEUED:
                self._deadline.cancel()
            # Another pod may start: until the deadline, that is waited for.
            may_pass = cause.code in (Code.POD_NOT_STARTED, Code.POD_IMAGE_MISSING)
            if cause.code is Code.POD_NOT_CREATED and FOR_GOOD.search(cause.text):
                cause = cause._replace(seconds=_EVENTS_SECONDS)  # it is not waited for
            self._fail(cause._replace(code=Code.POD_PENDING) if may_pass else cause, hosts)

    def _start_watch(self) -> None:
        if self._watch is not None:
            return
        label = f"{pods.LABEL_OF_JOB}={self._name}"
        command = [*self._kubectl, "get", "pods", "-l", label, "-o", "json"]
        try:
            listed = kubectl.items(command)
            self._watch = _Watch([*command, "--watch", "--output-watch-events"])
        except (CauseError, OSError) as error:
            self._next_watch.move(self._loop.now() + _RETRY_SECONDS)
            if isinstance(error, CauseError) and kubectl.is_refused(error.cause):
                self._fail(error.cause)
            return
        self._pods = {pods.name_of(each): each for each in listed}
        for each in listed:
            job = each["metadata"].get("labels", {}).get("job-name", "")
            self._jobs[job] = pods.shape_of(each)
        self._loop.watch(self._watch.output, self._on_watch)

    def _on_watch(self) -> None:
        self._read_watch()
        final = [cause for cause, is_final in self._obstacles() if is_final]
        if final:
            self._fail(final[0])

    def _read_watch(self) -> None:
        watch = self._watch
        if watch is None:
            return
        for kind, pod in watch.read():
            if kind == "DELETED":
                self._pods.pop(pods.name_of(pod), None)
                if pods.is_running(pod):
                    self._forgotten[pods.name_of(pod)] = time.monotonic() + self._lease
            elif kind in ("ADDED", "MODIFIED"):
                self._pods[pods.name_of(pod)] = pod
        if watch.ended:
            self._end_watch(watch)

    def _end_watch(self, watch: _Watch) -> None:
        self._loop.unwatch(watch.output)
        watch.close()
        self._watch = None
        self._next_watch.move(self._loop.now() + _RETRY_SECONDS)

    def _obstacles(self) -> list[tuple[Cause, bool]]:
        """Return why pods do not run, and whether that is no matter of waiting."""
        return [
            pods.obstacle(each)
            for name, each in self._pods.items()
            if not (pods.is_running(each) or pods.is_ending(each) or name in self._used)
            and each.get("status", {}).get("phase") != "Succeeded"
        ]

    def _why_no_pods(self) -> Cause:
        causes = [why_no_pods(self._kubectl, name) for name in self._jobs]
        return next((each for each in causes if each.text != _UNTOLD), causes[0])

    def _remove(self) -> None:
        """Delete the Jobs, and wait until nothing runs in their pods any more."""
        if self._is_released:
            # A pod that has completed is removed at once, another one by its kubelet later.
            self._wait_for_end(_COMPLETION_SECONDS, self._of_host.values())
        due = time.monotonic() + REMOVAL_SECONDS
        options = ("--ignore-not-found", "--wait=false")
        self._start_watch()
        while True:
            try:
                command = [*self._kubectl, "delete", "job", *self._jobs, *options]
                kubectl.run(command, seconds=max(due - time.monotonic(), _RETRY_SECONDS))
                break
            except CauseError as error:
                if time.monotonic() > due or kubectl.is_refused(error.cause):
                    print(f"the Job {self._name} is left: {error.cause.text}", file=sys.stderr)  # noqa: T201 - its log
                    return
                time.sleep(_RETRY_SECONDS)
        self._wait_for_end(due - time.monotonic(), None)
        self._remove_stuck_pods()
        self._is_created = False
        self._next_watch.cancel()
        self._pods.clear()
        self._of_host.clear()

    def _remove_stuck_pods(self) -> None:
        """Remove the pods whose nodes do not say that they have ended: they would stay for ever."""
        stuck = sorted(name for name, pod in self._pods.items() if not pods.has_ended(pod))
        if not stuck:
            return
        why = "their tasks may still run"
        if self._is_released:  # they have ended, at the latest with their lease
            options = ("--grace-period=0", "--force", "--ignore-not-found", "--wait=false")
            try:
                kubectl.run([*self._kubectl, "delete", "pod", *stuck, *options])
            except CauseError as error:
                why = error.cause.text
            else:
                return
        print(f"pods are left: {', '.join(stuck)}: {why}", file=sys.stderr)  # noqa: T201 - its log

    def _wait_for_end(self, seconds: float, names: Collection[str] | None) -> None:
        """Wait until nothing runs in these pods; None: until all are gone, or about to go."""
        due = time.monotonic() + seconds
        while True:
            known = self._pods.values() if names is None else map(self._pods.get, names)
            is_awaited = any(
                pod and not (pods.is_over(pod) and (names or pods.is_ending(pod))) for pod in known
            )
            if not is_awaited or self._watch is None or due < time.monotonic():
                return
            syscalls.wait_until_ready([self._watch.output.fileno()], [], due - time.monotonic())
            self._read_watch()


_UNTOLD = "it does not say why"
FOR_GOOD = re.compile(
    r"(?:usage|ratio) per (?:Container|Pod)|must specify|PodSecurity|denied the"
    r"|is being terminated|namespaces .*not found"
)
"""In the words of a LimitRange, a quota, a policy, a webhook, of a namespace: no pod will come."""
_NO_QUEUE = "its Job is suspended, and names no queue of Kueue"


def why_no_pods(words: list[str], name: str) -> Cause:
    """Return what Kubernetes says of a Job that has no pods. `words`: those of kubectl."""
    with contextlib.suppress(CauseError):
        command = [*words, "get", "job", name, "-o", "json"]
        job = kubectl.parsed(kubectl.run(command, seconds=kubectl.READ_SECONDS))
        if job["spec"].get("suspend"):
            if pods.queue_of(job):
                return Cause(Code.POD_QUEUED, name=name)
            return Cause(Code.POD_NOT_CREATED, name=name, text=_NO_QUEUE)
    try:
        said = _failure(words, name)
    except CauseError as error:
        if not kubectl.is_refused(error.cause):  # that right may lack
            return error.cause
        said = ""
    return Cause(Code.POD_NOT_CREATED, name=name, text=said or _UNTOLD)


def explained(words: list[str], cause: Cause) -> Cause:
    """Return why a pod does not run, with what the kubelet says of one that has a node."""
    if cause.code is Code.POD_PENDING and cause.text == "Pending":
        with contextlib.suppress(CauseError):
            return cause._replace(text=_failure(words, cause.name) or cause.text)
    return cause


def _failure(words: list[str], name: str) -> str:
    """Return what last failed of an object. Raises CauseError."""
    fields = f"involvedObject.name={name}"
    command = [*words, "get", "events", "--field-selector", fields, "-o", "json"]
    events = kubectl.items(command)
    # A pod that has a node now may have waited for it.
    failed = [each for each in events if re.match("Failed(?!Scheduling)", str(each.get("reason")))]
    return pods.cut(failed[-1].get("message", "")) if failed else ""


class _Watch:
    """What happens to the pods, as kubectl prints it. Raises OSError: kubectl cannot be started."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self.output = self._process.stdout
        os.set_blocking(self.output.fileno(), False)
        self.ended = False
        self.begun = time.monotonic()
        self._text = ""
        self._decoder = json.JSONDecoder()

    def read(self) -> list[tuple[str, pods.Pod]]:
        """Return the events that have arrived. Sets :attr:`ended` at the end."""
        block = self.output.read(1 << 20)
        self.ended = block == b""
        self._text += (block or b"").decode("utf-8", "replace")
        found = []
        while self._text:
            self._text = self._text.lstrip()
            line, is_whole, rest = self._text.partition("\n")
            if is_whole and not line.startswith("{"):  # of a wrapper of kubectl
                self._text = rest
                continue
            try:
                event, end = self._decoder.raw_decode(self._text)
            except ValueError:
                break  # the rest has not arrived
            self._text = self._text[end:]
            found.append((event.get("type", ""), event.get("object", {})))
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self.output.close()


def _reply(request: _Request, word: str, cause: Cause) -> None:
    _write(request.answer, f"{word} - {json.dumps(to_json(cause))}\n")


def _write(answer: int, line: str) -> None:
    with contextlib.suppress(OSError), open(answer, "wb", buffering=0) as file:
        file.write(line.encode())


def main() -> None:
    """Serve the supervisor whose socket is standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=os.dup(0))
    packet = control.recv(MOST_BYTES)
    if packet:
        Keeper(control, json.loads(packet)).run()


if __name__ == "__main__":
    main()

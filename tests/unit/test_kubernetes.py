"""Jobs that Kubernetes holds: manifests, the spec in the pod, what queue and pods say."""

import errno
import gc
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.command import write_program
from harness.parts.cli import kill, resume, show_plan
from harness.parts.hosts import KubernetesReach, _Keeper
from harness.parts.job import QueuedJob, control, order_of, queued_job, read_job, relay
from harness.parts.job import folder as job_folder
from harness.parts.kubernetes import (
    Keeper,
    batch_job,
    guard,
    in_pod,
    keeper,
    kubectl,
    manifest,
    pods,
    submission,
)
from harness.parts.lifecycle import JobPhase, JobState
from harness.parts.plan import place, place_again, room_of_hosts
from harness.parts.protocol import Cause, CauseError, Code
from harness.parts.records import BatchJob, JobFolder, JobStore, QueueEntry, SchedulerError
from harness.parts.settings import HostSpec
from harness.parts.spec import Spec, check_values, load, load_mapping
from harness.parts.supervisor import KeptFetch, is_awaited
from harness.parts.top import HostError, InvalidSpecError, UsageError, replace
from harness.parts.words import cause_advice, cause_text
from harness.tables import read_table
from harness.values import not_none
from harness.waiting import wait_until

TEXT = Path(__file__).with_name("kubernetes.yaml").read_text()
NAME = "distrun-job-x"


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    (tmp_path / "sub").mkdir()
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text(TEXT)
    return load(tmp_path / "job.yaml", is_submitted=True)


def test_a_supervisor_needs_fewer_resources(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    job = manifest.make_supervisor(spec, "x", NAME)
    pod = job["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["containers"]] == ["distrun"]
    container = pod["containers"][0]
    assert "initContainers" not in pod
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "576Mi"}
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["volumes"][0] == {"name": "distrun", "emptyDir": {}}
    assert {"name": "A", "value": "b"} in container["env"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("distrun", True)
    assert job["metadata"]["labels"][manifest.LABEL] == NAME
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]
    assert job["spec"]["backoffLimit"] == 0
    # Its pods end with it.
    monkeypatch.setenv("DISTRUN_SUBMITTED", NAME)
    monkeypatch.setenv("DISTRUN_JOB_UID", "uid")
    metadata = manifest.make(spec, "x")[0]["metadata"]
    assert metadata["name"] == f"{NAME}-pods"
    owner = metadata["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", NAME, "uid")
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "team"


def test_the_paths_of_what_is_sent_are_those_of_the_pod(spec: Spec, tmp_path: Path) -> None:
    moved = submission._in_pod(spec, "/distrun/x/files", "n")
    program = moved.program
    assert (program.target, program.args) == ("/distrun/x/files/train.py", ("train.py",))
    assert (program.sync_base, program.workdir) == ("/distrun/x/files", "/distrun/x/files/sub")
    assert moved.kubernetes is not None
    assert (moved.kubernetes.context, moved.kubernetes.namespace) == (None, "n")
    assert str(tmp_path) not in str(moved.program)


def test_more_gpus_than_pods_have_are_warned_of(spec: Spec) -> None:
    """Not if the overlay asks for them: they may be of another kind."""
    role, settings = replace(spec.roles[0], gpus=2), replace(not_none(spec.kubernetes), pod="{}")
    other = '{"spec": {"containers": [{"resources": {"limits": {"amd.com/gpu": 2}}}]}}'
    for given, warned in (({}, 1), ({"gpus": 1}, 1), ({"gpus": 2}, 0), ({"pod": other}, 0)):
        changed = replace(spec, roles=(role,), kubernetes=replace(settings, **given))
        assert len([*check_values(changed)]) == warned, given


Json = dict[str, Any]


def _object(kind: str, name: str, **fields: Any) -> Json:
    job = name.removesuffix("-1")
    labels = {manifest.LABEL: NAME, "job-name": job, **fields.pop("labels", {})}
    return {"kind": kind, "metadata": {"name": name, "labels": labels}, "spec": {}, **fields}


def _supervisor(pod_status: Json, **status: Any) -> list[Json]:
    return [_object("Job", NAME, status=status), _object("Pod", f"{NAME}-1", status=pod_status)]


RUNNING = {
    "phase": "Running", "podIP": "10.0.0.1",
    "containerStatuses": [{"name": "distrun", "state": {"running": {}}}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("supervisor", "tasks", "pod", "expected"),
    [
        ({"phase": "Pending"}, None, None, ("pending", True, "Pending")),
        (RUNNING, None, None, ("running", False, "")),
        (RUNNING, {"suspend": True}, None, ("suspended", True, "queue team has not admitted")),
        (RUNNING, {}, None, ("admitted", True, "queue team has admitted")),
        (RUNNING, {}, RUNNING, ("running", False, "")),
        ({"phase": "Succeeded"}, None, None, ("ending", False, "")),
    ],
)
def test_a_job_waits_until_its_pods_are_admitted_and_run(
    supervisor: Json, tasks: Json | None, pod: Json | None, expected: tuple[str, bool, str]
) -> None:
    items = _supervisor(supervisor)
    if tasks is not None:
        own = {"labels": {pods.QUEUE: "team"}, "spec": tasks, "status": {}}
        items.append(_object("Job", f"{NAME}-pods", **own))
    if pod is not None:
        items.append(_object("Pod", f"{NAME}-pods-1", status=pod))
    entry = batch_job._entry(NAME, items)
    state, is_pending, why = expected
    assert (entry.state, entry.is_pending, entry.is_active) == (state, is_pending, True)
    assert why in entry.reason
    begun = QueuedJob(state=JobState(phase=JobPhase.RUNNING), entry=entry)
    assert begun.has_not_begun == (is_pending and state != "suspended"), "it has a supervisor"


def test_a_job_has_ended_whose_supervisor_has_no_pod_any_more() -> None:
    failed = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    conditions = [{"type": "Failed", "reason": "BackoffLimitExceeded"}]
    entry = batch_job._entry(NAME, _supervisor(failed, conditions=conditions))
    found = (entry.is_active, (cause := not_none(entry.cause)).code, cause.text)
    assert found == (False, Code.POD_PREEMPTED, "Evicted: low on memory")


# What a kubectl or a pod may send ------------------------------------------------------------


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = write_program(tmp_path / "bin/kubectl", f"#!/bin/sh\nexec cat '{tmp_path}/answer'\n")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path / "answer"


@pytest.mark.parametrize(
    "printed", [b"Welcome\n", b"\xff\xfe\0", b'{"items": null}', b'{"items": [1]}']
)
def test_an_answer_that_is_no_list_of_objects_is_told(answer: Path, printed: bytes) -> None:
    answer.write_bytes(printed)
    with pytest.raises(SchedulerError) as raised:
        batch_job.find([BatchJob(id=NAME, namespace="n")])
    assert not_none(raised.value.cause).text.startswith("its answer is not as expected")


def test_what_kubectl_refuses_or_lacks(answer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = 'Warning: w\nThe Job "j" is invalid: \n* spec.a: Required\n* spec.b: Invalid\n'
    said += 'E1129 01:40:42.811324 3111 v2.go:104] "Unhandled Error" err="write tcp"\n'
    cause = kubectl.failure(1, said)
    assert cause.text == 'The Job "j" is invalid: * spec.a: Required * spec.b: Invalid'
    assert "`kubernetes.pod`" in str(cause_advice(cause))
    answer.write_text("a c ")
    with pytest.raises(CauseError) as raised:
        kubectl.require(["kubectl"], ["secret/s a", "secret/s b", "pvc/v"])
    assert "`kubectl get secret` in" in str(cause_advice(raised.value.cause))
    answer.unlink()
    os.mkfifo(answer)
    named = {"metadata": {"name": "j"}}
    kept = _keeper(named, monkeypatch, adopts=False, kubectl=["kubectl"], start=0.4)
    with pytest.raises(CauseError) as raised:
        kept._create(time.monotonic())  # it is told before the supervisor gives up
    assert raised.value.cause.text == "it had not answered within 1 s"


SLOW = """#!/bin/sh
cd '{folder}'
case "$*" in
*"create -o"*) echo >begun; until [ -e go ]; do sleep 0.05; done; echo >job ;;
*delete*) rm job && echo >removed ;;
esac
"""


def test_the_jobs_of_a_keeper_that_was_killed_are_removed(spec: Spec, answer: Path) -> None:
    (answer.parent / "bin/kubectl").write_text(f"#!/bin/sh\necho $* >>'{answer}'\n")
    kept = _Keeper(spec, "x")
    kept._start()
    (killed := not_none(kept._process)).kill()
    killed.wait()
    assert not_none(kept.release()).wait(60) == 0
    assert " delete job " in answer.read_text()


def test_a_job_stays_in_the_context_and_namespace_of_its_start(answer: Path) -> None:
    answer.write_text("Using c.\narn:aws/my c team")
    assert kubectl.pinned(None, None) == ("arn:aws/my c", "team")
    assert kubectl.pinned("c", "other") == ("arn:aws/my c", "other")
    answer.unlink()  # in a pod
    assert kubectl.pinned(None, "n") == (None, "n")


def test_an_interrupted_submit(spec: Spec, answer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server may create it after Ctrl-C: what removes it waits for that."""
    folder, communicate = answer.parent, subprocess.Popen.communicate
    (folder / "bin/kubectl").write_text(SLOW.format(folder=folder))

    def interrupted(process: Any, *given: Any, **options: Any) -> Any:
        if not {"create", "-o"} <= {*process.args}:
            return communicate(process, *given, **options)
        wait_until((folder / "begun").exists)
        (folder / "go").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    monkeypatch.setattr(kubectl, "READ_SECONDS", 60.0)
    with pytest.raises(KeyboardInterrupt), submission._begun(spec, "x", print):
        pass
    assert (folder / "removed").exists()


def test_a_former_pod_is_not_that_of_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    _, former = _supervisor(RUNNING)
    former["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    answers = iter([[former], [former, *_supervisor(RUNNING)]])
    monkeypatch.setattr(batch_job, "objects", lambda _: {NAME: next(answers)})
    submission._wait_for_pod(BatchJob(id=NAME), 60.0, print)
    assert not [*answers]


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = job_folder.create(JobFolder(tmp_path / "jobs/x-aaaaaa"), b"")
    made.note_batch_job(BatchJob(id=NAME, namespace="n"))
    made.release_lock()
    return JobFolder(tmp_path / "jobs/x-aaaaaa")


def _refresh(folder: JobFolder, monkeypatch: pytest.MonkeyPatch, *python: str) -> None:
    """Refresh a folder from a pod in which a Python with these arguments answers."""
    monkeypatch.setattr(batch_job, "in_pod", lambda *given: [sys.executable, *python, *given[4:]])
    monkeypatch.setattr(batch_job, "_sources", {})
    batch_job.refresh(folder, folder.batch_job() or BatchJob(id=""))
    for each in batch_job._sources.values():
        if isinstance(each, batch_job._Source):
            each.close()


def _part(name: str, data: bytes = b"x", size: int | None = None, **changes: Any) -> bytes:
    header = {"name": name, "start": 0, "state": [1, len(data), 10**18], "more": False, **changes}
    return json.dumps([header, len(data) if size is None else size]).encode() + b"\n" + data


END = json.dumps([{"more": False, "ended": False}, 0]).encode() + b"\n"
NOT_OF_A_JOB = "spec.json ../x results/../../x results/\0 /etc/passwd other/x .new-x".split()
SENT = (
    *(_part(name) + END for name in (*job_folder.NOT_COPIED, *NOT_OF_A_JOB)),
    _part("logs/a", size=1 << 50), _part("logs/a", state=[1, 1, 2**100]) + END,
    b"[" * 100_000 + b"\n", b"x" * ((1 << 20) + (1 << 17)),
)  # fmt: skip


def test_a_copy_is_limited(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod is a stranger: it may not say where its job is, for example."""
    before = {each: each.read_bytes() for each in folder.path.rglob("*") if each.is_file()}
    gc.collect()  # else what other tests have left could be closed meanwhile
    opened = len(os.listdir("/proc/self/fd"))
    for sent in SENT:
        code = f"import os, sys\nfor _ in sys.stdin: os.write(1, {sent!r})"
        _refresh(folder, monkeypatch, "-I", "-S", "-c", code)
        files = (each for each in folder.path.rglob("*") if each.is_file())
        kept = {each: each.read_bytes() for each in files if each.name not in (".new-a", "a")}
        assert kept == before, sent[:200]
        assert len(os.listdir("/proc/self/fd")) == opened, sent[:200]


def test_a_copy_has_regular_files(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = folder.path.parent / "pod's files"
    (pod / "job/results/a").mkdir(parents=True)
    (pod / "job/logs").mkdir()
    name = os.fsdecode(b"results/a/\xff\n b")
    wanted = {"events.jsonl": b"{}\n", "logs/worker:0.log": b"line\n", name: b"\0" * (9 << 20)}
    for each, data in wanted.items():
        (pod / "job" / each).write_bytes(data)
    (pod / "job/results/link").symlink_to("/etc/passwd")
    os.mkfifo(pod / "job/results/fifo")
    (pod / "job/results/a/.1-2.distrun-part").write_text("half")
    (pod / "job/token").write_text("secret")
    program, (cut, *_) = in_pod.__file__, wanted
    sent = ("-I", "-S", program, "send", str(pod), str(pod / "job"))
    _refresh(folder, monkeypatch, *sent)
    (folder.path / cut).write_bytes(b"{}\nhalf")  # it was interrupted before its size was noted
    wanted[cut] = b"{}\n{}\n"
    (pod / "job" / cut).write_bytes(wanted[cut])
    (pod / "ended").touch()

    def refuse(_: BatchJob) -> None:
        raise SchedulerError("forbidden")

    commands: list[list[str]] = []  # without the right to delete the Job, its pod is to complete
    monkeypatch.setattr(batch_job, "cancel", refuse)
    monkeypatch.setattr(batch_job, "run", commands.append)
    _refresh(folder, monkeypatch, *sent)
    assert len(commands) == 1
    for each, data in wanted.items():
        assert (folder.path / each).read_bytes() == data
    assert sorted(os.listdir(folder.results)) == ["a"]
    assert len(os.listdir(folder.results / "a")) == 1
    assert "secret" not in (folder.path / "token").read_text()
    assert not_none(folder.batch_job()).is_released
    folder.note_batch_job(BatchJob(id=NAME, namespace="n", is_own=False))
    _refresh(folder, monkeypatch, *sent)
    assert len(commands) == 1, "another machine's Job is not deleted"


def test_a_pod_runs_once_it_has_an_address_until_it_is_known_to_have_ended() -> None:
    """The node of a pod may be cut off, and this machine's clock may be ahead."""
    waiting: list[Json] = [{"phase": "Pending"}, {"podIP": ""}, {"containerStatuses": []}]
    found = [pods.is_running({"status": {**RUNNING, **each}}) for each in ({}, *waiting)]
    assert found == [True, False, False, False]
    metadata = {"name": f"{NAME}-1", "deletionTimestamp": "2020-01-01T00:00:00Z"}
    pod = {"metadata": metadata, "status": RUNNING}
    assert (pods.is_over(pod), pods.has_ended(pod)) == (True, False)
    assert batch_job._entry(NAME, [{"kind": "Pod", **pod}]).is_active
    just_now = time.gmtime(time.time() - 3.0)
    metadata["deletionTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", just_now)
    assert not pods.is_over(pod), "its kubelet may need some seconds to say that it has ended"


@pytest.mark.parametrize(
    ("status", "exec_says", "said"),
    [
        ({"phase": "Pending"}, ":", "does not run yet"),
        (RUNNING, "echo error: upgrade failed >&2", "cannot be reached: error: upgrade failed"),
        (RUNNING, f"printf '{relay.MARK.decode()}no frame of ours'", "not a message of distrun"),
        (RUNNING, f"printf '{relay.MARK.decode()}'; echo shut down >&2", "was lost: shut down"),
        ({"phase": "Succeeded"}, "echo error: completed pod >&2", "is ending"),
    ],
)
def test_a_job_whose_supervisor_cannot_be_asked_is_not_said_to_have_ended(
    folder: JobFolder, answer: Path, status: Json, exec_says: str, said: str
) -> None:
    """`exec_says`: what kubectl does when it is asked for a relay to that pod."""
    answer.write_text(json.dumps({"items": _supervisor(status)}))
    is_relay = f'case "$*" in *connected*) {exec_says}; exit;; esac'
    (answer.parent / "bin/kubectl").write_text(f"#!/bin/sh\n{is_relay}\nexec cat '{answer}'\n")
    with pytest.raises(HostError, match=said):
        control.take_stacks(folder, None, [])
    with pytest.raises(HostError, match=said):  # by a key of `watch`, or a button of the live page
        control.stop(folder, order_of("distrun watch"))


@pytest.mark.parametrize(
    ("problem", "state", "is_active"),
    [(None, "", False), (None, "running", True), (None, "ended", False), ("late", "", True)],
)
def test_what_is_active(problem: str | None, state: str, is_active: bool) -> None:
    entry = QueueEntry(id=NAME, scheduler="Slurm", state=state, is_active=state == "running")
    known = None if problem is None else SchedulerError(problem)
    job = QueuedJob(state=JobState(), entry=entry if state else None, problem=known)
    assert job.is_active is is_active
    assert not replace(job, is_over=True).is_active


def test_a_job_whose_record_came_without_an_end_is_lost(
    folder: JobFolder, spec: Spec, answer: Path
) -> None:
    queued_job.record_queued(folder, spec, NAME, "Kubernetes")
    for items in ('{"items": []}', "no answer"):
        answer.write_text(items)
        assert read_job(folder).phase == "lost", "whether or not the cluster still answers"
    for own in (True, False):
        folder.resolved_spec_file.touch()
        folder.note_batch_job(BatchJob(id=NAME, namespace="n", is_released=True, is_own=own))
        job = read_job(folder)
        assert (job.phase, job.cause_word) == ("lost", "unknown_to_scheduler")
        assert (job.resume_command is not None) is own


@pytest.mark.parametrize(("says", "patience"), [("timeout", 300), ("(Unauthorized)", 60)])
def test_a_cluster_that_does_not_answer_for_a_moment_is_asked_again(
    folder: JobFolder, answer: Path, monkeypatch: pytest.MonkeyPatch, says: str, patience: int
) -> None:
    """A job may run for days: what counts is the last answer."""
    fails = f"[ -s '{answer}' ] && exec cat '{answer}'; echo 'error: {says}' >&2; exit 1"
    write_program(answer.parent / "bin/kubectl", f"#!/bin/sh\n{fails}\n")
    watched, clock = control.watch(folder), mock.Mock()
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(queued_job, "refresh", lambda *_: None)
    for at, answers in ((1e6, True), (2e6, True), (2e6 + patience - 10, False)):
        clock.return_value = at
        answer.write_text(json.dumps({"items": _supervisor(RUNNING)}) if answers else "")
        assert not watched.has_ended()
    clock.return_value = 2e6 + patience + 30
    with pytest.raises(SchedulerError):
        watched.has_ended()


def test_kill_takes_a_job_of_another_machine_only_by_name(
    folder: JobFolder, answer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer.write_text(json.dumps({"items": _supervisor(RUNNING)}))
    store = JobStore(folder.path.parents[1])

    def chosen(*jobs: str, everything: bool = False) -> list[str]:
        return [each.job_id for each in kill._chosen(store, jobs, everything=everything)]

    assert chosen() == chosen(everything=True) == [folder.job_id]
    folder.note_batch_job(BatchJob(id=NAME, namespace="n", is_own=False))
    assert chosen(everything=True) == []
    assert f"; to stop them: distrun kill {folder.job_id}" in capsys.readouterr().err
    for asked in (chosen, lambda: resume._queue_again(folder, (), None)):
        with pytest.raises(UsageError, match="submitted from another machine"):
            asked()
    assert chosen(folder.job_id) == [folder.job_id]


def test_results_left_out_are_not_told(folder: JobFolder, spec: Spec, tmp_path: Path) -> None:
    folder.results.mkdir()
    target = tmp_path / "target"
    (target / "taken").mkdir(parents=True)
    for name in ("taken", "same", "new"):
        (folder.results / name).write_text(name)
    shutil.copy2(folder.results / "same", target / "same")
    fetch = KeptFetch(
        *(folder, spec, [], str(target)), may_replace=lambda _: False, on_progress=lambda *_: None
    )
    found = fetch.run()
    assert [each.path for each in found.files] == ["new", "same"]
    assert found.new == {"new"}
    assert [path for _, path, _ in found.left_out] == ["taken"]


def test_why_a_pod_takes_no_files_is_told(
    folder: JobFolder, spec: Spec, answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends before it has read them. If the connection is lost, kubectl may exit 0."""
    server = "the pod cannot ask the API server: "
    for said, code, hint in (
        ("it cannot write to the volume: [Errno 13]", 1, "fsGroup"),
        ("it cannot write to the volume: [Errno 28] No space left on device", 1, "make room"),
        (f"{server}dial tcp 10.0.0.1:443: i/o timeout", 1, "network policies"),
        (f"{server}internal error, please report", 1, "not snap"),
        ("", 0, "None"),
    ):
        words = said or "connection"
        (answer.parent / "bin/kubectl").write_text(f"#!/bin/sh\necho '{said}' >&2; exit {code}\n")
        with pytest.raises(SchedulerError, match=re.escape(words)) as raised:
            submission._fill(folder, spec, BatchJob(id=NAME, namespace="n"), None)
        assert hint in str(raised.value.hint)
    monkeypatch.setattr(sys, "stdin", mock.Mock(buffer=io.BytesIO(b"files")))
    with mock.patch("tarfile.open", side_effect=OSError(errno.ENOSPC, "No space left")):
        assert in_pod.unpack(str(answer.parent / "new")) == in_pod.EXIT_UNFIT
    assert not (answer.parent / "new").exists()
    sys.stdin.buffer.seek(0)
    monkeypatch.setattr(in_pod, "OLDEST", (9, 9))
    assert in_pod.unpack("/x") == in_pod.EXIT_UNFIT
    assert not sys.stdin.buffer.read(), "kubectl would wait for it for ever"


@pytest.mark.parametrize(("asked", "status"), [(signal.SIGUSR1, 0), (signal.SIGTERM, 143)])
def test_a_supervisor_is_asked_to_stop(asked: int, status: int, tmp_path: Path) -> None:
    """By `kill` or by Kubernetes, which has then another pod continue it, on the same volume."""
    (tmp_path / "home/jobs/x").mkdir(parents=True)
    (tmp_path / "ready").write_text("uid")
    script = f"cd '{tmp_path}'; trap 'kill $!; exit' TERM; sleep 60 & echo >begun; wait"
    command = [sys.executable, guard.__file__, "9", str(tmp_path), "0", "sh", "-c", script, "x"]
    with subprocess.Popen(command, env={**os.environ, "DISTRUN_JOB_UID": "uid"}) as process:
        wait_until((tmp_path / "begun").exists)
        process.send_signal(asked)
    assert process.returncode == status
    assert (tmp_path / "ended").exists() == (status == 0)


# Pods ---------------------------------------------------------------------------------------------


def pod(state: Json | None = None, *, deleted: bool = False, **status: Any) -> Json:
    metadata = {"name": "p", **({"deletionTimestamp": "2999-01-01T00:00:00Z"} if deleted else {})}
    own = [] if state is None else [{"name": "distrun", "image": "i:1", "state": state}]
    return {"metadata": metadata, "status": {"containerStatuses": own, **status}}


def target(reason: str, message: str) -> list[Json]:
    return [
        {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message},
        {"type": "Ready", "status": "False"},
    ]


ALIVE: Json = {"running": {}}


def _keeper(job: Json, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Keeper:
    monkeypatch.setattr(keeper, "Loop", mock.Mock())
    given = {"kubectl": [], "jobs": [job], "needs": [], "start": None, "lease": 9, **settings}
    return Keeper(mock.Mock(), given)


# A pod in which only another container runs has not completed.
@pytest.mark.parametrize(
    ("succeeded", "others"), [(1, {}), (0, {"q": pod({"terminated": {}}, phase="Running")})]
)
def test_a_completed_pod(succeeded: int, others: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes replaces no such pod. The other host has its pod still."""
    created: list[Json] = []

    def run(command: list[str], given: str = "") -> str:
        created.extend([json.loads(given)] if given else [])
        return json.dumps({"spec": {"parallelism": 2}, "status": {"succeeded": succeeded}})

    monkeypatch.setattr(kubectl, "run", run)
    job = {"metadata": {"name": "j"}, "spec": {"parallelism": 2, "completions": 2}}
    kept = _keeper(job, monkeypatch, adopts=True)
    kept._pods = {"p": {"metadata": {"name": "p"}, "status": RUNNING}, **others}
    kept._of_host = {"h1": "p"}
    kept._create_missing("", ["h2"])
    assert created == [{"metadata": {"name": "j-2"}, "spec": {"parallelism": 1, "completions": 1}}]


def test_why_no_pods_come_is_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"name": "j", "labels": {pods.QUEUE: "q"}}
    job: Json = {"metadata": metadata, "spec": {"parallelism": 2}}
    kept, told = _keeper(job, monkeypatch, adopts=True), mock.Mock()
    monkeypatch.setattr(keeper, "_reply", lambda *words: told(words[0].host, words[2].code))
    job["items"] = [{"metadata": {}, "reason": "FailedMount", "message": "no such volume"}]
    monkeypatch.setattr(kubectl, "run", lambda *_, **__: json.dumps(job))
    left = {"p": pod(conditions=[{"type": "PodScheduled", "status": "False"}])}
    waits, runs = {"p": pod(phase="Pending")}, {"p": pod(ALIVE, phase="Running", podIP="10.0.0.1")}
    init = [{"name": "i", "state": {"terminated": {"exitCode": 3, "message": "no bucket"}}}]
    fails = {**waits, "q": pod(initContainerStatuses=init)}
    states: Any = [(1, {}), (1, {}), (0, {}), (0, left), (0, left), (0, waits), (0, waits)]
    kept._of_host = {"h0": "p"}
    kept._loop.now.return_value = 0.0  # type: ignore[attr-defined]
    for suspend, kept._pods in [*states, (0, fails), (0, runs), (1, {}), (None, {})]:
        job["spec"]["suspend"] = suspend
        if suspend is None:
            gone = CauseError(kubectl.failure(1, 'namespaces "n" not found'))
            monkeypatch.setattr(kubectl, "run", mock.Mock(side_effect=gone))
        kept._requests = [keeper._Request(each, "", "", -1) for each in ("h1", "h2")]
        kept._look_for_pods()
    assert "not found" in not_none(kept._refusal).text  # what the job ends with
    codes = (
        *(Code.POD_QUEUED, Code.POD_NOT_CREATED, Code.POD_UNSCHEDULABLE, Code.POD_PENDING),
        *(Code.POD_PENDING, Code.POD_NOT_CREATED, Code.POD_QUEUED, Code.POD_NOT_CREATED),
    )
    assert [each.args for each in told.mock_calls] == [(h, c) for c in codes for h in ("h1", "h2")]
    monkeypatch.setattr(keeper, "_reply", lambda *words: told(is_awaited(words[2])))
    kept._requests, kept._told = [keeper._Request("h1", "", "", -1)], {}
    kept._tell("", ["h1"], Cause(Code.POD_NOT_CREATED, text="maximum cpu usage per Pod is 1"))
    told.assert_called_with(False)


@pytest.mark.parametrize("adopts", [True, False])
def test_pods_are_watched_at_once(adopts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a supervisor that was resumed are there already, and deleted at its end."""
    kept, remove = _keeper({}, monkeypatch, adopts=adopts), mock.Mock()
    monkeypatch.setattr(kept, "_remove", remove)
    monkeypatch.setattr(kept, "_next_watch", watch := mock.Mock())
    kept._loop.turn.side_effect = lambda: kept._on_signals(b"\x0f")  # type: ignore[attr-defined]
    kept.run()
    assert (bool(watch.mock_calls), bool(remove.mock_calls)) == (adopts, adopts)


def test_pods_of_an_earlier_supervisor_are_gone_before_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, kept = mock.Mock(), _keeper({}, monkeypatch, adopts=False)
    asked = json.dumps({"host": "h1", "shape": "", "pod": "p", "former": True}).encode()
    monkeypatch.setattr(socket, "recv_fds", lambda *_: (asked, [-1], 0, None))
    monkeypatch.setattr(kept, "_remove", done.remove)
    monkeypatch.setattr(keeper, "_reply", done.reply)
    kept._on_request()
    assert [each[0] for each in done.mock_calls] == ["remove", "reply"]


def test_a_failed_creation_is_not_tried_for_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take half a minute each time, for which a job could not end."""
    run = mock.Mock(side_effect=CauseError(kubectl.failure(1, "")))
    monkeypatch.setattr(kubectl, "run", run)
    kept = _keeper({}, monkeypatch, adopts=False)
    for _ in range(2):
        with pytest.raises(CauseError):
            kept._create(0.0)
    run.assert_called_once()
    missing = CauseError(kubectl.failure(1, 'Error from server (NotFound): secrets "a" not found'))
    run.side_effect = [CauseError(kubectl.failure(1, "pvc is forbidden")), missing]
    with pytest.raises(CauseError):  # and nothing is created
        _keeper({}, monkeypatch, adopts=False, needs=["pvc/a", "secret/a"])._create(0.0)
    # A submitted job waits for an API server that is away.
    monkeypatch.setenv("DISTRUN_SUBMITTED", "j")
    away = CauseError(kubectl.failure(1, "connection refused"))
    monkeypatch.setattr(kubectl, "run", mock.Mock(side_effect=[away, ""]))
    monkeypatch.setattr(keeper, "_EVENTS_SECONDS", 0.0)
    kept._create(time.monotonic())
    assert kept._is_created


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        ('Error from server (NotFound): pods "p" not found', Code.POD_DELETED, ""),
        ("Unable to connect to the server: timeout", None, ""),
        (pod(ALIVE, deleted=True), Code.POD_DELETED, ""), (pod(ALIVE, phase="Running"), None, ""),
        ({"metadata": {"labels": {"job-name": "j"}, "deletionTimestamp": "2999"}}, Code.POD_ENDED,
         "somebody deleted the Job j"),
        # A scheduler's preemption, a drain and a taint, from 1.26 on.
        (pod(ALIVE, conditions=target("PreemptionByScheduler", "preempting to accommodate a "
             "higher priority pod")), Code.POD_PREEMPTED, "PreemptionByScheduler: preempting to"),
        (pod(ALIVE, deleted=True, conditions=target("DeletionByTaintManager", "Taint manager: "
             "deleting due to NoExecute taint")), Code.POD_PREEMPTED, "DeletionByTaintManager"),
        # The kubelet's eviction: for the node's lack of memory, or for what the pod itself used.
        (pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory. "
             "Container task was using 9Gi, which exceeds its request of 1Gi."),
         Code.POD_PREEMPTED, "Evicted: The node was low on resource: memory"),
        (pod(phase="Failed", reason="Evicted", message="Pod ephemeral local storage usage exceeds "
             "the total limit of containers 1Gi."), Code.POD_ENDED, "Evicted: Pod ephemeral"),
        (pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, phase="Failed"),
         Code.POD_OUT_OF_MEMORY, ""),
    ],
)  # fmt: skip
def test_why_a_pod_ends_is_told(
    found: Json | str, code: Code | None, words: str, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`found`: what kubectl prints of it, or why it prints nothing."""
    answer = CauseError(kubectl.failure(1, found)) if isinstance(found, str) else json.dumps(found)
    monkeypatch.setattr(kubectl, "run", mock.Mock(side_effect=[answer, ""]))
    reach = KubernetesReach(HostSpec(name="h"), spec, "p")
    cause = not_none(reach.question(mock.Mock(), Cause(Code.AGENT_TERMINATED))).ask()
    assert (None if cause is None else cause.code) == code
    assert cause is None or words in cause.text


NO_NODE = "0/12 nodes are available: 12 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("found", "code", "words", "is_final"),
    [
        (pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False",
             "reason": "Unschedulable", "message": NO_NODE}]), Code.POD_UNSCHEDULABLE, NO_NODE,
         False),
        (pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}),
         Code.POD_IMAGE_MISSING, "Back-off pulling image", True),
        (pod({"waiting": {"reason": "ErrImagePull"}}), Code.POD_IMAGE_MISSING, "ErrImage", False),
        (pod(phase="Pending", initContainerStatuses=[{"name": "i", "state": ALIVE}]),
         Code.POD_PENDING, "its init container i runs", False),
        (pod(phase="Failed", initContainerStatuses=[{"name": "i", "state": {"terminated": {
             "exitCode": 3, "reason": "Crash", "message": "Error on reading termination message "
             "from logs: no such file"}}}]), Code.POD_NOT_STARTED, "i exited with 3: Crash", False),
        (pod({"terminated": {"exitCode": 128, "reason": "StartError", "message": 'exec: "python3"'
             ": executable file not found in $PATH"}}), Code.POD_NOT_STARTED, "python3", True),
    ],
)  # fmt: skip
def test_why_a_pod_does_not_run(found: Json, code: Code, words: str, is_final: bool) -> None:
    cause, found_final = pods.obstacle(found)
    assert (cause.code, found_final) == (code, is_final)
    assert words in cause.text


def test_a_kubelet_says_why_a_pod_with_a_node_does_not_run(answer: Path) -> None:
    """The pod is gone when somebody reads that it is pending, and its events stay."""
    events = [
        {"reason": "FailedMount", "message": 'configmap "a" not found'},
        {"reason": "MissingClusterDNS", "message": "kubelet does not have ClusterDNS"},
        {"reason": "FailedScheduling", "message": "0/2 nodes are available"},  # before
    ]
    answer.write_text(json.dumps({"items": [{"metadata": {}, **each} for each in events]}))
    pending, _ = pods.obstacle(pod({"waiting": {"reason": "ContainerCreating"}}, phase="Pending"))
    assert keeper.explained(["kubectl"], pending).text == 'configmap "a" not found'
    # As Kueue does, also to Jobs without a queue: those would wait for ever.
    for queue, code in (("q", Code.POD_QUEUED), ("", Code.POD_NOT_CREATED)):
        labels = {"metadata": {"labels": {pods.QUEUE: queue}}, "spec": {"suspend": True}}
        answer.write_text(json.dumps(labels))
        assert (cause := keeper.why_no_pods(["kubectl"], "j")).code is code
    assert "kubernetes.queue" in str(cause_advice(cause))


def test_a_watch_that_hangs_is_replaced(answer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [{"metadata": {"name": name}, "status": RUNNING} for name in ("p", "q")]
    found = json.dumps({"items": listed, "spec": {"parallelism": 2}})
    answer.write_text(f'Using c.\n{found}\n{{"type": "ADDED"}}')  # a wrapper says so
    kept = _keeper({"metadata": {"name": "j"}}, monkeypatch, adopts=True, kubectl=["kubectl"])
    kept._loop.now.return_value = 0.0  # type: ignore[attr-defined]
    hanging = kept._watch = mock.Mock(begun=time.monotonic() - 60)
    kept._requests = [keeper._Request("h1", "", "", -1)]
    kept._look_for_pods()
    hanging.close.assert_called_once()
    assert kept._pods.keys() == {"p", "q"}
    wait_until(lambda: ("ADDED", {}) in not_none(kept._watch).read())
    not_none(kept._watch).close()
    # Deleted by force, its node may still run it: nothing is to be started instead.
    kept._watch = mock.Mock(ended=False, **{"read.return_value": [("DELETED", listed[0])]})
    kept._read_watch()
    assert not kept._answer(keeper._Request("h1", "", "p", -1))
    kept._pods = {"r": pod(ALIVE, deleted=True, phase="Running", podIP="10.0.0.1")}
    said = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    kept._pods["s"] = pod(ALIVE, phase="Running", podIP="10.0.0.1", conditions=said)
    assert not kept._answer(keeper._Request("h1", "", "", -1)), "about to be deleted, and cut off"


@pytest.mark.parametrize(
    ("said", "advice"),
    read_table(Path(__file__).with_name("kubernetes_refusals.txt"), "refusals").items(),
)
def test_the_advice_is_about_what_kubernetes_refuses(said: str, advice: str) -> None:
    for code in (Code.KUBECTL_FAILED, Code.POD_NOT_CREATED):
        assert advice in str(cause_advice(Cause(code, text=said)))


def test_plan_asks_a_cluster(spec: Spec, answer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows the manifest without a cluster, too."""
    program = write_program(answer.parent / "bin/kubectl", "#!/bin/sh\necho down >&2; exit 1\n")
    assert show_plan(spec, (), as_json=False) == 0
    assert "the cluster was not asked: kubectl exited 1: down" in capsys.readouterr().err
    for said in ("unknown field", "namespaces n not found", "getting credentials"):
        write_program(program, f"#!/bin/sh\necho {said} >&2; exit 1\n")
        with pytest.raises(HostError, match=said):
            show_plan(spec, (), as_json=True)


def test_a_pod_that_is_lost_before_the_start_is_not_said_to_be_replaced() -> None:
    """With `restart`, it is not either."""
    lost = Cause(Code.POD_DELETED, name="p")
    unusable = [Cause(Code.HOST_UNUSABLE, host=f"pod{n}", within=(lost,)) for n in (1, 2, 3)]
    assert cause_advice(unusable[0]) == "start it again"
    said = cause_text(Cause(Code.HOSTS_UNUSABLE, count=4, within=tuple(unusable)))
    assert said == "3 of 4 hosts cannot be used\n  pod[1-3]: the pod p was deleted"
    ended = Cause(Code.POD_ENDED, name="p", text="Evicted: usage exceeds 1Gi")
    gone = Cause(Code.AGENT_GONE, within=(ended,))
    assert cause_text(gone) == "its agent is gone; pod p has ended: Evicted: usage exceeds 1Gi"
    assert "raise the limit" in str(cause_advice(gone))


OTHERS: Json = {
    "volumes": [
        {"name": "distrun-shm", "hostPath": {"path": "/dev/shm"}},
        {"name": "a", "persistentVolumeClaim": {"claimName": "v"}},
        {"name": "b", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}},
        {"name": "c", "secret": {"secretName": "optional", "optional": True}},
        {"name": "d", "secret": {"secretName": "without a mount"}},
    ],
    "containers": [{"env": [{"name": "XDG_STATE_HOME", "valueFrom": {"fieldRef": {}}}],
        "volumeMounts": [{"name": each, "mountPath": f"/{each}"} for each in "abc"],
        "envFrom": [{"configMapRef": {"name": "c"}}]}],
    "priorityClassName": "p",
    "tolerations": [{"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 300}],
}  # fmt: skip
OWN_PODS: Json = {
    "name": "job", "strategy": "parameter_server",
    "cluster": {
        "chief": 1, "worker": {"count": 2, "pod": {"spec": {"nodeSelector": {"pool": "gpu"}}}},
        "ps": {"count": 1, "pod": {"spec": {"nodeSelector": {"secret": "big"}, **OTHERS}}},
        "evaluator": 1,
    },
    "hosts": "kubernetes",
    "kubernetes": {"image": "i:1", "pod": {"spec": {"nodeSelector": {"zone": "a"}}}},
    "program": {"command": ["true"], "sync": "off", "workdir": "/"}, "restart": {"max": 1},
}  # fmt: skip


def test_a_role_may_have_pods_of_its_own() -> None:
    """There is a Job for each shape; tasks run in the pods of their role, also after a loss."""
    spec = load_mapping(OWN_PODS)
    placed = place(spec)
    hosts = {each.name: each.host.name for each in placed}
    assert hosts == {
        "chief:0": "pod4", "worker:0": "pod1", "worker:1": "pod2", "ps:0": "pod3",
        "evaluator:0": "pod4",
    }  # fmt: skip
    jobs = manifest.make(spec, "job-abc")
    shapes = [
        (each["spec"]["parallelism"], each["spec"]["template"]["spec"]["nodeSelector"])
        for each in jobs
    ]
    assert shapes == [(2, {"zone": "a", "pool": "gpu"}), (1, {"zone": "a", "secret": "big"}),
                      (1, {"zone": "a"})]  # fmt: skip
    assert len({pods.name_of(each) for each in jobs}) == 3
    assert manifest.references(*jobs) == ["configmap/c", "priorityclass/p", "pvc/v", "secret/s k"]
    own = jobs[1]["spec"]["template"]["spec"]
    assert OTHERS["volumes"][0] in own["volumes"]
    assert own["containers"][0]["env"] == OTHERS["containers"][0]["env"]
    assert [each["tolerationSeconds"] for each in own["tolerations"]] == [300, 10]
    names = [each.name for each in placed]
    again = not_none(place_again(spec, placed, names, {**room_of_hosts(spec), "pod4": 9}))
    assert {each.name: each.host.name for each in again} == hosts


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        ({"metadata": 1}, "metadata must be a mapping"),
        ({"spec": []}, "spec must be a mapping, not a list"),
        ({"spec": {"volumes": {"a": 1}}}, "spec.volumes must be a list, not a mapping"),
        ({"spec": {"initContainers": {}}}, "spec.initContainers must be a list"),
        ({"spec": {"containers": ["c"]}}, r"spec.containers\[0\] must be a mapping"),
        ({"spec": {"terminationGracePeriodSeconds": "5"}}, "must be a whole number"),
        ({"spec": {"containers": [{"args": ["a"]}]}}, "distrun has its own args"),
        ({"spec": {"containers": [{"name": "tensorflow"}]}}, "container tensorflow has no image"),
        ({"spec": {"containers": [{"env": [{"name": "A", "value": 3}]}]}}, "value must be a text"),
        ({"spec": {"hostPID": True}}, "spec.hostPID: distrun ends all processes of its pods"),
        ({"spec": {"restartPolicy": "OnFailure"}}, "spec.restartPolicy: it is Never"),
    ],
)
def test_an_overlay_has_the_types_of_a_template(overlay: Json, said: str) -> None:
    with pytest.raises(InvalidSpecError, match=said):
        load_mapping({**OWN_PODS, "kubernetes": {"image": "i:1", "pod": overlay}})

"""Leaves a job to Kubernetes: its supervisor runs in a pod, with all that it needs.

The pod is given distrun, what distrun imports, this machine's kubectl and py-spy, the program's
files and the job's folder, as one archive. So its image needs only a python3.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import json
import math
import os
import re
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from distrun.codec import encode
from distrun.errors import UsageError
from distrun.frozen import replace
from distrun.job import folder as job_folder
from distrun.job import py_spy, queued_job
from distrun.job.folder import NOT_COPIED, BatchJob, JobFolder, JobStore
from distrun.job.scheduler import SchedulerError
from distrun.kubernetes import batch_job, in_pod, keeper, kubectl, manifest, pods
from distrun.spec.model import ProgramSpec, Spec
from distrun.sync.manifest import Manifest
from distrun.words.causes import cause_text
from distrun.words.formats import one_line

PACKAGES = ("click", "yaml", "rich")
"""What distrun imports in the pod, each in pure Python."""
_POLL_SECONDS = 0.3
_UNLESS_TOLD = 'read -r word || exec "$@" >/dev/null 2>&1'
"""A shell that runs a command once its standard input ends without a line."""
_TO_ITS_END = 'exec 3<&0; "$@" <&3 3<&- & exec 3<&-; wait "$!"'
"""A shell whose command goes on if it is killed."""
_HINTS = {
    "service account": "its rights are in docs/kubernetes.md; it is kubernetes.service_account",
    "No space|quota exceeded": "make room there, or name another `kubernetes.volume_claim`",
    "to the volume": "set `fsGroup` in kubernetes.pod.spec.securityContext, or the volume's owner",
    "not answered|dial tcp|timeout": """docs/kubernetes.md has the network policies that it needs;
        or it has too little memory""",
    "API server|kubectl": """it gets the kubectl that is first in PATH here: that must be the
        program itself, no script, and not snap's""",
    " resource ": "docs/kubernetes.md has a Role with all rights",
}
"""What to do, by why a supervisor cannot run in a pod. The first one counts."""


def require_submittable(spec: Spec) -> None:
    """Raise UsageError if anything of a job needs this machine."""
    programs = [spec.program, *(each.program for each in spec.roles if each.program is not None)]
    variables = sorted({name for each in programs for name in each.pass_env})
    if variables:
        raise UsageError(
            f"program.pass_env takes {', '.join(variables)} from this shell, which a submitted job "
            "does not have",
            hint="keep it in a Secret, and name that in kubernetes.pod (env, valueFrom)",
        )


def submit(
    store: JobStore, spec: Spec, files: Manifest | None, say: Callable[[str], None]
) -> JobFolder:
    """Make a job, and have its supervisor started in a pod. `say` is told what is waited for.

    Raises SchedulerError, and leaves nothing of the job; or OSError.
    """
    folder = store.new_folder(spec.name)
    with _begun(spec, folder.job_id, say) as batch:
        created = job_folder.create(folder, spec.source.encode("utf-8", "surrogateescape"))
        try:
            _fill(created, spec, batch, files)
        except BaseException:
            created.remove()
            raise
    created.release_lock()
    return folder


def resubmit(
    folder: JobFolder, spec: Spec, files: Manifest | None, say: Callable[[str], None]
) -> None:
    """Continue a submitted job that has ended, in a new pod.

    Raises UsageError: it has not ended; and SchedulerError.
    """
    found = queued_job.look(folder, asks=True)
    if found.problem is not None:
        raise found.problem
    if found.is_active:
        raise UsageError(
            f"job {folder.job_id} is held by Kubernetes, or runs",
            hint=f"to follow it: distrun logs -f {folder.job_id}",
        )
    with folder.locked():
        folder.stop_file.unlink(missing_ok=True)
        with _begun(spec, folder.job_id, say) as batch:
            _fill(folder, spec, batch, files)


@contextlib.contextmanager
def _begun(spec: Spec, job_id: str, say: Callable[[str], None]) -> Iterator[BatchJob]:
    """Create the Job, and yield once its pod runs. However that ends early, the Job is deleted."""
    settings = spec.kubernetes
    assert settings is not None  # noqa: S101 - only such jobs come here
    context, namespace = kubectl.pinned(settings.context, settings.namespace)
    has_claim = settings.volume_claim is not None
    name = manifest.job_name(job_id)
    wanted = BatchJob(id=name, context=context or "", namespace=namespace or "", requeues=has_claim)
    given = batch_job.words(wanted)
    supervisor, tasks = manifest.make_supervisor(spec, job_id, name), manifest.make(spec, job_id)
    # The tasks' Jobs are refused now, if they are to be refused.
    batch_job.run([*given, "create", "--dry-run=server", "-f", "-"], pods.as_list(tasks))
    needs = manifest.references(supervisor, *tasks)
    batch_job.run(given, needs, read=kubectl.require)
    removal = [*given, "delete", "job", wanted.id, "--ignore-not-found", "--wait=false"]
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _UNLESS_TOLD, "sh", *removal],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert guard.stdin is not None  # noqa: S101 - it was asked for
    try:
        # What guards it learns of an end once this has ended: until then, it may be created.
        create = ["/bin/sh", "-c", _TO_ITS_END, "sh", *given, "create", "-o", "json", "-f", "-"]
        kept = {"pass_fds": [guard.stdin.fileno()], "start_new_session": True}
        made = kubectl.parsed(batch_job.run(create, json.dumps(supervisor), **kept))
        batch = replace(wanted, namespace=made["metadata"]["namespace"])
        _wait_for_pod(batch, spec.timeouts.start, say)
        yield batch
        guard.stdin.write(b"done\n")
    finally:
        guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a kubectl may hang; it goes on
            guard.wait(kubectl.READ_SECONDS)


def _wait_for_pod(batch: BatchJob, seconds: float | None, say: Callable[[str], None]) -> None:
    due = math.inf if seconds is None else time.monotonic() + seconds
    told = time.monotonic() + 2
    while True:
        items = batch_job.objects(batch).get(batch.id, [])
        # The pod of a former supervisor, which has the same labels, may still be ending.
        found = [each for each in items if each["kind"] == "Pod" and not pods.is_ending(each)]
        if any(map(pods.is_running, found)):
            return
        causes = [pods.obstacle(each) for each in found]
        final = [cause for cause, is_final in causes if is_final]
        if final:
            raise SchedulerError(cause=final[0])
        if (now := time.monotonic()) > min(due, told):
            words = batch_job.words(batch)
            why = causes[0][0] if causes else keeper.why_no_pods(words, batch.id)
            why = keeper.explained(words, why)
            is_final = "service account" in why.text or keeper.FOR_GOOD.search(why.text)
            if now > due or is_final:  # nobody changes that meanwhile
                raise SchedulerError(cause=why)
            told = math.inf
            say(f"waiting for the pod of its supervisor: {cause_text(why)}")
        time.sleep(_POLL_SECONDS)


def _fill(folder: JobFolder, spec: Spec, batch: BatchJob, files: Manifest | None) -> None:
    """Send the pod what it needs, and have it start the supervisor."""
    job_folder.replace_file(folder.resolved_spec_file, encode(spec))
    queued_job.record_queued(folder, spec, batch.id, batch_job.NAME)
    folder.mirror_file.unlink(missing_ok=True)
    folder.note_batch_job(batch)
    base = manifest.base_of(folder.job_id)
    with subprocess.Popen(
        batch_job.in_pod(batch, "unpack", base),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018
        with (
            contextlib.suppress(BrokenPipeError),
            process.stdin,
            gzip.GzipFile(fileobj=process.stdin, mode="wb", compresslevel=1) as packed,
            tarfile.open(fileobj=packed, mode="w|", dereference=True) as archive,
        ):
            _write(archive, folder, _in_pod(spec, f"{base}/files", batch.namespace), files)
        said = process.stderr.read().decode("utf-8", "replace")
        is_ready = in_pod.READY in process.stdout.read().decode("utf-8", "replace")
    if not is_ready:
        lines = [each for each in said.splitlines() if "command terminated" not in each]
        words = kubectl.last_words("\n".join(lines)) or "the connection to it ended"
        hint = next((hint for said, hint in _HINTS.items() if re.search(said, words)), "")
        why = f"the supervisor cannot run in a pod: {words}"
        raise SchedulerError(why, hint=one_line(hint) or None)


def _write(archive: tarfile.TarFile, folder: JobFolder, spec: Spec, files: Manifest | None) -> None:
    """Write what a supervisor needs. Raises OSError."""
    for name in ("distrun", *PACKAGES):
        found = importlib.util.find_spec(name)
        places = () if found is None else found.submodule_search_locations or ()
        for place in places:
            for path in sorted(Path(place).rglob("*")):
                if path.suffix not in (".pyc", ".so") and path.is_file():
                    inside = str(path.relative_to(Path(place).parent))
                    archive.add(str(path), f"package/{inside}")
    archive.add(os.path.realpath(kubectl.words("", "")[0]), "bin/kubectl")
    program = py_spy.find()
    if program is not None:
        archive.add(program, f"bin/{py_spy.NAME}")
    if files is not None:
        _write_files(archive, files)
    inside = f"home/jobs/{folder.job_id}"
    for path in sorted(folder.supervisor_log.parent.rglob("*")):
        name = str(path.relative_to(folder.supervisor_log.parent))
        if path.is_file() and name not in (*NOT_COPIED, folder.resolved_spec_file.name):
            archive.add(str(path), f"{inside}/{name}")
    resolved = encode(spec).encode()
    _add(archive, f"{inside}/{folder.resolved_spec_file.name}", resolved)
    _add(archive, f"{inside}/logs", None)


def _write_files(archive: tarfile.TarFile, files: Manifest) -> None:
    for each in files.files:
        if os.path.basename(each.path) != ".gitignore":  # what is left out was decided here
            archive.add(os.path.join(files.base, each.path), f"files/{each.path}")
    for link in files.links:
        info = tarfile.TarInfo(f"files/{link.path}")
        info.type, info.linkname = tarfile.SYMTYPE, link.target
        archive.addfile(info)
    for name in ("", *files.folders):
        _add(archive, f"files/{name}", None)


def _add(archive: tarfile.TarFile, name: str, data: bytes | None) -> None:
    info = tarfile.TarInfo(name)
    info.mtime = int(time.time())
    if data is None:
        info.type, info.mode = tarfile.DIRTYPE, 0o700
    else:
        info.size, info.mode = len(data), 0o600
    archive.addfile(info, io.BytesIO(data or b""))


# The spec in the pod -----------------------------------------------------------------------


def _in_pod(spec: Spec, base: str, namespace: str) -> Spec:
    """Return a spec as the supervisor in a pod has it: its files are in `base` there."""
    settings = spec.kubernetes
    assert settings is not None  # noqa: S101 - only such jobs come here
    old = spec.program.sync_base
    moved = partial(_moved, old, base)
    roles = tuple(
        each if each.program is None else replace(each, program=_program(each.program, moved))
        for each in spec.roles
    )
    tensorboard = spec.tensorboard
    return replace(
        spec,
        program=_program(spec.program, moved),
        roles=roles,
        kubernetes=replace(settings, context=None, namespace=namespace),
        tensorboard=tensorboard and replace(tensorboard, logdir=moved(tensorboard.logdir)),
    )


def _program(program: ProgramSpec, moved: Callable[[str], str]) -> ProgramSpec:
    return replace(
        program,
        target=moved(program.target),
        argv=tuple(map(moved, program.argv[:1])) + program.argv[1:],
        workdir=moved(program.workdir),
        sync_paths=tuple(map(moved, program.sync_paths)),
        sync_base=moved(program.sync_base),
    )


def _moved(old: str, new: str, path: str) -> str:
    old = old.rstrip("/")
    if old and path.rstrip("/") == old:
        return new
    return new + path[len(old) :] if old and path.startswith(f"{old}/") else path

"""What `kubectl exec` runs in the pod of a submitted job's supervisor: `in_pod.py WHAT BASE ...`.

It is sent as text, and needs only the standard library of Python 3.8.
"""

# ruff: noqa: T201 - it has no other way to speak

from __future__ import annotations

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MOST_BYTES = 1 << 22
"""Of one file at a time."""
MOST_SENT = 1 << 26
"""In one answer, and a part of a file more."""
PART = ".distrun-part"
"""The end of the names of files that have not all come from their pods."""
OLDEST = (3, 10)
RIGHTS = (
    *("create jobs", "get jobs", "delete jobs", "get pods", "list pods", "watch pods"),
    *("create pods/exec", "get pods/exec"),
)
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes puts what a pod's service account needs."""
EXIT_UNFIT = 65
READY = "ready"


def unpack(base: str) -> int:
    """Unpack what a supervisor needs, and start it; or print what the pod lacks."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        wanted = ".".join(map(str, OLDEST))
        return unfit("its python3 is " + found + ", and the supervisor needs " + wanted)
    is_new = not os.path.isdir(base)
    try:
        extract(base)
    except OSError as error:
        if is_new:
            shutil.rmtree(base, ignore_errors=True)
        return unfit("it cannot write to the volume: " + str(error))
    lacking = lacking_rights(os.path.join(base, "bin", "kubectl"))
    if lacking:
        return unfit(lacking)
    with open(base + "/ready", "w") as file:
        file.write(os.environ["DISTRUN_JOB_UID"])
    print(READY)
    return 0


def extract(base: str) -> None:
    os.makedirs(base, 0o700, exist_ok=True)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as archive:
        if hasattr(tarfile, "fully_trusted_filter"):
            archive.extraction_filter = tarfile.fully_trusted_filter
        # The record on a volume is newer than the copy of it.
        kept = os.path.join(base, "home")
        is_kept = os.path.isdir(kept)
        for each in archive:
            if is_kept and each.name.startswith("home/") and not each.name.endswith("spec.json"):
                continue
            each.uid, each.gid, each.uname, each.gname = os.geteuid(), os.getegid(), "", ""
            archive.extract(each, base)
    for name in glob.glob(glob.escape(kept) + "/jobs/*/stop.json"):
        os.unlink(name)


def unfit(why: str) -> int:
    """Print what the pod lacks, and read the rest: kubectl waits for ever for one who does not."""
    print(why, file=sys.stderr)
    while sys.stdin.buffer.read(MOST_BYTES):
        pass
    return EXIT_UNFIT


def lacking_rights(kubectl: str) -> str:
    """What the pod's service account may not do, for a message; '': it may do all."""
    with open(ACCOUNT + "/namespace") as file:
        namespace = file.read()
    reviews = []
    for right in RIGHTS:
        verb, what = right.split(" ")
        resource, _, part = what.partition("/")
        group = "batch" if resource == "jobs" else ""
        wanted = {"verb": verb, "group": group, "resource": resource, "subresource": part}
        reviews.append(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {"namespace": namespace, **wanted}},
            }
        )
    asked = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews}).encode()
    command = [kubectl, "create", "-f", "-", "-o", "jsonpath={.status.allowed} "]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, timeout=60, check=False)
    except OSError as error:
        return "this machine's kubectl does not run in the pod: " + str(error)
    except subprocess.TimeoutExpired:
        return "the pod cannot ask the API server: kubectl has not answered within a minute"
    answers = done.stdout.decode().split()
    if done.returncode or len(answers) != len(RIGHTS):
        said = done.stderr.decode("utf-8", "replace").strip()
        return "the pod cannot ask the API server: " + said[-300:]
    lacking = [each for at, each in enumerate(RIGHTS) if answers[at] != "true"]
    return "its service account may not " + ", ".join(lacking) if lacking else ""


def send(base: str, folder: str, record: str, *kept: str) -> int:
    """Answer each request, a line of what is known of the files, with what is new in them.

    `kept` are names of files that are not sent.
    """
    os.chdir(folder)
    for line in sys.stdin:
        known = json.loads(line)
        has_ended = os.path.exists(base + "/ended")
        sent = 0
        held, is_whole = [], True  # the record is read first, and sent last: it may tell of a log
        names = [os.path.join(top, each) for top, _, files in os.walk(".") for each in files]
        for name in sorted(map(os.path.normpath, names), key=lambda name: name != record):
            if name in kept or name.endswith(PART):
                continue
            try:
                header, data = changed(name, known.get(name) or [0, 0, 0], record)
            except OSError:
                continue
            if not header:
                continue
            is_whole = is_whole and not header["more"]
            held.append((header, data))
            sent += len(data)
            if name != record:
                write(*held.pop())
            if sent > MOST_SENT:  # the rest with the next answer
                is_whole = False
                break
        if is_whole:
            for each in held:
                write(*each)
        write({"more": not is_whole, "ended": has_ended}, b"")
        sys.stdout.buffer.flush()
    return 0


def changed(name: str, known: Sequence[int], record: str) -> tuple[dict[str, Any], bytes]:
    """Return what is new in a file, and its state, if it has changed. Raises OSError."""
    with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
        status = os.fstat(file.fileno())
        inode, size, when = known
        is_same = inode == status.st_ino and size <= status.st_size
        if is_same and (size, when) == (status.st_size, status.st_mtime_ns):
            return {}, b""
        grows = name == record or name.startswith(("logs/", "results/"))
        start = size if is_same and grows else 0
        file.seek(start)
        data = file.read(min(MOST_BYTES if grows else status.st_size, status.st_size - start))
        end = start + len(data)
        state = [status.st_ino, end, status.st_mtime_ns]
    return {"name": name, "start": start, "state": state, "more": end < status.st_size}, data


def write(header: object, data: bytes) -> None:
    line = json.dumps([header, len(data)]).encode()
    sys.stdout.buffer.write(line + b"\n" + data)


def stop(base: str, folder: str) -> int:
    """Have the supervisor stop the job as the order on standard input says."""
    with open(folder + "/stop.new", "wb") as file:
        file.write(sys.stdin.buffer.read())
    os.replace(folder + "/stop.new", folder + "/stop.json")
    with open("/proc/1/cmdline") as file:
        if base in file.read().split("\0"):  # the guard of the supervisor
            os.kill(1, signal.SIGUSR1)
    return 0


def main() -> int:
    if sys.argv[1] == "unpack":
        return unpack(sys.argv[2])
    if sys.argv[1] == "end":  # process 1, which waits until the record is read
        os.kill(1, signal.SIGTERM)
        return 0
    return (send if sys.argv[1] == "send" else stop)(*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())

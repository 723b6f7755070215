"""Writes a bundle: the files of a job, without secrets and names."""

from __future__ import annotations

import contextlib
import io
import math
import os
import platform
import pwd
import re
import socket
import tarfile
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.bundle.reader import ABOUT, MOST_BYTES, VERSION, About, is_known
from distrun.codec import encode
from distrun.errors import HostError
from distrun.job.folder import LATE_SUFFIX, LOG_SUFFIX, JobFolder
from distrun.job.job import Job
from distrun.job.resumption import recorded_spec
from distrun.redaction.redactor import Redactor, secret_values
from distrun.spec.machine import own_names
from distrun.spec.regular_file import data_start, open_regular_file

_MOST_LOG_BYTES = 1 << 20
"""Of each log: its end."""
_MOST_BYTES_OF_ALL_LOGS = 64 << 20
_MOST_READ = MOST_BYTES // 2
"""Of each file: what stands for a name or a secret may be longer."""


class Part(NamedTuple):
    """A file in a bundle: its bytes, and how many bytes of the job's file are not in it."""

    name: str
    size: int
    left_out: int = 0


def make_redactor(job: Job, *, keep_names: bool) -> Redactor:
    """Return what replaces the secrets of a job and, unless they are to be kept, the names."""
    secrets = secret_values(job.folder)
    if keep_names:
        return Redactor(secrets)
    logins = [each.rpartition("@") for each in _logins(job)]
    users = [os.environ.get("USER", ""), os.environ.get("LOGNAME", "")]
    users += [os.path.basename(os.path.expanduser("~")), *(user for user, _, _ in logins)]
    with contextlib.suppress(KeyError):
        users.append(pwd.getpwuid(os.geteuid()).pw_name)
    return Redactor(secrets, users, [host for *_, host in logins])


def _logins(job: Job) -> Iterator[str]:
    """Yield, as USER@HOST or HOST, what its record, its spec and this machine tell of its hosts."""
    yield from (socket.gethostname(), *sorted(own_names()))
    for event in job.history:
        found = (getattr(event, each, "") or "" for each in ("host", "hostname", "address"))
        yield from (each for each in found if "/" not in each)  # TensorBoard's is a URL
    with contextlib.suppress(HostError):
        spec = recorded_spec(job.folder)
        yield from (name or "" for each in spec.hosts for name in (each.name, each.address))
        yield f"{spec.ssh.user or ''}@"
        for role in spec.roles:
            yield from (each.rpartition(":")[0].strip("[]") for each in role.addresses)
        for name, value in spec.ssh.options.items():
            if name.lower() in ("hostname", "proxyjump"):
                yield from (each.partition(":")[0] for each in value.split(","))


def write_bundle(file: IO[bytes], job: Job, redactor: Redactor) -> list[Part]:
    """Write an archive of a job; return what is in it. Raises OSError."""
    from distrun.report.page import versions

    # The id contains the job's name, which may be that of a user.
    job_id = re.sub(r"[^A-Za-z0-9._-]", "", redactor(job.folder.job_id)).lstrip("._-") or "job"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    about = About(
        version=VERSION,
        job_id=job_id,
        made_at=time.time(),
        phase=job.phase,
        is_running=job.is_running,
        versions={**versions(), "Python": platform.python_version(), "system": system},
    )
    parts = []
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:

        def add(name: str, text: str, changed_at: float, left_out: int = 0) -> None:
            content = text.encode("utf-8", "surrogateescape")
            member = tarfile.TarInfo(f"distrun-{job_id}/{name}")  # has no owner's name
            member.size, member.mtime = len(content), math.ceil(changed_at)
            archive.addfile(member, io.BytesIO(content))
            parts.append(Part(name, len(content), left_out))

        for name, content, found in _contents(job.folder):
            text = content.decode("utf-8", "surrogateescape")
            if name.endswith((".json", ".jsonl")):
                text = "\n".join(map(redactor.json, text.split("\n")))
            elif not name.endswith(INDEX_SUFFIX):  # that has times and offsets in the whole log
                text = redactor(text)
            add(name, text, found.st_mtime, max(0, found.st_size - len(content)))
        add(ABOUT, redactor.json(encode(about)), about.made_at)
    return parts


def _contents(folder: JobFolder) -> Iterator[tuple[str, bytes, os.stat_result]]:
    top = folder.events_file.parent
    files = sorted([*top.iterdir(), *folder.logs.glob("*"), *folder.history.glob("*")])
    logs = [each for each in files if each.suffix in (LOG_SUFFIX, LATE_SUFFIX)]
    most = min(_MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS // max(1, len(logs)))
    for path in files:
        name = str(path.relative_to(top))
        try:
            if not is_known(name, folder):
                continue
            with open_regular_file(path) as file:
                found = os.fstat(file.fileno())
                # Of a log its end, after what was dropped (`logs.max_size`).
                start = max(data_start(file.fileno()), found.st_size - most) if path in logs else 0
                content = os.pread(file.fileno(), _MOST_READ, start)
        except OSError:
            continue
        # A part of a line could be that of a secret, which nothing would recognize.
        if start:
            content = b"".join(re.split(rb"[\r\n]", content, maxsplit=1)[1:])
        elif len(content) < found.st_size:
            content = content[: content.rfind(b"\n") + 1]
        yield name, content, found

"""Writes a bundle: the files of a job, without secrets and names, and its report."""

from __future__ import annotations

import contextlib
import getpass
import json
import math
import os
import platform
import pwd
import re
import socket
import tarfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.bundle.reader import (
    ABOUT,
    MOST_BYTES,
    README,
    REPORT,
    VERSION,
    About,
    TemporaryFolder,
    is_known,
)
from distrun.codec import from_json, to_json
from distrun.job import events
from distrun.job.folder import LATE_SUFFIX, LOG_SUFFIX, JobFolder
from distrun.redaction import Redactor, secret_values
from distrun.spec.machine import own_names
from distrun.spec.model import Spec
from distrun.spec.regular_file import data_start, open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distrun.job.job import Job

_MOST_LOG_BYTES = 1 << 20
"""Of each log: its end."""
_MOST_BYTES_OF_ALL_LOGS = 64 << 20
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class Part(NamedTuple):
    """A file in a bundle: its bytes, and how many bytes of the job's file are not in it."""

    name: str
    size: int
    left_out: int = 0


def make_redactor(job: Job, *, keep_names: bool) -> Redactor:
    """Return what replaces the secrets of a job and, unless they are to be kept, the names.

    They are those that its files and this machine tell.
    """
    roles = {task.partition(":")[0] for task in job.state.tasks}
    spec = None
    with contextlib.suppress(*_UNREADABLE):
        spec = from_json(Spec, _read(job.folder.resolved_spec_file))
        roles |= {each.role.value for each in spec.roles}
    logins = [] if keep_names else [each.rpartition("@") for each in _hosts(job, spec)]
    users = [] if keep_names else [*_own_users(), *(user for user, _, _ in logins)]
    if spec is not None and not keep_names:
        users.append(spec.ssh.user or "")
    return Redactor(secret_values(job.folder), users, [host for *_, host in logins], roles=roles)


def _own_users() -> Iterator[str]:
    with contextlib.suppress(OSError, KeyError):
        yield getpass.getuser()
    with contextlib.suppress(KeyError):
        yield pwd.getpwuid(os.geteuid()).pw_name
    with contextlib.suppress(RuntimeError):
        yield Path.home().name


def _hosts(job: Job, spec: Spec | None) -> Iterator[str]:
    for event in job.history:
        if isinstance(event, events.HostReady):
            yield from (event.host, event.hostname, event.address or "")
        elif isinstance(event, (events.HostLost, events.HostLeftOut)):
            yield event.host  # perhaps it has never been ready
    if spec is not None:
        yield from (name or "" for each in spec.hosts for name in (each.name, each.address))
        addresses = (each for role in spec.roles for each in role.addresses)
        yield from (each.rpartition(":")[0].strip("[]") for each in addresses)
        for name, value in spec.ssh.options.items():
            if name.lower() in ("hostname", "proxyjump"):
                yield from (each.partition(":")[0] for each in value.split(","))
    yield from (socket.gethostname(), *sorted(own_names()))
    with contextlib.suppress(*_UNREADABLE):  # what the plan has from the launching shell
        no_proxy = _read(job.folder.plan_file)["env"]["no_proxy"].split(",")
        yield from (each.lstrip(".*") for each in no_proxy)


def _read(path: Path) -> Mapping[str, dict[str, str]]:
    with open_regular_file(path) as file:
        found: Mapping[str, dict[str, str]] = json.loads(file.read(MOST_BYTES))
        return found


def write_bundle(file: IO[bytes], job: Job, redactor: Redactor) -> list[Part]:
    """Write an archive of a job; return what is in it. Raises OSError."""
    from distrun.report.page import Report, render, versions

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
    with (
        TemporaryFolder(prefix="distrun-bundle-") as temporary,
        tarfile.open(fileobj=file, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive,
    ):
        copy = JobFolder(Path(temporary) / "jobs" / job_id)
        copy.logs.mkdir(parents=True)
        copy.history.mkdir()
        parts = _copy(job.folder, copy, redactor)
        text = redactor(json.dumps(to_json(about), indent=2) + "\n")
        parts.append(_write(copy, ABOUT, text))
        parts.append(_write(copy, REPORT, render(Report(copy, about=about))))
        parts.append(_write(copy, README, _readme(job_id, parts, redactor)))
        for part in parts:
            path = copy.path / part.name
            member = tarfile.TarInfo(f"distrun-{job_id}/{part.name}")  # has no owner's name
            member.size, member.mode = part.size, 0o644
            member.mtime = math.ceil(path.stat().st_mtime)
            with path.open("rb") as content:
                archive.addfile(member, content)
    return parts


def _copy(folder: JobFolder, copy: JobFolder, redactor: Redactor) -> list[Part]:
    """Copy the files that belong to a bundle, without what must not be shown."""
    top = folder.events_file.parent
    files = sorted([*top.iterdir(), *folder.logs.glob("*"), *folder.history.glob("*")])
    names = [str(each.relative_to(top)) for each in files]
    names = [each for each in names if is_known(each, folder)]
    logs = {each for each in names if "/" in each and each.endswith((LOG_SUFFIX, LATE_SUFFIX))}
    most = min(_MOST_LOG_BYTES, _MOST_BYTES_OF_ALL_LOGS // max(1, len(logs)))
    parts = []
    for name in names:
        try:
            with open_regular_file(top / name) as file:
                found = os.fstat(file.fileno())
                # Of a log its end, after what was dropped (`logs.max_size`).
                start = max(data_start(file.fileno()), found.st_size - most) if name in logs else 0
                content = os.pread(file.fileno(), MOST_BYTES, start)
        except OSError:
            continue
        size = len(content)
        if start:  # a part of a line could be that of a secret, which nothing would recognize
            content = b"".join(re.split(rb"[\r\n]", content, maxsplit=1)[1:])
        elif size < found.st_size:
            content = content[: content.rfind(b"\n") + 1]
        left_out = max(0, found.st_size - len(content))
        text = content.decode("utf-8", "surrogateescape")
        if name.endswith((".json", ".jsonl")):
            text = "\n".join(map(redactor.json, text.split("\n")))
        elif not name.endswith(INDEX_SUFFIX):  # that has times and offsets in the whole log
            text = redactor(text)
        parts.append(_write(copy, name, text, left_out))
        os.utime(copy.path / name, (found.st_mtime, found.st_mtime))
    return parts


def _write(copy: JobFolder, name: str, text: str, left_out: int = 0) -> Part:
    content = text.encode("utf-8", "surrogateescape")
    if len(content) > MOST_BYTES:  # replacements may be longer than what they replace
        whole = content.rfind(b"\n", 0, MOST_BYTES) + 1
        left_out += len(content) - whole
        content = content[:whole]
    (copy.path / name).write_bytes(content)
    return Part(name, len(content), left_out)


def _readme(job_id: str, parts: list[Part], redactor: Redactor) -> str:
    cut = {each: f" (without {each.left_out:,} bytes of the job's)" for each in parts}
    listed = "\n".join(f"  {each.name}{cut[each] if each.left_out else ''}" for each in parts)
    return (
        f"This is the job {job_id} of distrun, for a bug report.\n\n"
        f"To read it: open {REPORT} in a browser, or, with distrun, make the page again:\n"
        f"  distrun report distrun-{job_id}.tar.gz\n\n"
        f"Replaced everywhere alike: {replaced_text(redactor)}.\n"
        "What is a secret can only be guessed: look through it before you send it.\n\n"
        f"Files:\n{listed}\n"
    )


def replaced_text(redactor: Redactor) -> str:
    """Return how much was replaced: `2 host names, 1 user name, 3 secrets`."""
    kinds = [name.partition("-")[0] for name in set(redactor.names.values())]
    counts = (
        (kinds.count("host"), "host name", "host names"),
        (kinds.count("user"), "user name", "user names"),
        (kinds.count("address"), "address", "addresses"),
        (len(set(redactor.secrets.values())), "secret", "secrets"),
    )
    words = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return ", ".join(words) or "nothing"

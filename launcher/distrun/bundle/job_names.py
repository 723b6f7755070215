"""The names of the users and hosts of a job, as far as its files and this machine tell them."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import pwd
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrun.bundle.contents import MOST_BYTES
from distrun.codec import from_json
from distrun.job import events, record
from distrun.redaction import Redactor, secret_values
from distrun.spec.machine import own_names
from distrun.spec.model import Spec
from distrun.spec.regular_file import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.job.folder import JobFolder

_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def make_redactor(folder: JobFolder, *, keep_names: bool) -> Redactor:
    """Return what replaces the secrets of a job and, unless they are to be kept, the names."""
    secrets = secret_values(folder)
    roles = {task.partition(":")[0] for task in folder.state().tasks}
    spec = None
    with contextlib.suppress(*_UNREADABLE):
        spec = from_json(Spec, _read(folder.resolved_spec_file))
        roles |= {each.role.value for each in spec.roles}
    if keep_names:
        return Redactor(secrets, roles=roles)
    users, hosts = [*_own_users()], [*_hosts(folder, spec)]
    users.append(spec.ssh.user or "" if spec is not None else "")
    logins = [each.rpartition("@") for each in hosts]
    users += [user for user, _, _ in logins]
    return Redactor(secrets, users, [host for _, _, host in logins], roles=roles)


def _own_users() -> Iterator[str]:
    with contextlib.suppress(OSError, KeyError):
        yield getpass.getuser()
    with contextlib.suppress(KeyError):
        yield pwd.getpwuid(os.geteuid()).pw_name
    with contextlib.suppress(RuntimeError):
        yield Path.home().name


def _hosts(folder: JobFolder, spec: Spec | None) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for event in record.read(str(folder.events_file)):
            if isinstance(event, events.HostReady):
                yield from (event.host, event.hostname, event.address or "")
            elif isinstance(event, (events.HostLost, events.HostLeftOut)):
                yield event.host  # perhaps it has never been ready
    for host in spec.hosts if spec is not None else ():
        yield from (host.name, host.address or "")
    for role in spec.roles if spec is not None else ():
        yield from (each.rpartition(":")[0].strip("[]") for each in role.addresses)
    for name, value in spec.ssh.options.items() if spec is not None else ():
        if name.lower() in ("hostname", "proxyjump"):
            yield from (each.partition(":")[0] for each in value.split(","))
    yield from (socket.gethostname(), *sorted(own_names()))
    with contextlib.suppress(*_UNREADABLE):  # what the plan has from the launching shell
        no_proxy = _read(folder.plan_file)["env"]["no_proxy"].split(",")
        yield from (each.lstrip(".*") for each in no_proxy)


def _read(path: Path) -> Any:
    with open_regular_file(path) as file:
        return json.loads(file.read(MOST_BYTES))

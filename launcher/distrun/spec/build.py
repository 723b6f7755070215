"""A document whose shapes are right -> a Spec, after the rules that span several keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun.spec.addresses import LAST_PORT, parse_address
from distrun.spec.aliases import with_addresses_of_aliases
from distrun.spec.hosts import check_host_addresses, hostfile_hosts, listed_hosts
from distrun.spec.keys import LONGEST_NAME
from distrun.spec.machine import is_this_machine
from distrun.spec.model import (
    NO_RESTARTS,
    HostSpec,
    Placement,
    RestartSpec,
    RoleSpec,
    Spec,
    SshSpec,
    TensorBoardSpec,
    Timeouts,
)
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.program import build_program, check_readable, quoted_path
from distrun.spec.reading import STDIN, STDIN_NAME, decode, read_file
from distrun.spec.records import Section
from distrun.spec.roles import EMPTY, Written, check_addresses, check_roles, written_roles
from distrun.spec.shapes import bad_character
from distrun.spec.unbuilt import refuse_unbuilt
from distrun.spec.yamlnodes import MAX_BYTES
from distrun.strategies import STRATEGIES, Role, Strategy, Success

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUCCESS = {
    "chief": Success.CHIEF,
    "worker0": Success.WORKER_0,
    "all": Success.ALL,
}


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a spec's meaning depends on besides its text. Folders are absolute."""

    file: str
    folder: str
    cwd: str
    environ: Mapping[str, str]
    name: str | None
    extra_args: tuple[str, ...]

    @classmethod
    def of(
        cls,
        path: str,
        *,
        cwd: str,
        environ: Mapping[str, str],
        name: str | None,
        extra_args: tuple[str, ...],
    ) -> Surroundings:
        cwd = os.path.abspath(cwd)
        inside = STDIN_NAME if path == STDIN else path
        folder = cwd if path == STDIN else os.path.dirname(os.path.join(cwd, path))
        return cls(
            file=inside,
            folder=os.path.normpath(folder),
            cwd=cwd,
            environ=environ,
            name=name,
            extra_args=extra_args,
        )

    def resolve(self, path: str) -> str:
        """`path`, taken relative to the spec's folder."""
        whole = os.path.join(self.folder, path)
        if ".." in path.split("/"):
            # What that means behind a link is the file system's to say.
            return os.path.realpath(whole)
        return os.path.normpath(whole)


def build(document: Section, around: Surroundings, problems: Problems, *, unbuilt: bool) -> Spec:
    """The spec; raises with every problem there is, those of the shapes included."""
    strategy = STRATEGIES.get(document.get("strategy", ""))
    roles = written_roles(document.get("cluster", EMPTY))
    hosts = _hosts(document, around, problems)
    name = _name(document, around, problems)
    _check_extra_args(around, problems)
    if strategy and not document.wrong("cluster"):
        check_roles(document, roles, strategy, problems)
    ssh = _ssh(document.get("ssh", EMPTY), around, problems)
    if hosts:
        dialled = (parse_address(at.value).host for one in roles for at in one.addresses)
        elsewhere = (machine for machine in dialled if not is_this_machine(machine))
        hosts = with_addresses_of_aliases(hosts, elsewhere, ssh)
    check_addresses(roles, hosts, problems)
    if strategy and strategy.tf_config and _chosen(roles) > 1 and not document.wrong("hosts"):
        check_host_addresses(document.get("hosts", ()), problems)
    runs_here = any(host.is_local for host in hosts or (HostSpec(),))
    program = build_program(document.get("program", EMPTY), around, problems, runs_here=runs_here)
    ports = _port_range(document, roles, hosts, strategy, problems)
    success = _success(document, roles, strategy, problems)
    restart = _restart(document, problems)
    if not unbuilt:
        refuse_unbuilt(document, problems)
    problems.raise_if_any()
    assert strategy is not None  # noqa: S101 - otherwise there was a problem
    return Spec(
        name=name,
        strategy=strategy.name,
        roles=tuple(one.spec for one in roles) or (RoleSpec(role=Role.WORKER, count=1),),
        program=program,
        hosts=hosts or (HostSpec(),),
        placement=Placement(document.get("placement", "spread")),
        ssh=ssh,
        success=success,
        restart=restart,
        timeouts=Timeouts(**document.get("timeouts", EMPTY).values),
        port_range=ports,
        log_max_size=document.get("logs", EMPTY).get("max_size"),
        tensorboard=_tensorboard(document, program.workdir),
    )


def _name(document: Section, around: Surroundings, problems: Problems) -> str:
    if around.name is not None:
        length = len(around.name)
        if not 1 <= length <= LONGEST_NAME or bad_character(around.name):
            problems.add(
                Mark("--name"),
                f"{quoted(around.name)} is no name for a job",
                f"use 1 to {LONGEST_NAME} characters",
            )
        return around.name
    if around.file == STDIN_NAME:
        default = "job"
    else:
        default = os.path.splitext(os.path.basename(around.file))[0]
    # A file's name may be bytes that are no text.
    default = os.fsencode(default).decode("utf-8", "replace")[:LONGEST_NAME]
    name: str = document.get("name", default)
    return name


def _check_extra_args(around: Surroundings, problems: Problems) -> None:
    for arg in around.extra_args:
        bad = bad_character(arg)
        if bad:
            problems.add(Mark("after --"), f"the argument {quoted(arg)} holds {bad}", "remove it")


def _hosts(
    document: Section, around: Surroundings, problems: Problems
) -> tuple[HostSpec, ...] | None:
    """The hosts, () for this machine alone, None where they could not be read."""
    if document.has("hosts") and document.has("hostfile"):
        problems.add(
            document.keys["hostfile"], "hosts and hostfile are both given", "keep one of them"
        )
    if document.has("hosts"):
        return None if document.wrong("hosts") else listed_hosts(document.get("hosts"), problems)
    if not document.has("hostfile"):
        return (HostSpec(),)
    return _hostfile(document, around, problems) or None


def _hostfile(document: Section, around: Surroundings, problems: Problems) -> tuple[HostSpec, ...]:
    written = document.get("hostfile")
    if written is None:
        return ()
    path = around.resolve(written)
    # Shown as the user would name it: beside the spec, not as an absolute path.
    shown = os.path.join(os.path.dirname(around.file), written)
    mark = document.marks["hostfile"]
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        # One that is read as it is written, a pipe, may never be.
        problems.add(mark, f"hostfile is no file: {quoted_path(path)}", "name a file")
        return ()
    try:
        content = read_file(path, shown, MAX_BYTES, problems)
    except (FileNotFoundError, NotADirectoryError):
        check_readable(path, mark, "hostfile", problems)
        return ()
    text = None if content is None else decode(content, shown, problems)
    return () if text is None else hostfile_hosts(text, shown, problems)


def _port_range(
    document: Section,
    roles: tuple[Written, ...],
    hosts: tuple[HostSpec, ...] | None,
    strategy: Strategy | None,
    problems: Problems,
) -> tuple[int, int] | None:
    ports = document.get("ports")
    text = ports.get("range") if isinstance(ports, Section) else None
    if text is None or not isinstance(ports, Section):
        return None
    first, last = (int(port) for port in text.split("-"))
    mark = ports.marks["range"]
    if not 1 <= first <= last <= LAST_PORT:
        problems.add(
            mark,
            f"ports.range is {text}; ports are 1 to {LAST_PORT}, the lower one first",
            "write for example 20000-21000",
        )
        return None
    needed = _chosen(roles)
    if strategy and not strategy.tf_config:
        return first, last
    if hosts is not None and needed > (last - first + 1) * len(hosts):
        problems.add(
            mark, f"ports.range has {last - first + 1} ports for {needed} tasks", "widen it"
        )
    return first, last


def _chosen(roles: tuple[Written, ...]) -> int:
    """How many tasks are in the cluster at addresses that are not the spec's own."""
    return sum(
        one.spec.count for one in roles if not one.addresses and one.spec.role is not Role.EVALUATOR
    )


def _success(
    document: Section,
    roles: tuple[Written, ...],
    strategy: Strategy | None,
    problems: Problems,
) -> Success:
    written = document.get("success", "strategy")
    default = strategy.success if strategy else Success.ALL
    success = _SUCCESS.get(written, default)
    if written == "chief" and not any(one.spec.role is Role.CHIEF for one in roles):
        problems.add(
            document.marks["success"],
            "success waits for a chief, and there is none",
            "add 'chief: 1' to cluster, or write worker0",
        )
    return success


def _restart(document: Section, problems: Problems) -> RestartSpec:
    """Nothing is restarted unless the spec says so: a script that is wrong should fail at once."""
    section = document.get("restart")
    if not isinstance(section, Section):
        return NO_RESTARTS
    values = dict(section.values)
    values["never_on"] = tuple(at.value for at in values.get("never_on", ()))
    restart = RestartSpec(**values)
    if restart.backoff > restart.backoff_max:
        where = "backoff_max" if section.has("backoff_max") else "backoff"
        problems.add(
            section.marks[where],
            f"restart.backoff is longer than restart.backoff_max ({restart.backoff_max:g}s)",
            "raise backoff_max, or lower backoff",
        )
        return NO_RESTARTS
    return restart


def _ssh(section: Section, around: Surroundings, problems: Problems) -> SshSpec:
    values = dict(section.values)
    for key in ("identity_file", "config_file"):
        if key in values:
            # As ssh itself reads these paths in its configuration.
            values[key] = around.resolve(os.path.expanduser(values[key]))
            check_readable(values[key], section.marks[key], f"ssh.{key}", problems)
    if "options" in values:
        values["options"] = {name: at.value for name, at in values["options"].items()}
    return SshSpec(**values)


def _tensorboard(document: Section, workdir: str) -> TensorBoardSpec | None:
    section = document.get("tensorboard")
    if section is None:
        return None
    port = section.get("port", "auto")
    return TensorBoardSpec(
        logdir=os.path.normpath(os.path.join(workdir, section.get("logdir"))),
        port=port if isinstance(port, int) else 0,
    )

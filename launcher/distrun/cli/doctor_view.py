"""What `distrun doctor` shows: the current step, and a report of all checks."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from rich.text import Text

from distrun.agent.protocol import Cause, Code, Hello, Subject
from distrun.agent.protocol.causes import CauseError
from distrun.cli import console
from distrun.cli.terminal import Terminal
from distrun.kubernetes import kubectl
from distrun.preflight import Check, Grade
from distrun.spec.host_spec import HostSpec
from distrun.spec.problems import Problem, printable
from distrun.supervisor.round import Round
from distrun.words.causes import cause_advice, cause_text
from distrun.words.formats import format_count, format_duration, format_host_names, format_names
from distrun.words.table import Column, make_table, styled

_REDRAW_SECONDS = 1.0


class Checkup:
    def __init__(self, made: Round, here: HostSpec | None, warnings: Iterable[Problem]) -> None:
        self.hosts = made.hosts.names
        self.used = {each.host.name for each in made.hosts.placement}
        checks = [_reached(host, hello) for host, hello in made.hosts.hellos.items()]
        for subject, causes in (
            (Subject.REACHED, made.unreachable),
            (Subject.PREPARATION, made.failures),
        ):
            checks += [
                Check(host=host, subject=subject, grade=Grade.FAILED, cause=cause)
                for host, cause in causes.items()
            ]
        checks += made.checks or ()
        checks += _client(made.hosts.hellos) if made.hosts.spec.kubernetes else ()
        lacks = {each.host for each in checks if each.cause.code is Code.MODULES_MISSING}
        checks += [
            Check(
                host=here.name,
                subject=Subject.SCRIPT,
                grade=Grade.FAILED,
                cause=Cause(Code.UNCODED, text=str(each)),
            )
            for each in warnings
            if here is not None and here.name not in lacks and each.is_certain
        ]
        order = {host: number for number, host in enumerate(self.hosts)}
        self.checks = sorted(checks, key=lambda check: order.get(check.host, len(order)))
        is_usable = not (made.unreachable or made.failures)
        self.is_complete = made.checks is not None and is_usable
        """Whether every host was checked."""

    @property
    def failed(self) -> int:
        return sum(check.grade is Grade.FAILED for check in self.checks)


def _reached(host: str, hello: Hello) -> Check:
    cores, gpus = f"{hello.cores:g}", len(hello.gpus)
    cause = Cause(Code.HOST_REACHED, text=cores, count=gpus, version=hello.python)
    return Check(host=host, subject=Subject.REACHED, grade=Grade.OK, cause=cause)


def _client(hosts: Iterable[str]) -> list[Check]:
    """Which kubectl has reached them."""
    try:
        cause, grade = Cause(Code.UNCODED, text=kubectl.version()), Grade.OK
    except CauseError as error:
        cause, grade = error.cause, Grade.WARNING
    return [Check(host=each, subject=Subject.REACHED, grade=grade, cause=cause) for each in hosts]


@contextlib.contextmanager
def status_line() -> Iterator[Callable[[Round], float | None]]:
    """Show the current step on stderr, if that is a terminal; the report goes to stdout."""
    terminal = Terminal(sys.stderr.buffer, sys.stderr)
    started = time.monotonic()

    def show(made: Round) -> float | None:
        terminal.show_status(f"{_step(made)}  {format_duration(time.monotonic() - started)}")
        return _REDRAW_SECONDS if terminal.has_status_line else None

    try:
        yield show
    finally:
        terminal.clear_status()


def _step(made: Round) -> str:
    verb = "checking" if made.is_probing else "reaching"
    text = f"{verb} {format_count(len(made.hosts.names), 'host')}"
    waiting = made.waiting_for
    if 0 < len(waiting) < len(made.hosts.names):
        text += f", waiting for {format_names(waiting)}"
    return text


def print_report(found: Checkup) -> None:
    columns = (Column("CHECK"), Column("RESULT"), Column("HOSTS"), Column("FOUND"))
    console.print_renderable(make_table(columns, _rows(found), console.rich_console().width))
    subjects: dict[str, dict[str, list[str]]] = {}
    for check in sorted(found.checks, key=lambda each: each.grade is not Grade.FAILED):
        advice = cause_advice(check.cause)
        if advice:
            subjects.setdefault(advice, {}).setdefault(check.subject.value, []).append(check.host)
    if subjects:
        console.print_text("\nwhat to do:")
    for advice, each in subjects.items():
        whose = [f"{subject} ({_which(hosts, found.hosts)})" for subject, hosts in each.items()]
        words = ", ".join(whose if len(found.hosts) > 1 else each)
        console.print_text(f"  {words}: {printable(advice)}", indent=4)
    console.print_message(_summary(found))


def _rows(found: Checkup) -> list[dict[str, str | Text]]:
    """One row for all hosts with the same result: failures, then the subjects in their order."""
    hosts_by_result: dict[tuple[Subject, Grade, str], list[str]] = {}
    for check in found.checks:
        result = (check.subject, check.grade, cause_text(check.cause))
        hosts_by_result.setdefault(result, []).append(check.host)
    subjects = list(Subject)
    worst_first = [Grade.FAILED, Grade.WARNING, Grade.NOTE, Grade.OK]

    def place(key: tuple[Subject, Grade, str]) -> tuple[bool, int, int]:
        subject, grade, _ = key
        return grade is not Grade.FAILED, subjects.index(subject), worst_first.index(grade)

    order = sorted(hosts_by_result, key=place)
    return [
        {
            "CHECK": "" if number and order[number - 1][0] is subject else subject.value,
            "RESULT": styled(grade.value),
            "HOSTS": _which(hosts_by_result[subject, grade, text], found.hosts),
            "FOUND": text,
        }
        for number, (subject, grade, text) in enumerate(order)
    ]


def _which(hosts: list[str], all_hosts: tuple[str, ...]) -> str:
    names = dict.fromkeys(hosts)
    if len(names) > 1 and set(names) == set(all_hosts):
        return f"all {len(names)}"
    return format_host_names(names)


def _summary(found: Checkup) -> str:
    checks = format_count(len(found.checks), "check")
    if not found.failed:
        warnings = sum(check.grade is Grade.WARNING for check in found.checks)
        return f"{checks}, {format_count(warnings, 'warning') if warnings else 'all passed'}"
    has_others = any(check.subject is Subject.NETWORK for check in found.checks)
    left_out = not found.is_complete and has_others
    left = "; hosts that cannot be used were left out of the other checks" if left_out else ""
    failed = {check.host for check in found.checks if check.grade is Grade.FAILED}
    is_needed = failed & found.used or not failed.issubset(found.hosts)
    result = "the job cannot run" if is_needed else "the job can run: these hosts get no task"
    return f"{found.failed} of {checks} failed: {result}{left}"

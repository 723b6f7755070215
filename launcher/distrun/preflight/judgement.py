"""Judges the answers of all hosts: the checks of the preflight."""

from __future__ import annotations

import ipaddress
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code, Subject
from distrun.frozen import Frozen, field
from distrun.preflight import Check, Grade
from distrun.spec.addresses import is_loopback
from distrun.spec.model import ProgramSpec
from distrun.spec.packages import needs_tf_keras
from distrun.spec.units import format_bytes

if TYPE_CHECKING:
    from distrun.agent.protocol.probe_messages import Dialled, Inspected, ProgramFacts, Unreachable

_CLOCK_LIMIT = 1.0
_LITTLE, _TOO_LITTLE = 100_000_000, 1_000_000
_MOST_USERS = 3
_LOW_SHARE = 0.5
"""Of the median of what all hosts receive and send at most."""
_LONGEST_NAME = 32
THIS_MACHINE = "this machine"
UNKNOWN_VERSION = "unknown"

_Failure = tuple[str, Cause, bool]
"""A host that is not reached, why and where, and whether the callers belong to the cluster."""
_HostFacts = tuple[str, "ProgramFacts"]


class HostAnswers(Frozen, kw_only=True):
    """One host's answers.

    Attributes:
        clock_offset: seconds by which its clock is ahead of this machine's.
        clock_tolerance: the largest error of that, in seconds: half the round trip.
        ports: how many ports it holds; 0 if only an evaluator runs there.
        unwritten: why it could not write into folders that hosts are to share.
    """

    host: str
    clock_offset: float = 0.0
    clock_tolerance: float = 0.0
    listen_errors: tuple[Cause, ...] = ()
    dialled: Dialled | None = None
    calls: int = 0
    ports: int = 0
    unwritten: tuple[Cause, ...] = ()
    gpu_failure: Cause | None = None
    inspected: Inspected


class Answers(Frozen, kw_only=True):
    """The answers of all hosts, and what this machine knows itself.

    Attributes:
        owners: the host of each task's address.
        newcomers: the hosts that must have the versions of the others, and not the reverse.
        machines: the names and addresses by which tasks reach each other.
        digest: SHA-256 of the script on this machine; empty if it is unknown.
        custom_digests: the same of the scripts of custom roles, by their paths on the hosts.
        folders: those that were tried out: is each the same on all hosts? `program.shared` must be.
        writer: the host whose files in them the others looked for.
        rates: the host that received, the one that sent, and the bytes a second, for each pair.
        job_disk: bytes free where the job's record is; None if that is unknown.
    """

    hosts: tuple[HostAnswers, ...]
    owners: dict[str, str]
    program: ProgramSpec
    newcomers: frozenset[str] = frozenset()
    machines: tuple[str, ...] = ()
    digest: str = ""
    custom_digests: dict[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    writer: str = ""
    rates: tuple[tuple[str, str, float], ...] | None = None
    job_folder: str = ""
    job_disk: int | None = None


def judge(answers: Answers) -> tuple[Check, ...]:
    """All checks, good ones included, in the order of the hosts."""
    facts = [(each.host, facts) for each in answers.hosts for facts in each.inspected.programs]
    checks = [
        *_check_network(answers),
        *_check_machines(answers.owners),
        *(() if answers.rates is None else _check_bandwidth(answers, answers.rates)),
        *(check for each in answers.hosts for check in _check_host(each)),
        *(check for host, its in facts for check in _check_program(host, its)),
        *_check_folders(answers),
        *_check_scripts(answers, facts),
        *_check_versions(facts, answers.newcomers),
        *(_check_keras(facts) if answers.program.keras == 2 else ()),
        *(_check_modules(facts, answers.newcomers) if answers.modules else ()),
        *_check_servers(answers),
    ]
    if answers.job_disk is not None:
        checks.append(_check_disk(THIS_MACHINE, "record", answers.job_folder, answers.job_disk))
    order = {each.host: number for number, each in enumerate(answers.hosts)}
    # Tasks that differ in one variable only are inspected separately, with equal results.
    distinct = dict.fromkeys(checks)
    return tuple(sorted(distinct, key=lambda check: order.get(check.host, len(order))))


def _check(
    host: str, subject: Subject, good: Cause, bad: Cause | None, grade: Grade = Grade.FAILED
) -> Check:
    """Return a check that is good, or has this grade and the bad cause, if there is one."""
    grade = Grade.OK if bad is None else grade
    return Check(host=host, subject=subject, grade=grade, cause=bad or good)


def _check_host(answers: HostAnswers) -> Iterator[Check]:
    host, inspected = answers.host, answers.inspected
    if inspected.failure is not None:
        cause = Cause(Code.INSPECTION_FAILED, within=(inspected.failure,))
        yield Check(host=host, subject=Subject.INSPECTION, grade=Grade.WARNING, cause=cause)
    if answers.gpu_failure is not None:
        cause = answers.gpu_failure
        yield Check(host=host, subject=Subject.GPUS, grade=Grade.WARNING, cause=cause)
    differs = Cause(Code.CLOCK_DIFFERS, seconds=answers.clock_offset)
    is_bad = abs(answers.clock_offset) - answers.clock_tolerance > _CLOCK_LIMIT
    bad = differs if is_bad else None
    yield _check(host, Subject.CLOCK, Cause(Code.CLOCK_AGREES), bad, Grade.WARNING)
    workdirs = {program.workdir for program in inspected.programs}
    for folder, free in inspected.disks.items():
        yield _check_disk(host, "workdir" if folder in workdirs else "logs", folder, free)


def _check_disk(host: str, use: str, folder: str, free: int) -> Check:
    good = Cause(Code.DISK_HAS_ROOM, count=_LITTLE, name=use)
    bad = Cause(Code.DISK_NEARLY_FULL, count=free, name=use, path=folder)
    grade = Grade.FAILED if free < _TOO_LITTLE else Grade.WARNING
    return _check(host, Subject.DISK, good, bad if free < _LITTLE else None, grade)


def _check_program(host: str, facts: ProgramFacts) -> Iterator[Check]:
    def unusable(code: Code, problem: Cause | None) -> Cause | None:
        return None if problem is None else Cause(code, within=(problem,))

    good = Cause(Code.WORKDIR_ENTERED, path=facts.workdir)
    bad = unusable(Code.WORKDIR_UNUSABLE, facts.workdir_problem)
    yield _check(host, Subject.WORKDIR, good, bad)
    code = Code.INTERPRETER_UNUSABLE if facts.is_python else Code.PROGRAM_UNUSABLE
    good = Cause(Code.PROGRAM_FOUND, name=facts.program)
    yield _check(host, Subject.PROGRAM, good, unusable(code, facts.program_problem))


def _check_folders(answers: Answers) -> Iterator[Check]:
    """Whether each host writes into the folders that hosts are to share, and sees one's files."""
    blind = {cause.path for each in answers.hosts if each.host == answers.writer
             for cause in each.unwritten}  # fmt: skip
    for each in answers.hosts:
        unseen = () if each.dialled is None else each.dialled.unseen
        bad = {cause.path: cause._replace(host=each.host, name=answers.writer)
               for cause in unseen if cause.path not in blind}  # fmt: skip
        bad |= {cause.path: cause for cause in each.unwritten}
        for folder in answers.folders:
            good = Cause(Code.FOLDER_SHARED, path=folder)
            grade = Grade.FAILED if folder in answers.program.shared else Grade.WARNING
            yield _check(each.host, Subject.SHARED, good, bad.get(folder), grade)


def _check_scripts(answers: Answers, facts: Sequence[_HostFacts]) -> Iterator[Check]:
    """Whether each host has the scripts, the same as this machine or else as most hosts."""
    groups: dict[tuple[str, str], list[_HostFacts]] = {}
    for host, its in facts:
        own = answers.custom_digests.get(its.script)
        if its.script:
            key = (answers.digest, "") if own is None else (own, "" if own else its.script)
            groups.setdefault(key, []).append((host, its))
    for (digest, _), members in groups.items():
        yield from _check_script(answers, digest, members)


def _check_script(answers: Answers, digest: str, facts: Sequence[_HostFacts]) -> Iterator[Check]:
    """Check one script. `digest` is that on this machine."""
    present = [(host, its) for host, its in facts if its.digest]
    digests = Counter(its.digest for _, its in _established(present, answers.newcomers))
    expected = digest or (digests.most_common(1)[0][0] if digests else "")
    holders = _hosts(each for each in facts if each[1].digest == expected)
    if digest:
        holders = (THIS_MACHINE,)
    sync = answers.program.sync.value
    for host, its in facts:
        bad = None
        if its.script_problem is not None:
            bad = Cause(Code.SCRIPT_UNUSABLE, name=sync, within=(its.script_problem,))
        elif its.digest != expected:
            bad = Cause(Code.SCRIPT_DIFFERS, path=its.script, name=sync, hosts=holders)
        yield _check(host, Subject.SCRIPT, Cause(Code.SCRIPT_SAME, path=its.script), bad)


def _established(facts: Sequence[_HostFacts], newcomers: Collection[str]) -> Sequence[_HostFacts]:
    """The facts that decide what is usual: those of newcomers only if there are no others."""
    return [each for each in facts if each[0] not in newcomers] or facts


def _check_versions(facts: Sequence[_HostFacts], newcomers: Collection[str]) -> Iterator[Check]:
    interpreters = [(host, its) for host, its in facts if its.is_python]
    for host, its in interpreters:
        name = its.program
        if its.python_problem is not None:
            grade = Grade.FAILED
            cause = Cause(Code.PYTHON_NOT_RUNNING, name=name, within=(its.python_problem,))
        elif its.is_slow:
            grade, cause = Grade.WARNING, Cause(Code.PYTHON_SLOW, name=name)
        else:
            continue
        yield Check(host=host, subject=Subject.PYTHON, grade=grade, cause=cause)
    known = [(host, its) for host, its in interpreters if its.python]
    yield from _compare(
        *(Subject.PYTHON, known, newcomers, lambda its: its.python),
        # 3.11 of 3.11.4: within it, bytecode, pickles and wheels are compatible.
        lambda version: ".".join(version.split(".")[:2]),
    )
    having = [(host, its) for host, its in known if its.tensorflow]
    yield from _compare(Subject.TENSORFLOW, having, newcomers, lambda its: its.tensorflow, str)
    present = [each for each in _established(known, newcomers) if each[1].tensorflow]
    holders = _hosts(present)
    for host, its in known:
        if not its.tensorflow and (present or "tensorflow" not in its.missing):
            grade = Grade.FAILED if present else Grade.NOTE
            cause = Cause(Code.TENSORFLOW_MISSING, name=its.program, hosts=holders)
            yield Check(host=host, subject=Subject.TENSORFLOW, grade=grade, cause=cause)


def _check_keras(facts: Sequence[_HostFacts]) -> Iterator[Check]:
    for host, its in facts:
        if not its.python or not needs_tf_keras(its.tensorflow):
            continue
        good = Cause(Code.TF_KERAS_FOUND, name=its.program)
        bad = Cause(Code.TF_KERAS_MISSING, name=its.program, version=its.tensorflow)
        yield _check(host, Subject.KERAS, good, None if its.has_tf_keras else bad)


def _check_modules(facts: Sequence[_HostFacts], newcomers: Collection[str]) -> Iterator[Check]:
    has_tensorflow = any(its.tensorflow for _, its in _established(facts, newcomers))
    for host, its in facts:
        missing = [
            name
            for name in its.missing
            if name != "tensorflow" or its.tensorflow or not has_tensorflow  # else said already
        ]
        if its.python and (missing or not its.missing):
            good = Cause(Code.MODULES_FOUND, name=its.program)
            bad = Cause(Code.MODULES_MISSING, name=its.program, text=", ".join(missing))
            yield _check(host, Subject.MODULES, good, bad if missing else None)


def _hosts(facts: Iterable[_HostFacts]) -> tuple[str, ...]:
    """Return the names of hosts, of which each may run several programs."""
    return tuple(dict.fromkeys(host for host, _ in facts))


def _compare(
    subject: Subject,
    facts: Sequence[_HostFacts],
    newcomers: Collection[str],
    version: Callable[[ProgramFacts], str],
    key: Callable[[str], str],
) -> Iterator[Check]:
    """Whether each host has the version that most have. Only a difference in `key` is a failure."""
    known = [each for each in facts if version(each[1]) != UNKNOWN_VERSION]
    versions = [version(its) for _, its in _established(known, newcomers)]
    usual = ""
    if versions:
        most = Counter(map(key, versions)).most_common(1)[0][0]
        usual = Counter(each for each in versions if key(each) == most).most_common(1)[0][0]
    holders = _hosts(each for each in facts if version(each[1]) == usual)
    code = Code.PYTHON_DIFFERS if subject is Subject.PYTHON else Code.TENSORFLOW_DIFFERS
    for host, its in facts:
        found, good = version(its), Cause(Code.VERSION_FOUND, version=version(its))
        differs = Cause(code, name=its.program, version=found, expected=usual, hosts=holders)
        grade = Grade.FAILED if key(found) != key(usual) else Grade.WARNING
        bad = None if found in (usual, UNKNOWN_VERSION) else differs
        yield _check(host, subject, good, bad, grade)


def _check_servers(answers: Answers) -> Iterator[Check]:
    """Yield notes on who else can reach the servers of TensorFlow: they ask for no password."""
    is_on_one_machine = all(map(is_loopback, answers.machines))
    for each in answers.hosts:
        if not each.ports:
            continue
        causes = []
        if users := [name[:_LONGEST_NAME] for name in each.inspected.users]:
            names = ", ".join(users[:_MOST_USERS])
            causes.append(Cause(Code.SERVERS_OPEN_TO_USERS, text=names, count=len(users)))
        found = [_parse_address(text) for text in each.inspected.addresses]
        open_to = [str(ip) for ip in found if ip and (is_on_one_machine or ip.is_global)]
        if open_to:
            causes.append(Cause(Code.SERVERS_OPEN_TO_NETWORK, addresses=tuple(open_to)))
        for cause in causes:
            yield Check(host=each.host, subject=Subject.SECURITY, grade=Grade.NOTE, cause=cause)


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


# The network -------------------------------------------------------------------------------


def _check_network(answers: Answers) -> Iterator[Check]:
    """A check for each way in which a host is not reached, and for each host that reaches all."""
    callers: dict[_Failure, list[str]] = {}
    for each in answers.hosts:
        failures = _failures(each, answers.owners)
        for failure in failures:
            callers.setdefault(failure, []).append(each.host)
        for grade, cause in _own_results(each, has_failures=bool(failures)):
            yield Check(host=each.host, subject=Subject.NETWORK, grade=grade, cause=cause)
    for (owner, cause, is_needed), hosts in callers.items():
        # An evaluator alone takes no part in a cluster.
        grade = Grade.FAILED if is_needed else Grade.WARNING
        named = cause._replace(hosts=tuple(hosts))
        yield Check(host=owner, subject=Subject.NETWORK, grade=grade, cause=named)


def _check_machines(owners: Mapping[str, str]) -> Iterator[Check]:
    """A warning for each host that is also listed by another name: it is counted twice."""
    first: dict[str, str] = {}
    for address, host in owners.items():
        name = first.setdefault(address.rpartition(":")[0], host)
        if name != host:
            cause = Cause(Code.ONE_MACHINE_TWICE, name=name)
            yield Check(host=host, subject=Subject.NETWORK, grade=Grade.WARNING, cause=cause)


def _failures(answers: HostAnswers, owners: Mapping[str, str]) -> list[_Failure]:
    found: dict[tuple[str, Code], tuple[Cause, list[str]]] = {}
    for port in [] if answers.dialled is None else answers.dialled.unreachable:
        address = _address(port)
        if address in owners:  # if not, it is an earlier plan's
            key = (owners[address], port.cause.code)
            found.setdefault(key, (port.cause, []))[1].append(address)
    code, is_needed = Code.PORTS_UNREACHABLE, answers.ports > 0
    return [
        (owner, Cause(code, host=owner, addresses=tuple(each), within=(cause,)), is_needed)
        for (owner, _), (cause, each) in found.items()
    ]


def _check_bandwidth(answers: Answers, rates: Sequence[tuple[str, str, float]]) -> Iterator[Check]:
    """What each host receives and sends, and whether that is much less than the others."""
    # Another host's slow link does not make this one's slow: the best of all counts.
    best = {
        each.host: [
            max((int(rate) for *pair, rate in rates if pair[end] == each.host), default=0)
            for end in (0, 1)
        ]
        for each in answers.hosts
    }
    usual = statistics.median([rate for both in best.values() if all(both) for rate in both] or [0])
    for host, both in best.items():
        if not all(both):
            grade, cause = Grade.NOTE, Cause(Code.BANDWIDTH_UNKNOWN)
        else:
            grade, cause = Grade.OK, Cause(Code.BANDWIDTH_MEASURED, count=both[0], total=both[1])
            if min(both) < usual * _LOW_SHARE:
                usual_text = f"{format_bytes(usual)}/s"
                cause = cause._replace(code=Code.BANDWIDTH_LOW, text=usual_text)
                grade = Grade.WARNING
        yield Check(host=host, subject=Subject.BANDWIDTH, grade=grade, cause=cause)


def _own_results(answers: HostAnswers, *, has_failures: bool) -> Iterator[tuple[Grade, Cause]]:
    for error in answers.listen_errors:
        yield Grade.FAILED, error
    dialled = answers.dialled
    if dialled is not None and dialled.failure is not None:
        yield Grade.WARNING, Cause(Code.PORTS_NOT_DIALLED, within=(dialled.failure,))
    elif not has_failures and not answers.listen_errors:
        held = Cause(Code.PORTS_HELD, count=answers.ports)
        reached = Cause(Code.PORTS_REACHED, count=answers.calls)
        yield Grade.OK, held if dialled is None else reached


def _address(port: Unreachable) -> str:
    machine = f"[{port.machine}]" if ":" in port.machine else port.machine
    return f"{machine}:{port.port}"

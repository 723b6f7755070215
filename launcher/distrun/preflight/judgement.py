"""From what was found to what it means, for all hosts at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from distrun.cli.cause_text import cause_text
from distrun.plan import proxy_use
from distrun.preflight.checks import Check, Grade
from distrun.preflight.reach import judge_reach
from distrun.preflight.words import size, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distrun.agent.protocol.probe_messages import ProgramFacts
    from distrun.preflight.findings import Findings, HostFindings

_FAR_CLOCKS = 1.0
_LITTLE, _TOO_LITTLE = 100_000_000, 1_000_000
_THIS = "this machine"

Looked = tuple[str, "ProgramFacts"]
"""A host and what is known of a program there."""


def judge(findings: Findings) -> tuple[Check, ...]:
    """All checks, good ones too, in the order of the hosts."""
    looked = [(each.host, facts) for each in findings.hosts for facts in each.inspected.programs]
    machines = findings.machines
    checks = [
        *judge_reach(findings),
        *(check for each in findings.hosts for check in _judge_host(each)),
        *(check for host, facts in looked for check in _judge_program(host, facts, machines)),
        *_judge_scripts(findings, looked),
        *_judge_versions(looked),
        *_judge_job_disk(findings),
    ]
    order = {each.host: number for number, each in enumerate(findings.hosts)}
    # Tasks that differ in a variable only are asked about one by one, and say the same.
    distinct = dict.fromkeys(checks)
    return tuple(sorted(distinct, key=lambda check: order.get(check.host, len(order))))


def _judge_host(found: HostFindings) -> Iterator[Check]:
    if found.inspected.failure:
        yield Check(
            host=found.host,
            subject="inspection",
            grade=Grade.WARNING,
            text="programs and disks could not be looked at: "
            f"{cause_text(found.inspected.failure)}",
            advice="a file system there may hang: does `df` end?",
        )
    far = abs(found.offset) - found.tolerance > _FAR_CLOCKS
    way = "ahead of" if found.offset > 0 else "behind"
    yield Check(
        host=found.host,
        subject="clock",
        grade=Grade.WARNING if far else Grade.OK,
        text=f"its clock is {abs(found.offset):.1f} s {way} this machine's"
        if far
        else "within a second of this machine's",
        advice="logs are merged by time: set the clocks by NTP (timedatectl, chronyc)"
        if far
        else None,
    )
    workdirs = {program.workdir for program in found.inspected.programs}
    for disk in found.inspected.disks:
        purpose = "in the working folder" if disk.folder in workdirs else "for logs"
        yield _judge_disk(found.host, purpose, disk.folder, disk.free)


def _judge_disk(host: str, purpose: str, folder: str, free: int) -> Check:
    if free >= _LITTLE:
        text = f"over {size(_LITTLE)} free {purpose}"
        return Check(host=host, subject="disk", grade=Grade.OK, text=text)
    return Check(
        host=host,
        subject="disk",
        grade=Grade.FAILED if free < _TOO_LITTLE else Grade.WARNING,
        text=f"{size(free)} free {purpose}, {folder}",
        advice=f"make room on the disk of {folder}",
    )


def _judge_job_disk(findings: Findings) -> Iterator[Check]:
    if findings.job_disk is not None:
        yield _judge_disk(_THIS, "for the job's record", findings.job_folder, findings.job_disk)


def _judge_program(host: str, facts: ProgramFacts, machines: Sequence[str]) -> Iterator[Check]:
    def check(subject: str, problem: str, good: str, advice: str) -> Check:
        return Check(
            host=host,
            subject=subject,
            grade=Grade.FAILED if problem else Grade.OK,
            text=problem or good,
            advice=advice if problem else None,
        )

    yield check(
        "workdir",
        cause_text(facts.workdir_problem) if facts.workdir_problem else "",
        facts.workdir,
        "make it there, or name one with program.workdir or the host's `workdir`",
    )
    yield check(
        "program",
        cause_text(facts.program_problem) if facts.program_problem else "",
        facts.program,
        "install it there, or name another with program.python or the host's `python`"
        if facts.is_python
        else "install it there, or correct program.command",
    )
    proxy = proxy_use(facts.environ, machines)
    if proxy is not None:
        proxied = some(proxy.machines)
        yield check(
            "proxies",
            f"{proxy.variable} is set and no_proxy leaves hosts of the cluster out: gRPC would go "
            f"there for {proxied}"
            if proxied
            else "",
            f"{proxy.variable} is not used between the hosts",
            f"add them to no_proxy (no_grpc_proxy), or set {proxy.variable} to nothing under "
            "program.env",
        )


def _judge_scripts(findings: Findings, looked: Sequence[Looked]) -> Iterator[Check]:
    """Whether all hosts have the script, the same as this machine or else as most of them."""
    digests = Counter(facts.digest for _, facts in looked if facts.digest)
    most = digests.most_common(1)[0][0] if digests else ""
    expected = findings.digest or most
    copy = "program.sync: script has distrun send it" if not findings.is_sent else "launch again"
    for host, facts in looked:
        if not facts.script:
            continue
        grade, text, advice = Grade.OK, facts.script, None
        if facts.script_problem:
            grade, text = Grade.FAILED, cause_text(facts.script_problem)
            advice = f"copy it to the hosts that lack it; {copy}"
        elif facts.digest != expected:
            others = [other for other, its in looked if its.digest == expected and other != host]
            where = "this machine" if findings.digest else some(others)
            grade, text = Grade.FAILED, f"{facts.script} is not the same as on {where}"
            advice = f"copy it anew to the hosts where it differs; {copy}"
        yield Check(host=host, subject="script", grade=grade, text=text, advice=advice)


def _judge_versions(looked: Sequence[Looked]) -> Iterator[Check]:
    asked = [(host, facts) for host, facts in looked if facts.is_python]
    for host, facts in asked:
        if facts.python_problem:
            yield Check(
                host=host,
                subject="python",
                grade=Grade.FAILED,
                text=f"{facts.program} does not run: {cause_text(facts.python_problem)}",
                advice="program.python or the host's `python` names the interpreter",
            )
        elif facts.is_slow:
            yield Check(
                host=host,
                subject="python",
                grade=Grade.WARNING,
                text=f"{facts.program} did not tell its version in time",
                advice="does it start at once there? Its disk may be slow",
            )
    known = [(host, facts) for host, facts in asked if facts.python]
    yield from _compare("python", "Python", known, lambda facts: facts.python, _minor)
    present = [(host, facts) for host, facts in known if facts.tensorflow]
    yield from _compare("tensorflow", "TensorFlow", present, lambda f: f.tensorflow, _whole)
    for host, facts in known:
        if not facts.tensorflow:
            have = some(each for each, _ in present)
            yield Check(
                host=host,
                subject="tensorflow",
                grade=Grade.FAILED if present else Grade.NOTE,
                text=f"{facts.program} there has no TensorFlow; that of {have} has"
                if present
                else f"{facts.program} has none, as on every host",
                advice="install it there, or name an interpreter that has it with the host's "
                "`python`"
                if present
                else None,
            )


def _compare(
    subject: str,
    what: str,
    known: Sequence[Looked],
    version: Callable[[ProgramFacts], str],
    key: Callable[[str], str],
) -> Iterator[Check]:
    """Whether all have the same version as most. What `key` leaves out is only warned of."""
    told = [version(facts) for _, facts in known if version(facts) != "unknown"]
    if not told:
        usual = ""
    else:
        most = Counter(map(key, told)).most_common(1)[0][0]
        usual = Counter(each for each in told if key(each) == most).most_common(1)[0][0]
    holders = some(host for host, facts in known if version(facts) == usual)
    for host, facts in known:
        its = version(facts)
        if its in (usual, "unknown"):
            text = its if its != "unknown" else "installed, its version unknown"
            yield Check(host=host, subject=subject, grade=Grade.OK, text=text)
            continue
        differs = key(its) != key(usual)
        yield Check(
            host=host,
            subject=subject,
            grade=Grade.FAILED if differs else Grade.WARNING,
            text=f"{facts.program} has {what} {its}; that of {holders} has {usual}",
            advice=f"install the same {what} on all hosts, or name interpreters that have it "
            "with the hosts' `python`",
        )


def _minor(version: str) -> str:
    """3.11 of 3.11.4: what is the same for bytecode, pickles and wheels."""
    return ".".join(version.split(".")[:2])


def _whole(version: str) -> str:
    return version

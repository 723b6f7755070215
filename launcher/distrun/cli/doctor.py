"""`distrun doctor`."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.options import json_option, overrides_option
from distrun.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.text import Text

    from distrun.examination import Examination

_TICK_SECONDS = 1.0


@click.command("doctor", short_help="Try out a job's hosts.")
@click.argument("spec_path", metavar="SPEC", type=click.Path(allow_dash=True))
@overrides_option
@json_option
def command(spec_path: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Try out whether the job that the YAML file SPEC describes can run on its hosts.

    It reaches every host and looks at what a launch on other hosts looks at before its first
    task: whether the hosts reach each other's ports, versions of Python and TensorFlow, the
    script, folders, disks, clocks and proxies. A host that cannot be used is named, and the
    others are tried out without it. No task is started, and nothing is left on the hosts. Exits
    with 69 if something would keep the job from running.

    \b
      distrun doctor job.yaml
      distrun doctor job.yaml --json
    """
    from distrun.examination import examine
    from distrun.jobstore import JobStore
    from distrun.spec import load

    spec = load(spec_path, overrides=overrides)
    with _LiveLine() as tell:
        found = examine(spec, JobStore.default().jobs, tell)
    if as_json:
        console.put_json({"doctor": _as_json(found)})
    else:
        _show(found)
    return HostError.exit_code if found.failed else 0


class _LiveLine:
    """What is being done, on a terminal's stderr: the report itself may be piped."""

    def __init__(self) -> None:
        from distrun.cli.screen import Screen
        from distrun.session import Output

        self._screen = Screen(Output(sys.stderr.fileno()), sys.stderr)
        self._began = time.monotonic()

    def __enter__(self) -> Callable[[str], float | None]:
        return self._tell

    def __exit__(self, *_: object) -> None:
        self._screen.clear()

    def _tell(self, doing: str) -> float | None:
        self._screen.show(f"{doing}  {console.span(time.monotonic() - self._began)}")
        return _TICK_SECONDS if self._screen.is_live else None


def _as_json(found: Examination) -> dict[str, Any]:
    from distrun.codec import to_json

    return {
        "ok": not found.failed,
        "complete": found.is_complete,
        "hosts": list(found.hosts),
        "checks": [to_json(check) for check in found.checks],
    }


def _show(found: Examination) -> None:
    from distrun.cli.table import Column, make_table

    columns = (Column("CHECK"), Column("RESULT"), Column("HOSTS"), Column("FOUND"))
    console.put_view(make_table(columns, _rows(found), console.rich_console().width))
    advice = dict.fromkeys(check.advice for check in found.checks if check.advice)
    if advice:
        console.put("\nwhat to do:")
    for each in advice:
        subjects = dict.fromkeys(check.subject for check in found.checks if check.advice == each)
        console.put(f"  {', '.join(subjects)}: {console.printable(each or '')}", indent=4)
    console.say(_sum(found))


def _rows(found: Examination) -> list[dict[str, str | Text]]:
    """Hosts of which the same is to be said together; what is worst about each subject first."""
    from distrun.cli.styles import styled
    from distrun.preflight import SUBJECTS, Grade

    alike: dict[tuple[str, Grade, str], list[str]] = {}
    for check in found.checks:
        alike.setdefault((check.subject, check.grade, check.text), []).append(check.host)
    badness = [Grade.FAILED, Grade.WARNING, Grade.NOTE, Grade.OK]
    rows: list[dict[str, str | Text]] = []
    order = sorted(alike, key=lambda key: (SUBJECTS.index(key[0]), badness.index(key[1])))
    last = ""
    for subject, grade, text in order:
        rows.append(
            {
                "CHECK": subject if subject != last else "",
                "RESULT": styled(grade.value),
                "HOSTS": _names(alike[subject, grade, text], found.hosts),
                "FOUND": text,
            }
        )
        last = subject
    return rows


def _names(hosts: Iterable[str], all_hosts: tuple[str, ...]) -> str:
    """`all 16`, or who: those that are numbered one after the other as a spec writes them."""
    names = list(dict.fromkeys(hosts))
    if len(names) > 1 and set(names) == set(all_hosts):
        return f"all {len(names)}"
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _next(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(_range(run) if len(run) > 2 else ", ".join(run) for run in runs)


def _next(name: str) -> str | None:
    """`gpu-10` after `gpu-09`."""
    stem, number = _numbered(name)
    return f"{stem}{int(number) + 1:0{len(number)}}" if number else None


def _range(run: list[str]) -> str:
    stem, first = _numbered(run[0])
    return f"{stem}[{first}-{_numbered(run[-1])[1]}]"


def _numbered(name: str) -> tuple[str, str]:
    stem = name.rstrip("0123456789")
    return stem, name[len(stem) :]


def _sum(found: Examination) -> str:
    from distrun.preflight import Grade

    grades = Counter(check.grade for check in found.checks)
    checks = console.count(len(found.checks), "check")
    if not found.failed:
        warnings = grades[Grade.WARNING]
        return f"{checks}, {console.count(warnings, 'warning') if warnings else 'all well'}"
    left_out = not found.is_complete and any(check.subject == "network" for check in found.checks)
    left = "; hosts that cannot be used were left out of the rest" if left_out else ""
    return f"{found.failed} of {checks} failed, and the job cannot run like this{left}"

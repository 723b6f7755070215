"""`distrun doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.options import json_option, overrides_option
from distrun.errors import HostError

if TYPE_CHECKING:
    from rich.text import Text

    from distrun.preflight import Check
    from distrun.rehearsal import Examination


@click.command("doctor", short_help="Try out a job's hosts.")
@click.argument("spec_path", metavar="SPEC", type=click.Path(allow_dash=True))
@overrides_option
@json_option
def command(spec_path: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Try out whether the job that the YAML file SPEC describes can run on its hosts.

    It reaches every host and looks at what a launch on other hosts looks at before its first
    task: whether the hosts reach each other's ports, versions of Python and TensorFlow, the
    script, folders, disks, clocks and proxies. No task is started, and nothing is left on the
    hosts. Exits with 69 if something would keep the job from running.

    \b
      distrun doctor job.yaml
      distrun doctor job.yaml --json
    """
    from distrun.jobstore import JobStore
    from distrun.rehearsal import examine
    from distrun.spec import load

    spec = load(spec_path, overrides=overrides)
    found = examine(spec, JobStore.default().jobs)
    if as_json:
        console.put_json({"doctor": _as_json(found)})
    else:
        _show(found)
    return HostError.exit_code if found.failed else 0


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

    columns = (Column("HOST"), Column("CHECK"), Column("RESULT"), Column("FOUND"))
    rows = _rows(found.checks)
    console.put_view(make_table(columns, rows, console.rich_console().width))
    advice = dict.fromkeys(check.advice for check in found.checks if check.advice)
    if advice:
        console.put("\nwhat to do:")
    for each in advice:
        subjects = dict.fromkeys(check.subject for check in found.checks if check.advice == each)
        console.put(f"  {', '.join(subjects)}: {console.printable(each or '')}")
    if not found.is_complete:
        console.put("\nThe rest is looked at once every host can be used.")
    if found.failed:
        console.say(f"{console.count(found.failed, 'check')} failed; the job cannot run like this")


def _rows(checks: tuple[Check, ...]) -> list[dict[str, str | Text]]:
    from distrun.cli.styles import styled

    rows: list[dict[str, str | Text]] = []
    last = None
    for check in checks:
        rows.append(
            {
                "HOST": check.host if check.host != last else "",
                "CHECK": check.subject,
                "RESULT": styled(check.grade.value),
                "FOUND": check.text,
            }
        )
        last = check.host
    return rows

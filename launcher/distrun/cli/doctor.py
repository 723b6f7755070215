"""`distrun doctor`."""

from __future__ import annotations

import click

from distrun.cli import console
from distrun.cli.options import json_option, overrides_option, spec_argument
from distrun.errors import HostError

_BUNDLED = "chief_and_workers"
"""The template that is checked without a spec: it runs a bundled job on this machine."""


@click.command("doctor")
@spec_argument(required=False)
@overrides_option
@click.option(
    "--bandwidth",
    "measures",
    is_flag=True,
    help="Also measure how fast hosts receive from each other, in a second for each host.",
)
@json_option
def command(
    spec_path: str | None, overrides: tuple[str, ...], measures: bool, as_json: bool
) -> int:
    """Check whether the job that the YAML file SPEC describes can run on its hosts.

    Without SPEC, check whether this machine can run the bundled job with several workers.

    It connects to every host and runs the checks that a launch on other hosts runs before the
    first task: whether the hosts reach each other's ports, the versions of Python and TensorFlow,
    the modules that the program imports, the script, folders, disks and clocks. It also
    notes who else can connect to TensorFlow's servers. A host that cannot be used is named, and the
    others are checked without it. No task is started, and nothing is left on the hosts. The exit
    code is 69 if a check failed.

    \b
      distrun doctor
      distrun doctor job.yaml
      distrun doctor job.yaml --json
      distrun doctor job.yaml --bandwidth
    """
    from distrun.cli.doctor_view import Checkup, print_report, status_line
    from distrun.cli.plan_view import hosts_json
    from distrun.cli.spec_warnings import find_warnings
    from distrun.job.folder import JobStore
    from distrun.job.json_output import output_json
    from distrun.spec.loader import load
    from distrun.spec.resources import templates
    from distrun.supervisor.dry_run import check_hosts

    spec = load(spec_path or templates()[_BUNDLED], overrides=overrides)
    jobs = JobStore.default().jobs
    warnings = find_warnings(spec)  # not beside the hosts' checks, which end all processes here
    with status_line() as show_status:
        made = check_hosts(spec, jobs, show_status, measures=measures)
    found = Checkup(made, spec.local_host, warnings)
    if as_json:
        hosts = hosts_json(host for host in spec.hosts if host.name in found.hosts)
        checks = [output_json(check) for check in found.checks]
        summary = {"ok": not found.failed, "complete": found.is_complete}
        console.print_json({"doctor": {**summary, "hosts": hosts, "checks": checks}})
    else:
        print_report(found)
    return HostError.exit_code if found.failed else 0

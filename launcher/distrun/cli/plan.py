"""`distrun plan`."""

from __future__ import annotations

import click

from distrun.cli import console, options
from distrun.errors import UsageError


@click.command("plan", cls=options.WithProgramArguments)
@options.spec_argument()
@click.argument("args", nargs=-1)
@options.name_option
@options.overrides_option
@options.strict_option
@options.json_option
@click.option(
    "--env",
    "by_hand",
    multiple=True,
    metavar="TASK",
    help="Print only shell lines that run this task by hand, e.g. worker:1. Repeatable.",
)
def command(
    spec_path: str,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    strict: bool,
    as_json: bool,
    by_hand: tuple[str, ...],
) -> int:
    """Show what `distrun launch` would run: tasks, hosts, ports, commands, TF_CONFIG.

    No task is started. Ports that distrun chooses are provisional: the launch chooses new ones.
    Values of variables that look like secrets, such as *_TOKEN and *PASSWORD*, are shown as ***.

    \b
      distrun plan job.yaml
      distrun plan job.yaml --set cluster.worker=4 --json
      distrun plan job.yaml --env worker:1 > worker1.sh && sh worker1.sh
    """
    if as_json and by_hand:
        raise UsageError("use --env or --json, not both")
    from distrun.cli.plan_view import show_plan
    from distrun.cli.spec_warnings import find_warnings, print_success, print_warnings, refuse_if
    from distrun.spec.loader import load

    spec = load(spec_path, overrides=overrides, extra_args=args, name=name)
    print_success(spec)
    warnings = refuse_if(find_warnings(spec), strict=strict)
    if by_hand:
        from distrun.cli.shell_lines import shell_lines
        from distrun.supervisor.dry_run import make_plan

        print_warnings(warnings)
        for line in shell_lines(spec, make_plan(spec), by_hand):
            console.print_text(line)
        return 0
    return show_plan(spec, warnings, as_json=as_json)

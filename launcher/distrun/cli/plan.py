"""`distrun plan`."""

from __future__ import annotations

import click

from distrun.cli import options


@click.command("plan", cls=options.WithProgramArguments)
@options.spec_argument()
@click.argument("args", nargs=-1)
@options.name_option
@options.overrides_option
@options.strict_option
@options.json_option
def command(
    spec_path: str,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    strict: bool,
    as_json: bool,
) -> int:
    """Show what `distrun launch` would run: tasks, hosts, ports, commands, TF_CONFIG.

    No task is started. Ports that distrun chooses are provisional: the launch chooses new ones.
    Values of variables that look like secrets, such as *_TOKEN and *PASSWORD*, are shown as ***.

    \b
      distrun plan job.yaml
      distrun plan job.yaml --set cluster.worker=4 --json
    """
    from distrun.cli.plan_view import show_plan
    from distrun.cli.spec_warnings import find_warnings, print_success, refuse_if
    from distrun.spec.loader import load

    spec = load(spec_path, overrides=overrides, extra_args=args, name=name)
    print_success(spec)
    warnings = refuse_if(find_warnings(spec), strict=strict)
    return show_plan(spec, warnings, as_json=as_json)

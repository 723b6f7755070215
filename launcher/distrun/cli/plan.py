"""`distrun plan`."""

from __future__ import annotations

import click

from distrun.cli.options import (
    json_option,
    name_option,
    overrides_option,
    spec_argument,
    strict_option,
)


@click.command("plan")
@spec_argument
@click.argument("args", nargs=-1)
@name_option
@overrides_option
@strict_option
@json_option
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
    from distrun.cli.spec_warnings import find_warnings, with_workers
    from distrun.spec.loader import load

    spec = with_workers(load(spec_path, overrides=overrides, extra_args=args, name=name))
    return show_plan(spec, find_warnings(spec, strict=strict), as_json=as_json)

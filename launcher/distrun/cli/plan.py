"""`distrun plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import json_option, overrides_option

if TYPE_CHECKING:
    from distrun.plan import Plan
    from distrun.spec.model import Spec


@click.command("plan", short_help="Show what would run.")
@click.argument("spec_path", metavar="SPEC", type=click.Path(allow_dash=True))
@click.argument("args", nargs=-1)
@click.option("--name", help="Call the job this, instead of what the spec says.")
@overrides_option
@json_option
def command(
    spec_path: str,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what `distrun launch` would run: tasks, hosts, ports, commands, TF_CONFIG.

    Nothing is started. Ports that distrun chooses are provisional: a launch chooses anew.

    \b
      distrun plan job.yaml
      distrun plan job.yaml --set cluster.worker=4 --json
    """
    from distrun.spec import load

    spec = load(spec_path, overrides=overrides, extra_args=args, name=name)
    return show_plan(spec, as_json=as_json)


def show_plan(spec: Spec, *, as_json: bool) -> int:
    """Make the plan as a launch would, with the same agent, and show it."""
    from distrun.codec import to_json
    from distrun.rehearsal import rehearse

    plan = rehearse(spec)
    if as_json:
        console.put_json({"plan": to_json(plan)})
    else:
        _show(plan)
    return 0


def _show(plan: Plan) -> None:
    import shlex

    from rich.padding import Padding
    from rich.text import Text

    screen = console.rich_console()
    count = len(plan.tasks)
    screen.print(
        Text.assemble(
            (console.printable(plan.name), "bold"),
            f"  {plan.strategy}  {count} {'task' if count == 1 else 'tasks'}",
        )
    )
    for task in plan.tasks:
        address = task.address or "no port"
        note = " (provisional)" if task.port_is_provisional else ""
        screen.print(
            Text.assemble((f"\n{task.name}", "bold"), f"  on {task.host}  {address}{note}")
        )
        rows = [("run", shlex.join(task.argv)), ("in", task.workdir)]
        rows += [("set", f"{name}={value}") for name, value in task.env.items()]
        rows += [("unset", name) for name in task.unset]
        rows += [("pass", name) for name in plan.pass_env]
        for label, text in rows:
            line = Text.assemble((f"{label:<6}", "dim"), console.printable(text))
            screen.print(Padding(line, (0, 0, 0, 2)), soft_wrap=True)

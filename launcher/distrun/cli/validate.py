"""`distrun validate`."""

from __future__ import annotations

import click

from distrun.cli import console
from distrun.cli.options import overrides_option


@click.command("validate", short_help="Check a spec.")
@click.argument("spec_path", metavar="SPEC", type=click.Path(allow_dash=True))
@overrides_option
def command(spec_path: str, overrides: tuple[str, ...]) -> int:
    """Check the YAML file SPEC and show all that is wrong with it at once.

    \b
      distrun validate job.yaml
    """
    from distrun.spec import load

    spec = load(spec_path, overrides=overrides)
    tasks = sum(role.count for role in spec.roles)
    console.say(f"{spec_path} is valid: {spec.strategy}, {console.count(tasks, 'task')}")
    return 0

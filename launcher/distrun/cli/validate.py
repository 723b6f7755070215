"""`distrun validate`."""

from __future__ import annotations

import click

from distrun.cli import console
from distrun.cli.options import overrides_option, spec_argument
from distrun.cli.text_format import format_count


@click.command("validate")
@spec_argument
@overrides_option
def command(spec_path: str, overrides: tuple[str, ...]) -> int:
    """Check the YAML file SPEC and show all errors at once.

    \b
      distrun validate job.yaml
    """
    from distrun.spec.loader import load

    spec = load(spec_path, overrides=overrides)
    tasks = sum(role.count for role in spec.roles)
    console.print_message(f"{spec_path} is valid: {spec.strategy}, {format_count(tasks, 'task')}")
    return 0

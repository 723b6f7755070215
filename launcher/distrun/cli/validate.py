"""`distrun validate`."""

from __future__ import annotations

import click

from distrun.cli import console, spec_warnings
from distrun.cli.options import overrides_option, spec_argument, strict_option
from distrun.spec.problems import Mark
from distrun.words.formats import format_count


@click.command("validate")
@spec_argument()
@overrides_option
@strict_option
def command(spec_path: str, overrides: tuple[str, ...], strict: bool) -> int:
    """Check the YAML file SPEC and show all errors at once.

    It also reads the Python program and the modules beside it that it imports, and shows warnings:
    for example, if the program creates another strategy. The program is not run.

    \b
      distrun validate job.yaml
    """
    from distrun.cli.gpu_warnings import find_gpu_warnings
    from distrun.spec.loader import load

    spec = load(spec_path, overrides=overrides, is_submitted=None)
    spec_warnings.print_success(spec)
    shown = "<stdin>" if spec_path == "-" else spec_path
    of_gpus = Mark("cluster").checked(lambda: find_gpu_warnings(spec))
    warnings = (*of_gpus, *spec_warnings.find_warnings(spec))
    spec_warnings.print_warnings(spec_warnings.refuse_if(warnings, strict=strict))
    tasks = sum(role.count for role in spec.roles)
    console.print_message(f"{shown} is valid: {spec.strategy}, {format_count(tasks, 'task')}")
    return 0

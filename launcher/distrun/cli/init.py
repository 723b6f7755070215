"""`distrun init`."""

from __future__ import annotations

import contextlib
import os
import sys
from shlex import quote

import click

from distrun.cli import console
from distrun.cli.options import completion_of, output_option
from distrun.cli.output_file import write_file
from distrun.errors import UsageError
from distrun.spec.problems import printable, suggestion
from distrun.spec.resources import describe, examples, templates

_START_HERE = (
    "start here, with your script: distrun init script",
    "to write a new script: distrun init multi_worker, or custom_loop for one machine",
    "to try MNIST: distrun init multi_worker_mirrored",
)


@click.command("init")
@click.argument("template", required=False, shell_complete=completion_of("templates"))
@output_option("The spec to write; - is stdout. Default: TEMPLATE.yaml.", dash=True)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--list", "only_list", is_flag=True, help="List the templates, as without TEMPLATE.")
def command(template: str | None, output: str | None, force: bool, only_list: bool) -> int:
    """List the templates, or write TEMPLATE to a file, as a spec to start from.

    For custom_loop, multi_worker, parameter_server, keras_fit and data_service, init also writes
    the training script that the spec names, in the same folder: a short example for you to edit.

    \b
      distrun init
      distrun init multi_worker
      distrun init multi_worker_mirrored -o job.yaml
    """
    known = templates()
    if template is None and output is not None:
        raise UsageError("-o needs a template's name", hint="`distrun init` lists them")
    if template is None or only_list:
        width = max(map(len, known))
        for name, path in known.items():
            console.print_text(f"{name:<{width}}  {describe(path)}", indent=width + 2)
        for advice in _START_HERE:
            console.print_message(advice)
        return 0
    if template not in known:
        hint = suggestion(template, known)
        if template.lower() == "mnist" or template.endswith(".py"):
            hint = "\n".join(_START_HERE)
        raise UsageError(f"there is no template {template!r}", hint=hint)
    if output == "-":
        sys.stdout.buffer.write(known[template].read_bytes())
        return 0
    spec = output or f"{template}.yaml"
    files = {spec: known[template]}
    if template in examples():
        files[os.path.join(os.path.dirname(spec), f"{template}.py")] = examples()[template]
    with contextlib.ExitStack() as written:  # all of the files, or none of them
        for name, source in files.items():
            written.enter_context(write_file(name, replaces=force)).write(source.read_bytes())
    names = " and ".join(map(printable, files))
    check = printable(f"distrun validate {quote(spec)}")
    own = "write your script's path and arguments into it, then " if template == "script" else ""
    console.print_message(f"wrote {names}; {own}check it with: {check}")
    return 0

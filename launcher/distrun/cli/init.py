"""`distrun init`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from distrun.cli import console
from distrun.errors import UsageError
from distrun.spec.problems import printable

if TYPE_CHECKING:
    from pathlib import Path


def complete_template(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem[Any]]:
    from distrun.resources import templates

    return [
        CompletionItem(name, help=describe(path))
        for name, path in sorted(templates().items())
        if name.startswith(incomplete)
    ]


@click.command("init")
@click.argument("template", required=False, shell_complete=complete_template)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="The file to write; - is stdout. Default: TEMPLATE.yaml.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(template: str | None, output: str | None, force: bool) -> int:
    """List the templates, or write TEMPLATE to a file, as a spec to start from.

    \b
      distrun init
      distrun init multi_worker_mirrored -o job.yaml
    """
    from distrun.resources import templates

    known = dict(sorted(templates().items()))
    if template is None:
        width = max(map(len, known))
        for name, path in known.items():
            console.print_text(f"{name:<{width}}  {describe(path)}")
        return 0
    if template not in known:
        raise UsageError(f"there is no template {template!r}", hint=_nearest(template, known))
    _write(known[template], output or f"{template}.yaml", force=force)
    return 0


def describe(path: Path) -> str:
    """A template's first comment line."""
    return path.read_text("utf-8").partition("\n")[0].lstrip("# ")


def _nearest(name: str, known: dict[str, Any]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"


def _write(template: Path, output: str, *, force: bool) -> None:
    text = template.read_bytes()
    if output == "-":
        sys.stdout.buffer.write(text)
        return
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with open(os.open(output, flags, 0o666), "wb") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{output} exists already", hint="choose another file with -o, or use --force"
        ) from None
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    shown = printable(output)
    console.print_message(f"wrote {shown}; check it with: distrun validate {shown}")

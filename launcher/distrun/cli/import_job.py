"""`distrun import`."""

from __future__ import annotations

import shlex
import sys

import click

from distrun.cli import console
from distrun.cli.options import output_option
from distrun.cli.output_file import write_file
from distrun.errors import InvalidSpecError, UsageError
from distrun.kubernetes.tfjob import convert
from distrun.spec.input_files import STDIN, STDIN_NAME, decode, read_spec
from distrun.spec.problems import Problems, SpecProblemsError, printable


@click.command("import")
@click.argument("tfjob", type=click.Path(allow_dash=True), metavar="TFJOB")
@output_option("The spec to write. Default: standard output.", dash=True, default="-")
@click.option(
    "--command",
    "entry_point",
    metavar="LINE",
    help="The entry point of the image, for containers without a command.",
)
@click.option("--name", help="Which TFJob, if several are in the file.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(tfjob: str, output: str, entry_point: str | None, name: str | None, force: bool) -> int:
    """Convert a TFJob of Kubeflow into a spec for the same cluster.

    TFJOB is its manifest (kubeflow.org/v1); - is standard input. Comments in the spec say what was
    guessed and what was dropped. What distrun cannot do is refused.

    \b
      distrun import tfjob.yaml
      distrun import tfjob.yaml -o job.yaml
      distrun import all.yaml --name mnist -o mnist.yaml
      distrun import tfjob.yaml --command "python /train.py" > job.yaml
    """
    shown = "standard input" if tfjob == "-" else printable(tfjob)
    text = _read(tfjob)
    try:
        spec = convert(text, _words(entry_point or ""), shown, name)
    except InvalidSpecError as error:
        template = "render it first: `helm template`, `kubectl kustomize` or `envsubst`"
        quoted = text if isinstance(error, SpecProblemsError) else error.message
        is_template = "{{" in quoted or "'$" in error.message
        hint = error.hint or (template if is_template else None)
        lines = (  # those of an excerpt are indented
            each if each.startswith((f"{shown}:", " ")) else f"{shown}: {each}"
            for each in error.message.splitlines()
        )
        raise InvalidSpecError("\n".join(lines), hint=hint) from None
    if output == "-":
        sys.stdout.write(spec)
        return 0

    with write_file(output, replaces=force) as file:
        file.write(spec.encode())
    console.print_message(f"wrote {printable(output)}; it says what was guessed and dropped")
    return 0


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"--command is not a shell line: {error}") from None


def _read(path: str) -> str:
    problems, shown = Problems(), STDIN_NAME if path == STDIN else path
    begin = "name the manifest of a TFJob, such as `kubectl get tfjob NAME -o yaml` prints"
    content = read_spec(path, shown, problems, begin)
    text = None if content is None else decode(content, shown, problems)
    problems.raise_if_any()
    return text or ""

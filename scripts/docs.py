"""Writes docs/cli.md from the commands' help, and docs/spec.md from the keys of the spec.

python scripts/docs.py             writes both
python scripts/docs.py --check     exits 1 if one is not what would be written
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from distrun.cli.main import distrun
from distrun.spec.reference import markdown_reference

DOCS = Path(__file__).resolve().parents[1] / "docs"
NOTE = "<!-- Written by scripts/docs.py (make docs): change the code, not this file. -->\n"
EXAMPLES = "<!-- run by: tests/process/test_help.py -->"
CLI = """\
# The commands

Each command's `--help` says the same. JOB is an id, a name (the newest job of that name) or a
unique prefix. D is a duration such as `500ms`, `10s`, `5m`, `1h` or `2d`. Tasks' output goes to
stdout, distrun's own words to stderr; `--json` prints one object with a `version`, and nothing
else. The [README](../README.md#exit-codes) lists the exit codes.
"""
SPEC = """\
# The spec

A job's YAML file, with every key it can have. Only `strategy` and `program` are required, and
`cluster` where the strategy runs in several processes. The [README](../README.md) begins with
whole files, and `distrun init` writes some.

- YAML is read by the 1.2 core rules: `off` and `on` are text, `1:30` is no number. Arguments and
  environment values are taken as they are written: `0.10` stays `0.10`.
- Durations are `500ms`, `10s`, `5m`, `1h` or `2d`, or `off` where a key says so.
- Relative paths are relative to the file.
- `--set PATH=VALUE` changes one value for one launch, as in `--set cluster.worker=4`.
- `distrun validate` shows all errors at once, each with its line and column. `distrun schema`
  prints the same keys for [editors](../README.md#in-your-editor).
"""


def cli_page() -> str:
    """All commands, in the order of `distrun --help`."""
    context = click.Context(distrun, info_name="distrun", **distrun.context_settings)
    parts = [NOTE, CLI]
    for name in distrun.list_commands(context):
        command = distrun.get_command(context, name)
        assert command is not None
        parts.append(command_section(command, click.Context(command, context, info_name=name)))
    return "\n".join(parts)


def command_section(command: click.Command, context: click.Context) -> str:
    """One command: how it is called, what it does, its options, its examples."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    lines = [f"## {context.command_path}", "", f"`{usage}`", "", escaped(text.strip()), ""]
    lines += ["| option | what it does |", "| --- | --- |"]
    for param in command.get_params(context):
        record = param.get_help_record(context) if isinstance(param, click.Option) else None
        if record is not None:
            lines.append(f"| `{cell(record[0])}` | {cell(escaped(record[1]))} |")
    shown = [line.strip() for line in examples.strip().splitlines()]
    return "\n".join([*lines, "", EXAMPLES, "```sh", *shown, "```", ""])


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, but for `code`."""
    return text.replace("*", "\\*").replace("<", "\\<")


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> Iterator[tuple[Path, str]]:
    yield DOCS / "cli.md", cli_page()
    yield DOCS / "spec.md", f"{NOTE}\n{SPEC}\n{markdown_reference()}"


def main(check: bool) -> int:
    stale = 0
    for path, page in pages():
        text = page.rstrip("\n") + "\n"
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale += 1
        print(f"{'stale' if check else 'written'}: {path.relative_to(DOCS.parent)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))

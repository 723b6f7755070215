"""`distrun schema`."""

from __future__ import annotations

import json

import click

from distrun.cli import console


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of a spec. Editors use it to complete and explain the keys.

    \b
      distrun schema > distrun.schema.json
    """
    from distrun.spec.reference import json_schema

    console.print_text(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0

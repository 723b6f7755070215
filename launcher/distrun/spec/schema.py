"""The spec's JSON Schema (draft 2020-12), from the same keys that the loader reads by.

It accepts every valid spec and explains every key to an editor; what spans several keys (roles a
strategy needs, files that must exist) is the loader's to say.
"""

from __future__ import annotations

from typing import Any

from distrun.spec.keys import SPEC

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema, as JSON's objects."""
    return {
        "$schema": DIALECT,
        "title": "distrun spec",
        "description": "A multi-worker TensorFlow job, as `distrun launch` runs it.",
        **SPEC.schema(),
    }

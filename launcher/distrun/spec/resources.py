"""Finds bundled jobs, examples and templates: in the package of a wheel, else above it."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# The wheel's own folder comes first: the folder above an installed package is not its checkout.
ROOTS = (_PACKAGE / "bundled", _PACKAGE.parents[1])


def bundled_jobs() -> dict[str, Path]:
    """Each bundled job's name and its `main.py`."""
    return {main.parent.name: main for main in sorted(_folder("jobs").glob("*/main.py"))}


def examples() -> dict[str, Path]:
    """Each example's name and its script. The template of that name launches it."""
    return {file.stem: file for file in sorted(_folder("jobs").glob("examples/*.py"))}


def templates() -> dict[str, Path]:
    """Each template's name, as `distrun init` takes it, and its file."""
    return {file.stem: file for file in sorted(_folder("templates").glob("*.yaml"))}


def describe(template: Path) -> str:
    """A template's first comment line."""
    return template.read_text("utf-8").partition("\n")[0].lstrip("# ")


def _folder(name: str) -> Path:
    return next((root / name for root in ROOTS if (root / name).is_dir()), ROOTS[0] / name)

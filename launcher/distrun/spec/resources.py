"""Finds bundled jobs, examples and templates: in the package of a wheel, else above it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# The wheel's own folder comes first: the folder above an installed package is not its checkout.
ROOTS = (_PACKAGE / "bundled", _PACKAGE.parents[1])


def bundled_jobs(roots: Sequence[Path] = ROOTS) -> dict[str, Path]:
    """Each bundled job's name and its `main.py`."""
    return {main.parent.name: main for main in sorted(_folder("jobs", roots).glob("*/main.py"))}


def examples(roots: Sequence[Path] = ROOTS) -> dict[str, Path]:
    """Each example's name and its script. The template of that name launches it."""
    return {file.stem: file for file in sorted(_folder("jobs", roots).glob("examples/*.py"))}


def templates(roots: Sequence[Path] = ROOTS) -> dict[str, Path]:
    """Each template's name, as `distrun init` takes it, and its file."""
    return {file.stem: file for file in sorted(_folder("templates", roots).glob("*.yaml"))}


def _folder(name: str, roots: Sequence[Path]) -> Path:
    return next((root / name for root in roots if (root / name).is_dir()), roots[0] / name)

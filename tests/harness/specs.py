"""Specs as texts: loaded, or refused with what a user reads."""

from pathlib import Path
from typing import Any

import pytest

from distrun.spec.loader import load
from distrun.spec.model import Spec
from distrun.spec.problems import SpecProblemsError


def load_text(folder: Path, text: str | bytes, **settings: Any) -> Spec:
    """Load a text as the file job.yaml of a folder."""
    content = text.encode() if isinstance(text, str) else text
    (folder / "job.yaml").write_bytes(content)
    return load("job.yaml", **{"cwd": str(folder), "environ": {"PATH": "x"}, **settings})


def refusal(folder: Path, text: str | bytes, **settings: Any) -> SpecProblemsError:
    """Load a text that is refused; returns the error."""
    with pytest.raises(SpecProblemsError) as raised:
        load_text(folder, text, **settings)
    return raised.value

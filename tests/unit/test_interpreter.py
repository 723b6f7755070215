"""Which interpreter runs a script on this machine, if nothing names one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distrun.spec import interpreter


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    for name in ("venv/bin/python", "conda/bin/python", "path/python3", "opt/python3.9"):
        program(tmp_path / name)
    return {"PATH": str(tmp_path / "path")}


@pytest.mark.parametrize(
    ("active", "first_line", "expected"),
    [
        ({}, "", sys.executable),
        ({"VIRTUAL_ENV": "venv"}, "", "venv/bin/python"),
        ({"CONDA_PREFIX": "conda"}, "", "conda/bin/python"),
        ({"VIRTUAL_ENV": "venv", "CONDA_PREFIX": "conda"}, "", "venv/bin/python"),
        ({"VIRTUAL_ENV": "removed", "CONDA_PREFIX": "conda"}, "", "conda/bin/python"),
        ({"VIRTUAL_ENV": "venv"}, "#!{}/opt/python3.9", "venv/bin/python"),
        ({"VIRTUAL_ENV": sys.prefix}, "#!{}/opt/python3.9", sys.executable),
        ({}, "#!{}/opt/python3.9", "opt/python3.9"),
        ({}, "#! {}/opt/python3.9 -u", "opt/python3.9"),
        ({}, "#!/usr/bin/env python3", "path/python3"),
        ({}, "#!/usr/bin/env -S python3 -u", "path/python3"),
        ({}, "#!/usr/bin/env python2", sys.executable),  # it is not there
        ({}, "#!/bin/sh", sys.executable),
        ({}, "\xff\xfe", sys.executable),
    ],
)
def test_it_is_as_by_hand(
    active: dict[str, str],
    first_line: str,
    expected: str,
    environ: dict[str, str],
    tmp_path: Path,
) -> None:
    script = program(tmp_path / "train.py", f"{first_line.format(tmp_path)}\nprint(1)\n")
    environ |= {name: value and str(tmp_path / value) for name, value in active.items()}
    found = interpreter.find(str(script), environ)
    assert found.path == str(tmp_path / expected)
    assert (found is interpreter.OWN) is (expected == sys.executable)
    script.chmod(0o644)  # by hand, its first line would mean nothing then
    expected = expected if active else sys.executable
    assert interpreter.find(str(script), environ).path == str(tmp_path / expected)

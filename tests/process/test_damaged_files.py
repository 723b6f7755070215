"""Any file of a job or of a bundle may have odd values: they are left out, or told as damage."""

from __future__ import annotations

import copy
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun, WriteSpec
from harness.damaged_records import DEEP, HUGE, MISSING, VALUES, _paths, run_here

CASES = 30
ODD_TEXTS = ("\ud8000", "1e400", "\0", "<b>", "x" * 200_000)
COMMANDS = (
    *(("status",), ("status", "--timing"), ("ps", "-a", "--json"), ("logs", "--timestamps")),
    *(("bundle", "-o", "/dev/null"), ("events",), ("clean", "--dry-run")),
)


def changed(text: str, chooser: random.Random) -> str:
    """A text of JSON with one value changed."""
    document = json.loads(text)
    *above, last = chooser.choice([*_paths(document)])
    holder: Any = document
    for step in above:
        holder = holder[step]
    values = ODD_TEXTS if isinstance(holder[last], str) and chooser.random() < 0.5 else VALUES
    value = chooser.choice(values)
    if value == MISSING:
        del holder[last]
    else:
        holder[last] = copy.deepcopy(value)
    text = json.dumps(document).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000)
    return text.replace(f'"{HUGE}"', "9" * 5000)


@pytest.fixture
def files(distrun: Distrun, write_spec: WriteSpec) -> Path:
    """The folder of a job that has failed."""
    assert distrun("launch", write_spec("echo hello; sleep 0.5; exit 3")).returncode == 3
    (folder,) = (distrun.home / "jobs").iterdir()
    return folder


def test_no_odd_value_is_a_defect(distrun: Distrun, files: Path, tmp_path: Path) -> None:
    assert distrun("bundle", "-o", "whole.tar.gz").returncode == 0
    with tarfile.open(tmp_path / "whole.tar.gz") as whole:
        whole.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    chooser, shown = random.Random(), 0
    for _ in range(CASES):
        top = chooser.choice((files, unpacked))
        names = [each for each in top.rglob("*.json*") if each.read_text().strip()]
        path = chooser.choice(sorted(names))
        before = path.read_text()
        lines = before.splitlines() if path.suffix == ".jsonl" else [before]
        number = chooser.randrange(len(lines))
        lines[number] = changed(lines[number], chooser)
        print(path.name, lines[number][:2000])  # shown if the test fails
        path.write_text("\n".join(lines) + "\n")
        if top == files:
            command: tuple[str, ...] = chooser.choice(COMMANDS)
        else:
            with tarfile.open(tmp_path / "odd.tar.gz", "w:gz", format=tarfile.GNU_FORMAT) as odd:
                for member in sorted(each for each in top.rglob("*") if each.is_file()):
                    odd.add(member, f"{top.name}/{member.relative_to(top)}")
            command = ("report", str(tmp_path / "odd.tar.gz"), "-o", "-")
        code, _, stderr = run_here(command)
        assert code == 0 or (top == unpacked and code == 2 and "bundle" in stderr), stderr
        assert "Traceback" not in stderr
        shown += top == unpacked and code == 0
        path.write_text(before)
    assert shown, "each bundle was refused"

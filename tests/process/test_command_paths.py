"""A relative path of `program.command` is relative to the spec, wherever launch is called."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun


def write_job(folder: Path, **program: Any) -> Path:
    folder.mkdir(exist_ok=True)
    spec = folder / "job.yaml"
    spec.write_text(json.dumps({"strategy": "default", "program": program}))
    return spec


def write_program(path: Path, words: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {words} in $(pwd)\n")
    path.chmod(0o755)


@pytest.mark.parametrize("workdir", [None, "data"])
def test_a_program_beside_the_spec_is_found_from_any_folder(
    distrun: Distrun, workdir: str | None
) -> None:
    write_program(distrun.cwd / "job" / "train.sh", "beside")
    (distrun.cwd / "job" / "data").mkdir()
    chosen = {} if workdir is None else {"workdir": workdir}
    spec = write_job(distrun.cwd / "job", command=["./train.sh"], **chosen)

    done = distrun("launch", spec)

    assert done.returncode == 0, done.stderr
    folder = distrun.cwd if workdir is None else distrun.cwd / "job" / "data"
    assert done.stdout == f"worker:0 | beside in {folder}\n"


def test_the_one_beside_the_spec_comes_before_that_of_the_working_folder(distrun: Distrun) -> None:
    write_program(distrun.cwd / "job" / "train.sh", "beside")
    write_program(distrun.cwd / "train.sh", "elsewhere")
    spec = write_job(distrun.cwd / "job", command=["./train.sh"])
    assert distrun("launch", spec).stdout == f"worker:0 | beside in {distrun.cwd}\n"

    (distrun.cwd / "job" / "train.sh").unlink()
    assert distrun("launch", spec).stdout == f"worker:0 | elsewhere in {distrun.cwd}\n"


@pytest.mark.parametrize("is_called_beside", [True, False])
def test_a_message_names_the_folder(distrun: Distrun, is_called_beside: bool) -> None:
    spec = write_job(distrun.cwd / "job", command=["./trian.sh"])
    folder = distrun.cwd / "job"
    if is_called_beside:
        distrun.cwd = folder
    done = distrun("launch", spec)
    named = rf"there is no program '\./trian\.sh' in {re.escape(str(folder))}"
    if not is_called_beside:
        named = f"there is no program '{folder}/trian.sh'"
    assert re.search(named, done.stderr), done.stderr

"""A relative path of `program.command` is relative to the spec, wherever launch is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_a_program_beside_the_spec_is_found_from_any_folder(distrun: Distrun) -> None:
    write_program(distrun.cwd / "job" / "train.sh", "beside")
    (distrun.cwd / "job" / "data").mkdir()
    done = distrun("launch", write_job(distrun.cwd / "job", command=["./train.sh"], workdir="data"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"worker:0 | beside in {distrun.cwd}/job/data\n"


def test_the_one_beside_the_spec_comes_before_that_of_the_working_folder(distrun: Distrun) -> None:
    write_program(distrun.cwd / "job" / "train.sh", "beside")
    write_program(distrun.cwd / "train.sh", "elsewhere")
    spec = write_job(distrun.cwd / "job", command=["./train.sh"])
    assert distrun("launch", spec).stdout == f"worker:0 | beside in {distrun.cwd}\n"

    (distrun.cwd / "job" / "train.sh").unlink()
    assert distrun("launch", spec).stdout == f"worker:0 | elsewhere in {distrun.cwd}\n"


def test_a_message_names_the_folder(distrun: Distrun) -> None:
    folder = distrun.cwd / "job"
    done = distrun("launch", write_job(folder, command=["./trian.sh"]))
    assert f"there is no program '{folder}/trian.sh'" in done.stderr, done.stderr

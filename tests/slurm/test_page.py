"""docs/slurm.md: from nothing to two workers on two nodes in three commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.slurm import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"


@pytest.mark.e2e
def test_three_commands_lead_to_two_workers_on_two_nodes(slurm: Cluster, distrun: Distrun) -> None:
    found = re.search(r"<!-- run by: tests/slurm/test_page.py -->\n```sh\n(.*?)```", *(
        PAGE.read_text(), re.DOTALL
    ))  # fmt: skip
    assert found is not None
    assert len(found[1].splitlines()) == 3
    tool = distrun.cwd / "bin" / "distrun"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m distrun "$@"\n')
    tool.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", found[1]],
        cwd=distrun.cwd,
        env={**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^worker:1 \| .*epoch 1/1", done.stdout, re.MULTILINE), done.stdout
    job_id = re.search(r"^mnist-\w+$", done.stdout, re.MULTILINE)
    assert job_id is not None
    job = distrun.status(job_id[0])
    assert job["state"] == "succeeded"
    assert [task["host"] for task in job["tasks"]] == ["h1", "h2"]

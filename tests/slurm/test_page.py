"""docs/slurm.md: from nothing to two workers on two nodes in three commands."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from harness.command import Distrun
from harness.requirements import need_tensorflow
from harness.slurm import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
# Python without the program: tests/e2e trains it.
STARTS = """\
import os, sys
if sys.orig_argv[1].endswith("mnist/main.py"):
    print(f"on {os.environ['SLURMD_NODENAME']}:", *sys.orig_argv[2:], flush=True)
    os._exit(0)
"""


def test_three_commands_lead_to_two_workers_on_two_nodes(slurm: Cluster, distrun: Distrun) -> None:
    need_tensorflow()  # which the nodes are asked for
    found = re.search(r"<!-- run by: tests/slurm/test_page.py -->\n```sh\n(.*?)```", *(
        PAGE.read_text(), re.DOTALL
    ))  # fmt: skip
    assert found is not None
    assert len(found[1].splitlines()) == 3
    folder = distrun.write_tool()
    (folder / "sitecustomize.py").write_text(STARTS)
    paths = {name: f"{folder}{os.pathsep}{os.environ[name]}" for name in ("PATH", "PYTHONPATH")}
    done = subprocess.run(
        ["bash", "-euc", found[1]],
        cwd=distrun.cwd,
        env={**os.environ, **paths},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    arguments = "--epochs 3 --dataset synthetic --epochs 1 --steps-per-epoch 20"
    assert f"worker:1 | on h2: {arguments}" in done.stdout.splitlines()
    job_id = re.search(r"^mnist-\w+$", done.stdout, re.MULTILINE)
    assert job_id is not None
    job = distrun.status(job_id[0])
    assert job["state"] == "succeeded"
    assert [task["host"] for task in job["tasks"]] == ["h1", "h2"]

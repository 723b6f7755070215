"""docs/slurm.md: from nothing to two workers on two nodes in three commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from harness.command import Distrun
from harness.slurm import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
# That of the active environment, but for the program: training itself is tested in tests/e2e.
PYTHON = """\
#!/bin/sh
case "$1" in
*/interpreter_probe.py) ;;
*.py) shift; echo "on $SLURMD_NODENAME: $*"; exit ;;
esac
exec {python} "$@"
"""


def test_three_commands_lead_to_two_workers_on_two_nodes(slurm: Cluster, distrun: Distrun) -> None:
    found = re.search(r"<!-- run by: tests/slurm/test_page.py -->\n```sh\n(.*?)```", *(
        PAGE.read_text(), re.DOTALL
    ))  # fmt: skip
    assert found is not None
    assert len(found[1].splitlines()) == 3
    folder = distrun.cwd / "venv" / "bin"
    folder.mkdir(parents=True)
    own = shlex.quote(sys.executable)
    (folder / "distrun").write_text(f'#!/bin/sh\nexec {own} -m distrun "$@"\n')
    (folder / "python").write_text(PYTHON.format(python=own))
    for each in folder.iterdir():
        each.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", found[1]],
        cwd=distrun.cwd,
        env={**os.environ, "PATH": path, "VIRTUAL_ENV": str(folder.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    arguments = "--dataset synthetic --epochs 1 --steps-per-epoch 20"
    assert f"worker:1 | on h2: {arguments}" in done.stdout.splitlines()
    job_id = re.search(r"^mnist-\w+$", done.stdout, re.MULTILINE)
    assert job_id is not None
    job = distrun.status(job_id[0])
    assert job["state"] == "succeeded"
    assert [task["host"] for task in job["tasks"]] == ["h1", "h2"]

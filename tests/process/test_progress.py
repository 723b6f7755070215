"""The progress that a task reports, up to its last report."""

import json

from harness.command import Distrun

SCRIPT = """\
import os, socket
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
address = "\\0" + os.environ["DISTRUN_NOTIFY"][1:]
speak.sendto(b"STEP=7 EPOCH=1", address)
speak.sendto(b"STEP=8", address)
"""
SPEC = """\
strategy: default
cluster: {worker: 1}
program: {script: speak.py}
"""


def test_a_report_just_before_the_exit_is_kept(distrun: Distrun) -> None:
    (distrun.cwd / "speak.py").write_text(SCRIPT)
    (distrun.cwd / "job.yaml").write_text(SPEC)
    assert distrun("launch", "job.yaml").returncode == 0
    (task,) = json.loads(distrun("status", "--json").stdout)["job"]["task_states"]
    assert (task["progress"]["STEP"], task["progress"]["EPOCH"]) == ("8", "1")

"""The progress that a task reports, up to its last report."""

import json

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython

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
FORKED_SPEC = SPEC.replace("speak.py", "speak.py, python: '{python}'")
FLOOD = """\
import os, socket, time
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
speak.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
end = time.monotonic() + 2
while time.monotonic() < end:
    speak.send(b"STEP=1")
"""


@pytest.mark.parametrize("spec", [SPEC, FORKED_SPEC], ids=["task", "fork of the tests"])
def test_a_report_just_before_the_exit_is_kept(
    distrun: Distrun, request: pytest.FixtureRequest, spec: str
) -> None:
    (distrun.cwd / "speak.py").write_text(SCRIPT)
    forking: PreloadedPython = request.getfixturevalue("_preloaded_distrun")
    text = spec.replace("{python}", forking.interpreter)
    (distrun.cwd / "job.yaml").write_text(text)
    assert distrun("launch", "job.yaml").returncode == 0
    (task,) = json.loads(distrun("status", "--json").stdout)["job"]["task_states"]
    assert (task["progress"]["STEP"], task["progress"]["EPOCH"]) == ("8", "1")


def test_a_launch_says_once_that_a_task_reports_too_much(distrun: Distrun) -> None:
    (distrun.cwd / "speak.py").write_text(FLOOD)
    (distrun.cwd / "job.yaml").write_text(SPEC)
    done = distrun("launch", "job.yaml")
    assert done.returncode == 0
    said = "worker:0: it reports more progress than distrun reads: the rest is ignored"
    assert done.stderr.count(said) == 1
    assert distrun("events").stdout.count(said) == 1

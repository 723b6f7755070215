"""TensorBoard beside a job: the real one, where it is installed."""

import json
import os
import re
import socket
import subprocess
import urllib.request
from importlib.util import find_spec

import pytest

from harness.command import Distrun
from harness.processes import alive, descendants, with_argument
from harness.requirements import reason
from harness.waiting import wait_until

installed = pytest.mark.skipif(
    find_spec("tensorboard") is None,
    reason=reason("TensorBoard is not installed", "pip install tensorboard"),
)
UNTIL_GO = "while [ ! -e go ]; do sleep 0.05; done"


def address_of(distrun: Distrun) -> str:
    done = distrun("status", "--json")
    return (json.loads(done.stdout)["job"]["tensorboard"] or "") if done.returncode == 0 else ""


def with_hook(distrun: Distrun, code: str) -> dict[str, str]:
    folder = distrun.cwd / "hook"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return {**os.environ, "PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}"}


WITHOUT_TENSORFLOW = """\
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
"""
"""Has TensorBoard serve without TensorFlow, whose import takes seconds of a core."""


@installed
def test_it_serves_while_the_job_runs_and_ends_with_it(distrun: Distrun) -> None:
    (distrun.cwd / "logs").mkdir()
    spec = distrun.write_spec(UNTIL_GO, workers=1, tensorboard={"logdir": "logs"})
    env = with_hook(distrun, WITHOUT_TENSORFLOW)
    launch = distrun.start("launch", spec, stderr=subprocess.PIPE, text=True, env=env)
    address = wait_until(lambda: address_of(distrun), timeout=120)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    with urllib.request.urlopen(f"{address}data/environment", timeout=60) as answer:
        assert answer.status == 200
    assert address in distrun.asked("status")
    assert address in distrun.asked("events")
    found = descendants(distrun.status()["supervisor_pid"])
    (process,) = with_argument(found, "tensorboard.main")
    (distrun.cwd / "go").touch()
    said = launch.communicate(timeout=60)[1]
    assert launch.returncode == 0
    assert f"TensorBoard is at {address}" in said
    assert not alive(process)
    assert distrun.status()["tensorboard"] is None
    assert [task["task"] for task in distrun.status()["tasks"]] == ["worker:0"]


# A finder before all others that knows of no tensorboard: as on a machine without it.
WITHOUT_IT = """\
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def without(name, path=None, target=None):
    return None if name == 'tensorboard' else find(name, path, target)
PathFinder.find_spec = without
"""


def test_without_it_the_job_runs_all_the_same(distrun: Distrun) -> None:
    env = with_hook(distrun, WITHOUT_IT)
    (distrun.cwd / "tensorboard").mkdir()  # a folder of logs is no package
    spec = distrun.write_spec("echo trained", workers=1, tensorboard={"logdir": "tensorboard"})
    done = distrun.checked("launch", spec, env=env)
    assert done.stdout == "worker:0 | trained\n"
    assert "TensorBoard is not installed" in done.stderr


@pytest.mark.parametrize("is_taken", [True, False])
def test_why_it_does_not_answer_is_said(distrun: Distrun, is_taken: bool) -> None:
    """Its port is taken, or it ends. Its address is not told then."""
    package = distrun.cwd / "fake" / "tensorboard"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").touch()
    package.joinpath("main.py").write_text("raise SystemExit(3)")
    env = {**os.environ, "PYTHONPATH": f"{package.parent}:{os.environ['PYTHONPATH']}"}
    said, reason = distrun.cwd / "said", "ended by itself (3); see /"
    with socket.create_server(("localhost", 0)) as taker, said.open("wb") as stderr:
        keys = {"logdir": "logs"}
        if is_taken:
            keys["port"] = taker.getsockname()[1]
            reason = f"could not be started: port {keys['port']} is taken: "
        spec = distrun.write_spec(UNTIL_GO, workers=1, tensorboard=keys)
        launch = distrun.start("launch", spec, stderr=stderr, env=env)
        wait_until(lambda: b"the job continues" in said.read_bytes())
    (distrun.cwd / "go").touch()
    assert launch.wait(60) == 0
    text = said.read_text()
    assert "TensorBoard is at" not in text
    assert f"TensorBoard {reason}" in text
    assert is_taken or os.path.exists(text.partition("; see ")[2].partition(";")[0])

"""Programs that set TF_CONFIG themselves: their workers do not wait for each other in silence."""

import json
import sys
from pathlib import Path

import pytest

from harness.command import Distrun, Status
from harness.training import held_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TRAIN = """
import json, os, time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "{level}"
config = json.loads(os.environ["TF_CONFIG"])
{change}
os.environ["TF_CONFIG"] = json.dumps(config)
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(1.0)
time.sleep(600)  # workers with exchanged indices do find each other
"""
SETTER = 7
TUTORIAL = (
    'config = {"cluster": {"worker": ["localhost:FIRST", "localhost:SECOND"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
ANOTHERS_INDEX = 'config["task"]["index"] = 1 - config["task"]["index"]'
SAME_INDEX = 'config["task"]["index"] = 0'


@pytest.mark.parametrize(
    ("change", "level"), [(TUTORIAL, 0), (TUTORIAL, 3), (ANOTHERS_INDEX, 0), (SAME_INDEX, 0)]
)
def test_the_job_fails_and_the_line_is_named(
    distrun: Distrun, status: Status, tmp_path: Path, change: str, level: int
) -> None:
    with held_port() as first, held_port() as second:
        change = change.replace("FIRST", str(first)).replace("SECOND", str(second))
        (tmp_path / "train.py").write_text(TRAIN.format(change=change, level=level))
        program = {"script": "train.py", "python": sys.executable}
        spec = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 2}, "program": program}
        (tmp_path / "job.yaml").write_text(json.dumps(spec))
        done = distrun("launch", "job.yaml", timeout=200)
    assert done.returncode != 0
    verdict = status()["verdict"]
    assert verdict["kind"] == "cluster_mismatch", done.stderr
    assert f"the program sets TF_CONFIG, at train.py:{SETTER}" in verdict["cause"]
    assert "do not set it in the script" in verdict["advice"]

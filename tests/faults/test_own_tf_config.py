"""Programs that set TF_CONFIG themselves, with TensorFlow's real servers.

tests/process/test_cluster_mismatch.py has them without TensorFlow.
"""

from __future__ import annotations

import json
import sys

import pytest

from harness.command import Distrun
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


# With level 3, TensorFlow does not print where it serves.
@pytest.mark.parametrize(
    ("change", "level"), [(TUTORIAL, 0), (TUTORIAL, 3), (ANOTHERS_INDEX, 0), (SAME_INDEX, 0)]
)
def test_the_job_fails_and_the_line_is_named(distrun: Distrun, change: str, level: int) -> None:
    with held_port() as first, held_port() as second:
        change = change.replace("FIRST", str(first)).replace("SECOND", str(second))
        (distrun.cwd / "train.py").write_text(TRAIN.format(change=change, level=level))
        program = {"script": "train.py", "python": sys.executable}
        spec = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 2}, "program": program}
        (distrun.cwd / "job.yaml").write_text(json.dumps(spec))
        done = distrun("launch", "job.yaml", timeout=200)
    assert done.returncode != 0
    verdict = distrun.status()["verdict"]
    assert verdict["kind"] == "cluster_mismatch", done.stderr
    assert f"the program sets TF_CONFIG, at train.py:{SETTER}" in verdict["cause"]
    assert "do not set it in the script" in verdict["advice"]

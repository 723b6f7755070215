"""A job whose script sets TF_CONFIG itself, with TensorFlow's real servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.command import Distrun, Status
from harness.training import held_port

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


def check_that_the_line_is_named(
    distrun: Distrun, status: Status, folder: Path, change: str, level: int
) -> None:
    """Launch two workers whose script changes TF_CONFIG; the job fails, and the line is named.

    Args:
        distrun: runs the command line.
        status: asks for the job's status.
        folder: where the script is written.
        change: what the script does to TF_CONFIG, one of the constants here.
        level: TF_CPP_MIN_LOG_LEVEL; with 3, TensorFlow does not print where it serves.
    """
    with held_port() as first, held_port() as second:
        change = change.replace("FIRST", str(first)).replace("SECOND", str(second))
        (folder / "train.py").write_text(TRAIN.format(change=change, level=level))
        program = {"script": "train.py", "python": sys.executable}
        spec = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 2}, "program": program}
        (folder / "job.yaml").write_text(json.dumps(spec))
        done = distrun("launch", folder / "job.yaml", timeout=200)
    assert done.returncode != 0
    verdict = status()["verdict"]
    assert verdict["kind"] == "cluster_mismatch", done.stderr
    assert f"the program sets TF_CONFIG, at train.py:{SETTER}" in verdict["cause"]
    assert "do not set it in the script" in verdict["advice"]

"""The Python code of docs/strategies.md, run as one program."""

import re
import sys
from pathlib import Path

import pytest

from harness.processes import captured
from harness.training import MAIN, RunPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
BLOCK = re.compile(
    rf"<!-- run by: tests/e2e/{Path(__file__).name} -->\n```python\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def test_the_code_prints_what_its_comments_say(run_python: RunPython, tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == PAGE.read_text().count("```python\n")
    code = "\n".join(blocks)
    expected = re.compile(r"^print\(.*\)  # ([^:\n]+)", re.MULTILINE).findall(code)
    assert len(expected) == code.count("print(") > 8
    assert {"3.5", "1.75"} <= set(expected)
    script = tmp_path / "page.py"  # a file: tf.function reads the source of a loop
    script.write_text(code)
    # Two replicas on a machine with two cores need more threads than cores.
    output = run_python(str(script), cwd=tmp_path, TF_NUM_INTEROP_THREADS="8")
    assert output.splitlines() == expected


def test_the_bundled_job_has_the_options_of_the_page() -> None:
    table = PAGE.read_text().partition("## The options of the bundled job")[2]
    shown = set(re.findall(r"--[a-z][a-z-]+", table))
    asked = captured([sys.executable, MAIN, "--help"], check=True)
    assert shown - set(re.findall(r"--[a-z][a-z-]+", asked.stdout)) == set()
    assert {"--reduction", "--devices"} <= shown


KERAS_3 = """
import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
x, y = np.ones([32, 4], np.float32), np.ones([32, 1], np.float32)
for way in ("fit", "one device", "built", "not built"):
    operations = tf.distribute.ReductionToOneDevice() if way == "one device" else None
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], operations)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam()
        model.compile(optimizer, "mse")
        if way == "built":
            optimizer.build(model.trainable_variables)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss((model(x) - y)[:, 0] ** 2, global_batch_size=64)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    try:
        if way == "fit":
            model.fit(x, y, batch_size=16, verbose=0)
        else:
            tf.function(lambda: strategy.run(step))()
        print(way, "works", flush=True)
    except tf.errors.InvalidArgumentError:
        print(way, "fails", flush=True)
"""


def test_mirrored_replicas_with_keras_3(run_python: RunPython, tmp_path: Path) -> None:
    threads = {"TF_NUM_INTEROP_THREADS": "8"}
    said = run_python("-c", KERAS_3, cwd=tmp_path, TF_USE_LEGACY_KERAS="0", **threads)
    assert said.splitlines() == ["fit works", "one device works", "built works", "not built fails"]

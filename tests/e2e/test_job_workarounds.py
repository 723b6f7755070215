"""What the job does in another way than one would write it: each of its workarounds works."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.training import MAIN, RunPython
from mnist_job import workarounds

pytestmark = pytest.mark.e2e

LEAVES = """
import atexit
from mnist_job import workarounds


class Iterator:
    def __del__(self):
        print("deleted")


atexit.register(print, "the generated code is removed")
kept = Iterator()
kept.itself = kept
print("written", end=" ")
workarounds.leave(42)
"""
IMPORTS = """
import gc, os
from mnist_job import workarounds

workarounds.select_keras_2()
with workarounds.fast_imports():
    assert not gc.isenabled()
    import tensorflow as tf
assert gc.isenabled() and gc.get_freeze_count() > 1000
module = tf.keras.optimizers.Adam.__module__
print(module.partition(".")[0], os.environ["TF_CPP_MIN_LOG_LEVEL"])
"""
CLOUD = """
import http.server, os, threading
from tensorflow.python.distribute.failure_handling import failure_handling_util
from mnist_job import workarounds


class Metadata(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Metadata-Flavor", "Google")
        self.end_headers()


with http.server.HTTPServer(("127.0.0.1", 0), Metadata) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["GCE_METADATA_IP"] = f"127.0.0.1:{server.server_port}"
    found = [failure_handling_util.detect_platform().name]
    workarounds.end_search_for_cloud()
    found.append(failure_handling_util.detect_platform().name)
    server.shutdown()
print(*found)
"""


def test_it_leaves_without_deleting_anything_and_flushes_what_is_written() -> None:
    left = subprocess.run(
        [sys.executable, "-c", LEAVES], cwd=MAIN.parent, capture_output=True, text=True, check=False
    )
    assert (left.returncode, left.stderr) == (42, "")
    assert left.stdout == "written the generated code is removed\n"


def test_tensorflow_is_imported_with_keras_2_and_without_searches_for_garbage(
    run_python: RunPython,
) -> None:
    assert run_python("-c", IMPORTS, cwd=MAIN.parent) == "tf_keras 2"


def test_a_clouds_metadata_service_is_not_found(run_python: RunPython) -> None:
    assert run_python("-c", CLOUD, cwd=MAIN.parent) == "GCE_CPU INTERNAL_CPU"


@pytest.mark.parametrize(
    ("strategy", "steps", "compiles"),
    [
        ("default", 150, True),
        ("multi_worker_mirrored", 1000, True),
        ("default", 149, False),
        ("tpu", 1000, False),
        ("parameter_server", 1000, False),
    ],
)
def test_updates_are_compiled_where_it_pays(strategy: str, steps: int, compiles: bool) -> None:
    # Keras sets it where it finds a GPU.
    optimizer = SimpleNamespace(jit_compile=True)
    workarounds.compile_updates(optimizer, strategy, steps)
    assert optimizer.jit_compile is compiles

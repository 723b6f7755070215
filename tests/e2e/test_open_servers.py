"""TensorFlow's server serves whoever connects: docs/security.md and `distrun doctor` say so."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from harness.preloaded import PreloadedPython
from harness.requirements import AS_ROOT, skip
from harness.strangers import UID
from harness.training import Process, RunPython, environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SERVER = """
import tensorflow as tf
server = tf.distribute.Server({"worker": ["localhost:0"]}, job_name="worker", task_index=0)
print(server.target, flush=True)
server.join()
"""
# argv: the server's target, a file, a number for user and group.
CLIENT = """
import os, sys
import tensorflow as tf
with tf.Graph().as_default():
    write = tf.io.write_file(sys.argv[2], "written by a stranger")
    with tf.compat.v1.Session(sys.argv[1]) as session:
        os.setgroups([])
        os.setgid(int(sys.argv[3]))
        os.setuid(int(sys.argv[3]))
        session.run(write)
"""


def test_a_stranger_writes_files_as_the_user_of_a_server_that_listens_everywhere(
    preloaded: PreloadedPython, run_python: RunPython, tmp_path: Path
) -> None:
    if os.geteuid():
        skip("another user cannot be played", AS_ROOT)
    target = tmp_path / "private"
    target.mkdir(mode=0o700)
    server = Process(preloaded, ["-c", SERVER], environment(), tmp_path)
    try:
        address = server.wait_for("^grpc://localhost:.*")[0]
        port = int(address.rpartition(":")[2])
        listening = {
            each.laddr.ip
            for each in psutil.Process(server.pid).net_connections("tcp")
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port
        }
        assert listening <= {"::", "0.0.0.0"}
        assert listening
        run_python("-c", CLIENT, address, str(target / "file"), str(UID), cwd=tmp_path)
    finally:
        server.close()
    assert (target / "file").read_text() == "written by a stranger"
    assert (target / "file").stat().st_uid == 0

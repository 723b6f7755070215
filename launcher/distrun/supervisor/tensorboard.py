"""TensorBoard for a job, on this machine. It ends with the job; the job does not depend on it."""

from __future__ import annotations

import os
import socket
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from distrun.agent import protocol

if TYPE_CHECKING:
    from distrun.spec.model import TensorBoardSpec

NAME = "tensorboard"
"""The name of its task at the agent; no task of a cluster has such a name."""
LOG = "tensorboard.log"
_HOST = "localhost"


def is_installed() -> bool:
    """Whether this interpreter can run TensorBoard, an extra of the package."""
    found = find_spec("tensorboard")
    # A folder with that name, for example of logs, is a package without origin.
    return found is not None and found.origin is not None


def choose_port(spec: TensorBoardSpec) -> int:
    """Return the spec's port, or one that is free now: TensorBoard cannot use a held port.

    Raises:
        OSError: no port is free.
    """
    if spec.port:
        return spec.port
    with socket.create_server((_HOST, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def address(port: int) -> str:
    return f"http://{_HOST}:{port}/"


def start_order(spec: TensorBoardSpec, port: int, workdir: str, job_id: str) -> protocol.StartTask:
    """Return the order that makes an agent start it like a task."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", spec.logdir]
    return protocol.StartTask(
        task=NAME,
        attempt=0,
        argv=[*command, "--host", _HOST, "--port", str(port)],
        workdir=workdir,
        log=LOG,
        env={
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            # `distrun kill` finds it by these if supervisor and agent have both died.
            "DISTRUN_JOB_ID": job_id,
            "DISTRUN_TASK": NAME,
        },
        unset=["TF_CONFIG", *(name for name in os.environ if name.startswith("OMP_"))],
        notify=False,
    )

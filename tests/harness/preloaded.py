"""Python processes that start with TensorFlow imported: forked from one server that imports it.

The import takes 4 s of CPU, most of the time of a short training. A process that has imported
TensorFlow and done nothing else with it can fork.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_REQUEST = 1 << 20
ANSWER_WITHIN = 60.0
"""Seconds for the server to import TensorFlow on a machine that others use too."""


class PreloadedPython:
    """Starts Python programs in forks of a process that has imported TensorFlow and tf_keras.

    The forks become children of this process, as if it had started them itself. It must be a child
    subreaper, as every process that runs tests is.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_WITHIN)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: dict[str, str],
        stdout: int,
        stderr: int,
    ) -> Fork:
        """Starts a program.

        Args:
            argv: a script and its arguments, or `-c`, code and arguments.
            cwd: the program's working folder.
            env: its whole environment.
            stdout: the descriptor for its standard output.
            stderr: the descriptor for its standard error.
        """
        request = {"argv": list(argv), "cwd": str(cwd), "env": env}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [stdout, stderr])
        return Fork(int(self._socket.recv(100)))

    def close(self) -> None:
        self._socket.close()
        self._server.wait()


class Fork:
    """A child process, with the methods of subprocess.Popen that the tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                os.close(self._pidfd)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        if self._code is None:
            select.select([self._pidfd], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# The server ------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Forks a process for each request, until the other end is closed."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    gc.disable()
    import tensorflow as tf  # noqa: F401
    import tf_keras  # noqa: F401

    gc.freeze()
    while True:
        message, outputs, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 2)
        if not message:
            return
        requests.send(str(_fork_orphan(json.loads(message), outputs, requests)).encode())
        for descriptor in outputs:
            os.close(descriptor)


def _fork_orphan(request: dict[str, Any], outputs: list[int], requests: socket.socket) -> int:
    """Forks twice, so that the program is adopted by the process that runs the tests."""
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        program = os.fork()
        if program:
            os.write(writing, str(program).encode())
            os._exit(0)
        requests.close()
        os.close(reading)
        os.close(writing)
        _become(request, outputs)
    os.waitpid(parent, 0)
    with os.fdopen(reading) as pids:
        os.close(writing)
        return int(pids.read())


def _become(request: dict[str, Any], outputs: list[int]) -> None:
    """Runs the program as `python` does, and exits."""
    code = 1
    try:
        for standard, descriptor in enumerate(outputs, 1):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        tempfile.tempdir = None
        gc.enable()
        _run(request["argv"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the program's, shown as Python shows it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(argv: list[str]) -> None:
    if argv[0] != "-c":
        sys.argv = argv
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")
        return
    sys.argv = ["-c", *argv[2:]]
    sys.path[0] = ""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(argv[1], "<string>", "exec"), vars(main))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

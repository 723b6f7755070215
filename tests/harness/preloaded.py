"""Python processes that start with modules imported: forked from one server that imports them.

TensorFlow's import takes 4 s of CPU, most of the time of a short training, and that of a distrun
command takes 0.15 s, most of its time. A process that has imported them and done nothing else with
them can fork.

A launched job can use the forks too: `interpreter` is an executable for `program.python`. It passes
a script to the server, forwards SIGTERM to the fork, and exits as the fork does. If it is killed,
the fork is killed too. distrun's own script, which asks Python what it has, runs without a fork. On
a host made of namespaces, the fork enters them: it connects and reads files as the host does.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import traceback
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LONGEST_REQUEST = 1 << 20
NAMESPACES = {"pid": 0x20000000, "net": 0x40000000, "uts": 0x04000000, "mnt": 0x00020000}
"""Those of a host, with their numbers (linux/sched.h)."""
KEEP_MEMORY = ":".join(
    f"glibc.malloc.{name}"
    for name in ("mmap_threshold=33554432", "trim_threshold=1073741824", "top_pad=67108864")
)
"""Has C's malloc keep what is freed, as distrun does for tasks: page faults took 40% of the CPU of
training."""
INTERPRETER = """\
#!/bin/sh
case "$1" in
*/interpreter_probe.py) ;;
*.py) exec '{python}' -I -S '{module}' forward '{server}' "$@" ;;
esac
exec '{python}' "$@"
"""


class PreloadedPython:
    """Starts Python programs in forks of a process that has imported the modules.

    The forks become children of this process, as if it had started them itself. It must be a child
    subreaper, as every process that runs tests is.
    """

    def __init__(self, *modules: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="preloaded-")
        self._address = address = f"{self._folder}/server"
        self.interpreter = f"{self._folder}/python"
        with open(self.interpreter, "w") as script:
            script.write(INTERPRETER.format(python=sys.executable, module=__file__, server=address))
        os.chmod(self.interpreter, 0o755)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(150.0)  # it may import TensorFlow on a busy machine
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen()
            descriptors = [theirs.fileno(), listener.fileno()]
            # Kept memory would have a command write zeros over the 32 MB that it never uses. What
            # oneDNN prepares for each graph takes a sixth of a short training; interpreters do it.
            trains = {"GLIBC_TUNABLES": KEEP_MEMORY, "TF_ENABLE_ONEDNN_OPTS": "0"}
            own = trains if "tensorflow" in modules else {}
            self._server = subprocess.Popen(
                [sys.executable, __file__, "serve", *map(str, descriptors), *modules],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **own},
            )

    @property
    def pid(self) -> int:
        return self._server.pid

    def command(self, *argv: str) -> str:
        """Returns a line of a shell script that becomes a program; it gets SIGTERM and no input."""
        forward = (sys.executable, "-I", "-S", __file__, "forward", self._address)
        return f'exec {shlex.join([*forward, *argv])} "$@"\n'

    def start(
        self, argv: Sequence[str], *, cwd: str | Path, env: dict[str, str], stdout: int, stderr: int
    ) -> Fork:
        """Starts a script, code after `-c` or a module after `-m`, with their arguments."""
        return Fork(self.fork(argv, [stdout, stderr], cwd=str(cwd), env=env))

    def fork(self, argv: Sequence[str], descriptors: list[int], **about: Any) -> int:
        """Starts a program with these as its standard output, error and input. Returns its id."""
        request = json.dumps({"argv": list(argv), **about}).encode()
        socket.send_fds(self._socket, [request], descriptors)
        return int(self._socket.recv(100))

    def close(self) -> None:
        self._socket.close()
        self._server.wait()
        shutil.rmtree(self._folder)


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
        """Returns the exit code, negative for a signal; raises subprocess.TimeoutExpired."""
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


class PreloadedPopen(subprocess.Popen[Any]):
    """`subprocess.Popen` of a preloaded Python. A new session has stdin as its terminal."""

    def __init__(self, preloaded: PreloadedPython, argv: Sequence[str], **options: Any) -> None:
        self._preloaded = preloaded
        self._leads_session = options.get("start_new_session", False)
        super().__init__(argv, **options)

    def _execute_child(self, args: Any, *about: Any) -> None:
        """Start the process: this method of Popen forks this process, and executes a program."""
        cwd, env, pipes = about[4], about[5], about[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        self.pid = self._preloaded.fork(
            args,
            [1 if stdout < 0 else stdout, 2 if stderr < 0 else stderr, max(0, stdin)],
            cwd=str(cwd),
            env=dict(env or os.environ),
            leads_session=self._leads_session,
        )
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


# The server ------------------------------------------------------------------------------------


def serve(requests: socket.socket, listener: socket.socket, modules: Sequence[str]) -> None:
    """Forks a process for each request, until the other end of `requests` is closed."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    if tensorflow := sys.modules.get("tensorflow"):
        # Optimizing its graphs takes a quarter of a short training. Real interpreters do it.
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no fork of this process leaves a zombie
    while True:
        ready, _, _ = select.select([requests, listener], [], [])
        if listener in ready:
            with listener.accept()[0] as connection:
                if not os.fork():
                    requests.close()
                    listener.close()
                    _supervise(connection)
        if requests in ready:
            message, outputs, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 3)
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
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever adopts the program reads its status
        program = os.fork()
        if program:
            os.write(writing, str(program).encode())
            os._exit(0)
        requests.close()
        os.close(reading)
        os.close(writing)
        _become(request, outputs)
    os.close(writing)
    with contextlib.suppress(ChildProcessError):  # SIGCHLD is ignored here: nothing to read
        os.waitpid(parent, 0)
    with os.fdopen(reading) as pids:
        return int(pids.read())


def _supervise(connection: socket.socket) -> None:
    """Runs a program for `forward`: passes signals on, returns its status, dies with its client."""
    message, outputs, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 2)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    client = struct.unpack("3i", credentials)[0]
    _enter_namespaces(client, "pid")  # for children
    program = os.fork()
    if not program:
        connection.close()
        _enter_namespaces(client, "net", "uts", "mnt")
        _become(json.loads(message), outputs)
    for descriptor in outputs:
        os.close(descriptor)
    pidfd, requests = os.pidfd_open(program), connection.fileno()
    while pidfd not in select.select([pidfd, requests], [], [])[0]:
        number = connection.recv(10)
        os.kill(program, int(number or signal.SIGKILL))
        if not number:
            break
    _, status = os.waitpid(program, 0)
    with contextlib.suppress(OSError):  # the client is gone
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _enter_namespaces(pid: int, *names: str) -> None:
    """Enters those namespaces of a process that differ from this one's."""
    for name in names:
        path = f"/proc/{pid}/ns/{name}"
        if os.readlink(path) != os.readlink(f"/proc/self/ns/{name}"):
            descriptor = os.open(path, os.O_RDONLY)
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(descriptor, NAMESPACES[name]) != 0:
                raise OSError(ctypes.get_errno(), f"setns({path})")
            os.close(descriptor)


def _become(request: dict[str, Any], outputs: list[int]) -> None:
    """Runs the program as `python` does, and exits."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for standard, descriptor in zip((1, 2, 0), outputs, strict=False):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        if request.get("leads_session"):
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        tempfile.tempdir = None
        sys.stdin = open(0)  # noqa: SIM115
        sys.stdout = open(1, "w")  # noqa: SIM115 - the server's may be a file, this one a pipe
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
        gc.enable()
        _run(request["argv"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - the program's, shown as Python shows it
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename in (
            __file__,
            runpy.run_path.__code__.co_filename,
        ):
            frames = frames.tb_next
        traceback.print_exception(error.with_traceback(frames))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(argv: list[str]) -> None:
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = ""
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    if argv[0] != "-c":
        sys.argv = argv
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")
        return
    sys.argv = ["-c", *argv[2:]]
    sys.path[0] = ""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(argv[1], "<string>", "exec"), vars(main))


# The interpreter of a launched job ---------------------------------------------------------------


class Relay:
    """Passes a program's progress on to distrun, which takes it from the task's processes only.

    The program is a child of the server, so for distrun it is not one of them.
    """

    def __init__(self, notify: str) -> None:
        self.target = notify.replace("@", "\0", 1)
        self.address = f"@relay-{os.getpid()}-{os.urandom(6).hex()}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address.replace("@", "\0", 1))
        self.socket.setblocking(False)

    def pass_on(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram = self.socket.recv(1 << 16)
                with (
                    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
                    contextlib.suppress(OSError),  # the agent is gone
                ):
                    sender.sendto(datagram, self.target)


def forward(server: str, argv: list[str]) -> None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(server)
    relay = Relay(os.environ.get("DISTRUN_NOTIFY", ""))
    env = {**os.environ, **({"DISTRUN_NOTIFY": relay.address} if relay.target else {})}
    request = {"argv": argv, "cwd": os.getcwd(), "env": env}
    socket.send_fds(connection, [json.dumps(request).encode()], [1, 2])

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):  # the program has ended
            connection.send(str(number).encode())

    signal.signal(signal.SIGTERM, pass_on)
    while connection not in select.select([connection, relay.socket], [], [])[0]:
        relay.pass_on()
    relay.pass_on()  # what the program sent just before its end
    try:
        answer = connection.recv(10)
    except ConnectionResetError:  # a signal that the server did not read comes before its answer
        answer = connection.recv(10)
    code = int(answer or 1)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)  # at once: while Python shuts down, a SIGTERM would kill it


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        requests, listener = (socket.socket(fileno=int(each)) for each in sys.argv[2:4])
        serve(requests, listener, sys.argv[4:])
    else:
        forward(sys.argv[2], sys.argv[3:])

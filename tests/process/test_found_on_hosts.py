"""What the host shows of a failure: a limit, who has a port or listens where, killed children."""

import os
import re
import resource
import socket
import sys

import pytest

from harness.command import Distrun
from harness.parts.linux import child_deaths
from harness.tables import read_program
from harness.waiting import wait_until

NEEDY = """\
import os, resource, sys, threading, time
if os.environ["DISTRUN_TASK"] == "worker:1":
{}
time.sleep(20)
"""
LIMITS = {
    "threads": (
        """
    resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
    if not os.getuid(): os.setgid(424242); os.setuid(424242)
    for _ in range(99): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()""",
        r"can't start new thread, at needy\.py:6; `ulimit -u` is 60 for .* who has \d+ without it",
        "have root raise it in /etc/security/limits.conf",
    ),
    "files": (
        """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, hard))
    kept = [open(os.devnull) for _ in range(99)]""",
        r"had too many files open: .*; `ulimit -n` is 50 \(limit\)",
        f"`ulimit -n {resource.getrlimit(resource.RLIMIT_NOFILE)[1]}` in the shell that launches",
    ),
    "memory": (
        """
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 40))
    bytearray(2 << 30)""",
        r"ran out of memory: MemoryError, at needy\.py:5; `ulimit -v` is 1\.1 GB \(host_memory\)",
        "`ulimit -v 1073741824` in the shell that launches",
    ),
    "log": (
        """
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 1 << 20))
    while True: print("step", flush=True)""",
        r"hit a limit of its host; `ulimit -f` is 4 kB \(limit\)",
        "`ulimit -f 1024` in the shell that launches",
    ),
}  # fmt: skip


def run(distrun: Distrun, name: str, text: str, tasks: int = 2) -> str:
    (distrun.cwd / f"{name}.py").write_text(text)
    done = distrun("run", "-n", str(tasks), f"{name}.py")
    assert done.returncode, done.stderr
    return str(done.stderr)


@pytest.mark.parametrize("what", LIMITS)
def test_the_limit_that_was_hit_is_told_with_its_value(what: str, distrun: Distrun) -> None:
    body, said, advice = LIMITS[what]
    told = run(distrun, "needy", NEEDY.format(body))
    assert re.search(said, told), told
    assert advice in told


SERVER = """\
import os, socket, time
while os.environ["DISTRUN_TASK"] == "worker:1":
    with socket.socket() as first:
        if first.connect_ex(("127.0.0.1", {0})) == 0:
            break
    time.sleep(0.02)
with socket.socket() as server:
    server.bind(("0.0.0.0", {0}))
    server.listen()
    print("it listens", flush=True)
    time.sleep(60)
"""


def free_port() -> int:
    """One that no connection is given (ip_local_port_range), nor a task by distrun."""
    return 12000 + int.from_bytes(os.urandom(2), "big") % 6000


def test_who_has_a_port_is_named_with_task_and_job(distrun: Distrun) -> None:
    port = free_port()
    told = run(distrun, "server", SERVER.format(port))
    assert re.search(rf"port {port} is taken: python\S* \(pid \d+\) of worker:0 has it", told), told
    script = f"exec {sys.executable} {distrun.cwd / 'server.py'}"
    job = distrun.detached(script, name="other", workers=1)
    try:
        wait_until(lambda: "it listens" in distrun.asked("logs", job))
        told = run(distrun, "server", SERVER.format(port), 1)
    finally:
        assert distrun("kill", job).returncode == 0
    assert f"of worker:0 of the job {job} has it" in told
    with socket.create_server(("0.0.0.0", port)):
        told = run(distrun, "server", SERVER.format(port), 1)
    assert f"(pid {os.getpid()}) has it" in told


CLUSTER = read_program("cluster.py")


def test_a_server_that_listens_on_loopback_only_is_blamed(distrun: Distrun) -> None:
    (distrun.cwd / "server.py").write_text(CLUSTER)
    addresses = [f"127.0.0.2:{free_port()}", f"127.0.0.3:{free_port()}"]
    command = f"exec {sys.executable} {distrun.cwd / 'server.py'} 127.0.1.1"
    told = str(distrun.launch(command, cluster={"worker": addresses}).stderr)
    where = f"worker:1 listens at 127.0.1.1:{addresses[1].rpartition(':')[2]} only"
    assert where in told, told
    assert f"the others look for it at {addresses[1]} (network)" in told


POOL = """\
import multiprocessing, os
def die(number):
    if number == 5 and os.environ["DISTRUN_TASK"] == "worker:1":
        os.kill(os.getpid(), 9)
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        pool.map(die, range(10), chunksize=1)
"""
EXITED = """\
import multiprocessing, os
if os.environ["DISTRUN_TASK"] == "worker:1":
    multiprocessing.Process(target=os._exit, args=[7]).start()
multiprocessing.Queue().get()
"""
CHILD = """\
import os, subprocess, sys, time
if os.environ["DISTRUN_TASK"] == "worker:0":
    time.sleep(20)
done = subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), {0})"])
{1}
"""


LOST = r"worker:1 lost a child process: process \d+"
REPLACED = """\
import multiprocessing, os
def fail():
    raise OSError("no table")
if os.environ["DISTRUN_TASK"] == "worker:1":
    multiprocessing.Pool(2, initializer=fail).apply(abs, [1])
multiprocessing.Queue().get()
"""
BROKEN = """\
import concurrent.futures, os, subprocess, time
if os.environ["DISTRUN_TASK"] == "worker:0":
    time.sleep(20)
with concurrent.futures.ProcessPoolExecutor(1) as pool:
    pool.submit(os._exit, 7).result()
"""
KILLED = {
    "a broken pool": (BROKEN, rf"{LOST} exited 7 \(exit\)"),
    "no word": (CHILD.format(11, "sys.exit(1)"), rf"{LOST} was killed by SIGSEGV \(crash\)"),
    "what strace kills at first": (
        """import os, subprocess, sys\nif os.environ["DISTRUN_TASK"] == "worker:1":
    subprocess.run(["sh", "-c", "sleep 9 & kill -9 $!; sleep 1"])\n    sys.exit(3)
__import__("time").sleep(20)""",
        "worker:1 exited 3 by itself",
    ),
    "a stall": (POOL, rf"{LOST} was killed by SIGKILL \(killed\)"),
    "a stall for one that exited": (EXITED, rf"{LOST} exited 7 \(exit\)"),
    "a stall while children are replaced": (
        REPLACED,
        r"(?s)worker:1 starts child .* fail: \d+ in 5 s, .* no progress .*(no table|exited 1 )",
    ),
}
"""What worker:1 does after the death of its child, and what is said."""


def _require_deaths() -> None:
    kernel = child_deaths.open_socket()
    if kernel is None:
        pytest.skip("the kernel does not tell this process how others end")
    kernel.close()


@pytest.mark.parametrize("then", KILLED)
def test_a_killed_child_is_named(then: str, distrun: Distrun) -> None:
    _require_deaths()
    text, said = KILLED[then]
    (distrun.cwd / "own.py").write_text(text)
    stall = {} if "stall" not in then else {"stall": "2s"}
    done = distrun.launch("", program={"script": "own.py"}, timeouts=stall)
    assert done.returncode, done.stderr
    assert re.search(said, done.stderr), done.stderr


FAILS = """python -c 'import time; time.sleep(2); exit(3)' """
SHELLS = {
    "a pipe": (f"{FAILS} | tee log", "exited 3; its exit code is hidden at"),
    "what follows": (f"{FAILS}; echo end", "exited 3; its exit code is hidden at"),
    "grep, which fails": (f"{FAILS} | grep -v x", "lost a child process: python -c import time; "),
    "a look": (f"{FAILS} || echo end", ""),
    "what shows the code": (f"set -o pipefail; {FAILS} | cat || true", ""),
}


@pytest.mark.parametrize("what", SHELLS)
def test_a_program_whose_exit_code_a_shell_hides(what: str, distrun: Distrun) -> None:
    _require_deaths()
    line, said = SHELLS[what]
    program, success = {"command": ["bash", "-c", line]}, {"strict": True}
    done = distrun.launch("", workers=1, program=program, success=success)
    code = 1 if "grep" in what else 75 if said else 0
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


WAITING = """\
import os, subprocess, time
for _ in range(90 if os.environ["DISTRUN_TASK"] == "worker:1" else 0):
    subprocess.call(["test", "-e", "data"])
    print("waiting for data", flush=True)
    time.sleep(0.1)
"""


def test_who_asks_again_and_again_does_not_hang(distrun: Distrun) -> None:
    (distrun.cwd / "own.py").write_text(WAITING)
    done = distrun.launch("", program={"script": "own.py"}, timeouts={"stall": "2s"})
    assert done.returncode == 0, done.stderr

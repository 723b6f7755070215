"""`program.preload`: attempts are forks of a process that has imported their modules."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrun import events
from harness.command import Distrun, FindVictim, Status, WriteSpec, recorded_events
from harness.processes import alive
from harness.waiting import wait_until

SOON = {"max": 3, "backoff": "50ms"}
# Counts its imports, and prints as TensorFlow does.
SLOW = """\
import os, sys
with open("imports", "a") as file:
    file.write(f"{os.getpid()}\\n")
print("imported", flush=True)
"""
# What a program can know of itself. What differs between any two processes is left out.
FACTS = """\
import slow
import gc, json, os, resource, signal, sys, threading

def names(value):
    left_out = ("DISTRUN_NOTIFY", "DISTRUN_JOB_ID", "DISTRUN_TOKEN")
    return [[k, v] for k, v in sorted(value) if k not in left_out]

main = sys.modules["__main__"]
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
facts = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "names": [__name__, __file__, main.__file__, main.__name__, str(__spec__), __package__],
    "globals": sorted(vars(main).keys() - {"__annotations__"}),
    "environ": names(os.environ.items()),
    "cwd": os.getcwd(),
    "open": sorted(os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "leads": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "signals": {n: status[n] for n in ("SigBlk", "SigIgn", "SigCgt")},
    "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
    "umask": status["Umask"],
    "collects": [gc.isenabled(), gc.get_threshold()],
    "threads": [each.name for each in threading.enumerate()],
    "flags": repr(sys.flags),
    "streams": [each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)],
    "shown": open("/proc/self/cmdline").read().rstrip("\\0"),
    "task": [e for e in open("/proc/self/environ").read().split("\\0") if "DISTRUN_TASK=" in e],
    "parent": open(f"/proc/{os.getppid()}/comm").read(),
    "source": repr(__loader__).partition(" at ")[0],
}
json.dump(facts, open(sys.argv[1], "w"))
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A module `slow`; returns the file with the ids of the processes that have imported it."""
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path / "imports"


def program(script: str, **keys: Any) -> dict[str, Any]:
    Path("program.py").write_text(script)
    return {"script": "program.py", "preload": ["slow"], **keys}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def importers(job: dict[str, Any]) -> list[psutil.Process]:
    """The processes beside the tasks of a job on this machine that wait with imported modules."""
    agent = psutil.Process(next(task["pid"] for task in job["tasks"])).parent()
    assert agent is not None
    return [each for each in agent.children() if "distrun: imports of" in " ".join(each.cmdline())]


@pytest.mark.parametrize("kind", ["script", "module"])
def test_a_program_notices_no_difference(
    kind: str, distrun: Distrun, write_spec: WriteSpec, slow: Path
) -> None:
    Path("program.py").write_text(FACTS)
    named = {"script": "program.py"} if kind == "script" else {"module": "program"}
    found = []
    for name, preload in (("plain", []), ("forked", ["slow"])):
        keys = {**named, "args": ["facts.json", "two words"], "preload": preload}
        done = distrun("launch", write_spec("", 1, name, program=keys))
        assert done.returncode == 0, done.stderr + done.stdout
        assert "imported" in done.stdout
        text = Path("facts.json").read_text()
        job_id = recorded_events(distrun, name)[0]["job_id"]
        text = re.sub(r"localhost:\d+", "ADDRESS", text.replace(job_id, "JOB"))
        found.append(json.loads(re.sub(r" at 0x[0-9a-f]+", "", text)))
    assert found[1] == found[0]
    assert len(set(slow.read_text().split())) == 2


def test_a_restart_does_not_import_again(
    distrun: Distrun, write_spec: WriteSpec, slow: Path
) -> None:
    script = """
import os, random, slow, sys
print("draws", random.random(), flush=True)
sys.exit(3 if os.environ["DISTRUN_ATTEMPT"] < "2" and os.environ["DISTRUN_RANK"] == "1" else 0)
"""
    done = distrun("launch", write_spec("", program=program(script), restart=SOON))
    assert done.returncode == 0, done.stderr
    assert len(slow.read_text().split()) == 1
    logs = distrun("logs").stdout
    assert len(set(re.findall(r"draws (.*)", logs))) == logs.count("draws") >= 4
    kinds = {each["event"] for each in recorded_events(distrun)}
    assert "NotPreloaded" not in kinds


THREAD = """\
import threading, time
threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()
"""
POOL = """\
import multiprocessing
def add(n):
    return n + 1
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(add, [1]))
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import slow\ndef f():\n    raise ValueError('boom')\nf()\n", 1),
        ("import slow, sys\nsys.exit('a last word')\n", 1),
        ("import slow, sys\nsys.exit(7)\n", 7),
        ("raise KeyboardInterrupt\n", 130),
        ("def f(:\n", 1),
        ("import atexit\natexit.register(print, 'at exit')\nprint('no end', end='')\n", 0),
        (THREAD, 0),
        (POOL, 0),
    ],
)  # fmt: skip
def test_it_ends_and_prints_alike(
    script: str, code: int, distrun: Distrun, write_spec: WriteSpec, slow: Path
) -> None:
    logs = []
    for name, preload in (("plain", []), ("forked", ["slow"])):
        Path("program.py").write_text(f"print('begins', flush=True)\n{script}")
        keys = {"script": "program.py", "preload": preload}
        done = distrun("launch", write_spec("", 1, name, program=keys, strategy="mirrored"))
        assert done.returncode == code, done.stderr
        logs.append(distrun("logs", name, "--raw").stdout.replace("imported\n", ""))
    assert logs[1] == logs[0]
    assert slow.exists()


def test_an_attempt_after_the_importing_process_was_killed_imports_again(
    distrun: Distrun, write_spec: WriteSpec, status: Status, slow: Path
) -> None:
    script = "import os, slow, time\nwhile not os.path.exists(f'end-{slow.__name__}'):\n"
    spec = write_spec("", program=program(f"{script}    time.sleep(0.02)\n"), restart=SOON)
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: status()["state"] == "running")
    (process,) = importers(status())
    process.kill()
    wait_until(lambda: not alive(process.pid))
    os.kill(status()["tasks"][1]["pid"], signal.SIGKILL)
    wait_until(lambda: [task["attempt"] for task in status()["tasks"]] == [1, 1])
    Path("end-slow").touch()
    assert distrun("wait").returncode == 0
    assert len(slow.read_text().split()) == 2


@pytest.mark.parametrize("victim", ["agent", "supervisor"])
def test_nothing_is_left_when_distrun_is_killed(
    victim: str,
    distrun: Distrun,
    write_spec: WriteSpec,
    status: Status,
    victim_of: FindVictim,
    slow: Path,
) -> None:
    spec = write_spec("", program=program("import slow, time\ntime.sleep(600)\n"))
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: status()["state"] == "running")
    job = status()
    pids = [each.pid for each in importers(job)] + [task["pid"] for task in job["tasks"]]
    assert len(pids) == 3
    os.kill(victim_of(victim, None), signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)))


def test_a_job_can_be_killed_while_modules_are_imported(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path
) -> None:
    Path("slow.py").write_text("open('importing', 'w').close()\nimport time\ntime.sleep(600)\n")
    spec = write_spec("", program=program("import slow\n"))
    launch = distrun.start("launch", spec)
    wait_until(Path("importing").exists)
    killed = distrun("kill")
    assert killed.returncode == 0, killed.stderr
    assert launch.wait(60) == 137


PULSE = """\
import threading, time
threading.Thread(target=time.sleep, args=(600,), name="pulse", daemon=True).start()
"""
WITHOUT = r"worker:0 runs without program.preload: "


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
        (PULSE,
         "an import has started the thread pulse, which a fork would lack"),
        ("import os, sys\nprint('no memory', file=sys.stderr, flush=True)\nos._exit(9)\n",
         "the importing process exited 9: no memory"),
        ("import os\nos.kill(os.getpid(), 11)\n", "the importing process was killed by signal 11"),
        (None, "ModuleNotFoundError: No module named 'slow'"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_told_and_the_program_runs(
    module: str | None, why: str, distrun: Distrun, write_spec: WriteSpec
) -> None:
    if module is not None:
        Path("slow.py").write_text(module)
    spec = write_spec("", 1, program=program("print('runs')\n"), strategy="mirrored")
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    assert "runs" in done.stdout
    assert f"{WITHOUT}its modules could not be imported beforehand: " in done.stderr
    assert why in done.stderr
    assert why in distrun("events").stdout


def test_a_host_with_a_gpu_is_asked_for_by_name(
    distrun: Distrun,
    write_spec: WriteSpec,
    slow: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in for nvidia-smi: this machine has no GPU."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text("#!/bin/sh\necho 0\n")
    (programs / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    script = "import slow\n"
    for keys, is_used in (
        ({}, False),
        ({"preload_gpu": True}, True),
        ({"env": {"CUDA_VISIBLE_DEVICES": ""}}, True),
    ):
        spec = write_spec("", 1, program=program(script, **keys), strategy="mirrored")
        done = distrun("launch", spec)
        assert done.returncode == 0, done.stderr
        assert ("its host has a GPU" in done.stderr) is not is_used
        kinds = {each["event"] for each in recorded_events(distrun)}
        assert (events.NotPreloaded.__name__ in kinds) is not is_used


def test_the_bundled_job_says_which_keras_it_needs(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path
) -> None:
    """A stand-in for tensorflow: its import takes seconds, and the job must not get that far."""
    (tmp_path / "tensorflow.py").write_text("")
    keys = {"script": "mnist", "preload": ["tensorflow"], "env": {"PYTHONPATH": str(tmp_path)}}
    done = distrun("launch", write_spec("", 1, program=keys, strategy="mirrored"))
    assert done.returncode == 65, done.stderr
    assert "set program.keras to 2" in done.stdout

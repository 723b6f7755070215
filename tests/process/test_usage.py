"""What tasks have used, while they run and once they have ended."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from distrun.job.usage import measure
from harness.command import Distrun, recorded_events
from harness.waiting import wait_until

BUSY = """\
import os, subprocess, sys, time
kept = bytearray(os.urandom(1000) * 80_000)
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
subprocess.run([sys.executable, "-c", "x = b'1' * 20_000_000; open('out', 'wb').write(x)"])
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
"""
PRINTS = """\
import os, time
for step in range(1, 10000):
    print(f'\\r{step}/10000 [====>...] - ETA: 9s - loss: 0.25', end='', flush=True)
    time.sleep(0.05)
    if os.path.exists('go'): break
"""
NVIDIA_SMI = """\
#!/bin/sh
case "$1" in
    --query-gpu=index) echo 0; echo 1 ;;
    --query-gpu=*) echo "GPU-a, 35"; echo "GPU-b, 85" ;;
    *) for pid in $(cat {folder}/pids-*); do echo "$pid, GPU-b, 512"; done ;;
esac
"""


def python(script: str) -> str:
    """A shell script that becomes this Python with that script."""
    return f"exec {shlex.quote(sys.executable)} -c {shlex.quote(script)}"


def samples(distrun: Distrun) -> list[dict[str, Any]]:
    """The samples of worker:0 of the only job."""
    files = distrun.home.glob("jobs/*/history/worker-0.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_task_that_has_ended_shows_what_it_used(distrun: Distrun) -> None:
    (distrun.cwd / "go").touch()
    assert distrun.launch(python(BUSY), workers=1).returncode == 0
    job = distrun.status()
    (task,) = job["tasks"]
    used = task["used"]
    assert task["usage"] is None
    assert 0.3 <= used["cpu_seconds"] == job["cpu_seconds"] < 30
    # It holds 172 MB at most, and 102 MB twice for a sample in the moment of its fork.
    assert 80e6 <= used["peak_memory_bytes"] == job["peak_memory_bytes"] < 220e6
    assert used["written_bytes"] >= 20e6
    shown = distrun.asked("status")
    assert " MB peak" in shown
    assert "first output after" in shown
    (listed,) = json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]
    assert listed["cpu_seconds"] == job["cpu_seconds"]


def test_the_samples_have_what_the_task_has_printed(distrun: Distrun) -> None:
    distrun.detached(python(PRINTS), workers=1)
    wait_until(lambda: any(each["progress"].get("STEP", 0) > 1 for each in samples(distrun)))
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    (first,) = [each for each in recorded_events(distrun) if each["event"] == "FirstStep"]
    assert (first["task"], first["attempt"]) == ("worker:0", 0)
    assert samples(distrun)[-1]["progress"]["LOSS"] == 0.25
    timing = distrun.asked("status", "--timing")
    for phase in ("accepted", "program executed", "first output", "first step", "last step", "end"):
        assert f"\n{phase} " in timing


def test_gpus_are_sampled_by_nvidia_smi(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for nvidia-smi: this machine has no GPU."""
    programs = distrun.cwd / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(NVIDIA_SMI.format(folder=distrun.cwd))
    (programs / "nvidia-smi").chmod(0o755)
    script = (
        "import os, time\n"
        "is_child = not os.fork()\n"
        "kept = is_child and os.urandom(80_000_000)\n"
        "open(f'pids-{os.getpid()}', 'w').write(f'{os.getpid()}\\n')\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "is_child or os.wait()\n"
    )
    with monkeypatch.context() as on_the_host:
        on_the_host.setenv("PATH", str(programs), prepend=os.pathsep)
        distrun.detached(python(script), workers=1)
    # A sample may precede the second process.
    both = {"gpu_memory_bytes": 1024 << 20, "gpu_percent": 85.0}
    wait_until(lambda: samples(distrun) and both.items() <= samples(distrun)[-1].items())
    usage = distrun.status()["tasks"][0]["usage"]
    assert (usage["processes"], usage["gpu_memory_bytes"]) == (2, None), "none is asked here"
    assert usage["memory_bytes"] > 80_000_000, "of its child"
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    shown = distrun.asked("status")
    assert "GPU MEM" in shown
    assert "1.1 GB" in shown, "of both processes"
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0


def test_memory_of_gpus_that_nvidia_smi_does_not_tell_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{os.getpid()}, GPU-b, [N/A]'")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    usage = measure([os.getpid()])[os.getpid()]
    assert usage.gpu_memory_bytes is None
    assert usage.memory_bytes


def test_a_task_too_small_to_be_measured_has_an_unknown_peak(distrun: Distrun) -> None:
    """The kernel counts the agent's own memory for a process that the agent has forked."""
    assert distrun.launch("exit 0", workers=1).returncode == 0
    job = distrun.status()
    assert job["peak_memory_bytes"] is job["tasks"][0]["used"]["peak_memory_bytes"] is None
    assert job["tasks"][0]["used"]["cpu_seconds"] > 0
    assert "unknown" in distrun.asked("status")
    assert "unknown" in distrun.asked("ps", "-a")

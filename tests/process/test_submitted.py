"""A job whose supervisor is elsewhere is watched, sampled and stopped as one that is here."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator

import pytest

from harness.command import Distrun, write_program
from harness.parts.kubernetes import manifest
from harness.processes import alive
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

KUBECTL = """\
#!{python} -IS
import os, signal, sys
words, folder = sys.argv[1:], os.path.dirname(sys.argv[0])
if os.path.exists(folder + "/hangs") and open(folder + "/hangs").read() in " ".join(words):
    with open(folder + "/pids", "a") as file:
        print(os.getpid(), file=file)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a shell, which stays, would send none
    signal.pause()
if "exec" in words:
    there = words[words.index("--") + 1:]
    here = [each.replace("{base}/home", "{home}").replace("{base}", "{home}") for each in there]
    os.execvp(here[0], here)
print({answer!r})
"""
PROGRAM = """\
import itertools, os, time
for step in itertools.count(1):
    print(f"step {step} loss 0.5", flush=True)
    if os.path.exists("go"):
        raise SystemExit(3)
    time.sleep(0.2)
"""


@pytest.fixture
def job(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A job that ends with 3 once there is a file `go`. It is known here by its namespace."""
    distrun.asks_here = False
    (distrun.cwd / "train.py").write_text(PROGRAM)
    job = distrun.detached(f"exec {sys.executable} train.py")
    labels = {manifest.LABEL: "distrun-x", "job-name": "distrun-x"}
    metadata = {"name": "distrun-x", "labels": labels, "annotations": {"distrun/job": job}}
    container = {"name": "distrun", "state": {"running": {}}}
    running = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [container]}
    of_job = {"kind": "Job", "spec": {"template": {"spec": {}}}, "status": {}}
    items = [
        {"metadata": metadata, **of_job},
        {"metadata": metadata, "kind": "Pod", "spec": {}, "status": running},
    ]
    kubectl = distrun.cwd / "bin/kubectl"
    base, home, answer = manifest.base_of(job), str(distrun.home), json.dumps({"items": items})
    write_program(
        kubectl, KUBECTL.format(python=sys.executable, base=base, home=home, answer=answer)
    )
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=os.pathsep)
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "elsewhere"))
    assert job in distrun.asked("ps", "--namespace", "n")
    yield job
    monkeypatch.setenv("DISTRUN_HOME", str(distrun.home))
    distrun("kill", job)


def hangs(distrun: Distrun, words: str) -> None:
    """From now on, a kubectl with these words does not answer."""
    (distrun.cwd / "bin/new").write_text(words)
    (distrun.cwd / "bin/new").replace(distrun.cwd / "bin/hangs")


def hanging(distrun: Distrun) -> list[int]:
    """Those that run of them."""
    file = distrun.cwd / "bin/pids"
    pids = map(int, file.read_text().split()) if file.exists() else ()
    return [each for each in pids if alive(each)]


def test_its_stacks_and_attach(distrun: Distrun, job: str, terminal: OpenTerminal) -> None:
    stacks = json.loads(distrun.checked("stacks", "--json").stdout)
    assert "no job was lost" in distrun.told(0, "launch", "--resume-lost")
    assert stacks["hosts_without_answer"] == {}
    assert {each["task"] for each in stacks["processes"]} == {"worker:0", "worker:1"}
    assert all("train.py:" in each["place"] for each in stacks["entries"]), stacks
    window = terminal("attach", job, columns=100)
    window.shows("worker:0 | step", "worker:1 | step", "2/2 tasks up", "loss 0.5")
    hangs(distrun, "connected")
    for command, number in (("stacks", signal.SIGINT), ("attach", signal.SIGTERM)):
        connecting = distrun.start(command, job, stdin=-3, stdout=-3, stderr=-3)
        wait_until(lambda: hanging(distrun))
        connecting.send_signal(number)
        assert connecting.wait(60) == 128 + number
        wait_until(lambda: not hanging(distrun))
    (distrun.cwd / "bin/hangs").unlink()
    last = max(map(int, re.findall(r"step (\d+)", window.text())))
    window.shows(f" | step {last + 10} ")  # the record has no event of it
    left = distrun.start("attach", stdin=-3, stdout=-3, stderr=-1, text=True)
    wait_until(lambda: distrun.status()["state"] == "running")
    (distrun.cwd / "go").touch()
    window.finish()
    assert window.process.returncode == left.wait(60) == 3
    assert f"job {job} failed" in window.text()
    assert "has ended: nothing of it runs" in distrun("stacks").stderr
    assert distrun("attach").returncode == 3


def test_watch_shows_and_stops_it(distrun: Distrun, job: str, terminal: OpenTerminal) -> None:
    pytest.importorskip("textual")
    for words in (("logs", job), ("events", job)):
        assert "install kubectl" in distrun(*words, env={**os.environ, "PATH": "/-"}).stderr
    window = terminal("watch", columns=80)
    window.shows(job, "worker:0", "loss 0.5")
    hangs(distrun, "get jobs,pods")
    wait_until(lambda: hanging(distrun))
    window.type("q")
    assert window.finish() == 0
    wait_until(lambda: not hanging(distrun))
    (distrun.cwd / "bin/hangs").unlink()
    window = terminal("watch", columns=80)
    window.shows("loss 0.5")
    window.type("k")
    window.shows("y stops it")
    window.type("y")
    window.shows("stopped by distrun watch")
    window.type("q")
    window.finish()
    assert distrun.status(job)["exit_code"] == 137

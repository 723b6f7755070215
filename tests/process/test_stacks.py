"""`distrun stacks` and `profile`, and the verdict on a job that hangs."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun, recorded_events, run_here, write_program
from harness.json_page import PAGE, Reader
from harness.parts.agent import stacks
from harness.parts.job import control
from harness.processes import with_argument
from harness.programs import ACCEPTS, hanging_script, training_program
from harness.terminal import OpenTerminal
from harness.values import not_none
from harness.waiting import wait_until


def test_a_hanging_task_is_found_in_one_command(distrun: Distrun, terminal: OpenTerminal) -> None:
    hanging = distrun.detached(hanging_script(distrun.cwd), workers=3)
    wait_until(lambda: distrun.asked("logs", hanging).count("hangs") == 3)
    shown = distrun("stacks").stdout.splitlines()
    assert shown[0] == "worker:1: load_batch, hang.py:6"
    assert f"worker:0, worker:2: {ACCEPTS}, called from all_reduce, hang.py:11" in shown
    asked = json.loads(distrun("stacks", hanging, "-t", "worker:0", "--json").stdout)
    assert [entry["tasks"] for entry in asked["entries"]] == [["worker:0"]]
    (process,) = asked["processes"]
    pids = {task["task"]: task["pid"] for task in distrun.status()["tasks"]}
    assert process["pid"] == pids["worker:0"]
    assert process["threads"][0]["frames"][1]["line"] == 11
    window = terminal("stacks", columns=40)
    window.finish()
    assert max(map(len, window.text().splitlines())) <= 40
    # One that is suspended is shown, and stays so. Nothing has been stopped.
    os.kill(pids["worker:1"], signal.SIGSTOP)
    shown = distrun("stacks").stdout
    assert shown.startswith("worker:1: load_batch, hang.py:6")
    assert f"worker:1: it is suspended; kill -CONT {pids['worker:1']}" in shown
    assert psutil.Process(pids["worker:1"]).status() == psutil.STATUS_STOPPED
    wait_until(lambda: "running (suspended)" in distrun("status").stdout)
    assert "worker:1 is suspended; to let it continue: kill -CONT" in distrun("ps").stderr
    os.kill(pids["worker:1"], signal.SIGCONT)
    assert distrun("stacks", "-t", "worker:7").returncode == 2
    assert distrun("kill").returncode == 0
    ended = distrun("stacks")
    assert (ended.returncode, "has ended: nothing of it runs" in ended.stderr) == (2, True)


def test_no_process_stays_suspended_by_a_py_spy_that_takes_too_long(tmp_path: Path) -> None:
    """It pauses a process while it reads: killed then, on a busy machine, it does not resume it."""
    hanging = tmp_path / "py-spy"
    find = 'while [ "$1" != --pid ]; do shift; done'
    write_program(hanging, f"#!/bin/sh\n{find}\nkill -STOP $2\nexec sleep 100\n")
    program = os.open(hanging, os.O_RDONLY)
    process = psutil.Popen(["sleep", "100"])
    try:
        answer = stacks._dump_process(program, process.pid, 1.0, [])
        assert answer == {"error": "py-spy took longer than 1 s"}
        wait_until(lambda: process.status() == psutil.STATUS_SLEEPING)
    finally:
        process.kill()
        process.wait()
        os.close(program)


def test_a_stall_restarts_the_job_then_ends_it_and_names_the_task(distrun: Distrun) -> None:
    keys = {"restart": {"max": 1, "backoff": "50ms"}, "timeouts": {"stall": "3s", "grace": "1s"}}
    waits = "while sleep 0.2; do echo CreateSession still waiting for response from; done &"
    done = distrun.launch(f"{waits} {hanging_script(distrun.cwd)}", workers=3, **keys)
    job, recorded = distrun.status(), recorded_events(distrun)
    assert (done.returncode, {task["attempt"] for task in job["tasks"]}) == (75, {1})
    assert (job["verdict"]["kind"], job["verdict"]["task"]) == ("stalled", None)
    assert f"{job['verdict']['cause']} (stalled)" in done.stderr
    assert "worker:1 was at load_batch, hang.py:6" in job["verdict"]["cause"]
    places = [each["places"] for each in recorded if each["event"] == "TimedOut"]
    assert [place["tasks"] for place in places[-1]] == [["worker:1"], ["worker:0", "worker:2"]]
    assert distrun("report", "-o", "page.html").returncode == 0
    page = (distrun.cwd / "page.html").read_text()
    assert "load_batch, hang.py" in page.partition("Where the tasks were when the job stalled")[2]


TRAIN = """\
def save_model():
    time.sleep(0.1)
while True:
    execute.quick_execute()
    if os.environ["DISTRUN_TASK"] == "worker:1":
        save_model()
"""


def test_the_task_waited_for_is_named_with_its_line(distrun: Distrun, tmp_path: Path) -> None:
    distrun.detached(training_program(tmp_path, TRAIN), workers=2)
    wait_until(lambda: distrun.asked("logs").count("trains") == 2, timeout=60)
    file = tmp_path / "job.json"
    done = distrun.checked("profile", "--seconds", "2", "--json", "-o", str(file))
    found = json.loads(done.stdout)
    reader = Reader(PAGE.read_text())
    reader.check("profile", found)
    assert reader.faults == []
    assert not reader.missing("profile", found)
    shares = {
        task["task"]: {each["kind"]: each["share"] for each in task["kinds"]}
        for task in found["tasks"]
    }
    assert shares["worker:0"]["waiting for others"] > 0.4
    assert shares["worker:1"]["saving"] > 0.4
    assert (found["straggler"]["task"], found["straggler"]["gain"] > 0.3) == ("worker:1", True)
    reason = found["straggler"]["reasons"][0]
    assert (reason["kind"], reason["place"]) == ("saving", "save_model, train.py:6")
    done = distrun("profile", "--seconds", "300", "-o", str(tmp_path / "missing" / "job.json"))
    assert (done.returncode, done.stdout) == (69, "")
    assert "to a file only" in distrun.told(2, "profile", "-o", "-")
    profiles = json.loads(file.read_text())["profiles"]
    assert {"worker:0", "worker:1"} <= {each["name"] for each in profiles}

    page = tmp_path / "page.html"
    assert distrun("report", "-o", str(page)).returncode == 0
    drawn = r'aria-label="Flame graph of (\S+)">(.*?)</details>'
    graphs = dict(re.findall(drawn, page.read_text(), re.DOTALL))
    assert list(graphs) == ["worker:0", "worker:1"]
    saves = r"save_model \(train.py:6\): ([\d.]+)%"
    assert re.search(saves, graphs["worker:0"]) is None
    assert float(not_none(re.search(saves, graphs["worker:1"]))[1]) > 40
    (Path(distrun.status()["folder"]) / "profile.json").write_text('{"profiles": [{"name": 1}]}')
    assert distrun("report", "-o", str(page)).returncode == 0
    assert "Flame graph" not in page.read_text()

    pid = distrun.status()["tasks"][1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert (
        f"worker:1: it is suspended; kill -CONT {pid}"
        in distrun("profile", "--seconds", "1").stdout
    )
    os.kill(pid, signal.SIGCONT)

    folder = tmp_path / "bin"  # an interpreter beside which there is no py-spy
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    site = [str(Path(stacks.__file__).parents[3]), *(p for p in sys.path if "site-packages" in p)]
    env = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(site)}
    distrun.argv = (str(folder / "python3"), "-m", "distrun")
    done = distrun("profile", "--seconds", "1", env=env)
    distrun.argv = (sys.executable, "-m", "distrun")
    assert done.returncode == 0, done.stderr
    assert {"busy", "idle"} <= {line.split()[0] for line in done.stdout.splitlines()[1:]}
    assert "-m pip install py-spy" in " ".join(done.stdout.split())
    assert {task["state"] for task in distrun.status()["tasks"]} == {"running"}
    assert distrun("kill").returncode == 0
    assert distrun("profile").returncode == 2


def test_a_profile_shows_what_was_sampled_until_the_end(distrun: Distrun) -> None:
    program = "import os\nwhile not os.path.exists('stop'):\n    pass\n"
    (distrun.cwd / "t.py").write_text(program)
    distrun.checked("run", "-n", "1", "-d", "t.py")
    agents = psutil.Process(distrun.status()["supervisor_pid"]).children

    def recorders() -> list[psutil.Process]:
        return with_argument(agents(recursive=True), "record")

    given_up = distrun.start("profile", "--seconds", "250.5")
    wait_until(recorders)
    given_up.send_signal(signal.SIGINT)
    assert given_up.wait(60) == 130
    wait_until(lambda: not recorders())
    profile = distrun.start("profile", "--seconds", "300", "-o", "p.json")
    wait_until(recorders)
    (recorder,) = recorders()
    # It first reads the program's symbols; then it sleeps after each sample.
    wait_until(lambda: recorder.num_ctx_switches().voluntary > 50)
    (distrun.cwd / "stop").touch()
    assert profile.wait(60) == 0
    assert "t.py" in (distrun.cwd / "p.json").read_text()


def test_what_cannot_be_profiled(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    distrun.detached("[ $DISTRUN_TASK = worker:1 ] || while :; do sleep 0.1; done", workers=2)
    wait_until(lambda: distrun.status()["tasks"][1]["state"] == "succeeded")
    assert distrun("stacks").stdout.strip() == "worker:0: it is not a Python program"
    assert "worker:0: it is not a Python program" in distrun("profile", "--seconds", "1").stdout
    for command in ("stacks", "profile"):
        done = distrun(command, "-t", "worker:1")
        assert (done.returncode, done.stdout) == (2, "")
        assert "nothing of worker:1 runs now" in done.stderr
    monkeypatch.setattr(control, "_STACKS_SECONDS", 1e9)
    monkeypatch.setattr(control, "_ANSWER_SECONDS", 1e9)
    supervisor = distrun.status()["supervisor_pid"]
    os.kill(supervisor, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(supervisor).status() == psutil.STATUS_STOPPED)
    for command, expected in ("profile", 70), ("status", 0), ("ps", 0):
        code, shown, told = run_here((command,))
        is_told = f"{supervisor}, suspended) does not answer" in shown + told
        assert (code, is_told) == (expected, True)
    distrun.checked("kill")

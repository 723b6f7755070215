"""What speaks against the success of a job whose tasks all exited 0."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

FAILED = 75
RAISES = "raise ValueError('batch size 0')"
STEPS = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print({said!r})))
first = os.environ["DISTRUN_TASK"] == "worker:1"
for step in range(100):
    print({line!r}.format(step), flush=True)
    if first and step == 20:
        pathlib.Path("there").touch()
        time.sleep(60)
    time.sleep(0.02)
"""


def python(code: str) -> str:
    Path("own.py").write_text(code)
    return f"{sys.executable} own.py"


@pytest.fixture(autouse=True)
def _in_folder(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(distrun.cwd)


HIDDEN = "exited 0 although the log ends in an exception: ValueError: batch size 0"


@pytest.mark.parametrize(
    ("script", "hider"),
    [
        ("{0} 2>&1 | tee log", "its exit code is hidden at sh -c:1: "),
        ("n=$(echo 1 | cat)\n{0} || true", "its exit code is hidden at sh -c:2: "),
        ("{0} > log 2>&1; cat log; exit 0", "its exit code is hidden at sh -c:1: "),
        ("{0}\necho finished with $?", "its exit code is hidden at sh -c:2: echo finished"),
        ("if ! {0}; then\n  echo 'no luck'\nfi", "its exit code is hidden at sh -c:1: if ! "),
        ("{0} &\nwait", "its exit code is hidden at sh -c:2: wait"),
    ],
)
def test_an_exception_that_ends_the_log(script: str, hider: str, distrun: Distrun) -> None:
    done = distrun.launch(script.format(python(RAISES)), workers=1)
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"worker:0 {HIDDEN}, at own.py:1; {hider}" in last
    assert HIDDEN in distrun("status").stdout
    assert "qualified" in distrun("ps", "-a").stdout
    assert [HIDDEN in each for each in distrun.status()["warnings"]] == [True]


@pytest.mark.parametrize("after", ["", "\necho $?"])
@pytest.mark.parametrize(
    "code",
    [
        "import traceback\ntry: 1 / 0\nexcept ArithmeticError: traceback.print_exc()\nprint('up')",
        "print('ValueError: none')",
    ],
)
def test_an_exception_after_which_it_went_on_is_none(
    code: str, after: str, distrun: Distrun
) -> None:
    assert distrun.launch(python(code) + after, workers=1).returncode == 0
    assert distrun.status()["warnings"] == []


THREAD = """import atexit, multiprocessing, threading
def train(): print("step 3", flush=True); raise ValueError("batch size 0")
"""


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        ("t = threading.Thread(target=train); t.start(); t.join(); print('done')", True),
        ("t = threading.Thread(target=train); t.start(); t.join(); print('step 4')", False),
        ("p = multiprocessing.Process(target=train); p.start(); p.join(); print('done')", True),
        ("atexit.register(train)", True),
    ],
)
def test_an_exception_that_ended_a_thread_or_a_child(
    code: str, is_told: bool, distrun: Distrun
) -> None:
    done = distrun.launch(f"exec {python(THREAD + code)}", workers=1)
    assert done.returncode == 0, done.stderr
    told = "exited 0 although an exception ended a thread, a child, or what was called at the exit"
    assert [told in each for each in distrun.status()["warnings"]] == [True] * is_told


@pytest.mark.parametrize("how", ["option", "key"])
def test_strict_makes_it_a_failure(how: str, distrun: Distrun) -> None:
    success = {"tasks": "all", "strict": how == "key"}
    spec = distrun.write_spec(f"{python(RAISES)} || true", success=success)
    done = distrun("launch", spec, *(["--strict"] if how == "option" else []))
    assert done.returncode == FAILED, done.stderr
    assert f"it succeeded only in part: worker:0, worker:1 {HIDDEN}" in done.stderr
    assert distrun("wait").returncode == FAILED
    assert distrun.launch("exit 0", success={"strict": True}).returncode == 0


@pytest.mark.parametrize(
    ("said", "line"),
    [("caught SIGTERM, saved", "step {}"), ("preempted", "Iteration {}: loss 0.1")],
)
def test_a_sigterm_that_another_sent_is_a_preemption(
    said: str, line: str, distrun: Distrun
) -> None:
    code = STEPS.format(said=said, line=line)
    job = distrun.detached(f"exec {python(code)}")
    wait_until((distrun.cwd / "there").exists, what="worker:1 has come to step 20")
    pid = next(each["pid"] for each in distrun.status()["tasks"] if each["task"] == "worker:1")
    wait_until(
        lambda: distrun.status()["tasks"][0]["state"] == "succeeded", what="worker:0 has ended"
    )
    os.kill(pid, signal.SIGTERM)
    done = distrun("wait", job)
    assert done.returncode == 0
    told = "worker:1 was preempted: it exited 0 at step 20 after a SIGTERM that distrun did not"
    assert told in done.stderr


def test_a_sigterm_to_all_tasks_is_a_preemption_where_the_total_is_known(
    distrun: Distrun,
) -> None:
    code = STEPS.format(said="caught SIGTERM, saved", line="step {}/100 loss: 0.1").replace(
        "first and step == 20", "step == 20"
    )
    job = distrun.detached(f"exec {python(code)}")
    wait_until(
        lambda: all(each["progress"].get("STEP") == 20 for each in distrun.status()["tasks"]),
        what="both have come to step 20",
    )
    for each in distrun.status()["tasks"]:
        os.kill(each["pid"], signal.SIGTERM)
    done = distrun("wait", job)
    assert done.returncode == 0
    told = "worker:0, worker:1 were preempted: they exited 0 at step 20 of 100 after a SIGTERM that"
    assert told in done.stderr


def test_a_handler_is_no_preemption_of_a_training_that_stops_early(distrun: Distrun) -> None:
    code = (
        "print('Installed a SIGTERM handler')\n"
        "for n in range(1, 9): print(f'step {n}/100 loss: 0.1', flush=True)"
    )
    assert distrun.launch(python(code)).returncode == 0
    assert distrun.status()["warnings"] == []


def test_a_task_that_leaves_long_before_the_others_is_told(distrun: Distrun) -> None:
    code = (
        "import os, time\nmost = 20 if os.environ['DISTRUN_TASK'] == 'worker:1' else 200\n"
        "for n in range(most): print('step', n, flush=True); time.sleep(0.01)"
    )
    done = distrun.launch(python(code))
    last = "worker:1 exited 0 at step 19, long before worker:0, which came to step 199"
    assert last in done.stderr


SOCKETS = """
import json, os, socket, time
listener = socket.create_server(("", int(os.environ["DISTRUN_ADDRESS"].rpartition(":")[2])),
                                reuse_port=True)
whose = {whose}
name, port = whose.rsplit(":", 1)
end = time.monotonic() + 60
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", int(port)))
        break
    except OSError:
        assert time.monotonic() < end
        time.sleep(0.05)
time.sleep(6)
"""
CHURN = """
import os, socket, time
port = int(os.environ["DISTRUN_ADDRESS"].rpartition(":")[2])
listener = socket.create_server(("", port), reuse_port=True, backlog=200)
end = time.monotonic() + 6
while time.monotonic() < end:
    both = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    both += [listener.accept()[0] for _ in range(20)]
    time.sleep(0.001)
    for each in both: each.close()
"""
OTHER = (
    "json.loads(os.environ['TF_CONFIG'])['cluster']['worker'][1 - int(os.environ['DISTRUN_RANK'])]"
)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 6", "worker:0, worker:1 never listened on a port: each ran by itself"),
        (SOCKETS.format(whose="os.environ['DISTRUN_ADDRESS']"), "were never connected: each"),
        (CHURN, "were never connected: each"),
        (SOCKETS.format(whose=OTHER), ""),
    ],
    ids=["silent", "alone", "alone, with connections to itself that come and go", "met"],
)
def test_members_that_never_met_are_told_by_their_sockets(
    script: str, said: str, distrun: Distrun
) -> None:
    done = distrun.launch(script if script.startswith("sleep") else f"exec {python(script)}")
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    assert len(distrun.status()["warnings"]) == bool(said)


RESUMES = """
import os, pathlib, time
me = os.environ["DISTRUN_TASK"]
if os.environ["DISTRUN_ATTEMPT"] == "0":
    raise SystemExit(1)
first = {first} if me == "worker:1" else 41
print("Restored from", f"/ckpt/{{me}}/ckpt-{{first - 1}}", flush=True)
for step in range(first, first + 20):
    print(f"{line}", flush=True)
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("line", "first"), [("step {step}: loss 0.5", 1), ("Epoch {step}", 1), ("step {step}", 41)]
)
def test_replicas_that_resume_at_different_steps_are_told(
    line: str, first: int, distrun: Distrun
) -> None:
    restart = {"max": 1, "backoff": "10ms"}
    done = distrun.launch(f"exec {python(RESUMES.format(first=first, line=line))}", restart=restart)
    assert done.returncode == 0, done.stderr
    name = line.partition(" ")[0].lower()
    told = (
        "the tasks began at different steps after the restart, and trained different weights: "
        f"worker:0 at {name} 41 (from /ckpt/worker:0/ckpt-40); worker:1 at {name} 1 "
        "(from /ckpt/worker:1/ckpt-0)"
    )
    assert (told in done.stderr) == (first == 1)
    assert len(distrun.status()["warnings"]) == (first == 1)

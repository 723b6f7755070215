"""The first cause of a failure: everywhere the same, and nothing waits for it without end."""

import os
import subprocess
import sys
from typing import Any

from harness.command import Distrun, recorded_events
from harness.parts.hosts import BackgroundCalls
from harness.parts.verdict import analyze
from harness.waiting import wait_until

TRACEBACK = (
    "cat <<'E'\n"
    "Traceback (most recent call last):\n"
    '  File "/home/user/train.py", line 3, in <module>\n'
    "    import tensorflow_adons\n"
    "ModuleNotFoundError: No module named 'tensorflow_adons'\n"
    "E\n"
)


def verdicts(distrun: Distrun) -> list[dict[str, Any]]:
    return [e["verdict"] for e in recorded_events(distrun) if e["event"] == "VerdictReached"]


def test_one_that_stands_still_is_the_cause_and_who_missed_it_an_echo(distrun: Distrun) -> None:
    script = (
        "test $DISTRUN_TASK = worker:1 && { echo $$ > stopped; kill -STOP $$; }; "
        "while ! test -s stopped || ! grep -q '^State:.T' /proc/$(cat stopped)/status; do "
        "sleep 0.02; done; "
        "echo 'UnavailableError: /job:worker/replica:0/task:1 stopped sending heartbeats'; exit 5"
    )
    done = distrun.launch(script)
    assert done.returncode == 5, "the code of the only one that has one"
    verdict = distrun.status()["outcome"]["verdict"]
    assert (verdict["task"], verdict["kind"]) == ("worker:1", "unresponsive")
    assert verdict["echoes"] == ["worker:0"]


def test_two_that_failed_of_the_same_error_were_not_stopped(distrun: Distrun) -> None:
    """worker:0 is slow to exit after its exception, as Python is with TensorFlow's threads."""
    script = (
        "test $DISTRUN_TASK = worker:0 && trap 'exit 1' TERM\n"
        f"until test $DISTRUN_TASK = worker:0 || test -e raised; do sleep 0.02; done\n{TRACEBACK}"
        "test $DISTRUN_TASK = worker:1 && exit 1\n"
        "exec 2>&-; touch raised; while :; do sleep 0.02; done"
    )
    done = distrun.launch(script)
    assert done.returncode == 1
    verdict = distrun.status()["outcome"]["verdict"]
    assert (verdict["task"], verdict["kind"]) == ("worker:1", "import_error")
    assert (verdict["alike"], verdict["echoes"]) == (["worker:0"], [])
    assert not any(each["stopped_by_distrun"] for each in distrun.status()["tasks"])


def test_a_time_limit_has_a_verdict_too(distrun: Distrun) -> None:
    script = "trap 'echo stops; exit 1' TERM; echo starts; echo waiting; sleep 600 & wait"
    distrun.launch(script, workers=1, timeouts={"run": "300ms"})
    verdict = distrun.status()["outcome"]["verdict"]
    assert (verdict["task"], verdict["kind"]) == (None, "timeout")
    (line,) = verdict["evidence"]
    assert (line["place"], line["text"]) == ("its log, line 2", "waiting"), "before SIGTERM"
    assert verdict["advice"]


# The analysis waits until somebody opens a named pipe. The supervisor is a fork of this process.
WAITS = f"""
import sys
gate, seconds = (sys.argv.pop(1) for _ in range(2))
import {analyze.__module__} as analysis
original = analysis.analyze

def wait(*args):
    open(gate).close()
    return original(*args)

analysis.analyze = wait
from {BackgroundCalls.__module__} import BackgroundCalls
BackgroundCalls.begin.__kwdefaults__["seconds"] = float(seconds)
from distrun.__main__ import main
main()
"""
FAILS = "if [ $DISTRUN_ATTEMPT = 0 ]; then echo at once; exit 3; fi; exec sleep 600"


def launch(distrun: Distrun, seconds: float, **keys: Any) -> subprocess.Popen[str]:
    """Start a launch whose analysis waits for the pipe, at most so many seconds."""
    gate = distrun.cwd / "gate"
    os.mkfifo(gate)
    program = (sys.executable, "-c", WAITS, str(gate), str(seconds))
    usual, distrun.argv = distrun.argv, program  # type: ignore[assignment]
    spec = distrun.write_spec(FAILS, workers=1, **keys)
    process = distrun.start("launch", spec, stderr=subprocess.PIPE, text=True)
    distrun.argv = usual
    return process


def test_a_restart_does_not_wait_for_the_analysis(distrun: Distrun) -> None:
    launch(distrun, 600.0, restart={"max": 1, "backoff": "10ms"})
    wait_until(lambda: distrun("events", "--json").stdout.count('"TaskStarted"') == 2)
    assert verdicts(distrun) == []
    (distrun.cwd / "gate").write_text("")
    wait_until(lambda: len(verdicts(distrun)) == 1)
    assert verdicts(distrun)[0]["task"] == "worker:0"
    assert distrun("kill").returncode == 0


def test_a_jobs_end_waits_for_the_analysis_for_some_time(distrun: Distrun) -> None:
    launched = launch(distrun, 1.0)
    said = launched.communicate(timeout=30)[1]
    assert launched.returncode == 3, said
    (verdict,) = verdicts(distrun)
    assert (verdict["task"], verdict["kind"]) == ("worker:0", "other")


FAILED = 75
RAISES = "raise ValueError('batch size 0')"
HIDDEN = "exited 0 although the log ends in an exception: ValueError: batch size 0"


def python(distrun: Distrun, code: str, name: str = "own.py") -> str:
    (distrun.cwd / name).write_text(code)
    return f"{sys.executable} {name}"


def test_a_hidden_exception_is_told_everywhere_and_a_failure_if_strict(distrun: Distrun) -> None:
    script = f"n=$(echo 1 | cat)\n{python(distrun, RAISES)} || true"
    done = distrun.launch(script)
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"{HIDDEN}, at own.py:1; its exit code is hidden at sh -c:2: " in last
    assert HIDDEN in distrun.asked("status")
    assert "qualified" in distrun.asked("ps", "-a")
    assert [HIDDEN in each for each in distrun.status()["warnings"]] == [True]
    for key, options in ((False, ["--strict"]), (True, [])):
        spec = distrun.write_spec(script, success={"tasks": "all", "strict": key})
        done = distrun("launch", spec, *options)
        assert done.returncode == FAILED, done.stderr
        assert f"it succeeded only in part: worker:0, worker:1 {HIDDEN}" in done.stderr
    assert distrun("wait").returncode == FAILED


MEET = """
import json, os, socket, time
rank, (host, port) = int(os.environ["DISTRUN_RANK"]), os.environ["DISTRUN_ADDRESS"].split(":")
listener = socket.create_server(("", int(port)), reuse_port=True)
_, other = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][{whose}].split(":")
end = time.monotonic() + 60
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", int(other)))
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
if os.environ["DISTRUN_RANK"] == "1":
    time.sleep(6)
    raise SystemExit
time.sleep(4.5)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    both = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    both += [listener.accept()[0] for _ in range(20)]
    time.sleep(0.001)
    for each in both: each.close()
"""
CONTACTS = {
    "silent": ("import time; time.sleep(6)", "worker:0, worker:1 never listened on a port, "),
    "alone": (MEET.format(whose="rank"), "worker:0, worker:1 never connected to another task"),
    "busy": (CHURN, "worker:0, worker:1 never connected to another task"),
    "torch": ("import time; time.sleep(6)", ""),
    "met": (MEET.format(whose="1 - rank"), ""),
}
"""Whether members of a cluster have met. `alone`: each is connected to itself; `busy`: one of them
again and again."""


def test_members_that_never_met_are_told_by_their_sockets(distrun: Distrun) -> None:
    for name, (code, _) in CONTACTS.items():  # together: each takes six seconds
        command = ["sh", "-c", f"exec {python(distrun, code, f'{name}.py')}"]
        style = {"env_style": "torchrun"} if name == "torch" else {}
        distrun.detached("", name=name, program={"command": command, **style})
    for name, (_, said) in CONTACTS.items():
        assert said in distrun.checked("wait", name).stderr, name
        assert len(distrun.status(name)["warnings"]) == bool(said), name


def test_all_calls_that_only_some_tasks_make_are_named(distrun: Distrun) -> None:
    """The one that led to the failure may come before a line that was never reached."""
    said = "Collective instance 5 expected type 0 but got type 1"
    (distrun.cwd / "train.py").write_text(
        "chief, ModelCheckpoint = 1, print\nif chief: ModelCheckpoint()\n"
        f"raise RuntimeError('{said}')\nif chief: model.save('m')\n"
    )
    done = distrun.launch("", program={"script": "train.py"})
    calls = "train.py:4 calls save and train.py:2 calls ModelCheckpoint"
    assert f"{calls} for some of the tasks only, and all must make these calls" in done.stderr

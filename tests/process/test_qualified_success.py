"""What speaks against the success of a job whose tasks all exited 0; see unit/test_verdict.py."""

from __future__ import annotations

import sys

from harness.command import Distrun

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
    "silent": ("import time; time.sleep(6)", "worker:0, worker:1 never listened on a port: each"),
    "alone": (MEET.format(whose="rank"), "worker:0, worker:1 were never connected: each"),
    "busy": (CHURN, "worker:0, worker:1 were never connected: each"),
    "met": (MEET.format(whose="1 - rank"), ""),
}
"""Whether members of a cluster have met. `alone`: each is connected to itself; `busy`: one of them
again and again."""


def test_members_that_never_met_are_told_by_their_sockets(distrun: Distrun) -> None:
    for name, (code, _) in CONTACTS.items():  # together: each takes six seconds
        distrun.detached(f"exec {python(distrun, code, f'{name}.py')}", name=name)
    for name, (_, said) in CONTACTS.items():
        done = distrun("wait", name)
        assert done.returncode == 0, done.stderr
        assert said in done.stderr, name
        assert len(distrun.status(name)["warnings"]) == bool(said), name

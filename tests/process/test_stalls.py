"""Jobs that hang, with real processes: noticed, shown where, ended or started again."""

from __future__ import annotations

import json
import textwrap

HANGS = """
    import os, socket, threading

    def wait_for_ever():
        threading.Event().wait()

    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
    print("it begins", flush=True)
    """
STALL = {"timeouts": {"stall": "2s"}}


def write_script(distrun, body: str) -> dict[str, str]:
    text = textwrap.dedent(HANGS) + textwrap.dedent(body)
    (distrun.cwd / "train.py").write_text(text)
    return {"script": "train.py"}


def test_a_job_that_hangs_ends_and_tells_where_each_task_stood(distrun, write_spec, status):
    program = write_script(distrun, """
        if os.environ["DISTRUN_TASK"] == "worker:1":
            wait_for_ever()
        else:
            here, there = socket.socketpair()
            here.recv(1)
        """)  # fmt: skip
    done = distrun("launch", write_spec("", program=program, **STALL))
    assert done.returncode == 75, done.stderr
    assert "no progress within timeouts.stall, 2 s" in done.stderr
    job = status()
    verdict = job["verdict"]
    assert (verdict["kind"], verdict["task"]) == ("stalled", None)
    evidence = {each["task"]: each["text"] for each in verdict["evidence"]}
    assert "in wait_for_ever" in evidence["worker:1"]
    assert "train.py" in evidence["worker:0"]
    assert "in wait_for_ever" in distrun("logs", "-t", "worker:1").stdout


def test_a_job_that_hangs_starts_again(distrun, write_spec, status):
    program = write_script(distrun, """
        if os.environ["DISTRUN_ATTEMPT"] == "0":
            wait_for_ever()
        """)  # fmt: skip
    spec = write_spec("", program=program, restart={"max": 1, "backoff": "50ms"}, **STALL)
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    job = status()
    assert {task["attempt"] for task in job["task_states"]} == {1}
    told = [json.loads(line) for line in distrun("events", "--json").stdout.splitlines()]
    (found,) = [each for each in told if each["event"] == "VerdictReached"]
    assert found["verdict"]["kind"] == "stalled"


def test_steps_keep_a_silent_job_alive_and_lines_do_not_one_that_had_steps(
    distrun, write_spec, status
):
    program = write_script(distrun, """
        import time
        for step in range(12):  # longer than timeouts.stall in all
            notify.send(b"STEP=%d" % step)
            time.sleep(0.3)
        if os.environ["DISTRUN_TASK"] == "worker:1":
            while True:
                print("still waiting", flush=True)
                time.sleep(0.1)
        wait_for_ever()
        """)  # fmt: skip
    done = distrun("launch", write_spec("", program=program, **STALL))
    assert done.returncode == 75, done.stderr
    assert {task["progress"]["STEP"] for task in status()["task_states"]} == {"11"}

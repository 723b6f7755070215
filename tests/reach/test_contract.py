"""What every way to reach hosts must do: start, stop, cut, take up again, files, logs, resume."""

import json
import os
import re
import signal
from typing import Any

from harness.command import recorded_events
from harness.processes import alive
from harness.reaches import Reach
from harness.waiting import wait_until

MANY = 10_000
"""Lines of twice the bytes that are read of a host at a time."""
MEET = """\
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
addresses = [each.rpartition(":") for each in config["cluster"]["worker"]]
if config["task"]["index"] == 0:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", int(addresses[0][2])))
    server.listen()
    server.accept()
else:
    for _ in range(600):
        try:
            socket.create_connection((addresses[0][0], int(addresses[0][2])), 10).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
print("met", config["task"]["index"], open("data.txt").read(), flush=True)
if config["task"]["index"] == 0:
    for number in range(MANY):
        print("line", number, "of the many that this task prints")
"""
# Ends when it is sent SIGUSR1.
WRITES = """\
import itertools, os, pathlib, signal, time
signals = []
signal.signal(signal.SIGUSR1, lambda *_: signals.append(1))
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
task = os.environ["DISTRUN_TASK"]
(out / task).write_text(task)
(out / "same").write_text("same")
for step in itertools.count(1):
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.05)
    if signals:
        break
"""
# A child of it has left its session.
COUNTS = "setsid sleep MARK & i=0; while :; do echo $((i=i+1)); sleep 0.05; done"


def ended(launch: Any) -> tuple[int, str, str]:
    """Wait for a command's end: its exit code, what it printed and said."""
    out, said = launch.communicate(timeout=120)
    return launch.returncode, out, said


def of_task(task: str, text: str) -> list[str]:
    return re.findall(rf"^{task} \| (.*)$", text, re.MULTILINE)


def times_of(reach: Reach, *which: str) -> list[float]:
    """When each line of a task was printed."""
    shown = reach.distrun.asked("logs", "--json", *which).splitlines()
    return [json.loads(line)["at"] for line in shown]


def test_tasks_have_their_files_find_each_other_and_print_much(reach: Reach) -> None:
    """`doctor` and `plan` reach the hosts as a launch does, and leave nothing."""
    folder = reach.distrun.cwd / "it's a program"
    folder.mkdir()
    folder.joinpath("train.py").write_text(MEET.replace("MANY", str(MANY)))
    folder.joinpath("data.txt").write_text("data")
    program = {"script": "it's a program/train.py", "workdir": "it's a program"}
    spec = reach.write_spec("", program=program)
    code, out, said = ended(reach.start("doctor", "--json", spec))
    assert code == 0, said + out
    found = json.loads(out)["doctor"]
    assert found["ok"]
    names = {each["name"] for each in found["hosts"]}
    assert names == {each["host"] for each in found["checks"] if each["subject"] == "reached"}
    clients = [each for each in found["checks"] if "kubectl v1." in str(each)]
    assert len(clients) == (len(names) if reach.carrier == "exec" else 0)
    code, out, said = ended(reach.start("plan", spec))
    assert code == 0, said
    assert "train.py" in out or "kind: Job" in out  # of pods, a plan knows no more

    code, out, said = ended(reach.start("launch", spec))
    assert code == 0, said
    assert of_task("worker:1", out) == ["met 1 data"], "the other one starves it"
    first, *many = of_task("worker:0", out)
    assert first == "met 0 data"
    assert [int(line.split()[1]) for line in many] == list(range(MANY))
    assert sorted(reach.distrun.asked("logs").splitlines()) == sorted(out.splitlines())
    times = times_of(reach, "-t", "worker:0")
    assert len(times) == MANY + 1
    assert times == sorted(times)


def test_a_running_job_is_shown_and_what_its_tasks_write_comes_back(reach: Reach) -> None:
    work = reach.distrun.cwd / "work"
    work.mkdir()
    (work / "train.py").write_text(WRITES)
    # It is not to listen at an address, however long it runs: that would be a warning.
    program = {"script": "work/train.py", "workdir": "work", "results": ["out"]}
    launch = reach.launch("", program={**program, "args": [reach.mark], "tf_config": "mine"})
    reach.wait_for_processes(2, "python")
    wait_until(
        lambda: all(t["progress"].get("STEP", 0) > 1 for t in reach.distrun.status()["tasks"]),
        what="both show their progress",
    )
    job = reach.distrun.status()
    assert {task["host"] for task in job["tasks"]} == {host["name"] for host in job["hosts"]}
    assert "<module>" in reach.distrun.checked("stacks").stdout
    reach.distrun.checked("report", "-o", "page.html")
    page = (reach.distrun.cwd / "page.html").read_text()
    assert all(task in page for task in ("worker:0", "worker:1"))
    attached = reach.distrun.start("attach", stdout=-1, stderr=-1, text=True)
    follow = reach.distrun.start("logs", "-f", "--timestamps", stdout=-1, text=True)
    assert follow.stdout is not None
    lines = [follow.stdout.readline()]
    fetched = reach.distrun("fetch", "job", "out", "-o", "back")
    wanted = {each: each for each in ("worker:0", "worker:1", "same")}
    found = {each.name: each.read_text() for each in reach.distrun.cwd.glob("back/out/*")}
    if reach.carrier:
        assert fetched.returncode == 0, fetched.stderr
        assert found == wanted
    else:
        assert fetched.returncode == 2
        assert "what its tasks wrote is on this machine" in fetched.stderr

    for each in reach.processes("python"):
        each.send_signal(signal.SIGUSR1)
    code, printed, said = ended(launch)
    assert code == 0, said
    assert ended(attached)[0] == 0
    lines += follow.stdout.read().splitlines()
    assert follow.wait(60) == 0
    followed = [line.rstrip("\n").partition(" ")[2] for line in lines]
    assert sorted(followed) == sorted(printed.splitlines())
    assert {each.name: each.read_text() for each in work.glob("out/*")} == wanted
    assert reach.distrun.status()["warnings"] == []
    assert reach.fetched_later in reach.distrun("fetch", "job", "out", "-o", "later").stderr


def test_a_dead_carrier_costs_no_line_or_the_host_and_kill_is_complete(reach: Reach) -> None:
    is_restored = reach.restores_links or not reach.carrier
    launch = reach.launch(COUNTS, timeouts={"link": "60s" if is_restored else "3s"})
    tasks = reach.wait_for_processes(2, "sh")
    carriers = reach.carriers() if reach.carrier else []
    assert len(carriers) == (2 if reach.carrier else 0)
    for each in carriers:
        each.kill()
    if is_restored:
        wait_until(
            lambda: reach.distrun.asked("events").count("is restored") == len(carriers),
            what="the links are restored",
        )
        assert all(map(alive, tasks))
        reach.distrun.checked("kill")
        assert not reach.processes()
    code, out, said = ended(launch)
    assert code == (137 if is_restored else 69), said
    for task in ("worker:0", "worker:1"):
        lines = list(map(int, of_task(task, out)))
        assert lines == list(range(1, len(lines) + 1))
    reach.wait_for_processes(0)


def test_a_group_starts_again_as_a_whole_and_ends_with_its_agent(reach: Reach) -> None:
    script = (
        "echo attempt $DISTRUN_ATTEMPT $TF_CONFIG; "
        "[ $DISTRUN_ATTEMPT = 1 ] && { setsid sleep MARK & sleep MARK; exit; }; "
        "[ $DISTRUN_TASK = worker:0 ] && { sleep 0.3; exit 3; }; "
        "trap 'sleep 0.3; exit 4' TERM; while :; do sleep 0.1; done"
    )
    restart = {"max": 1, "backoff": "10ms"}
    launch = reach.launch(script, restart=restart, timeouts={"link": "10s"})
    reach.wait_for_processes(4, "sleep")
    asked = reach.distrun.asked
    wait_until(lambda: asked("logs").count("| attempt 1") == 2, what="the second lines are here")
    shell = reach.processes("sh")[0]
    next(each for each in shell.parents() if each.name().startswith("python")).kill()
    code, out, said = ended(launch)
    assert code == 69, said
    reach.wait_for_processes(0)
    for task in ("worker:0", "worker:1"):
        first, again = (line for line in of_task(task, out) if line.startswith("attempt"))
        assert first.replace("attempt 0", "attempt 1") == again
    record = recorded_events(reach.distrun)
    ends = [e["at"] for e in record if e["event"] == "TaskEnded" and e["attempt"] == 0]
    starts = [e["at"] for e in record if e["event"] == "TaskStarted" and e["attempt"] == 1]
    assert len(ends) == len(starts) == 2
    assert max(ends) <= min(starts)


def test_a_job_that_lost_its_supervisor_is_resumed_with_its_lines(reach: Reach) -> None:
    script = f"[ $DISTRUN_ATTEMPT = 1 ] && {{ echo again; exit; }}; {COUNTS}"
    launch = reach.launch(script, timeouts={"link": "5m", "grace": "2s"})
    reach.wait_for_processes(2, "sh")
    wait_until(lambda: reach.distrun.asked("logs").count("| 5\n") == 2, what="both count")
    job = reach.distrun.status()["job_id"]
    os.kill(reach.distrun.status()["supervisor_pid"], signal.SIGKILL)
    assert ended(launch)[0] == 70
    reach.wait_for_processes(0)  # far sooner than the lease ends
    code, _, said = ended(reach.start("resume", job))
    assert code == 0, said
    for task in ("worker:0", "worker:1"):
        log = reach.distrun.asked("logs", job, "-t", task, "--raw")
        former, _, again = log.partition("--- attempt 1, ")
        lines = [int(each) for each in former.split()]
        assert lines == list(range(1, len(lines) + 1))
        assert len(lines) >= 5
        assert again.endswith("---\nagain\n")
        times = times_of(reach, job, "-t", task)
        assert times == sorted(times)

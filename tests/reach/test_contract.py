"""What every way to reach hosts must do: start, stop, cut, take up again, files, logs, resume.

Of one way only: tests/process, tests/ssh, tests/slurm and tests/kubernetes. Leases, replacements
and late logs: tests/world, in simulated time.
"""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from harness.command import recorded_events
from harness.processes import alive
from harness.waiting import wait_until

if TYPE_CHECKING:
    from harness.reaches import Reach

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
"""
WRITES = """\
import os, pathlib
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
task = os.environ["DISTRUN_TASK"]
(out / task).write_text(task)
(out / "same").write_text("same")
os.execlp("sh", "sh", "-c", '''GO''')
"""
# Ends at a signal; a child of it has left its session, and one prints without end.
BUSY = "setsid sleep MARK & while :; do echo 0123456789012345678901234567890123456789; done"
IDLE = "setsid sleep MARK & sleep MARK"
UNTIL_GO = (
    "trap 'go=1' USR1; i=0; while [ -z \"$go\" ]; do echo $((i=i+1)); sleep 0.05; done; : MARK"
)


def ended(launch: Any) -> tuple[int, str, str]:
    """Wait for a command's end: its exit code, what it printed and said."""
    out, said = launch.communicate(timeout=120)
    return launch.returncode, out, said


def of_task(task: str, text: str) -> list[str]:
    return re.findall(rf"^{task} \| (.*)$", text, re.MULTILINE)


def test_tasks_have_their_files_and_find_each_other(reach: Reach) -> None:
    folder = reach.distrun.cwd / "it's a program"
    folder.mkdir()
    folder.joinpath("train.py").write_text(MEET)
    folder.joinpath("data.txt").write_text("data")
    program = {"script": "it's a program/train.py", "workdir": "it's a program"}
    code, out, said = ended(reach.launch("", program=program))
    assert code == 0, said
    assert sorted(out.splitlines()) == ["worker:0 | met 0 data", "worker:1 | met 1 data"]
    again = reach.distrun("logs")
    assert sorted(again.stdout.splitlines()) == sorted(out.splitlines())


def test_doctor_and_plan_leave_nothing(reach: Reach) -> None:
    """They reach the hosts as a launch does, and start none of the tasks."""
    spec = reach.write_spec(IDLE.replace("MARK", reach.mark))
    code, out, said = ended(reach.start("doctor", "--json", spec))
    assert code == 0, said + out
    found = json.loads(out)["doctor"]
    assert found["ok"]
    names = {each["name"] for each in found["hosts"]}
    assert names == {each["host"] for each in found["checks"] if each["subject"] == "reached"}
    code, out, said = ended(reach.start("plan", spec))
    assert code == 0, said
    assert reach.mark in out or "kind: Job" in out  # of pods, a plan knows no more
    assert not reach.processes()


def test_a_running_job_is_shown_and_kill_leaves_nothing(reach: Reach) -> None:
    program = "print('step 1 loss 0.5'); print('step 2 loss 0.4', flush=True); time.sleep(1000)"
    launch = reach.launch(f'setsid sleep MARK & exec python3 -c "import time; {program}  # MARK"')
    reach.wait_for_processes(2, "python")
    wait_until(
        lambda: [t["progress"].get("STEP") for t in reach.distrun.status()["tasks"]] == [2, 2]
    )
    job = reach.distrun.status()
    assert {task["host"] for task in job["tasks"]} == {host["name"] for host in job["hosts"]}
    assert "<module>" in reach.distrun.checked("stacks").stdout
    reach.distrun.checked("report", "-o", "page.html")
    page = (reach.distrun.cwd / "page.html").read_text()
    assert all(task in page for task in ("worker:0", "worker:1"))
    attached = reach.distrun.start("attach", stdout=-1, stderr=-1, text=True)
    reach.distrun.checked("kill")
    assert not reach.processes()
    assert attached.wait(60) == ended(launch)[0] == 137


@pytest.mark.parametrize(
    ("who", "script"), [("launch", BUSY), ("supervisor", IDLE), ("both", BUSY)],
    ids=["launch", "supervisor", "both"],
)  # fmt: skip
def test_a_death_of_the_launching_side_leaves_nothing(who: str, script: str, reach: Reach) -> None:
    launch = reach.launch(script, timeouts={"link": "5m", "grace": "2s"})
    reach.wait_for_processes(2 * script.count("sleep"), "sleep")
    supervisor = psutil.Process(reach.distrun.status()["supervisor_pid"])
    command = supervisor.parent()
    assert command is not None
    for each in {"launch": [command], "supervisor": [supervisor]}.get(who, [command, supervisor]):
        os.kill(each.pid, signal.SIGKILL)
    # Far sooner than the lease of 5 min.
    reach.wait_for_processes(0)
    wait_until(lambda: not alive(supervisor))
    ended(launch)


def test_a_carrier_that_dies_costs_no_line_or_the_host(reach: Reach) -> None:
    if not reach.carrier:
        return
    launch = reach.launch(UNTIL_GO, timeouts={"link": "60s" if reach.restores_links else "3s"})
    tasks = reach.wait_for_processes(2, "sh")
    carriers = reach.carriers()
    assert len(carriers) == 2
    for each in carriers:
        each.kill()
    if reach.restores_links:
        wait_until(lambda: reach.events().count("is restored") == 2, what="two links are restored")
        assert all(map(alive, tasks))
        reach.let_go()
    code, out, said = ended(launch)
    assert code == (0 if reach.restores_links else 69), said
    for task in ("worker:0", "worker:1"):
        lines = list(map(int, of_task(task, out)))
        assert lines == list(range(1, len(lines) + 1))
    assert not reach.processes()


def test_an_agent_that_dies_is_a_lost_host_and_leaves_nothing(reach: Reach) -> None:
    launch = reach.launch(IDLE, timeouts={"link": "10s"})
    reach.wait_for_processes(4, "sleep")
    shell = reach.processes("sh")[0]
    agent = next(each for each in shell.parents() if each.name().startswith("python"))
    agent.kill()
    code, _, said = ended(launch)
    assert code == 69, said
    reach.wait_for_processes(0)


def test_a_group_starts_again_when_all_of_it_has_ended(reach: Reach) -> None:
    script = (
        "echo attempt $DISTRUN_ATTEMPT $TF_CONFIG; [ $DISTRUN_ATTEMPT = 1 ] && exit 0; "
        "[ $DISTRUN_TASK = worker:0 ] && { sleep 0.3; exit 3; }; "
        "trap 'sleep 0.3; exit 4' TERM; while :; do sleep 0.1; done"
    )
    launch = reach.launch(script, restart={"max": 1, "backoff": "10ms"})
    code, out, said = ended(launch)
    assert code == 0, said
    for task in ("worker:0", "worker:1"):
        first, again = (line for line in of_task(task, out) if line.startswith("attempt"))
        assert first.replace("attempt 0", "attempt 1") == again
    record = recorded_events(reach.distrun)
    ends = [e["at"] for e in record if e["event"] == "TaskEnded" and e["attempt"] == 0]
    starts = [e["at"] for e in record if e["event"] == "TaskStarted" and e["attempt"] == 1]
    assert len(ends) == len(starts) == 2
    assert max(ends) <= min(starts)


def test_much_output_comes_whole_and_starves_no_other_task(reach: Reach) -> None:
    script = (
        "if [ $DISTRUN_TASK = worker:1 ]; then echo one; exit; fi; "
        "seq -f 'line %.0f of the many that this task prints' 100000"
    )
    code, out, said = ended(reach.launch(script))
    assert code == 0, said
    assert of_task("worker:1", out) == ["one"]
    assert [int(line.split()[1]) for line in of_task("worker:0", out)] == list(range(1, 100_001))
    shown = reach.distrun("logs", "--json", "-t", "worker:0").stdout.splitlines()
    times = [json.loads(line)["at"] for line in shown]
    assert len(times) == 100_000
    assert times == sorted(times)


def test_a_lost_job_is_resumed_and_keeps_its_lines(reach: Reach) -> None:
    script = f"[ $DISTRUN_ATTEMPT = 1 ] && {{ echo again; exit; }}; {UNTIL_GO}"
    launch = reach.launch(script)
    reach.wait_for_processes(2, "sh")
    wait_until(lambda: reach.distrun("logs").stdout.count("| 5\n") == 2, what="both count")
    job = reach.distrun.status()["job_id"]
    os.kill(reach.distrun.status()["supervisor_pid"], signal.SIGKILL)
    assert ended(launch)[0] == 70
    reach.wait_for_processes(0)
    code, _, said = ended(reach.start("resume", job))
    assert code == 0, said
    for task in ("worker:0", "worker:1"):
        log = reach.distrun("logs", job, "-t", task, "--raw").stdout
        former, _, again = log.partition("--- attempt 1, ")
        lines = [int(each) for each in former.split()]
        assert lines == list(range(1, len(lines) + 1))
        assert len(lines) >= 5
        assert again.endswith("---\nagain\n")
        shown = reach.distrun("logs", job, "-t", task, "--json").stdout.splitlines()
        times = [json.loads(line)["at"] for line in shown]
        assert times == sorted(times)


def test_what_tasks_write_comes_back_while_they_run_and_at_the_end(reach: Reach) -> None:
    work = reach.distrun.cwd / "work"
    work.mkdir()
    (work / "train.py").write_text(WRITES.replace("GO", UNTIL_GO.replace("MARK", reach.mark)))
    # It is not to listen at an address, however long it runs: that would be a warning.
    program = {"script": "work/train.py", "workdir": "work", "results": ["out"]}
    launch = reach.launch("", program={**program, "tf_config": "mine"})
    reach.wait_for_processes(2, "sh")
    wait_until(lambda: reach.distrun("logs").stdout.count("| 5\n") == 2, what="both count")
    fetched = reach.distrun("fetch", "job", "out", "-o", "back")
    wanted = {each: each for each in ("worker:0", "worker:1", "same")}
    found = {each.name: each.read_text() for each in reach.distrun.cwd.glob("back/out/*")}
    if reach.carrier:
        assert fetched.returncode == 0, fetched.stderr
        assert found == wanted
    else:
        assert fetched.returncode == 2
        assert "what its tasks wrote is on this machine" in fetched.stderr
    reach.let_go()
    code, _, said = ended(launch)
    assert code == 0, said
    assert {each.name: each.read_text() for each in work.glob("out/*")} == wanted
    assert reach.distrun.status()["warnings"] == []
    assert reach.fetched_later in reach.distrun("fetch", "job", "out", "-o", "later").stderr


def test_followed_logs_end_with_the_job(reach: Reach) -> None:
    launch = reach.launch(UNTIL_GO)
    reach.wait_for_processes(2, "sh")
    follow = reach.distrun.start("logs", "-f", "--timestamps", stdout=-1, text=True)
    assert follow.stdout is not None
    lines = [follow.stdout.readline()]
    reach.let_go()
    lines += follow.stdout.read().splitlines()
    code, printed, said = ended(launch)
    assert (code, follow.wait(60)) == (0, 0), said
    followed = [line.rstrip("\n").partition(" ")[2] for line in lines]
    assert sorted(followed) == sorted(printed.splitlines())

"""What tasks have used, how far they are, and what `ps` and `status` show of it."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun, python, recorded_events, write_program
from harness.parts.linux import gpus_used
from harness.processes import survivors
from harness.tables import read_program
from harness.terminal import OpenTerminal
from harness.values import not_none
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
    --query-gpu=index,uuid,*) echo "1, GPU-b, 85, 512, 16384, 900, 1980, 84, 0x0000000000000004" ;;
    --query-gpu=*) echo "GPU-a, 35"; echo "GPU-b, 85" ;;
    *) for pid in $(cat {folder}/pids-*); do echo "$pid, GPU-b, 512"; done ;;
esac
"""


def samples(distrun: Distrun) -> list[dict[str, Any]]:
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
    write_program(programs / "nvidia-smi", NVIDIA_SMI.format(folder=distrun.cwd))
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
    assert (usage["processes"], usage["gpu_memory_bytes"]) == (2, 1024 << 20)
    assert usage["memory_bytes"] > 80_000_000, "of its child"
    shown = distrun.asked("status")
    assert "GPU MEM" in shown
    assert "1.1 GB" in shown, "of both processes"
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    (task,) = json.loads(distrun.asked("profile", "--seconds", "1", "--json"))["tasks"]
    assert [(each["index"], each["slowed_by"]) for each in task["gpus"]] == [("1", ["power cap"])]
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0


def test_untold_memory_of_gpus_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "nvidia-smi", "#!/bin/sh\necho '7, GPU-b, [N/A]'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpus_used().memory_of([7]) is None


def test_a_task_too_small_to_be_measured_has_an_unknown_peak(distrun: Distrun) -> None:
    """The kernel counts the agent's own memory for a process that the agent has forked."""
    assert distrun.launch("exit 0", workers=1).returncode == 0
    job = distrun.status()
    assert job["peak_memory_bytes"] is job["tasks"][0]["used"]["peak_memory_bytes"] is None
    assert job["tasks"][0]["used"]["cpu_seconds"] > 0
    assert "unknown" in distrun.asked("status")
    assert "unknown" in distrun.asked("ps", "-a")


REPORTS = """\
import os, socket, sys, time
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
speak.sendto(b"STEP=120 EPOCH=3 LOSS=0.164", "\\0" + os.environ["DISTRUN_NOTIFY"][1:])
exec(sys.argv[1])
"""


def launch(distrun: Distrun, name: str, then: str) -> str:
    script = distrun.cwd / "reports.py"
    if not script.exists():  # a task of the job before may be about to read it
        script.write_text(REPORTS)
    program = {"script": script.name, "args": [then]}
    return distrun.detached("", workers=1, name=name, program=program)


def test_jobs_are_listed_with_cause_and_metric(distrun: Distrun, terminal: OpenTerminal) -> None:
    good = launch(distrun, "good", "pass")
    bad = launch(distrun, "bad", "import no_such_module")
    distrun("wait", good, bad)

    def has_reported() -> bool:
        return "LOSS" in distrun.status()["tasks"][0]["progress"]

    killed = launch(distrun, "killed", "time.sleep(600)")
    wait_until(has_reported)
    distrun("kill", killed)
    lost = launch(distrun, "lost", "time.sleep(600)")
    samples = Path(distrun.status()["folder"], "history/worker-0.jsonl")
    wait_until(lambda: samples.exists() and "LOSS" in samples.read_text())
    os.kill(distrun.status()["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not survivors(lost))
    running = launch(distrun, "running", "time.sleep(600)")
    wait_until(has_reported)
    rows = {
        each["job_id"]: each for each in json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]
    }
    causes = {job_id: row["cause"] for job_id, row in rows.items()}
    told = {bad: "import_error", killed: "kill", lost: "supervisor_died"}
    assert causes == {good: None, **told, running: None}
    assert {row["progress"]["LOSS"] for row in rows.values()} == {0.164}

    def ids(*args: str) -> list[str]:
        return str(distrun.asked("ps", "-q", *args)).split()

    assert ids() == [running]
    assert ids("-a") == [good, bad, killed, lost, running]
    assert ids("-n", "2") == [lost, running]
    assert ids("--failed") == [bad, lost]
    assert ids("--failed", "-n", "1") == [lost]
    assert distrun("ps", "-n", "0").returncode == 2
    window = terminal("ps", "-a", columns=80)
    window.finish()
    lines = window.text().splitlines()
    assert max(map(len, lines)) <= 80
    [line] = [line for line in lines if line.startswith(bad)]
    assert "import_error" in line
    assert "epoch 3 step 120 loss 0.164" in line
    distrun("kill")


def test_status_and_ps_tell_progress_and_who_is_behind(distrun: Distrun, tmp_path: Path) -> None:
    script = (
        "pause=0.1; test $DISTRUN_TASK = worker:1 && pause=0.4; i=0; while [ ! -e go ]; "
        "do i=$((i+1)); echo step $i/9000 loss 0.$i; sleep $pause; done"
    ).replace("go", str(tmp_path / "go"))
    job = distrun.detached(script, workers=2)
    wait_until(lambda: distrun.status()["seconds_left"] is not None)
    found = distrun.status()
    assert found["seconds_left"] > 1200, "that of the slowest"
    for task in found["tasks"]:
        assert 0 < task["progress_at"] - task["started_at"] < 60
        assert 0 < task["last_output_at"] - task["started_at"] < 60
    assert " left\n" in distrun.asked("status")
    wait_until(lambda: (distrun.status()["behind"] or "").startswith("worker:1 is behind: step "))
    assert f"distrun: {job}: worker:1 is behind: step" in distrun("ps").stderr
    for command in ("status", "ps"):
        assert " s ago" in distrun.asked(command)
    (tmp_path / "go").touch()
    assert distrun("wait", job).returncode == 0
    ended = distrun.status(job)
    assert (ended["behind"], ended["seconds_left"], ended["progress_at"]) == (None,) * 3
    assert "ago" not in distrun.asked("status", job)


PAGE = Path(__file__).parents[2] / "docs" / "progress.md"


def test_the_function_of_the_page(distrun: Distrun, capfd: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(
        "<!-- run by: tests/process/test_usage.py -->\n```python\n(.*?)```",
        PAGE.read_text(),
        re.DOTALL,
    )
    assert code.count("\n") == 5
    report = f"import os, socket, time\n{code}"
    call = not_none(re.search(r"report\(EPOCH=.*\)", report))[0]
    (distrun.cwd / "speak.py").write_text(f"{report}\n{call}\n")
    assert distrun.launch("", 1, program={"script": "speak.py"}).returncode == 0
    values = {name: float(value) for name, value in re.findall(r"([A-Z]+)=([\d.]+)", call)}
    assert progress(distrun) == values
    assert len(values) == 6
    exec(f"{report}\n{call}\n", {})
    assert capfd.readouterr() == ("", "")


BARS = read_program("bars.py")


@pytest.fixture
def script(distrun: Distrun) -> Callable[..., Path]:
    """Write a spec of tasks that run some Python; more keys as keywords."""

    def write(body: str, workers: int = 1, **keys: Any) -> Path:
        (distrun.cwd / "bars.py").write_text(BARS + body)
        program = {"command": [sys.executable, "bars.py"]}
        return distrun.write_spec("", workers=workers, program=program, **keys)

    return write


def progress(distrun: Distrun, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = distrun.status()["tasks"][number]["progress"]
    return found


def test_the_live_line_shows_a_bar_while_it_moves_and_the_output_one_line(
    script: Callable[..., Path], terminal: OpenTerminal, distrun: Distrun
) -> None:
    body = """
show("Epoch 2/3\\n")
keras(10)
keras(120)
wait_for("go")
keras(500, 0.25)
show("\\n")
tqdm(24)
wait_for("on")
tqdm(100, "\\n")
"""
    window = terminal("launch", script(body), columns=120)
    wait_until(lambda: "epoch 2/3  step 120/500 24%  9.0 s left in epoch" in window.read())
    assert "━" not in window.read()
    assert "loss 0.5  accuracy 0.95" in window.read()
    (distrun.cwd / "go").touch()
    wait_until(lambda: "step 24/100 24%  30 s left in epoch  loss 0.25" in window.read())
    (distrun.cwd / "on").touch()
    assert window.finish() == 0
    output = [line for line in window.text().splitlines() if " | " in line]
    bars = [line.rpartition(" | ")[2] for line in output if "/500 " in line]
    assert len(bars) == 1
    assert bars[0].startswith("500/500 ━━━━━━━━━━━━━━━━━━━━ 9s 25ms/step")
    assert sum("100%|##########| 100/100" in line for line in output) == 1
    assert "24%|" not in window.text()
    live = re.findall("\x1b\\[1m([^\n\x1b]*)\x1b\\[0m\r", window.seen)
    assert max(map(len, live)) <= 119


def test_what_a_task_reports_wins(script: Callable[..., Path], distrun: Distrun) -> None:
    body = """
tqdm(24)
wait_for("metric")
report("LOSS=0.75 F1=0.5 PHASE=warm-up NAN=nan")
wait_for("step")
report("STEP=7 STEPS=9")
tqdm(25)
wait_for("go")
tqdm(26)
report("STEP=8")
os._exit(0)
"""
    distrun("launch", "-d", script(body))
    wait_until(lambda: progress(distrun).get("STEP") == 24)
    (distrun.cwd / "metric").touch()
    wait_until(lambda: "F1" in progress(distrun))
    reported = {"LOSS": 0.75, "F1": 0.5, "PHASE": "warm-up", "NAN": "nan"}
    assert progress(distrun) == {"STEP": 24, "STEPS": 100, "ETA": 30, **reported}
    (distrun.cwd / "step").touch()
    reported |= {"STEP": 7, "STEPS": 9}
    wait_until(lambda: progress(distrun) == reported)
    assert "step 7/9 77% loss 0.75 f1 0.5 phase warm-up nan nan" in distrun.asked("status")
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    reported["STEP"] = 8
    assert progress(distrun) == reported
    assert isinstance(progress(distrun)["STEP"], int)
    assert json.loads(distrun.asked("ps", "-a", "--json"))["jobs"][0]["progress"]["LOSS"] == 0.75
    (told,) = (each for each in recorded_events(distrun) if each["event"] == "TaskReported")
    assert (told["task"], told["values"]["STEP"]) == ("worker:0", 8)

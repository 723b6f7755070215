"""What `--json` prints is what docs/json.md says, field by field."""

import json
from typing import Any

import pytest

from harness import json_page
from harness.command import Distrun, python
from harness.damaged_records import example
from harness.json_page import PAGE, Reader
from harness.parts.job import event_fields, events, output_json
from harness.programs import hanging_script
from harness.waiting import wait_until

TELLS = """\
import os, socket, time
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(os.environ["DISTRUN_NOTIFY"].replace("@", "\\0"))
notify.send(b"STEP=3 STEPS=9 LOSS=0.25 ODD=nan MUCH=1e999 NAME=x")
print("hello", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
raise SystemExit(1)
"""
UNSEEN = {("job", f"slurm.{name}") for name in ("job", "state", "reason", "starts_at")}
UNSEEN |= {("job", f"kubernetes.{name}") for name in ("job", "state", "reason", "namespace")}
"""What only jobs in Slurm or Kubernetes have; tests/slurm and tests/kubernetes have these."""


@pytest.fixture
def reader() -> Reader:
    return Reader(PAGE.read_text())


def ask(distrun: Distrun, *args: Any, code: int = 0) -> dict[str, Any]:
    done = distrun(*args, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["version"] == 2
    return found


def test_status_ps_events_and_logs_are_as_described(distrun: Distrun, reader: Reader) -> None:
    job = distrun.detached(python(TELLS), restart={"max": 1, "backoff": "50ms"})
    wait_until(lambda: all("STEP" in task["progress"] for task in distrun.status(job)["tasks"]))
    wait_until(lambda: all(task["usage"] for task in distrun.status(job)["tasks"]))
    for running in (True, False):
        found = ask(distrun, "status", job)
        assert found["job"]["running"] is running
        assert isinstance(found["job"]["tasks"], list)
        assert found["job"]["task_count"] == len(found["job"]["tasks"]) == 2
        assert found["job"]["hosts"][0]["kind"] == "local"
        reader.check("status", found)
        reader.check("ps", ask(distrun, "ps", "-a"))
        task = found["job"]["tasks"][0]
        assert not reader.missing("task", task)
        assert not reader.missing("job", found["job"])
        assert not reader.missing("status", found["job"], "job.")
        assert not reader.missing("host", found["job"]["hosts"][0])
        if running:
            assert task["progress"] == {
                "STEP": 3, "STEPS": 9, "LOSS": 0.25, "ODD": "nan", "MUCH": "1e999", "NAME": "x",
            }  # fmt: skip
            (distrun.cwd / "go").touch()
            wait_until(lambda: not distrun.status(job)["running"])
    for section, lines in (
        ("events", distrun("events", job, "--json").stdout.splitlines()),
        ("logs", distrun("logs", job, "--json").stdout.splitlines()),
    ):
        assert lines
        for line in lines:
            printed = json.loads(line)
            reader.check(section, printed)
            if section == "logs":
                assert not reader.missing("logs", printed)
    assert distrun.launch("sleep 600 & exit 0").returncode == 0
    reader.check("status", ask(distrun, "status"))  # with a warning
    assert reader.faults == []
    described = {(name, path) for name in ("job", "task", "ps") for path in reader.tables[name]}
    assert {each for each in described - reader.seen if each not in UNSEEN} <= {
        ("task", "reason_code"), ("task", "usage.gpu_memory_bytes"),
    }  # fmt: skip


def test_plan_doctor_and_stacks_print_what_is_described(distrun: Distrun, reader: Reader) -> None:
    spec = distrun.write_spec(
        "exit 0", restart={"max": 2}, workers=1, name="plan",
        tensorboard={"logdir": str(distrun.cwd)},
    )  # fmt: skip
    plan = ask(distrun, "plan", spec)
    assert plan["plan"]["hosts"] == [{"name": "localhost", "kind": "local"}]
    reader.check("plan", plan)
    assert not reader.missing("plan", plan["plan"], "plan.")
    assert not reader.missing("plan", plan["plan"]["tasks"][0], "plan.tasks[].")
    assert not reader.missing("restart policy", plan["plan"]["restart"])
    doctor = ask(distrun, "doctor", spec)
    reader.check("doctor", doctor)
    assert not reader.missing("doctor", doctor["doctor"]["checks"][0], "doctor.checks[].")
    job = distrun.detached(hanging_script(distrun.cwd))
    wait_until(lambda: distrun("logs", job).stdout.count("hangs") == 2)
    stacks = ask(distrun, "stacks", job)
    reader.check("stacks", stacks)
    for path in ("", "processes[].", "processes[].threads[].", "entries[]."):
        value: Any = stacks
        for name in path.replace(".", "").split("[]")[:-1]:
            value = value[name][0]
        assert not reader.missing("stacks", value, path)
    assert distrun("kill", job).returncode == 0
    assert reader.faults == []


def test_each_kind_of_events_prints_what_is_described(reader: Reader) -> None:
    described = json_page.events(PAGE.read_text())
    for name, kind in events.KINDS.items():
        fields = described[kind.__name__]
        assert fields == event_fields(kind), name
        printed = {"version": 2, "event": kind.__name__, **output_json(example(kind))}
        assert sorted(printed) == sorted({"version", "event", "at", *fields}), name
        reader.check("events", printed)
        for section in ("verdict", "outcome"):
            value = printed.get(section)
            assert value is None or not reader.missing(section, value)
    assert reader.faults == []

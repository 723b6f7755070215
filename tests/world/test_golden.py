"""What commands show, exactly: a file for each view and width. `make golden` writes them anew.

Read the difference before you commit it.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.command import run_here
from harness.world import World

Launch = Callable[..., World]
GOLDEN = Path(__file__).with_name("golden")
ERROR = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 8, in <module>
    raise ValueError("shapes (32, 10) and (32, 11) are incompatible")
ValueError: shapes (32, 10) and (32, 11) are incompatible
"""
WIDTHS = (80, 132)
VIEWS = {"status": WIDTHS, "ps -a": WIDTHS, "events": (80,), "logs -n 4": (80,), "wait": (80,),
         "logs -fn 1": (80,)}  # fmt: skip
SPECS: dict[str, Any] = {
    "plan": {
        "cluster": {"worker": ["localhost:4001", "localhost:4002"], "evaluator": 1},
        "restart": {"max": 3, "on": ["any failure", "preemption"], "never_on": [2]},
        "program": {
            "command": ["true", "--epochs", "2"],
            "sync": "off",
            "env": {"API_KEY": "hidden"},
        },
    },
    "submit --dry-run kubernetes": {
        "cluster": {"worker": 2},
        "hosts": "kubernetes",
        "kubernetes": {"image": "train:1", "context": "c", "cpus": 4, "gpus": 1, "memory": "8Gi"},
    },
    "submit --dry-run slurm": {
        "cluster": {"worker": 2},
        "hosts": "slurm",
        "slurm": {"partition": "gpu", "nodes": 2, "time": "7150s", "gpus_per_node": 1},
        "spares": 1,
    },
}


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def failed(world: Launch) -> World:
    """A host is lost and replaced, then a task is killed; the third failure ends the job."""
    job = world(3, spares=1, restart={"max": 2, "never_on": [2]}, timeouts={"link": "20s"})
    for _ in range(2):
        for step in range(1, 4):
            for task in ("worker:0", "worker:1"):
                job.print(task, f"step {step}/20 - loss: {1 / step:.4f}\n")
            job.advance(1)
        job.cut("h2") if job.hosts_of("worker:1")[-1] == "h2" else job.die("worker:1")
        job.until(lambda: job.running.get("worker:1") != "h2", 60)
        job.until(lambda: len(job.running) == 2, 60)
    job.print("worker:1", ERROR)
    job.exit("worker:1", 1)
    assert job.end() == 1
    return job


def running(world: Launch) -> World:
    job = world(2, strategy="parameter_server", cluster={"chief": 1, "worker": 2, "ps": 1})
    for epoch in (1, 2):
        job.print("chief:0", f"Epoch {epoch}/30\n")
        job.print("chief:0", f"100/100 - 4s - loss: 0.{epoch} - accuracy: 0.9{epoch}\n")
        job.advance(4)
    return job


def compare(shown: str, name: str) -> None:
    if "REMAKE" in os.environ:
        (GOLDEN / name).write_text(shown)
    assert shown == (GOLDEN / name).read_text(), f"{name}: see `make golden`"


@pytest.mark.parametrize("history", [failed, running])
def test_jobs(history: Callable[[Launch], World], world: Launch) -> None:
    job = history(world)
    for view, widths in VIEWS.items():
        name, *options = view.split()
        has_end = name == "wait" or "-fn" in options
        for columns in widths if not (has_end and job.is_running) else ():
            shown = job.shown(columns, name, *options)
            name = "report" if "-fn" in options else name  # the one of `launch`, too
            if name == "events":  # those of the same moment have any order
                shown = "".join(sorted(re.findall(r"^\S.*\n(?:\s.*\n)*", shown, re.MULTILINE)))
            compare(shown, f"{history.__name__}-{name}-{columns}.txt")


@pytest.mark.parametrize("view", SPECS)
def test_specs(view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - {"HOME", "PATH", "REMAKE", "TZ"}:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DISTRUN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    spec = {
        "name": "digits",
        "strategy": "multi_worker_mirrored",
        "program": {"command": ["true"], "sync": "off"},
        **SPECS[view],
    }
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    command, *words = view.split()
    code, shown, said = run_here([command, *words[:1], str(tmp_path / "job.yaml")])
    assert (code, said) == (0, "")
    for varying, same in (
        (re.escape(str(tmp_path)), "/home/ada"), (re.escape(sys.executable), "/usr/bin/python3"),
        (r"digits-[0-9a-f]{8}", "digits-00000000"),
        (r"(?m)^( *)- \|\n(\1  .*\n|\n)+", r"\1- PROGRAM\n"), (r"(?m)^exec .*", "exec PROGRAM"),
    ):  # fmt: skip
        shown = re.sub(varying, same, shown)
    compare(shown, f"{words[-1] if words else command}.txt")

"""Where tasks stand: what a host may say of it, and how it is folded."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distrun.agent.protocol import Order
from distrun.agent.protocol.stack_messages import ProgramData, ProgramRequested, StacksDumped
from distrun.frozen import replace
from distrun.job import stacks
from distrun.lifecycle import HostState, JobState, TaskPhase, TaskState
from distrun.lifecycle.chunked_map import ChunkedMap
from distrun.strategies import Role
from distrun.supervisor.stack_collector import StackCollector, Stacks
from harness.loops import SimulatedLoop
from harness.values import not_none

LIBRARY = "/opt/venv/lib/python3.11/site-packages/tensorflow/python/ops.py"


def process(task: str, *frames: tuple[str, str, int], **more: Any) -> dict[str, Any]:
    main = {"name": "MainThread", "main": True, "active": True, "gil": False}
    threads = [{**main, "frames": [list(frame) for frame in frames]}] if frames else []
    return {"task": task, "pid": 7, "threads": threads, **more}


WAITS = (("all_reduce", LIBRARY, 9), ("train", "/home/u/train.py", 41), ("<module>", "/t.py", 50))
LOADS = (("load", "/home/u/data.py", 12), ("<module>", "/t.py", 50))


def folded(*found: dict[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    entries = stacks.fold(stacks.decode(json.dumps(found)))
    return [(entry.tasks, entry.process.place) for entry in entries]


def test_the_task_that_stands_elsewhere_comes_first() -> None:
    tasks = [process(f"worker:{n}", *(LOADS if n == 5 else WAITS)) for n in range(8)]
    assert folded(*tasks) == [
        (("worker:5",), "load, data.py:12"),
        (
            tuple(f"worker:{n}" for n in range(8) if n != 5),
            "all_reduce, called from train, train.py:41",
        ),
    ]
    odd = not_none(stacks.odd_one(stacks.places(stacks.decode(json.dumps(tasks)))))
    assert odd.tasks == ("worker:5",)
    assert odd.frames[0] == "load (data.py:12)"


@pytest.mark.parametrize("groups", [(WAITS, WAITS), (WAITS, LOADS)])
def test_of_equals_none_is_odd(groups: tuple[Any, ...]) -> None:
    tasks = [process(f"worker:{n}", *frames) for n, frames in enumerate(groups)]
    assert stacks.odd_one(stacks.places(stacks.decode(json.dumps(tasks)))) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "{}", "[1]", "[[]]", "[" * 100_000, "x" * (3 << 20), json.dumps([{}]),
        json.dumps([process("worker:0", ("f", "x.py", 1))] * 5000),
        json.dumps([process("worker:0", ("f", "x.py", "1"))]),  # type: ignore[arg-type]
        json.dumps([process(7, ("f", "x.py", 1))]),  # type: ignore[arg-type]
        json.dumps([process("worker:0", ("f", "x.py"))]),  # type: ignore[arg-type]
        json.dumps([{**process("worker:0"), "threads": "many"}]),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_what_a_host_may_not_say_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words do not matter
        stacks.decode(text)


class Collected:
    """A question to two hosts."""

    def __init__(self, program: Path) -> None:
        self.ordered: list[tuple[str, Order]] = []
        self.answers: list[Stacks] = []
        self.loop = SimulatedLoop()
        tasks = {
            f"worker:{n}": replace(TASK, name=f"worker:{n}", index=n, host=f"h{n}") for n in (0, 1)
        }
        hosts = {f"h{n}": HostState(name=f"h{n}", agent_pid=1, hostname=f"h{n}") for n in (0, 1)}
        state = replace(JobState(), tasks=ChunkedMap(tasks), hosts=hosts)
        pool = SimpleNamespace(order=lambda *order: self.ordered.append(order))
        job: Any = SimpleNamespace(
            loop=self.loop, state=state, hosts=pool, has_own_logs=lambda _: True
        )
        self.collector = StackCollector(job)
        self.collector.ask(set(tasks), str(program), self.answers.append)

    def answer(self, host: str, text: str, number: int = 1) -> None:
        self.collector.receive(host, StacksDumped(number, text))


TASK = TaskState(name="", role=Role.WORKER, index=0, host="", phase=TaskPhase.RUNNING)
GOOD = json.dumps([process("worker:0", *LOADS)])


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    program = tmp_path / "py-spy"
    program.write_bytes(os.urandom(200_000))
    return Collected(program)


def test_an_answer_that_cannot_be_read_names_its_host(collected: Collected) -> None:
    collected.answer("h0", GOOD)
    assert not collected.answers
    collected.answer("h1", '[{"task": 7}]')
    (found,) = collected.answers
    assert [each.task for each in found.processes] == ["worker:0"]
    assert found.silent.keys() == {"h1"}


def test_a_host_that_is_lost_or_silent_is_not_waited_for(collected: Collected) -> None:
    collected.answer("h0", GOOD)
    collected.answer("h0", GOOD)
    collected.answer("h1", GOOD, number=2)
    assert not collected.answers
    collected.loop.run(60.0)
    assert collected.answers[0].silent == {"h1": "it has not answered in time"}
    assert len(collected.answers[0].processes) == 1


def test_a_host_that_lacks_the_program_is_sent_it(collected: Collected) -> None:
    collected.collector.receive("h1", ProgramRequested("digest"))
    parts = [order for host, order in collected.ordered if isinstance(order, ProgramData)]
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(zlib.decompress(b"".join(part.data for part in parts))) == 200_000


USERS = ("<string>", "train.py", "/lib64/my/train.py", "/a/lib/b.py")
LIBRARYS = (
    LIBRARY,
    "/usr/lib/python3.11/socket.py",
    "<frozen importlib>",
    "/x/libc.so.6",
    "a.cc",
    "",
)


@pytest.mark.parametrize("file", [*USERS, *LIBRARYS])
def test_what_is_installed_is_a_librarys_and_a_script_is_the_users(file: str) -> None:
    assert stacks.Frame("main", file, 1).is_of_library is (file in LIBRARYS)

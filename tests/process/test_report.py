"""`distrun report`: what the page says, and where it is written."""

from __future__ import annotations

import html
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun, recorded_events

STEPS = """\
import os, socket, sys, time
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(os.environ["DISTRUN_NOTIFY"].replace("@", "\\0"))
attempt = int(os.environ["DISTRUN_ATTEMPT"])
print("hello <script>alert(1)</script> &amp;", os.environ.get("MY_TOKEN"), flush=True)
first, last = (8, 14) if attempt else (1, 11)
end = time.monotonic() + 2.5
for step in range(first, last):
    notify.send(f"STEP={step} STEPS=20 LOSS={1 / step}".encode())
    time.sleep(0.7 if step == first else 0.02)
notify.send(b"SAVING=1")
while time.monotonic() < end:
    time.sleep(0.02)
notify.send(b"SAVING=0")
if not attempt and os.environ["DISTRUN_TASK"] == "worker:1":
    time.sleep(0.2)
    raise ValueError("broken on purpose")
while not attempt:
    time.sleep(0.02)
"""
SECRET = "verysecret-5-value"


def python(script: str) -> str:
    return f"exec {shlex.quote(sys.executable)} -c {shlex.quote(script)}"


def text_of(page: str) -> str:
    """The page's text, without its script, style and markup."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def rows_of(page: str, section: str) -> list[list[str]]:
    """The rows of a section's table."""
    found = re.search(rf'<section id="{section}">(.*?)</section>', page, re.DOTALL)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", "" if found is None else found[1], re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]
    return [[html.unescape(cell) for cell in row] for row in cells if row]


@pytest.fixture
def report(distrun: Distrun) -> Callable[..., str]:
    def write(*args: str, fault: str = "") -> str:
        page = distrun.cwd / "page.html"
        done = distrun("report", "-o", page, *args)
        assert done.returncode == 0, done.stderr
        *told, last = done.stderr.splitlines()
        assert last == f"distrun: wrote {page}"
        assert [line.split(":")[1].partition(" of job ")[0] for line in told] == (
            [" the record"] if fault else []
        )
        assert all(fault in line for line in told), told
        return page.read_text()

    return write


def test_a_restart_is_told_with_its_cause_and_cost(
    distrun: Distrun, report: Callable[..., str]
) -> None:
    program = {"command": ["sh", "-c", python(STEPS)], "env": {"MY_TOKEN": SECRET}}
    spec = distrun.write_spec("", restart={"max": 2, "backoff": "100ms"}, program=program)
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    page = report()
    assert SECRET not in page
    assert "<script>alert" not in page
    text = text_of(page)
    assert "hello <script>alert(1)</script> &amp; ***" in text
    ((_, after, what, why, verdict, tasks, cost),) = rows_of(page, "interruptions")
    assert what == "restart"
    assert why == "worker:1 exited 1"
    assert "ValueError: broken on purpose" in verdict
    assert tasks == "worker:0, worker:1"
    assert cost.endswith("without a step, 3 steps repeated")
    assert after.endswith(" s")
    bars = rows_of(page, "time")
    for task in ("worker:0", "worker:1"):
        did = [what for name, what, *_ in bars if name == task]
        assert [each for each in did if each != "ending"] == [
            *("waiting", "starting", "training", "saving"),
            *("waiting", "starting", "training", "saving"),
        ]
    assert {row[1] for row in rows_of(page, "tasks")} == {"succeeded"}
    for title in ("Loss", "Steps", "Processor, % of a core", "Resident memory (RSS)"):
        assert page.count(f'aria-label="{title}"') == 2, title
    kinds = [event["event"] for event in recorded_events(distrun)]
    assert kinds.count("SavingStarted") == kinds.count("SavingEnded") == 4
    assert "exit code" in text
    assert distrun.status()["state"] == "succeeded"
    assert "\n  earlier       worker:1 " in distrun.asked("status")


def test_the_page_goes_where_it_is_asked_to_whatever_the_record_is(
    distrun: Distrun, report: Callable[..., str]
) -> None:
    assert distrun.launch("echo hello", workers=3).returncode == 0
    (folder,) = (distrun.home / "jobs").iterdir()
    assert distrun("report").returncode == 0
    plain = (distrun.cwd / f"distrun-{folder.name}.html").read_text()
    assert plain.startswith("<!DOCTYPE html>")
    odd = distrun.cwd / "a 'b'\n\"c\".html"
    odd.write_text("before")
    assert distrun("report", "-o", odd, "-t", "worker:1").returncode == 0
    assert {name for name, *_ in rows_of(odd.read_text(), "time")} == {"worker:1"}
    assert "2 more tasks are not drawn" in odd.read_text()
    for bad in (distrun.cwd / "none" / "x.html", Path("/proc/x.html")):
        refused = distrun("report", "-o", bad)
        assert (refused.returncode, refused.stdout) == (69, "")
        assert str(bad) in refused.stderr
    wrong = (("-o", distrun.cwd), ("nojob",), ("-t", "worker:7", "-o", "-"))
    assert [distrun("report", *words).returncode for words in wrong] == [2, 2, 2]

    (folder / "history").mkdir(exist_ok=True)
    (folder / "history" / "worker-0.jsonl").write_bytes(b'\xff{"at": 1e999}\n{"at":5}\n\n')
    record = folder / "events.jsonl"
    text = record.read_bytes()
    record.write_bytes(text[:300] + b"\xff\x00" + text[300:])
    assert f"<title>{folder.name}: " in report(fault=f"{folder.name} is damaged: ")
    record.unlink()
    assert f"<title>{folder.name}: " in report(fault=f"{folder.name} is missing: ")

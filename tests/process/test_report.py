"""`distrun report`, also served, and `compare`: what the page says, where it goes, who gets it."""

import contextlib
import html
import http.client
import json
import math
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.command import Distrun, python, recorded_events
from harness.json_page import PAGE, Reader
from harness.long_job import write_long_job
from harness.parts.records import Sample
from harness.parts.report import Run, steps_of
from harness.tables import read_program
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

STEPS = read_program("steps.py")
SECRET = "verysecret-5-value"


def rows_of(page: str, section: str) -> list[list[str]]:
    found = re.search(rf'<section id="{section}">(.*?)</section>', page, re.DOTALL)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", "" if found is None else found[1], re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]
    return [[html.unescape(cell) for cell in row] for row in cells if row]


@pytest.fixture
def report(distrun: Distrun) -> Callable[..., str]:
    def write(*args: str, fault: str = "") -> str:
        page = distrun.cwd / "page.html"
        done = distrun.checked("report", "-o", page, *args)
        *told, last = done.stderr.splitlines()
        assert last == f"distrun: wrote {page}"
        assert [line.split(":")[1].partition(" of job ")[0] for line in told] == (
            [" the record"] if fault else []
        )
        assert all(fault in line for line in told), told
        return page.read_text()

    return write


def test_a_restart_has_its_cause_and_cost(distrun: Distrun, report: Callable[..., str]) -> None:
    program = {"command": ["sh", "-c", python(STEPS)], "env": {"MY_TOKEN": SECRET}}
    spec = distrun.write_spec("", restart={"max": 2, "backoff": "100ms"}, program=program)
    distrun.checked("launch", spec)
    page = report()
    assert SECRET not in page
    assert "<script>alert" not in page
    read = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]*>", " ", read))
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


def test_the_page_goes_where_it_is_asked_to(distrun: Distrun, report: Callable[..., str]) -> None:
    assert distrun.launch("echo hello", workers=3).returncode == 0
    (folder,) = (distrun.home / "jobs").iterdir()
    assert distrun("report").returncode == 0
    assert (distrun.cwd / f"distrun-{folder.name}.html").read_text().startswith("<!DOCTYPE html>")
    odd = distrun.cwd / "a 'b'\n\"c\".html"
    odd.write_text("before")
    assert distrun("report", "-o", odd, "-t", "worker:1").returncode == 0
    assert {name for name, *_ in rows_of(odd.read_text(), "time")} == {"worker:1"}
    assert "2 more tasks are not drawn" in odd.read_text()
    for bad in (distrun.cwd / "none" / "x.html", Path("/proc/x.html")):
        assert str(bad) in distrun.told(69, "report", "-o", bad)
    assert "no.tgz: there is no such file" in distrun.told(2, "report", "no.tgz")
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


def test_a_task_that_is_behind_is_marked(distrun: Distrun, report: Callable[..., str]) -> None:
    script = 'echo "step 1 loss 1"; echo "step $((97 - DISTRUN_RANK / 2 * 78)) loss 1"; sleep 600'
    job = distrun.detached(script, workers=3)
    wait_until(lambda: all(each["progress"] for each in distrun.status()["tasks"]))
    marks = {row[0]: row[-1] for row in rows_of(report(), "tasks")}
    assert "slowest: 19 steps; usual: 97" in marks["worker:2"]
    distrun.checked("kill", job)


def test_all_jobs_are_compared(distrun: Distrun, terminal: OpenTerminal) -> None:
    """One that ran for a day, one that failed at once, and one that runs and tells nothing."""
    folder = write_long_job(distrun.home / "jobs" / "long-aaaaaa", hosts=2)
    folder.history_of("worker:0").unlink()
    script = "echo '2/2 - 3s - 6ms/step - loss: 1e30'; exit 3"
    program = {"command": ["sh", "-c", script], "env": {"MY_TOKEN": SECRET, "source": "b"}}
    done = distrun.launch("", program=program, name="failed", hosts=["127.0.0.1"])
    assert done.returncode == 3
    jobs = ["long-aaaaaa", "failed", distrun.detached("exec sleep 600", workers=1)]
    page = distrun.cwd / "page.html"
    done = distrun.checked("compare", *jobs, "--json", "-o", page)
    reader = Reader(PAGE.read_text())
    found: dict[str, Any] = json.loads(done.stdout)
    reader.check("compare", found)
    assert [*reader.missing("compare", found["jobs"][0], "jobs[]."), *reader.faults] == []
    long, failed, running = found["jobs"]
    assert (long["state"], failed["exit_code"], running["state"]) == ("succeeded", 3, "running")
    assert (running["metrics"], running["step"]) == ({}, None)
    assert long["first_step_seconds"] == pytest.approx(25, abs=1)
    assert long["steps_per_second"] > 0
    assert long["metrics"]["LOSS"] == 0.2, "of the task that has more samples"
    differences = {each["name"]: each["values"] for each in found["differences"]}
    assert differences["cluster.worker.count"] == ["", "2", "1"]
    assert "distrun version" not in differences  # the first one does not say
    assert differences["program.env.source"] == ["", "b", ""]
    hosts = {name: each for name, each in differences.items() if name.startswith("hosts")}
    assert hosts == {"hosts": ["", "127.0.0.1", "localhost"]}
    html = page.read_text()
    titles = set(re.findall(r"<figcaption>(.*?)</figcaption>", html))
    assert {"Loss over steps", "Loss over time", "Steps over time"} <= titles
    assert SECRET not in html + done.stdout
    window = terminal("compare", *jobs, columns=60)
    window.finish()
    lines = window.text().splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("JOB") for line in lines) >= 2
    assert all(any(job in line for line in lines) for job in [*jobs[::2], "  1e+30"])
    for names, said in (
        (["long", "long-aaaaaa"], "long-aaaaaa is named twice"),
        (["long"], "name two to six jobs, not 1"),
        (["long", "none"], "there is no job 'none'"),
    ):
        assert said in distrun.told(2, "compare", *names)
    many = [f"long-{each}-{each[:6]}" for each in (name * 20 for name in "bcdef")]
    for name in many:
        write_long_job(distrun.home / "jobs" / name, hosts=2)
    shown = distrun.checked("compare", "long-aaaaaa", *many).stdout
    assert "\n\nthe same in all: state succeeded, " in shown
    assert sum(line.startswith("JOB") for line in shown.splitlines()) > 1
    assert distrun("kill", jobs[2]).returncode == 0


def sample(attempt: int, **progress: float) -> Sample:
    return Sample(
        at=0.0, attempt=attempt, cpu_seconds=None, memory_bytes=None, peak_memory_bytes=None,
        processes=None, read_bytes=None, written_bytes=None, progress=progress,
    )  # fmt: skip


def test_steps_are_counted_over_all_epochs() -> None:
    told: list[tuple[list[tuple[int, float, float]], list[float]]] = [
        ([(0, 1, 4), (0, 2, 6), (0, 3, 8)], [4, 16, 28]),  # Keras: STEP has not been seen to fall
        ([(0, 1, 5), (0, 2, 2), (1, 2, 1)], [5, 12, 11]),  # a restart is no new epoch
        ([(0, 0, 5), (0, 1, 2), (0, 2, 1)], [5, 12, 21]),  # epochs from 0
    ]
    for values, steps in told:
        samples = [
            sample(a, EPOCH=epoch, STEP=step, STEPS=10, EPOCHS=3) for a, epoch, step in values
        ]
        assert [step for _, step in steps_of([sample(0, LOSS=1), *samples])] == steps


def test_the_time_of_a_restart_is_none_of_steps() -> None:
    told = [(0.0, 0.0), (10.0, 20.0), (60.0, math.nan), (60.0, 15.0), (70.0, 35.0)]
    run: Any = SimpleNamespace(steps=(), over_time=lambda _: told)
    assert Run._step_rate(run) == 2.0


class Page:
    """A page that is served, and the command that serves it."""

    def __init__(self, distrun: Distrun, *args: str) -> None:
        command = ("report", "--serve", *args)
        self.process: subprocess.Popen[str] = distrun.start(
            *command, stdout=-1, stderr=-1, text=True
        )
        assert self.process.stdout is not None
        url = self.process.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32,}/)\n", url)
        assert found is not None, url
        self.port, self.path = int(found[1]), found[2]

    def ask(self, path: str = "", method: str = "GET", **headers: str) -> tuple[int, str]:
        """Ask as a browser does; `path` follows the token, or begins with a slash."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        client.request(method, path if path[:1] == "/" else self.path + path, headers=headers)
        answer = client.getresponse()
        text = answer.read().decode()
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        client.close()
        return answer.status, text

    def post(self, action: str) -> tuple[int, str]:
        return self.ask(action, "POST", Origin=f"http://127.0.0.1:{self.port}")

    def end(self) -> str:
        self.process.send_signal(signal.SIGINT)
        _, told = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return str(told)


def test_only_those_who_know_the_address_get_it_until_the_end_and_beyond(distrun: Distrun) -> None:
    job = distrun.detached("echo begun; exec sleep 600", workers=1)
    page = Page(distrun)
    here = f"127.0.0.1:{page.port}"
    status, text = page.ask()
    assert status == 200
    assert page.ask(method="HEAD") == (200, "")
    assert f"<title>{job}: running</title>" in text
    for host in ("localhost:9", f"[::1]:{page.port}", "127.0.0.1"):  # of `ssh -L`, too
        assert page.ask(Host=host)[0] == 200
    token = page.path.strip("/")
    assert page.ask(f"/{token}")[0] == 302
    cut = f"/{token[:-1]}"
    for wrong in ("/", f"{cut}/", cut, f"/x{token}/", "../", "stop", "../jobs"):
        status, text = page.ask(wrong)
        assert status == 404, wrong
        assert token not in text
        assert job not in text
    for host in ("evil.example", f"evil.example:{page.port}", "127.0.0.1.evil.example", "", "[::1"):
        assert page.ask(Host=host)[0] == 403, host
        assert page.ask("stop", "POST", Host=host, Origin=f"http://{host}")[0] in (403, 404), host
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}):
        assert page.ask("stacks", "POST", Host=here, **origin)[0] == 403, origin
    assert page.post("stop")[0] == 404, "without --allow-stop"
    for sent, code in ((b"\x16\x03\xff", 400), (b"DELETE /", 501), (b"GET /\xc3\xa9/", 404)):
        with socket.create_connection(("127.0.0.1", page.port)) as stranger:
            stranger.sendall(sent + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"%d" % code in stranger.makefile("rb").read()
    for code, word, args in (
        (69, str(page.port), ["--serve", "--port", str(page.port)]),
        (2, "no file", ["--serve", "-o", "page.html"]),
        (2, "--serve", ["--allow-stop"]),
        (2, "worker:7", ["--serve", "-t", "worker:7"]),
    ):
        assert word in distrun.told(code, "report", *args), args
    with contextlib.ExitStack() as silent:
        for _ in range(40):
            silent.enter_context(socket.create_connection(("127.0.0.1", page.port)))
        assert page.ask()[0] == 200
    assert page.end().splitlines() == [
        f"distrun: this address shows job {job} until Ctrl-C; whoever knows it sees the page"
    ]
    assert distrun.status(job)["state"] == "running"

    page = Page(distrun, "--allow-stop", "--port", str(page.port), job)  # at once
    assert page.post("stop") == (200, "the job is stopping")
    wait_until(lambda: f"<title>{job}: stopped</title>" in page.ask()[1], timeout=30)
    assert "distrun report" in page.ask()[1], "who has stopped it"
    assert page.post("stop") == (200, "the job has ended")
    status, text = page.post("stacks")
    assert (status, "has ended" in text) == (503, True)
    shutil.rmtree(distrun.home / "jobs" / job)
    wait_until(lambda: page.ask() == (503, f"the record of job {job} was removed"), timeout=30)
    assert page.process.poll() is None
    assert "Traceback" not in page.end()

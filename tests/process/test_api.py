"""`import distrun`: what programs do with it, in threads and without a terminal, and its errors."""

import io
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distrun as package
from harness.command import Distrun, write_program
from harness.parts.spec import SpecProblemsError
from harness.parts.top import api, errors
from harness.parts.words import advise_about
from harness.processes import alive, captured, survivors
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
BLOCK = re.compile(r"<!-- (file|run by): (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
FOREVER = "echo ready; sleep 1000"
CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell starts background processes with SIGINT ignored, perhaps these tests, too."""

Program = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def program(distrun: Distrun, tmp_path: Path) -> Iterator[Program]:
    assert distrun.home.is_dir()
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *args: str) -> subprocess.Popen[str]:
        (tmp_path / "program.py").write_text(f"{CTRL_C}{textwrap.dedent(code)}")
        process = subprocess.Popen(
            [sys.executable, "program.py", *args],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # no terminal
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def result(process: subprocess.Popen[str]) -> list[str]:
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stderr == ""
    return stdout.splitlines()


def test_the_page_is_true(program: Program, tmp_path: Path, distrun: Distrun) -> None:
    blocks = BLOCK.findall(PAGE)
    for name in ("job.yaml", "train.py", "test_train.py"):
        (tmp_path / name).write_text(next(text for _, of, text in blocks if of == name))
    lines = result(program("".join(text for kind, _, text in blocks if kind == "run by")))
    assert lines[0].startswith("worker:0 ('sh', '-c', ")
    assert sorted(lines[1:3]) == ["worker:0 worker:0 counts to 3", "worker:1 worker:1 counts to 3"]
    assert lines[3:5] == ["succeeded 0", "succeeded"]
    assert re.fullmatch(r"False 3 task worker:\d exited 3.*", lines[5])
    assert lines[6:8] == ["True", "stopped"]
    assert distrun("wait", "counts").returncode == 137, "the newest of that name was killed"
    assert lines[8:10] == ["3 ['worker:0', 'worker:1']", "worker:1: step 3"]
    assert re.fullmatch(r"<distrun.JobStatus job-\w+: failed, exit code 1: .*>", lines[10])
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_train.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = captured(tested, cwd=tmp_path, env=env)
    assert re.search(
        r"E +assert False.*\n.*JobStatus train-\w+: failed, exit code 3: ", done.stdout
    )


def test_the_import_is_fast_and_its_names_are_offered() -> None:
    code = "import sys; old = set(sys.modules); import distrun; print(*set(sys.modules) - old); "
    code += "from distrun import *; import distrun.report; distrun.report(step=1); "
    code += "print(*sorted(set(dir(distrun)) - {'__version__'})); launch, load, run"
    done = captured([sys.executable, "-c", code], check=True)
    imported, names = done.stdout.splitlines()
    assert imported.split() == ["distrun"]
    assert names.split() == api.__all__
    assert not hasattr(package, "no_such_name")


IN_A_THREAD = """
    import itertools, os, signal, sys, threading, time, psutil
    import distrun

    def handlers():
        return [signal.getsignal(number) for number in signal.valid_signals()]

    found = []
    def work():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
        spec = distrun.load(sys.argv[1])
        plan = spec.plan()
        job = distrun.launch(spec)
        status = job.status()
        lines = list(itertools.islice(job.logs(follow=True), 2))
        job.kill(grace=30)
        found.extend([plan.tasks[1].name, status.state, lines[0].text, job.wait().state])

    before, descriptors = handlers(), os.listdir("/proc/self/fd")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(*found)
    print("handlers", handlers() == before, signal.set_wakeup_fd(-1))
    deadline = time.monotonic() + 60  # the kernel removes a thread a moment after its end
    while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    print("threads", threading.active_count(), os.listdir("/proc/self/task") == [str(os.getpid())])
    print("children", psutil.Process().children())
    print("descriptors", len(os.listdir("/proc/self/fd")) == len(descriptors))
"""


def test_in_a_thread_without_a_terminal(distrun: Distrun, program: Program) -> None:
    # Tasks that inherited a blocked SIGTERM would not end before the grace is over.
    spec = distrun.write_spec("grep SigBlk /proc/self/status; sleep 1000 & wait")
    assert result(program(IN_A_THREAD, str(spec))) == [
        "worker:1 running SigBlk:\t0000000000000000 stopped", "handlers True -1", "threads 1 True",
        "children []", "descriptors True",
    ]  # fmt: skip


def test_ctrl_c_in_wait_leaves_the_job_running(program: Program, distrun: Distrun) -> None:
    code = """
        import sys, distrun
        job = distrun.job(sys.argv[1])
        before = set(sys.modules)
        try:
            job.wait(0.1)
        except distrun.WaitTimeoutError:
            imported = set(sys.modules) - before
        try:
            print(*imported, flush=True)
            job.wait()
        except KeyboardInterrupt:
            print("interrupted", job.status().state)
    """
    job_id = distrun.detached(FOREVER)
    process = program(code, job_id)
    assert process.stdout is not None
    assert process.stdout.readline() == "\n", "Python may lose a Ctrl-C that comes in an import"
    process.send_signal(signal.SIGINT)
    assert result(process) == ["interrupted running"]
    assert distrun("kill", job_id).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("call", ["distrun.launch(spec)", "spec.plan()"])
def test_what_does_not_return_leaves_nothing(
    program: Program, distrun: Distrun, tmp_path: Path, call: str, number: int
) -> None:
    pids = tmp_path / "pids"
    write_program(tmp_path / "proxy", f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 600\n")
    ssh = {"options": {"ProxyCommand": f"{tmp_path}/proxy"}, "connect_timeout": "10m"}
    spec = distrun.write_spec(FOREVER, hosts=["elsewhere"], ssh=ssh)
    code = f"""
        import sys, distrun, psutil
        spec = distrun.load(sys.argv[1])
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", psutil.Process().children())
    """
    process = program(code, str(spec))
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    pid = int(pids.read_text().split()[0])
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == (0 if number == signal.SIGINT else -number), stderr
    assert stdout == ("interrupted []\n" if number == signal.SIGINT else "")
    wait_until(lambda: not alive(pid))
    if "launch" in call:
        wait_until(lambda: distrun.status()["state"] == "stopped", timeout=60)
        assert not survivors(distrun.status()["job_id"])
        assert distrun.status()["exit_code"] == (130 if number == signal.SIGINT else 129)


def test_errors(distrun: Distrun, tmp_path: Path) -> None:
    assert distrun.home.is_dir()
    with pytest.raises(package.UsageError, match="there is no such file"):
        package.load(tmp_path / "no.yaml")
    with pytest.raises(package.UsageError, match="there are no jobs yet"):
        package.job()
    with pytest.raises(package.InvalidSpecError) as invalid:
        package.load(distrun.write_spec("true"), overrides=["ports.range=1-1", "x=1"])
    assert len(invalid.value.problems) == 2
    (endless := list[object]()).append(endless)
    with pytest.raises(package.InvalidSpecError, match="nested too deeply"):
        package.load({"cluster": {"worker": 1}, "program": {"command": endless}})
    absent = package.load(distrun.write_spec("true"), overrides=["program.command=[/no/such]"])
    with pytest.raises(package.HostError, match="there is no program '/no/such'") as failed:
        package.launch(absent)
    assert failed.value.exit_code == 69
    greedy = package.load(distrun.write_spec("true", cluster={"worker": {"count": 1, "gpus": 999}}))
    with pytest.raises(package.InvalidSpecError, match="ask for 999 GPUs") as refused:
        greedy.plan()
    assert str(refused.value.hint).startswith("lower `gpus` of a role")

    job = package.launch(package.load(distrun.write_spec(FOREVER, workers=1)))
    with pytest.raises(package.WaitTimeoutError, match="not ended yet; worker:0 running"):
        job.wait(timeout=0.01)
    api: Any = package  # its types forbid these
    start, load = partial(api.run, "train.py"), partial(api.load, distrun.write_spec("true"))
    run: Any = job
    wrong: list[Callable[[], object]] = [
        lambda: run.wait(timeout=math.nan), lambda: list(run.logs(["worker:0"])),
        lambda: list(run.logs(lines=-1)), lambda: list(run.logs(lines=1.5)),
        lambda: list(run.logs(since=math.nan)), lambda: load(args="--steps=3"),
        lambda: load(overrides="x=1"), lambda: api.load(""), lambda: start(env={"A=B": "1"}),
        lambda: start(env={"A": None}), lambda: start(["--dir", None]),
        lambda: run.kill(signal=65), lambda: run.kill(grace=math.inf),
        lambda: run.kill(grace="10s"), lambda: run.kill(grace=True), lambda: run.wait("5m"),
        lambda: run.tail("worker:0"), lambda: api.job(3), lambda: api.load(None),
        lambda: load(args=3), lambda: start(workers="2"), lambda: start(env=["A=1"]),
        lambda: start(hosts=3), lambda: start({"--lr"}), lambda: start(b"--lr"),
        lambda: start(overrides={"name": "x"}),
    ]  # fmt: skip
    told: dict[str, Callable[[], object]] = {
        "must be numbers: step": lambda: api.report(loss=1, step=10**400),
        "has no task 'ps:0'": lambda: list(run.logs("ps:0")),
        r"list, a word for each: \['--lr', 1\]": lambda: start({"--lr": 1}),
        r"launch\(distrun.load\('job.yaml'\)\)": lambda: api.launch("job.yaml"),
    }
    for words, call in [*told.items(), *(("cannot be", each) for each in wrong)]:
        with pytest.raises(errors.UsageError, match=words) as caught:
            call()
        assert caught.value.hint or words != "cannot be"
    assert job.status().is_running
    job.kill()
    job.kill()  # it has ended: nothing to do
    assert job.wait().exit_code == 137
    assert distrun("clean", "--all").returncode == 0
    with pytest.raises(package.UsageError, match="is gone"):
        job.status()
    assert "is gone" in job._repr_html_(), "as what a cell shows"
    assert package.jobs() == []


def test_a_failed_job(distrun: Distrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = 'for i in 1 2; do echo "$i/2 - 3s - 6ms/step - loss: 0.$i - attempt: 9"; done'
    stays = f"touch {tmp_path}/printed; sleep 99"
    fails = f"while [ ! -e {tmp_path}/printed ]; do sleep 0.1; done; echo thé last; exit $CODE"
    script = f"{prints}; if [ $DISTRUN_TASK = worker:0 ]; then {stays}; else {fails}; fi"
    job = package.run("sh", ["-c", script], workers=2, env={"CODE": "3"}, name="ends")
    with pytest.raises(errors.JobFailedError, match=r"(?s)worker:1 exited 3.*thé last") as caught:
        job.wait(60, check=True)
    assert caught.value.exit_code == 3
    late = package.run("sleep", [99], overrides=["timeouts.run=1s"])
    with pytest.raises(errors.JobFailedError, match="ran longer than") as caught:
        late.wait(60, check=True)
    assert caught.value.exit_code == 75
    advise_about("another")
    ended, known = job.wait(60), distrun.status(job.job_id)
    for name in ("state", "strategy", "restarts", "created_at", "ended_at", "exit_code", "origin"):
        assert getattr(ended, name) == known[name], name
    verdict = [known["verdict"][name] for name in ("cause", "kind", "advice")]
    assert [ended.cause, ended.cause_kind, ended.advice] == verdict
    assert (ended.is_running, ended.succeeded, ended.warnings) == (False, False, ())
    for task, told in zip(ended.tasks, known["tasks"], strict=True):
        assert (task.name, str(task.log)) == (told["task"], told["log"])
        for name in ("state", "host", "address", "exit_code", "signal", "attempt", "started_at"):
            assert getattr(task, name) == told[name], name
    printed = [f"{i}/2 - 3s - 6ms/step - loss: 0.{i} - attempt: 9" for i in (1, 2)]
    assert [line.text for line in job.logs("worker:0")] == printed
    assert next(job.logs("worker:1", lines=1)).text == "thé last"
    monkeypatch.setattr("sys.stdout", ascii_only := io.TextIOWrapper(io.BytesIO(), "ascii"))
    job.tail(1, "worker:1")
    ascii_only.seek(0)
    assert ascii_only.read() == "worker:1: th? last\n"
    monkeypatch.setattr("sys.stdout", None)  # of a program that was started with it closed
    job.tail()
    assert list(job.logs(since=0.0)) == package.jobs(running=True) == []
    assert {package.job(job.job_id)} == {job} == {*package.jobs()} - {late}
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", None)  # rich would show it a second time
    assert "worker:0" in job._repr_html_()
    last = job.metrics()[-1]
    assert (last["attempt"], last["step"], last["loss"]) == (0, 2, 0.2)
    frame = "def DataFrame(rows, columns):\n    return columns or rows\n"
    (tmp_path / "pandas.py").write_text(frame)  # it is not among our packages
    monkeypatch.syspath_prepend(tmp_path)
    assert (job.metrics()[-1], late.metrics()) == (last, ["task", "attempt", "at"])
    (tmp_path / "pandas.py").write_text("raise ValueError('numpy.dtype size changed')\n")
    monkeypatch.delitem(sys.modules, "pandas")
    assert job.metrics()[-1] == last


def test_a_report_of_what_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind("")  # an abstract name
        monkeypatch.setenv("DISTRUN_NOTIFY", f"@{notify.getsockname()[1:].decode()}")
        package.report(step=12**11, loss=math.nan, **{"val loss": 9, "a=b": -math.inf})
        assert notify.recv(999) == b"STEP=743008370688 LOSS=nan VAL_LOSS=9 A_B=-inf"


WARNED = "train.py:2:1: the program sets or removes TF_CONFIG"


def test_launch_warns(distrun: Distrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os\nos.environ['TF_CONFIG'] = '{}'\n")
    spec = package.load(distrun.write_spec("", 1, program={"script": "train.py"}))
    assert [each.startswith(WARNED) for each in spec.warnings()] == [True]
    with pytest.raises(errors.InvalidSpecError, match=re.escape(WARNED)) as refused:
        package.launch(spec, strict=True)
    assert (refused.value.exit_code, refused.value.problems[0].line) == (65, 2)
    (tmp_path / "lacks.py").write_text("import os\nimport nosuchmodule\n")
    with pytest.raises(errors.InvalidSpecError, match="anyway: force=True") as refused:
        package.run("lacks.py")
    assert [(each.file, each.line) for each in refused.value.problems] == [("lacks.py", 2)]
    assert package.jobs() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=re.escape(WARNED)):
            package.launch(spec)
    assert [each.status().is_running for each in package.jobs()] == [False]


def test_what_is_wrong_in_a_dict_is_found_by_its_key(tmp_path: Path) -> None:
    endless: dict[str, Any] = {}
    endless["program"] = endless
    wrong: dict[str, dict[Any, Any]] = {
        "cluster.worker": {"cluster": {"worker": "many"}},
        "hosts[1].slots": {"hosts": ["a", {"name": "b", "slots": 0}]},
        "program.args[0]": {"program": {"script": tmp_path, "args": [{1}]}},
        "program.env.A": {"program": {"script": tmp_path, "env": {"A": None}}},
        "the spec": {"strategi": "default", 1: 2},
        ".program" * 65: endless,
    }
    for place, spec in wrong.items():
        with pytest.raises(SpecProblemsError) as caught:
            api.load(spec)
        assert place.lstrip(".") in [each.file for each in caught.value.problems], place


def test_a_dict_is_the_file_that_says_the_same(tmp_path: Path) -> None:
    words = ["0.10", "true", "off", "a: b", "é\n", "", "${HOME}"]
    spec = {
        "name": "7",
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": ["localhost:1", "localhost:2"]},
        "program": {"command": ["sh"], "args": words, "env": {"A": 1.5, "B": True}},
        "timeouts": {"stall": "5m"},
        "restart": {"max": 2},
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    by_file, by_dict = api.load(tmp_path / "spec.yaml")._spec, api.load(spec)._spec
    assert by_dict.program.args == by_file.program.args
    assert (by_dict.roles, by_dict.timeouts, by_dict.program.env) == (
        by_file.roles, by_file.timeouts, by_file.program.env
    )  # fmt: skip
    (tmp_path / "again.yaml").write_text(by_dict.source)
    assert api.load(tmp_path / "again.yaml")._spec.program.args == by_file.program.args
    as_numpy = {**spec, "program": {"command": ["sh"], "args": np.array([0.1, 2], np.float32)}}
    as_numpy["restart"] = {"max": np.int64(2)}
    (tmp_path / "again.yaml").write_text(api.load(as_numpy)._spec.source)
    again = api.load(tmp_path / "again.yaml")._spec
    assert (again.restart, again.program.args) == (by_file.restart, ("0.1", "2.0"))

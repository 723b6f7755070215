"""What a spec runs, and what other users of a host see of a job and its secrets."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from distrun.agent import agent_dir
from distrun.spec.model import TensorBoardSpec
from distrun.supervisor import tensorboard
from harness.command import Distrun
from harness.strangers import UID, Stranger, need_stranger
from harness.values import not_none
from harness.waiting import wait_until

STDLIB = sys.stdlib_module_names - set(sys.builtin_module_names)


def write_traps(folder: Path, ran: Path, names: Iterable[str] = STDLIB) -> None:
    """Write one module for each of these names of the standard library into a folder.

    An import of one writes its name to the file `ran`, and does what the real one does not.
    """
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r} + ' ')\n")


def test_others_see_the_arguments_of_tasks_and_not_their_environment(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_stranger()
    monkeypatch.setenv("A_TOKEN", "geheim")
    distrun.detached("exec sleep 1000", workers=1, program={
        "command": ["sh", "-c", "exec sleep 1000 # an argument"], "pass_env": ["A_TOKEN"],
    })  # fmt: skip
    pid = distrun.status()["tasks"][0]["pid"]
    # While the shell executes sleep, its arguments are empty for a moment.
    wait_until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0"))
    with open(f"/proc/{pid}/environ", "rb") as file:
        assert b"A_TOKEN=geheim" in file.read()

    def look(report: Callable[[str], None]) -> None:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            report(file.read().replace(b"\0", b" ").decode())
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                report(repr(file.read()))
        except PermissionError:
            report("refused")

    with Stranger(look) as stranger:
        assert "sleep 1000" in stranger.report()
        assert stranger.report() == "refused"
    assert distrun("kill").returncode == 0


def test_doctor_imports_nothing_from_the_folders_of_a_program(distrun: Distrun) -> None:
    """Others may write to a folder like /tmp, in which somebody runs a job."""
    workdir, ran = distrun.cwd / "workdir", distrun.cwd / "ran"
    code = workdir / "code"
    code.mkdir(parents=True)
    for folder in (workdir, code):
        write_traps(folder, ran)
    (code / "train.py").write_text("import tensorflow\n")
    for program in ({"script": str(code / "train.py")}, {"command": ["python3", "-V"]}):
        spec = distrun.write_spec("", program={**program, "workdir": str(workdir)})
        checked = json.loads(distrun("doctor", "--json", spec).stdout)["doctor"]["checks"]
        assert [each for each in checked if each["subject"] == "python"], checked
    assert not ran.exists(), ran.read_text()


@pytest.mark.parametrize("path", [None, "lib"])
def test_validate_imports_nothing_of_the_program(distrun: Distrun, path: str | None) -> None:
    ran, python = distrun.cwd / "ran", distrun.cwd / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    if path is None:
        write_traps(distrun.cwd, ran)
    else:  # the start of Python itself imports others from there
        write_traps(distrun.cwd / path, ran, ["ast", "json", "typing"])
    (distrun.cwd / "train.py").write_text("import tensorflow\nprint 1\n")
    env = {"PYTHONPATH": path} if path else {}
    spec = distrun.write_spec("", program={"script": "train.py", "python": str(python), "env": env})
    done = distrun("validate", spec)
    assert "train.py:2:1: warning: Python 3." in done.stderr, done.stderr
    assert not ran.exists(), ran.read_text()


def test_tensorboard_imports_nothing_from_the_workdir(tmp_path: Path) -> None:
    ran, package = tmp_path / "ran", tmp_path / "site" / "tensorboard"
    write_traps(tmp_path / "work", ran)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text("import csv, html, json, sys\nprint(json.dumps(sys.argv))\n")
    order = tensorboard.start_order(TensorBoardSpec(logdir="logs"), 6006, "", "job")
    done = subprocess.run(
        order.argv,
        cwd=tmp_path / "work",
        env={**os.environ, **order.env, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.exists(), ran.read_text()
    options = ["--logdir", "logs", "--host", "127.0.0.1", "--port", "6006"]
    assert json.loads(done.stdout) == [str(package / "main.py"), *options], done.stderr


def test_an_agents_folder_is_private_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = os.umask(0)
    try:
        folder = Path(agent_dir.create("job", "host").path)
    finally:
        os.umask(before)
    assert folder.is_relative_to(tmp_path / "state" / "distrun" / "agents")
    for each in (folder, *folder.parents):
        if each == tmp_path:
            break
        assert each.stat().st_mode & 0o777 == 0o700


def test_the_fallback_of_an_agents_folder_has_a_name_that_nobody_can_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").touch()  # no folder can be created in it
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    folders = [Path(agent_dir.create("job", "host").path) for _ in range(2)]
    assert {each.parent for each in folders} == {tmp_path / "temporary"}
    random = {each.name.rpartition("-")[2] for each in folders}
    assert len(random) == 2
    assert all(len(bytes.fromhex(each)) >= 6 for each in random)


def test_a_launch_reports_once_who_else_sends_progress(distrun: Distrun) -> None:
    need_stranger()
    script = "echo $DISTRUN_NOTIFY > new; mv new name; until [ -e go ]; do sleep 0.05; done"
    spec = distrun.write_spec(script, workers=1)
    launch = distrun.start("launch", spec, stderr=subprocess.PIPE, text=True)
    wait_until((distrun.cwd / "name").exists)
    name = "\0" + (distrun.cwd / "name").read_text().strip()[1:]

    def send(report: Callable[[str], None]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for step in range(3):
                sender.sendto(b"STEP=%d" % step, name)
        report("sent")
        signal.pause()

    with Stranger(send) as stranger:
        assert stranger.report() == "sent"
        (distrun.cwd / "go").touch()
        told = not_none(launch.stderr).read()
        assert launch.wait(60) == 0, told
    assert told.count(f"process {stranger.pid} of user {UID}") == 1


CANARY = "canary-5e2c81f9d7"


def command_lines() -> bytes:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.append(Path("/proc", pid, "cmdline").read_bytes())
    return b"\n".join(found)


def test_a_passed_value_is_in_no_file_and_no_output(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_VALUE", CANARY)
    got = distrun.cwd / "got"
    program = {
        "command": ["sh", "-c", 'printf %s "$CANARY_VALUE" > got; echo up; exec sleep 600'],
        "pass_env": ["CANARY_VALUE"],
    }
    spec = distrun.write_spec("", workers=1, program=program, tensorboard={"logdir": "logs"})
    said = [distrun("plan", spec), distrun("plan", spec, "--json"), distrun("launch", "-d", spec)]
    wait_until(lambda: got.is_file() and got.read_text() == CANARY)
    assert CANARY.encode() not in command_lines()
    said += [distrun("ps", "--json"), distrun("status"), distrun("status", "--json")]
    said += [distrun("kill"), distrun("events", "--json"), distrun("events"), distrun("logs")]
    assert all(done.returncode == 0 for done in said)
    assert "CANARY_VALUE" in said[0].stdout
    failed = distrun.launch("", program={**program, "command": ["no-such-program"]})
    assert failed.returncode not in (0, 70)
    assert "no-such-program" in failed.stderr
    assert all(CANARY not in done.stdout + done.stderr for done in [*said, failed])
    files = [path for path in distrun.home.rglob("*") if path.is_file()]
    assert {"plan.json", "events.jsonl", "supervisor.log"} <= {path.name for path in files}
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []

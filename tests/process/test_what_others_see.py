"""What a spec runs, and what other users of a host see of a job and its secrets."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.command import Distrun, write_program
from harness.parts.agent import agent_dir, inspection
from harness.parts.spec import TensorBoardSpec
from harness.parts.supervisor import tensorboard
from harness.processes import captured
from harness.strangers import Stranger
from harness.waiting import wait_until

STDLIB = sys.stdlib_module_names - set(sys.builtin_module_names)


def write_traps(folder: Path, ran: Path, names: Iterable[str] = STDLIB) -> None:
    """Write one module for each of these names of the standard library into a folder.

    An import of one writes its name to the file `ran`, and does what the real one does not.
    """
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r} + ' ')\n")


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


def test_validate_imports_nothing_of_the_program(distrun: Distrun) -> None:
    ran, python = distrun.cwd / "ran", distrun.cwd / "python"
    write_program(python, f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (distrun.cwd / "train.py").write_text("import tensorflow\nprint 1\n")
    program = {"script": "train.py", "python": str(python)}
    # The start of Python itself imports others from there.
    write_traps(distrun.cwd / "lib", ran, ["ast", "json", "typing"])
    write_traps(distrun.cwd, ran, ["json", "random"])
    plain, distrun.argv = distrun.argv, (sys.executable, "-Bm", "distrun")
    for env in ({"PYTHONPATH": "lib"}, {}):
        done = distrun("validate", distrun.write_spec("", program={**program, "env": env}))
        assert "train.py:2:1: warning: Python 3." in done.stderr, done.stderr
        assert not ran.exists(), ran.read_text()
        write_traps(distrun.cwd, ran)
        distrun.argv = plain


def test_tensorboard_imports_nothing_from_the_workdir(tmp_path: Path) -> None:
    ran, package = tmp_path / "ran", tmp_path / "site" / "tensorboard"
    write_traps(tmp_path / "work", ran)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text("import csv, html, json, sys\nprint(json.dumps(sys.argv))\n")
    order = tensorboard.start_order(TensorBoardSpec(logdir="logs"), 6006, "", "job")
    done = captured(
        order.argv,
        cwd=tmp_path / "work",
        env={**os.environ, **order.env, "PYTHONPATH": str(package.parent)},
    )
    assert not ran.exists(), ran.read_text()
    options = ["--logdir", "logs", "--host", "127.0.0.1", "--port", "6006"]
    assert json.loads(done.stdout) == [str(package / "main.py"), *options], done.stderr


def test_an_agents_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = os.umask(0)
    try:
        used = agent_dir.create("job", "host")
        folder = Path(used.path)
    finally:
        os.umask(before)
    assert folder.is_relative_to(tmp_path / "state" / "distrun" / "agents")
    above = [each for each in folder.parents if each.is_relative_to(tmp_path / "state")]
    assert {each.stat().st_mode & 0o777 for each in (folder, *above)} == {0o700}
    os.utime(folder, (1, 1))  # as if the clock had been set
    (folder.parent / "old").mkdir()
    os.utime(folder.parent / "old", (1, 1))
    agent_dir.create("another", "host").remove()
    assert os.listdir(folder.parent) == [folder.name], "an agent uses it"
    # Where that cannot be created, it has a name that nobody can predict.
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folders = [Path(agent_dir.create("job", "host").path) for _ in range(2)]
    assert {each.parent for each in folders} == {tmp_path}
    random = {bytes.fromhex(each.name.rpartition("-")[2]) for each in folders}
    assert [len(each) >= 6 for each in random] == [True, True]


CANARY = "canary-5e2c81f9d7"


def command_lines() -> bytes:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.append(Path("/proc", pid, "cmdline").read_bytes())
    return b"\n".join(found)


def test_a_passed_value_is_shown_nowhere(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
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
    environ = Path(f"/proc/{distrun.status()['supervisor_pid']}/environ").read_bytes()
    assert b"DISTRUN_JOB_ID=" in environ
    assert CANARY.encode() not in environ
    said += [distrun("status", "--json"), distrun("kill"), distrun("events", "--json")]
    assert all(done.returncode == 0 for done in said)
    assert "CANARY_VALUE" in said[0].stdout
    said.append(distrun.launch("", program={**program, "command": ["no-such-program"]}))
    assert "no-such-program" in said[-1].stderr
    assert all(CANARY not in done.stdout + done.stderr for done in said)
    files = [path for path in distrun.home.rglob("*") if path.is_file()]
    assert {"plan.json", "events.jsonl", "supervisor.log"} <= {path.name for path in files}
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


FAILED = 69


def test_a_script_needs_what_it_imports(distrun: Distrun, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    program = {"script": "train.py", "python": str(bare / "bin" / "python")}
    spec = distrun.write_spec("", 1, strategy="default", program=program)
    (distrun.cwd / "beside.py").write_text("import numpy\n")
    for script, missing in {
        "import numpy\nimport tensorflow as tf\n": "numpy, tensorflow",
        "import json\nimport beside\n": "numpy",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n": None,
    }.items():
        (distrun.cwd / "train.py").write_text(script)
        done = distrun("doctor", "--json", spec)
        found = json.loads(done.stdout)["doctor"]
        checks = [each for each in found["checks"] if each["subject"] == "modules"]
        if missing is None:
            assert (done.returncode, found["ok"]) == (0, True)
            assert {each["grade"] for each in checks} <= {"ok"}
        else:
            assert (done.returncode, found["ok"]) == (FAILED, False)
            assert [each["grade"] for each in checks] == ["failed"]
            assert f" has no {missing}: " in checks[0]["text"]


PASSWD = """\
root:x:0:0:root:/root:/bin/bash
service:x:998:998::/srv:/bin/sh
alice:x:1000:1000:Alice:/home/alice:/bin/bash
robot:x:1001:1001::/home/robot:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/bin/sh
bob:x:200000:200000:Bob:/home/bob:
a broken line
"""


def wait_here(report: object) -> None:
    report("here")  # type: ignore[operator]
    signal.pause()


def test_people_who_can_log_in_are_users_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "lines", lambda _: PASSWD.splitlines())
    monkeypatch.setattr("os.listdir", lambda _: [])
    assert inspection.other_users() == ["alice", "bob"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert inspection.other_users() == ["bob"]


def test_doctor_tells_of_other_users_where_the_strategy_has_servers(distrun: Distrun) -> None:
    spec = distrun.write_spec("exit 0")
    with Stranger(wait_here) as stranger:
        assert stranger.report() == "here"
        checks = json.loads(distrun("doctor", spec, "--json").stdout)["doctor"]["checks"]
        alone = distrun.checked("doctor", distrun.write_spec("exit 0", 1, strategy="mirrored"))
    notes = [check for check in checks if check["subject"] == "security"]
    assert {check["grade"] for check in notes} == {"note"}
    assert len([check for check in notes if "other users" in check["cause"]]) == 1
    assert "security" not in alone.stdout, "one process has no server"


def test_hosts_without_tasks_are_checked(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RES_OPTIONS", "timeout:2 attempts:1")
    hosts = ["localhost", "no-such-host.invalid"]
    spec = distrun.write_spec("true", workers=1, hosts=hosts, placement="pack")
    assert distrun("launch", spec).returncode == 0
    done = distrun("doctor", "--json", spec)
    found = json.loads(done.stdout)["doctor"]
    failed = {each["host"] for each in found["checks"] if each["grade"] == "failed"}
    assert (done.returncode, failed) == (FAILED, {"no-such-host.invalid"})

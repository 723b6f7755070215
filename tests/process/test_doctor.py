"""`distrun doctor` on this machine: modules that are missing, and who can connect."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from distrun.agent.linux import exposure
from harness.command import Distrun
from harness.strangers import Stranger

FAILED = 69


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an interpreter with only the standard library."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin" / "python")


def write_job(folder: Path, script: str, **program: object) -> Path:
    (folder / "train.py").write_text(script)
    path = folder / "job.yaml"
    program = {"script": "train.py", **program}
    path.write_text(yaml.safe_dump({"strategy": "default", "program": program}))
    return path


def test_a_script_needs_what_it_imports(distrun: Distrun, bare_python: str) -> None:
    (distrun.cwd / "beside.py").write_text("import numpy\n")
    for script, missing in {
        "import numpy\nimport tensorflow as tf\n": "numpy, tensorflow",
        "import json\nimport beside\n": "numpy",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n": None,
    }.items():
        done = distrun("doctor", "--json", write_job(distrun.cwd, script, python=bare_python))
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


def wait(report: object) -> None:
    report("here")  # type: ignore[operator]
    signal.pause()


def test_people_who_can_log_in_are_users_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "lines", lambda _: PASSWD.splitlines())
    monkeypatch.setattr("os.listdir", lambda _: [])
    assert exposure.other_users() == ["alice", "bob"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert exposure.other_users() == ["bob"]


def test_doctor_tells_of_other_users_where_the_strategy_has_servers(distrun: Distrun) -> None:
    spec = distrun.write_spec("exit 0")
    with Stranger(wait) as stranger:
        assert stranger.report() == "here"
        checks = json.loads(distrun("doctor", spec, "--json").stdout)["doctor"]["checks"]
        alone = distrun("doctor", distrun.write_spec("exit 0", 1, strategy="mirrored"))
    assert alone.returncode == 0, alone.stderr
    notes = [check for check in checks if check["subject"] == "security"]
    assert {check["grade"] for check in notes} == {"note"}
    assert len([check for check in notes if "other users" in check["cause"]]) == 1
    assert "security" not in alone.stdout, "one process has no server"


def test_a_listed_host_is_checked_though_it_gets_no_task(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RES_OPTIONS", "timeout:2 attempts:1")
    hosts = ["localhost", "no-such-host.invalid"]
    spec = distrun.write_spec("true", workers=1, hosts=hosts, placement="pack")
    assert distrun("launch", spec).returncode == 0
    done = distrun("doctor", "--json", spec)
    found = json.loads(done.stdout)["doctor"]
    failed = {each["host"] for each in found["checks"] if each["grade"] == "failed"}
    assert (done.returncode, failed) == (FAILED, {"no-such-host.invalid"})

"""`distrun doctor` on this machine: modules that are missing, and who can connect."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from distrun.agent.linux import exposure
from harness.command import Distrun
from harness.requirements import need_tensorflow
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
    (distrun.cwd / "beside_too.py").write_text("")
    for script, missing in {
        "import numpy\nimport tensorflow as tf\n": "numpy, tensorflow",
        "import beside\n": "numpy",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n": None,
        "import json\nimport beside_too\n": None,
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


def test_this_machine_alone(distrun: Distrun, bare_python: str) -> None:
    need_tensorflow()
    done = distrun("doctor")
    assert done.returncode == 0, done.stdout
    assert "modules" in done.stdout
    assert "failed" not in done.stdout
    without = distrun("doctor", "--set", f"program.python={bare_python}")
    assert without.returncode == FAILED
    assert "has no numpy, tensorflow, tf_keras" in without.stdout


PASSWD = """\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
service:x:998:998::/srv:/bin/sh
alice:x:1000:1000:Alice:/home/alice:/bin/bash
robot:x:1001:1001::/home/robot:/usr/sbin/nologin
other:x:1002:1002::/home/other:/bin/false
nobody:x:65534:65534:nobody:/nonexistent:/bin/sh
bob:x:200000:200000:Bob:/home/bob:
a broken line
"""
FIB_TRIE = """\
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 10.0.0.0/24 2 0 2
           |-- 10.0.0.0
              /24 link UNICAST
           |-- 10.0.0.5
              /32 host LOCAL
           |-- 10.0.0.255
              /32 link BROADCAST
"""
IF_INET6 = """\
fd000000000000000000000000000002 04 40 00 82     eth0
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
"""
FILES = {"/etc/passwd": PASSWD, "/proc/net/fib_trie": FIB_TRIE, "/proc/net/if_inet6": IF_INET6}


def wait(report: object) -> None:
    report("here")  # type: ignore[operator]
    signal.pause()


def test_people_who_can_log_in_are_users_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "_read", FILES.__getitem__)
    monkeypatch.setattr("os.listdir", lambda _: [])
    assert exposure.other_users() == ["alice", "bob"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert exposure.other_users() == ["bob"]


def test_addresses_are_those_that_other_machines_can_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for address in exposure.addresses():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as bound:
            bound.bind((address, 0))  # fails where it is not an address of this machine
    monkeypatch.setattr(exposure, "_read", FILES.__getitem__)
    assert exposure.addresses() == ["10.0.0.5", "fd00:0000:0000:0000:0000:0000:0000:0002"]


def test_doctor_tells_of_other_users_where_the_strategy_has_servers(distrun: Distrun) -> None:
    spec = distrun.write_spec("exit 0")
    with Stranger(wait) as stranger:
        assert stranger.report() == "here"
        launched = distrun("launch", spec)
        checks = json.loads(distrun("doctor", spec, "--json").stdout)["doctor"]["checks"]
        alone = distrun("doctor", distrun.write_spec("exit 0", 1, strategy="mirrored"))
    assert alone.returncode == launched.returncode == 0, alone.stderr
    notes = [check for check in checks if check["subject"] == "security"]
    assert {check["grade"] for check in notes} == {"note"}
    assert len([check for check in notes if "other users" in check["cause"]]) == 1
    assert "security" not in launched.stderr
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

"""What is found out about hosts before the first task starts, and what is said of it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

PORTS = "21000-21999"
FAKE_VERSION = """\
#!/bin/sh
exec python3 -c 'import sys; code = sys.argv[2]; sys.argv = ["-c", *sys.argv[3:]]
sys.version_info = (3, 9, 1, "final", 0); exec(code)' "$@"
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that tells when it has run."""
    path = tmp_path / "train.py"
    path.write_text("print('I RAN')\n")
    return path


def kinds(distrun: Any) -> list[str]:
    """The kinds of the newest job's events."""
    told = distrun("events", "--json").stdout
    return [json.loads(line)["event"] for line in told.splitlines()]


def program(script: Path, **keys: Any) -> dict[str, Any]:
    return {"script": str(script), "sync": "off", "python": "python3", **keys}


def site(tmp_path: Path, version: str) -> str:
    """A folder for PYTHONPATH in which TensorFlow seems to be installed."""
    folder = tmp_path / f"site-{version}"
    info = folder / f"tensorflow-{version}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Name: tensorflow\nVersion: {version}\n")
    return str(folder)


def test_firewalls_are_named_with_hosts_and_ports_before_any_task_starts(
    hosts: Any, remote_spec: Any, distrun: Any, processes_of: Any, wait_until: Any
):
    h1, h2, h3 = hosts(3)
    h2.block("reject", PORTS, h1)
    h3.block("drop", PORTS, h1, h2)
    done = distrun("launch", remote_spec("echo I RAN", [h1, h2, h3], ports={"range": PORTS}))
    assert done.returncode == 69
    assert f"h1 cannot reach h2 at {h2.address}:21" in done.stderr
    assert f"h1, h2 cannot reach h3 at {h3.address}:21" in done.stderr
    assert "refused: a firewall" in done.stderr
    assert "no answer within 5 s" in done.stderr
    assert "h3 cannot reach" not in done.stderr
    assert done.stderr.count("let the hosts reach each other") == 1, "the same advice once"
    assert "Traceback" not in done.stderr
    assert "I RAN" not in done.stdout
    assert "TaskStarted" not in kinds(distrun)
    assert "h1 cannot reach h2" in distrun("events").stdout
    for host in (h1, h2, h3):
        wait_until(lambda host=host: not processes_of(host))


def test_without_preflight_a_job_starts_whatever_is_in_between(
    hosts: Any, remote_spec: Any, distrun: Any
):
    h1, h2 = hosts(2)
    h2.block("reject", "1024-65535", h1)
    spec = remote_spec("echo I RAN", [h1, h2])
    refused = distrun("launch", spec)
    assert refused.returncode == 69, refused.stderr
    done = distrun("launch", "--no-preflight", spec)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("I RAN") == 2
    assert "PreflightSkipped" in kinds(distrun)
    assert "PreflightEnded" not in kinds(distrun)
    assert "preflight was skipped" in distrun("events").stdout


def test_a_script_that_is_another_or_missing_is_said_for_all_hosts_at_once(
    hosts: Any, remote_spec: Any, distrun: Any, script: Path, tmp_path: Path
):
    h1, h2, h3 = hosts(3)
    other = tmp_path / "other.py"
    other.write_text("print('I AM OLD')\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    folder = tmp_path / "jobs"
    folder.mkdir()
    script = script.rename(folder / "train.py")
    spec = remote_spec("", [h1, h2, h3], program=program(script, workdir="/"))
    assert distrun("launch", spec).returncode == 0
    h2.cover(script, other)
    h3.cover(folder, empty)
    done = distrun("launch", spec)
    assert done.returncode == 69
    assert f"h2: {script} is not the same as on this machine" in done.stderr
    assert f"h3: {script} cannot be read: No such file" in done.stderr
    assert "h1" not in done.stderr.partition("job job-")[0]
    assert "RAN" not in done.stdout
    assert "OLD" not in done.stdout


def test_versions_that_differ_keep_a_job_from_starting(
    hosts: Any, remote_spec: Any, distrun: Any, script: Path, tmp_path: Path
):
    h1, h2, h3 = hosts(3)
    fake = tmp_path / "python3.9"
    fake.write_text(FAKE_VERSION)
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    new, old = site(tmp_path, "2.21.0"), site(tmp_path, "2.15.1")
    on = [
        {"name": "h1", "env": {"PYTHONPATH": new}},
        {"name": "h2", "env": {"PYTHONPATH": new}, "python": str(fake)},
        {"name": "h3", "env": {"PYTHONPATH": old}},
    ]
    spec = remote_spec("", [h1, h2, h3], hosts=on, program=program(script))
    done = distrun("launch", spec)
    assert done.returncode == 69
    assert f"h2: {fake} has Python 3.9.1; that of h1, h3 has 3." in done.stderr
    assert "h3: python3 has TensorFlow 2.15.1; that of h1, h2 has 2.21.0" in done.stderr
    assert "I RAN" not in done.stdout


def test_tensorflow_on_some_hosts_only_keeps_a_job_from_starting_and_on_none_does_not(
    hosts: Any, remote_spec: Any, distrun: Any, script: Path, tmp_path: Path
):
    h1, h2 = hosts(2)
    bare = {"PYTHONNOUSERSITE": "1"}
    on = [{"name": "h1", "env": {**bare, "PYTHONPATH": site(tmp_path, "2.21.0")}}, "h2"]
    # Without site-packages, whatever this machine has in them.
    alone = tmp_path / "python3"
    alone.write_text('#!/bin/sh\nexec python3 -S "$@"\n')
    alone.chmod(0o755)
    what = program(script, python=str(alone))
    done = distrun("launch", remote_spec("", [h1, h2], hosts=on, program=what))
    assert done.returncode == 69
    assert f"h2: {alone} there has no TensorFlow; that of h1 has" in done.stderr
    nowhere = distrun("launch", remote_spec("", [h1, h2], program=what))
    assert nowhere.returncode == 0, nowhere.stderr
    assert "TensorFlow" not in nowhere.stderr


def test_doctor_looks_at_hosts_and_leaves_nothing_there(
    hosts: Any, remote_spec: Any, distrun: Any, processes_of: Any, wait_until: Any, script: Path
):
    h1, h2 = hosts(2)
    spec = remote_spec("", [h1, h2], program=program(script))
    well = distrun("doctor", spec)
    assert well.returncode == 0, well.stdout + well.stderr
    assert "failed" not in well.stdout
    for subject in ("reached", "network", "clock", "script", "python", "disk", "workdir"):
        assert well.stdout.count(f" {subject} ") >= 2, subject
    assert distrun("ps", "-a").stdout.count("\n") <= 1, "it made a job"
    h2.block("reject", "1024-65535", h1)
    ill = distrun("doctor", "--json", spec)
    assert ill.returncode == 69
    said = json.loads(ill.stdout)
    assert said["version"] == 1
    failed = [check for check in said["doctor"]["checks"] if check["grade"] == "failed"]
    (check,) = failed
    assert (check["host"], check["subject"], check["dialled_from"]) == ("h2", "network", ["h1"])
    assert check["addresses"][0].startswith(f"{h2.address}:")
    assert "firewall" in check["advice"]
    for host in (h1, h2):
        wait_until(lambda host=host: not processes_of(host))
        assert [path for path in host.home.rglob("*") if not path.is_dir()] == []


def test_doctor_tells_which_hosts_cannot_be_reached(hosts: Any, remote_spec: Any, distrun: Any):
    h1, h2 = hosts(2)
    h2.cut()
    spec = remote_spec("true", [h1, h2])
    done = distrun("doctor", spec, "--set", "ssh.connect_timeout=1s")
    assert done.returncode == 69
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["h1", "reached", "ok"] in [words[:3] for words in lines]
    assert ["h2", "reached", "failed"] in [words[:3] for words in lines]
    assert "what to do:" in done.stdout

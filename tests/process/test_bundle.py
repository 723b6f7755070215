"""`distrun bundle`, and `distrun report` of a bundle."""

import gzip
import io
import json
import os
import re
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.disks import fill
from harness.parts.job import Job, record
from harness.parts.lifecycle import lifecycle
from harness.parts.records import JobFolder
from harness.parts.report import archive as archive_module
from harness.parts.report import opened
from harness.parts.top import UsageError
from harness.values import not_none
from harness.waiting import wait_until

SECRET, PASSED = "verysecret-5-value", 'passed "to" tasks'
PRINTS = """\
import os, socket, sys
keys = os.environ["DATA_KEYS"]
print("token", os.environ["MY_TOKEN"], "and", keys, repr(keys))
print("as anna on", socket.gethostname(), ": /home/anna/data,", "anna@localhost", sys.argv[1:])
print("-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQ\\n-----END PRIVATE KEY-----")
print("hf_abcdefghijklmnopqrstuvwxyz012345 at postgres://anna:urls-secret@localhost/db", flush=True)
sys.exit(int(os.environ["DISTRUN_ATTEMPT"]) == 0)
"""


Unpack = Callable[..., tuple[dict[str, bytes], str]]


@pytest.fixture
def unpacked(distrun: Distrun) -> Unpack:
    """Make a bundle of the newest job: its files, and what the command said."""

    def make(*args: str) -> tuple[dict[str, bytes], str]:
        path = distrun.cwd / "bundle.tar.gz"
        said: str = distrun.checked("bundle", "-o", path, *args).stderr
        assert f"distrun: wrote {path}\n" in said  # after what is said of a damaged record
        with tarfile.open(path) as made:
            members = made.getmembers()
            owners = {(each.uid, each.gid, each.uname, each.gname) for each in members}
            assert owners == {(0, 0, "", "")}
            assert members[-1].mtime <= path.stat().st_mtime, "tar warns of the future"
            contents = [not_none(made.extractfile(each)).read() for each in members]
        names = [each.name.partition("/")[2] for each in members]
        return dict(zip(names, contents, strict=True)), said

    return make


def test_it_has_nothing_of_a_user_means_the_same_and_can_be_read_elsewhere(
    distrun: Distrun, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = distrun.cwd / "home" / "anna"
    place.mkdir(parents=True)
    for name, value in (("DATA_KEYS", PASSED), ("LOGNAME", "anna"), ("TMPDIR", str(place))):
        monkeypatch.setenv(name, value)
    (distrun.cwd / "prints.py").write_text(PRINTS)
    program = {
        "script": "prints.py", "args": ["--password", "args-secret", "--api-key=option-secret"],
        "env": {"DATA": "postgres://anna:urls-secret@localhost/db",
                "QUOTED_TOKEN": 'it\'s "quoted" ü', "MY_TOKEN": SECRET},
        "pass_env": ["DATA_KEYS"], "workdir": str(place),
    }  # fmt: skip
    restart = {"max": 1, "backoff": "50ms"}
    spec = distrun.write_spec("", 1, "anna-mnist", program=program, restart=restart)
    distrun.checked("launch", spec)
    (path,) = (distrun.home / "jobs").iterdir()

    files, said = unpacked()
    assert re.search(r"replaced +\d+ names?, \d+ secrets\n", said)
    assert {"bundle.json", "plan.json", "spec.yaml"} <= files.keys()
    assert {"events.jsonl", "logs/worker-0.log", "logs/worker-0.idx"} <= files.keys()
    everything = b"\n".join(files.values())
    secrets = [SECRET, PASSED, json.dumps(PASSED)[1:-1], "args-secret", "option-secret", "hf_abc"]
    secrets += ["urls-secret", "MIIEvQ", 'quoted" ü', 'quoted\\"']
    names = ("anna",)
    found = [name for name in (*secrets, *names) if name.encode() in everything]
    assert found == [], [name for name, text in files.items() if found[0].encode() in text]
    # As a word: a short name may be within the random part of a job's id or of a folder.
    name = re.escape(socket.gethostname())
    assert not re.search(rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])".encode(), everything)
    log = files["logs/worker-0.log"].decode()
    # Without HOME, the folder of nobody's account is a name, too.
    user = not_none(re.search(r"token \[secret-.*\n?.*as (user-\d) on host-", log))[1]
    assert f"/home/{user}/data" in log
    with tarfile.open(distrun.cwd / "bundle.tar.gz") as archived:
        assert {each.partition("/")[0] for each in archived.getnames()} == {
            f"distrun-{json.loads(files['bundle.json'])['job_id']}"
        }
        assert f"distrun-{user}-mnist-" in archived.getnames()[0]
    odd = distrun.cwd / "an odd 'name'.tgz"
    (distrun.cwd / "bundle.tar.gz").rename(odd)
    kept = b"\n".join(unpacked("--keep-names")[0].values())
    assert b"/home/anna/data" in kept
    assert [each for each in secrets if each.encode() in kept] == []

    monkeypatch.setenv("DISTRUN_HOME", str(distrun.cwd / "nothing"))
    monkeypatch.delenv("DATA_KEYS")
    with opened(odd) as (folder, about):
        assert record.fault(str(folder.events_file)) is None
        ours, theirs = (
            lifecycle.replay(record.read(str(each.events_file)))
            for each in (JobFolder(path), folder)
        )
        assert (about.phase, about.is_running) == ("succeeded", False)
        assert theirs.tasks == {
            name: task.__class__(**{**vars(task), "agent": theirs.tasks[name].agent})
            for name, task in ours.tasks.items()
        }
        assert (theirs.phase, theirs.restarts_made) == (ours.phase, 1)
        unpacked_at = folder.path
    assert not unpacked_at.exists()
    page = distrun.checked("report", odd, "-o", "-").stdout
    for shown in (": succeeded</title>", "worker:0 exited 1", "numpy"):
        assert shown in page


def test_a_log_is_cut_between_lines_and_its_times_stay(distrun: Distrun, unpacked: Unpack) -> None:
    """A part of a line could begin in the middle of a secret."""
    script = "seq -f 'line %.0f' 130000; sleep 0.3; echo MY_TOKEN=abcdefgh; echo last"
    assert distrun.launch(script, workers=1).returncode == 0
    files, said = unpacked()
    log = files["logs/worker-0.log"]
    assert 900_000 < len(log) < 1_200_000
    assert log.startswith(b"line ")
    assert log.endswith(b"line 130000\nMY_TOKEN=[secret-1]\nlast\n")
    assert "before are left out" in said
    (path,) = (distrun.home / "jobs").iterdir()
    with opened(distrun.cwd / "bundle.tar.gz") as (folder, _):
        times = [Job(each).first_outputs["worker:0", 0] for each in (JobFolder(path), folder)]
        assert times[0] == times[1]
    os.truncate(path / "events.jsonl", 1 << 40)
    _, said = unpacked()  # of a damaged record, its beginning is there
    assert "; 1099.5 GB after are left out" in said
    assert "before are left out" in said


def test_a_running_late_or_damaged_job_is_packed(distrun: Distrun, unpacked: Unpack) -> None:
    script = "echo MY_TOKEN=longer-than-its-replacement; echo second; touch up; exec sleep 600"
    job = distrun.detached(script, workers=1)
    wait_until((distrun.cwd / "up").exists)
    assert json.loads(unpacked(job)[0]["bundle.json"])["is_running"]
    page = distrun.asked("report", distrun.cwd / "bundle.tar.gz", "-o", "-")
    assert f"<title>{job}: running</title>" in page
    assert "supervisor died" not in page
    assert distrun("kill", job).returncode == 0

    logs = distrun.home / "jobs" / job / "logs"
    before = (logs / "worker-0.log").read_bytes().index(b"second")
    (logs / f"worker-0.{before}-17.late").write_bytes(b"came late, API_KEY=abcdefgh\n")
    exited = {"event": "TaskExited", "at": 5e9, "task": "worker:0", "attempt": 0, "code": 7}
    (logs / "unsent-reports.jsonl").write_text(json.dumps(exited) + "\n")
    assert distrun.asked("events").endswith("  worker:0 exited 7\n")
    unpacked()
    with opened(distrun.cwd / "bundle.tar.gz") as (folder, _):
        ((late, (part,)),) = folder.late_logs().items()
        assert late.read_bytes() == b"MY_TOKEN=[secret-2]\nsecond\n"
        assert (part[0], part[1].read_bytes()) == (before, b"came late, API_KEY=[secret-1]\n")
        assert [event.at for event in record.read(str(folder.unsent_reports_file))] == [5e9]

    events = distrun.home / "jobs" / job / "events.jsonl"
    events.write_bytes(b'\xff\x00{"event": 5\n' + events.read_bytes())
    assert unpacked()[0]["events.jsonl"].startswith(b'\xff\x00{"event": 5\n')
    events.write_bytes(b"")  # without a plan, too
    files, _ = unpacked()
    assert any(b"second\n" in text for name, text in files.items() if name.startswith("logs/"))
    assert files["events.jsonl"] == b""


def test_it_goes_where_it_is_asked_to(distrun: Distrun, small_disk: Path) -> None:
    assert distrun("bundle").returncode == 2
    assert distrun.launch("exit 0").returncode == 0
    (folder,) = (distrun.home / "jobs").iterdir()
    assert "tar -xzf 'a b.tgz'\n" in distrun.checked("bundle", "-o", "a b.tgz").stderr
    assert distrun("bundle", cwd=distrun.cwd).returncode == 0
    assert (distrun.cwd / f"distrun-{folder.name}.tar.gz").exists()
    done = distrun("bundle", "-o", "-", text=False)
    assert gzip.decompress(done.stdout)
    assert b"events.jsonl" in done.stderr
    before = small_disk / "before.tar.gz"
    before.write_bytes(b"before")
    fill(small_disk)
    assert "No space left" in distrun.told(69, "bundle", "-o", before)
    assert before.read_bytes() == b"before"
    assert sorted(os.listdir(small_disk)) == ["before.tar.gz", "rest"]


ABOUT = {
    "version": 1, "job_id": "job-aaa", "made_at": 1.0, "phase": "failed", "is_running": False,
    "versions": {},
}  # fmt: skip


def archive(*members: tuple[str, Any], about: Any = ABOUT) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as made:
        if about is not None:
            members = (("distrun-job-aaa/bundle.json", json.dumps(about).encode()), *members)
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                made.addfile(member, io.BytesIO(content))
            else:
                for field, value in content.items():
                    setattr(member, field, value)
                made.addfile(member)
    return written.getvalue()


def header(name: str, **fields: Any) -> bytes:
    member = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(member, field, value)
    return member.tobuf()


EVENTS = "distrun-job-aaa/events.jsonl"
HOSTILE = {
    "more behind its end": archive() + gzip.compress(b"x" * (2 << 20)),
    "zeros, and more": gzip.compress(gzip.decompress(archive()) + bytes(2 << 20) + b"x"),
    "endless name": gzip.compress(header("x", size=1 << 33, type=tarfile.GNUTYPE_LONGNAME)),
    "huge about": archive(about={**ABOUT, "versions": {"Python": "3" * (2 << 20)}}),
    "later version": archive(about={**ABOUT, "version": 2}),
    "of no number": archive(about={**ABOUT, "made_at": float("nan")}),
    "a longer file": gzip.compress(header(EVENTS, size=(64 << 20) + 1)),
    "above": archive(("distrun-job-aaa/../x", b"x")),
    "absolute": archive(("/tmp/distrun-job-aaa/x", b"x")),
    "another job": archive(("distrun-job-bbb/events.jsonl", b"x")),
    "unknown file": archive(("distrun-job-aaa/x.sh", b"x")),
    "twice": archive(*2 * [(EVENTS, b"x")]),
    "link": archive((EVENTS, {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})),
    "fifo": archive((EVENTS, {"type": tarfile.FIFOTYPE})),
    "less than nothing": gzip.compress(header(EVENTS, size=-1)),
}  # fmt: skip


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    whole = archive(*[(f"distrun-job-aaa/logs/w-{n}.log", os.urandom(700)) for n in range(3)])
    cut_off = {str(size): whole[:size] for size in range(0, len(whole), 7)}
    for name, content in {**HOSTILE, **cut_off}.items():
        path.write_bytes(content)
        with pytest.raises(UsageError), opened(path):
            pytest.fail(name)
        assert os.listdir(tmp_path) == ["bundle.tar.gz"], name
    path.write_bytes(archive(("distrun-job-aaa/plan.json", b"{}"), about=None))
    with pytest.raises(UsageError, match="it has no bundle"), opened(path):
        pass
    path.write_bytes(whole)
    with opened(path) as (folder, _):
        assert len(os.listdir(folder.logs)) == 3


def test_a_bomb_is_refused_still_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bundle.tar.gz"
    content = archive(*[(f"distrun-job-aaa/logs/w-{n}.log", b"0" * 100_000) for n in range(50)])
    path.write_bytes(content)
    monkeypatch.setattr(archive_module, "_MOST_BYTES", 1_000_000)
    with pytest.raises(UsageError, match="1,000,000 bytes"), opened(path):
        pass
    monkeypatch.setattr(archive_module, "_MOST_BYTES", 1 << 30)
    monkeypatch.setattr(archive_module, "_MOST_FILE_BYTES", 99_999)
    with pytest.raises(UsageError, match="99,999 bytes a file"), opened(path):
        pass

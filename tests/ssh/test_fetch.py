"""`distrun fetch` and `program.results`: what tasks wrote on other hosts comes back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil

from harness.command import Distrun
from harness.json_page import PAGE, Reader
from harness.network import Host, Hosts, RemoteSpec
from harness.waiting import wait_until

WRITES = """\
import os, pathlib, sys, time
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
task = os.environ["DISTRUN_TASK"]
(out / "same").write_text("same in both")
(out / "differs").write_text(task)
(out / f"own of {task}\\nand more").write_text("odd name")
if task == "worker:1":
    os.mkfifo(out / "pipe")
    (out / "link").symlink_to("/etc/passwd")
    with open(out / "sparse", "wb") as file:
        file.truncate(1 << 41)
        file.seek(1 << 40)
        file.write(b"amid")
sys.exit(int(sys.argv[1]) if task == "worker:1" else 0)
"""


def hidden(hosts: Hosts, folder: Path, count: int) -> list[Host]:
    """Hosts that see an empty folder where this machine has one."""
    found = hosts(count)
    for host in found:
        host.is_changed = True
        host.run("mount", "-t", "tmpfs", "none", str(folder))
    return found


def test_what_tasks_wrote_comes_back_and_goes_on(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(WRITES)
    h1, h2 = hidden(hosts, tmp_path, 2)
    program: dict[str, Any] = {"script": "job/train.py", "args": ["0"]}
    assert distrun("launch", remote_spec("", [h1, h2], program=program)).returncode == 0
    done = distrun("fetch", "job", "-o", "back", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    reader = Reader(PAGE.read_text())
    reader.check("fetch", found)
    assert reader.faults == []
    back = tmp_path / "back" / "out"
    assert (back / "same").read_text() == "same in both"
    for index, host in enumerate((h1, h2)):
        assert (tmp_path / "back" / host.name / "out" / "differs").read_text() == f"worker:{index}"
        assert (back / f"own of worker:{index}\nand more").read_text() == "odd name"
    with (back / "sparse").open("rb") as sparse:
        assert os.fstat(sparse.fileno()).st_size == 1 << 41
        assert os.fstat(sparse.fileno()).st_blocks * 512 < 1 << 20
        sparse.seek(1 << 40)
        assert sparse.read(5) == b"amid\0"
    left_out = {(each["path"], each["reason"]) for each in found["left_out"]}
    assert left_out == {
        ("out/pipe", "a named pipe, a socket or a device"),
        ("out/link", "a symbolic link"),
    }
    assert not list((tmp_path / "back").rglob("*.distrun-part"))

    # Only what changed comes; newer files stay.
    (back / "same").unlink()
    again = distrun("fetch", "job", "-o", "back")
    assert "fetched 1 file (12 B) into back; 5 files had not changed" in again.stderr
    (back / "same").write_text("mine")
    kept = distrun("fetch", "job", "-o", "back")
    assert kept.returncode == 2
    assert "out/same; nothing was fetched" in kept.stderr
    assert (back / "same").read_text() == "mine"
    assert distrun("fetch", "job", "-o", "back", "--force").returncode == 0
    assert (back / "same").read_text() == "same in both"
    only = distrun("fetch", "job", "out/diff*", "-o", "less")
    assert "fetched 2 files" in only.stderr
    # A folder here that is a link leads nowhere.
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "out").symlink_to("/tmp")
    trapped = distrun("fetch", "job", "out/same", "-o", "trap")
    assert "out/same is left out: " in trapped.stderr
    assert not os.path.lexists("/tmp/same")


def test_results_come_by_themselves_also_when_the_job_fails(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(WRITES)
    h1, h2 = hidden(hosts, tmp_path, 2)
    program: dict[str, Any] = {
        "script": "job/train.py", "args": ["3"], "results": ["out/same", "out/pipe"],
    }  # fmt: skip
    spec = remote_spec("", [h1, h2], program=program)
    done = distrun("launch", spec)
    assert done.returncode == 3
    assert f"fetched 1 file of the results (12 B) into {tmp_path}" in done.stderr
    assert (tmp_path / "out" / "same").read_text() == "same in both"
    assert not (tmp_path / "out" / "differs").exists()
    (warning,) = distrun.status()["warnings"]
    assert warning.startswith("results are not all here: h2: out/pipe: a named pipe")
    # A newer file is kept, and that changes nothing in the result.
    (tmp_path / "out" / "same").write_text("mine")
    os.utime(tmp_path / "out" / "same", (4e9, 4e9))
    done = distrun("launch", spec)
    assert done.returncode == 3
    assert "newer than those on the hosts: out/same; nothing was fetched" in done.stderr
    assert (tmp_path / "out" / "same").read_text() == "mine"


def test_a_fetch_that_was_cut_goes_on_where_it_was(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    size = 256 << 20
    (h1,) = hidden(hosts, tmp_path, 1)
    script = f"mkdir out; head -c {size} /dev/zero | tr '\\0' x > out/large"
    assert distrun("launch", remote_spec(script, [h1])).returncode == 0
    process = distrun.start("fetch", "job", "-o", "back", stderr=-1, text=True)

    def parts() -> list[int]:
        return [each.stat().st_size for each in (tmp_path / "back").rglob("*.distrun-part")]

    wait_until(lambda: sum(parts()) > 0)
    for child in psutil.Process(process.pid).children(recursive=True):
        if child.name() == "ssh":
            child.kill()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 69, told
    assert "h1: " in told
    assert "to go on: the same command" in told
    (before,) = parts()
    assert 0 < before < size
    again = distrun("fetch", "job", "-o", "back")
    assert again.returncode == 0, again.stderr
    assert parts() == []
    large = tmp_path / "back" / "out" / "large"
    assert large.stat().st_size == size
    assert set(large.read_bytes()) == {ord("x")}

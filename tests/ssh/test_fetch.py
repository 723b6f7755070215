"""`distrun fetch` and `program.results`: what tasks wrote on other hosts comes back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.json_page import PAGE, Reader
from harness.network import Host
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


def hidden(ssh: Ssh, folder: Path, count: int) -> list[Host]:
    """Hosts that see an empty folder where this machine has one."""
    found = ssh.hosts(count)
    for host in found:
        host.hide(folder)
    return found


def test_what_tasks_wrote_comes_back_and_goes_on(ssh: Ssh, distrun: Distrun) -> None:
    job = distrun.cwd / "job"
    job.mkdir()
    (job / "train.py").write_text(WRITES)
    h1, h2 = hidden(ssh, distrun.cwd, 2)
    program: dict[str, Any] = {"script": "job/train.py", "args": ["0"]}
    distrun.checked("launch", ssh.spec("", [h1, h2], program=program))
    done = distrun.checked("fetch", "job", "-o", "back", "--json")
    found = json.loads(done.stdout)
    reader = Reader(PAGE.read_text())
    reader.check("fetch", found)
    assert reader.faults == []
    back = distrun.cwd / "back" / "out"
    assert (back / "same").read_text() == "same in both"
    for index, host in enumerate((h1, h2)):
        assert (
            distrun.cwd / "back" / host.name / "out" / "differs"
        ).read_text() == f"worker:{index}"
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
    assert not list((distrun.cwd / "back").rglob("*.distrun-part"))

    # Only what changed comes; newer files stay.
    (back / "same").unlink()
    again = distrun("fetch", "job", "-o", "back")
    assert "fetched 1 file (12 B) into back; 5 files had not changed" in again.stderr
    (back / "same").write_text("mine")
    kept = distrun("fetch", "job", "-o", "back")
    assert kept.returncode == 2
    assert "out/same; nothing was fetched" in kept.stderr
    assert (back / "same").read_text() == "mine"
    distrun.checked("fetch", "job", "-o", "back", "--force")
    assert (back / "same").read_text() == "same in both"
    only = distrun("fetch", "job", "out/diff*", "-o", "less")
    assert "fetched 2 files" in only.stderr
    # A folder here that is a link leads nowhere.
    (distrun.cwd / "trap").mkdir()
    (distrun.cwd / "trap" / "out").symlink_to("/tmp")
    trapped = distrun("fetch", "job", "out/same", "-o", "trap")
    assert "out/same is left out: " in trapped.stderr
    assert not os.path.lexists("/tmp/same")
    no_folder = distrun("fetch", "job", "-o", "job/train.py/in")
    assert no_folder.returncode == 69
    assert "job/train.py/in cannot be written: Not a directory" in no_folder.stderr


def test_results_come_by_themselves_also_when_the_job_fails(ssh: Ssh, distrun: Distrun) -> None:
    job = distrun.cwd / "job"
    job.mkdir()
    (job / "train.py").write_text(WRITES)
    h1, h2 = hidden(ssh, distrun.cwd, 2)
    program: dict[str, Any] = {
        "script": "job/train.py", "args": ["3"], "results": ["out/same", "out/pipe"],
    }  # fmt: skip
    spec = ssh.spec("", [h1, h2], program=program)
    done = distrun("launch", spec)
    assert done.returncode == 3
    assert f"fetched 1 file of the results (12 B) into {distrun.cwd}" in done.stderr
    assert (distrun.cwd / "out" / "same").read_text() == "same in both"
    assert not (distrun.cwd / "out" / "differs").exists()
    (warning,) = distrun.status()["warnings"]
    assert warning.startswith("results are not all here: h2: out/pipe: a named pipe")
    # A newer file is kept, and that changes nothing in the result.
    (distrun.cwd / "out" / "same").write_text("mine")
    os.utime(distrun.cwd / "out" / "same", (4e9, 4e9))
    done = distrun("launch", spec)
    assert done.returncode == 3
    assert "newer than those on the hosts: out/same; nothing was fetched" in done.stderr
    assert (distrun.cwd / "out" / "same").read_text() == "mine"


def test_a_fetch_that_was_cut_goes_on_where_it_was(ssh: Ssh, distrun: Distrun) -> None:
    size = 256 << 20
    (h1,) = hidden(ssh, distrun.cwd, 1)
    script = f"mkdir out; head -c {size} /dev/zero | tr '\\0' x > out/large"
    distrun.checked("launch", ssh.spec(script, [h1]))
    process = distrun.start("fetch", "job", "-o", "back", stderr=-1, text=True)

    def parts() -> list[int]:
        return [each.stat().st_size for each in (distrun.cwd / "back").rglob("*.distrun-part")]

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
    distrun.checked("fetch", "job", "-o", "back")
    assert parts() == []
    large = distrun.cwd / "back" / "out" / "large"
    assert large.stat().st_size == size
    assert set(large.read_bytes()) == {ord("x")}

"""`distrun fetch` and `program.results`: what tasks wrote on other hosts comes back."""

from __future__ import annotations

import json
import os
from typing import Any

import psutil

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.json_page import PAGE, Reader
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
written = pathlib.Path(sys.argv[1])
if task == "worker:0":
    written.touch()
    sys.exit()
while not written.exists():
    time.sleep(0.05)
sys.exit(3)
"""


def test_what_tasks_wrote_comes_back_and_goes_on_and_results_by_themselves(
    ssh: Ssh, distrun: Distrun
) -> None:
    """Names that lead elsewhere, patterns and differing files: tests/unit/test_fetch.py."""
    job = distrun.cwd / "job"
    job.mkdir()
    (job / "train.py").write_text(WRITES)
    h1, h2 = ssh.hosts(2)
    for host in (h1, h2):
        host.hide(distrun.cwd)
    program: dict[str, Any] = {
        "script": "job/train.py", "args": [str(distrun.home / "written")],
        "results": ["out/same", "out/pipe"],
    }  # fmt: skip
    launched = distrun("launch", ssh.spec("", [h1, h2], program=program))
    assert launched.returncode == 3  # which keeps no result back
    assert f"fetched 1 file of the results (12 B) into {distrun.cwd}" in launched.stderr
    assert [path.name for path in (distrun.cwd / "out").iterdir()] == ["same"]
    (warning,) = distrun.status()["warnings"]
    assert warning.startswith("results are not all here: h2: out/pipe: a named pipe")

    done = distrun.checked("fetch", "job", "out", "-o", "back", "--json")
    found = json.loads(done.stdout)
    reader = Reader(PAGE.read_text())
    reader.check("fetch", found)
    assert reader.faults == []
    back = distrun.cwd / "back" / "out"
    assert (back / "same").read_text() == "same in both"
    for index, host in enumerate((h1, h2)):
        of_host = distrun.cwd / "back" / host.name / "out"
        assert (of_host / "differs").read_text() == f"worker:{index}"
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
    again = distrun("fetch", "job", "out", "-o", "back")
    assert "fetched 1 file (12 B) into back; 5 files had not changed" in again.stderr
    (back / "same").write_text("mine")
    kept = distrun("fetch", "job", "out", "-o", "back")
    assert kept.returncode == 2
    assert "out/same; nothing was fetched" in kept.stderr
    assert (back / "same").read_text() == "mine"
    distrun.checked("fetch", "job", "out", "-o", "back", "--force")
    assert (back / "same").read_text() == "same in both"
    assert "fetched 2 files" in distrun("fetch", "job", "out/diff*", "-o", "less").stderr
    nothing = distrun("fetch", "job", "aut", "-o", "nothing")
    assert nothing.returncode == 2
    assert "no file that a task wrote matches 'aut'" in nothing.stderr
    assert not (distrun.cwd / "nothing").exists()
    no_folder = distrun("fetch", "job", "-o", "job/train.py/in")
    assert no_folder.returncode == 69
    assert "job/train.py/in cannot be written: Not a directory" in no_folder.stderr


def test_a_fetch_that_was_cut_goes_on_where_it_was(ssh: Ssh, distrun: Distrun) -> None:
    size = 16 << 20
    (h1,) = ssh.hosts(1)
    h1.hide(distrun.cwd)
    script = f"mkdir out; head -c {size} /dev/zero | tr '\\0' x > out/large"
    distrun.checked("launch", ssh.spec(script, [h1]))
    h1.slow_down("40mbit")
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

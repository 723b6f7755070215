"""`distrun fetch`, results, logs and secrets: what comes from other hosts."""

import json
import os
import pty
import re
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun, recorded_events
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


def test_what_tasks_wrote_and_results_come_back(ssh: Ssh, distrun: Distrun) -> None:
    """Names that lead elsewhere, patterns and differing files: tests/unit/test_fetch.py."""
    job = distrun.cwd / "job"
    job.mkdir()
    (job / "train.py").write_text(WRITES)
    h1, h2 = ssh.hosts(2)
    for host in (h1, h2):
        host.hide(distrun.cwd)
    program: dict[str, Any] = {
        "script": "job/train.py", "args": [str(distrun.home / "written")],
        "results": ["out/same", "out/pipe", "out/absent"],
    }  # fmt: skip
    launched = distrun("launch", ssh.spec("", [h1, h2], program=program))
    assert launched.returncode == 3  # which keeps no result back
    (result,) = (each for each in recorded_events(distrun) if each["event"] == "ResultsFetched")
    about = (result["files"], result["size_bytes"], result["folder"])
    assert about == (1, 12, str(distrun.cwd))
    assert [path.name for path in (distrun.cwd / "out").iterdir()] == ["same"]
    assert ["out/pipe" in each for each in distrun.status()["warnings"]] == [True, False]
    found = json.loads(distrun.checked("fetch", "job", "out", "-o", "back", "--json").stdout)
    reader = Reader(PAGE.read_text())
    reader.check("fetch", found)
    assert reader.faults == []
    assert "between hosts are in h1, h2" in distrun("fetch", "job", "out", "-o", "back").stderr
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
    assert "1 file (12 B) into back; 5 files" in again.stderr
    (back / "same").write_text("mine")
    assert "out/same; nothing was" in distrun.told(2, "fetch", "job", "out", "-o", "back")
    assert (back / "same").read_text() == "mine"
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"n\ny\n")
    for option, code in (("--json", 2), ("--output=back", 2), ("--output=back", 0), ("--force", 0)):
        (back / "same").write_text("mine")
        done = distrun("fetch", "job", "out", "-o", "back", option, stdin=terminal)
        assert done.returncode == code, done.stderr
        assert ("replace 1 newer file in back?" in done.stderr) is (option == "--output=back")
        assert (back / "same").read_text() == ("mine" if code else "same in both")
    assert "fetched 2 files" in distrun("fetch", "job", "out/diff*", "-o", "less").stderr
    assert "matches 'aut'" in distrun.told(2, "fetch", "job", "aut", "-o", "nothing")
    assert not (distrun.cwd / "nothing").exists()
    assert "job/train.py/in cannot be written" in distrun.told(
        69, "fetch", "job", "-o", "job/train.py/in"
    )


def test_results_replace_nothing_that_is_new_here(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    h1.hide(distrun.cwd)
    here = distrun.cwd
    (here / "linked").symlink_to(distrun.home)
    (here / "newer").write_text("mine")
    os.utime(here / "newer", (1 << 33, 1 << 33))
    script = """[ $DISTRUN_TASK = worker:1 ] || { echo own >both; exec touch -d 2001-2-3 both own; }
        mkdir linked; for each in both linked/x newer other; do echo theirs >$each; done"""
    names = ["both", "linked", "newer", "other", "own"]
    program = {"command": ["sh", "-c", script], "results": names}
    keys: dict[str, Any] = {"hosts": ["localhost", "h1"], "cluster": {"worker": 2}}
    distrun.checked("launch", ssh.spec("", [h1], program=program, **keys))
    came = [(here / each).read_text() for each in ("both", "h1/both", "newer", "other")]
    assert came == ["own\n", "theirs\n", "mine", "theirs\n"]
    linked, newer = sorted(distrun.status()["warnings"])
    assert ("h1: linked/x: " in linked, "h1: newer: " in newer) == (True, True)


def test_a_fetch_that_was_cut_goes_on_where_it_was(ssh: Ssh, distrun: Distrun) -> None:
    size = 16 << 20
    (h1,) = ssh.hosts(1)
    h1.hide(distrun.cwd)
    script = f"mkdir out; head -c {size} /dev/zero | tr '\\0' x > out/large"
    distrun.checked("launch", ssh.spec(script, [h1]))
    h1.slow_down("40mbit")

    def parts() -> list[int]:
        return [each.stat().st_size for each in (distrun.cwd / "back").rglob("*.distrun-part")]

    for code in (69, 130):
        before = sum(parts())
        process = distrun.start("fetch", "job", "-o", "back", stderr=-1, text=True)
        wait_until(lambda: sum(parts()) > before)  # noqa: B023
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "ssh" and code == 69:
                child.kill()
        process.send_signal(signal.SIGINT if code == 130 else 0)
        _, told = process.communicate(timeout=60)
        assert (process.returncode, "to continue: the same command" in told) == (code, True), told
        assert ("h1: " in told) is (code == 69)
    assert [0 < each < size for each in parts()] == [True]
    distrun.checked("fetch", "job", "-o", "back")
    large = distrun.cwd / "back" / "out" / "large"
    assert (parts(), large.read_bytes() == b"x" * size) == ([], True)


def test_a_limited_log_is_limited_on_its_host_and_here(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    own = "$(readlink /proc/$$/fd/1)"
    few = f"[ $(du -k {own} | cut -f 1) -le 360 ]"
    script = f"seq -f 'line %08.0f' 100000 299999; until {few}; do sleep 0.05; done; du -k {own}"
    launched = distrun.checked("launch", ssh.spec(script, [h1], logs={"max_size": "300KB"}))
    kept = int(re.findall(r"(\d+)\t/.*worker-0.log", launched.stdout)[0])
    assert 300_000 <= kept * 1024 <= 300_000 + 64 * 1024 + 4096
    log = Path(distrun.status()["tasks"][0]["log"])
    assert log.stat().st_size > 200_000 * 14
    assert log.stat().st_blocks * 512 <= 300_000 + 64 * 1024 + 4096
    numbers = re.findall(r"line (\d{8})$", distrun.asked("logs"), re.MULTILINE)
    assert list(map(int, numbers)) == list(range(int(numbers[0]), 300_000))


def test_logs_that_cannot_be_copied_stay_on_their_host(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    spec = ssh.spec("head -c 4000000 /dev/zero | tr '\\0' x; echo", [h1])
    most = (1_000_000, 1_000_000)  # bytes of a file: as if the disk were full
    set_limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, most)
    launched = distrun.checked("launch", spec, preexec_fn=set_limit)
    told = re.search(
        r"the logs of h1's tasks may not all be here: the copy of worker-0.log cannot be written: "
        r"File too large; what is missing is in (/\S+) on h1",
        launched.stderr,
    )
    assert told is not None, launched.stderr
    assert Path(told[1], "worker-0.log").stat().st_size == 4_000_001


def test_secrets_use_the_link(monkeypatch: pytest.MonkeyPatch, ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    secret = "geheim" + "0123456789" * 3
    monkeypatch.setenv("A_TOKEN", secret)
    words, go = "echo it has ${#A_TOKEN} letters", distrun.cwd / "go"
    script = f'[ -n "$A_TOKEN" ] && {words}; until [ -e {go} ]; do sleep 0.05; done'
    program = {"command": ["sh", "-c", script], "sync": "off", "pass_env": ["A_TOKEN"]}
    spec = ssh.spec(script, [h1], program=program)
    launch = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)

    def command_lines() -> list[str]:
        """All of this machine, once those of the link and of the task are among them."""
        found = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        parts = ("exec python3", words)
        return found if all(any(part in each for each in found) for part in parts) else []

    seen = wait_until(command_lines, what="the link and the task are seen")
    go.touch()
    out, said = launch.communicate(timeout=60)
    assert launch.returncode == 0, said
    assert "it has 36 letters" in out
    assert not [each for each in seen if secret in each]
    for folder in (distrun.home, ssh.network.folder):
        held = [path for path in folder.rglob("*") if path.is_file()]
        assert held
        assert not [path for path in held if secret.encode() in path.read_bytes()]

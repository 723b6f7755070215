"""The program's files get to hosts that do not see this machine's."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.preloaded import PreloadedPython
from harness.waiting import wait_until

TRAIN = """\
import os, pathlib, subprocess
from pkg.deep import word
here = pathlib.Path(__file__).parent
ran = subprocess.run([here / "run.sh"], capture_output=True, text=True, check=True).stdout
found = sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file())
task = os.environ["DISTRUN_TASK"]
print(word, ran.strip(), (here / "link").read_text(), os.uname().nodename)
print([name for name in found if "pyc" not in name and "written" not in name])
print("in its folder" if os.getcwd() == str(here) else os.getcwd())
(here / "written").write_text(task)
"""
ROOT = Path(__file__).resolve().parents[2]
FILES = [".gitignore", "empty", "kept.log", "link", "a'b\n$(x)", "pkg/__init__.py",
         "pkg/deep.py", "run.sh", "train.py"]  # fmt: skip


def state_of(host: Host) -> Path:
    return host.home / ".local" / "state" / "distrun"


def write_job(folder: Path) -> None:
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "deep.py").write_text("word = 'one'")
    (folder / "run.sh").write_text("#!/bin/sh\necho it runs\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg/deep.py")
    (folder / "empty").touch()
    (folder / "a'b\n$(x)").write_text("odd")
    (folder / ".gitignore").write_text("*.log\n!kept.log\nruns/\n")
    (folder / "kept.log").write_text("kept")
    (folder / "other.log").write_text("not to be sent")
    (folder / "runs").mkdir()
    (folder / "runs" / "x").write_text("nor this")


def test_the_scripts_folder_is_sent_once_and_then_only_what_changed(
    ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    write_job(distrun.cwd / "job")
    for host in (h1, h2):
        host.hide(distrun.cwd)
    spec = ssh.spec("", [h1, h2], program={"script": "job/train.py"})
    examined = distrun("doctor", spec)  # which sends nothing, and does not miss it
    assert examined.returncode == 0, examined.stdout
    done = distrun.checked("launch", spec)
    listed = str(sorted(FILES))
    expected = {
        f"worker:{index} | {line}"
        for index in (0, 1)
        for line in (f"one it runs word = 'one' h{index + 1}", listed, "in its folder")
    }
    assert set(done.stdout.splitlines()) == expected
    # What tasks have written is told of and kept; nothing else is.
    for index, host in enumerate((h1, h2)):
        told = re.search(rf"the tasks on {host.name} left 1 file .*, now in (/.*)", done.stderr)
        assert told, done.stderr
        left = [path for path in Path(told[1]).rglob("*") if path.is_file()]
        assert [path.read_text() for path in left] == [f"worker:{index}"]
        assert not (state_of(host) / "agents").exists()
    wait_until(lambda: not any(map(ssh.processes, (h1, h2))))
    happened = distrun("events").stdout
    assert "h1 is sent 6 of 8 files" in happened  # two are empty, two the same
    assert "h2 is sent 6 of 8 files" in happened

    distrun.checked("launch", spec)
    happened = distrun("events").stdout
    assert "is sent" not in happened
    assert len(re.findall(r"h[12] has the program's files; none had to be sent", happened)) == 2

    (distrun.cwd / "job" / "pkg" / "deep.py").write_text("word = 'two'")
    done = distrun("launch", spec)
    assert "worker:1 | two it runs word = 'two' h2" in done.stdout.splitlines(), done.stderr
    assert "h2 is sent 1 of 8 files, 12 B of" in distrun("events").stdout


def test_other_things_are_sent_as_the_spec_says(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    h1.hide(distrun.cwd)
    for name in ("job/src/train.py", "job/src/other.py", "data/d.txt", "job/run.sh"):
        (distrun.cwd / name).parent.mkdir(parents=True, exist_ok=True)
    (distrun.cwd / "job" / "src" / "train.py").write_text("print(open('../data/d.txt').read())")
    (distrun.cwd / "job" / "run.sh").write_text("#!/bin/sh\nls; cat src/train.py\n")
    (distrun.cwd / "job" / "run.sh").chmod(0o755)
    (distrun.cwd / "data" / "d.txt").write_text("the data")

    def printed(**program: Any) -> list[str]:
        done = distrun.checked(
            "launch", ssh.spec("", [h1], program=program), cwd=distrun.cwd / "job"
        )
        return [line.partition(" | ")[2] for line in done.stdout.splitlines()]

    # The program's paths are relative to the spec, in tmp_path; tasks run where launch is called.
    listed = {"script": "job/src/train.py", "sync": ["data", "job/src"]}
    assert printed(**listed) == ["the data"]
    # What a command needs is in the folder in which it runs.
    assert printed(command=["./run.sh"])[:2] == ["run.sh", "src"]
    # A command that names no file needs none, and no folder of this machine's.
    assert printed(command=["pwd"]) == [str(h1.home)]
    assert "program's files" not in distrun("events").stdout


def test_a_host_without_room_is_told_and_left_as_it_was(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    (distrun.cwd / "job").mkdir()
    (distrun.cwd / "job" / "train.py").write_text("print('never')")
    (distrun.cwd / "job" / "weights").write_bytes(os.urandom(3_000_000))
    (h2.home / ".local").mkdir()
    h2.is_changed = True
    h2.run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(h2.home / ".local"))
    done = distrun("launch", ssh.spec("", [h1, h2], program={"script": "job/train.py"}))
    assert done.returncode == 69
    assert "never" not in done.stdout
    assert "h2 cannot receive the program's files: " in done.stderr
    assert "No space left on device" in done.stderr
    assert "make room there" in done.stderr
    wait_until(lambda: not any(map(ssh.processes, (h1, h2))))
    left = h2.run("find", str(h2.home / ".local"), "-type", "f").split()
    assert all("weights" not in path for path in left)
    assert sum(int(h2.run("stat", "-c", "%s", path)) for path in left) < 1000


def test_a_script_that_is_a_link_finds_what_is_beside_it_and_beside_its_file(
    ssh: Ssh, distrun: Distrun
) -> None:
    (h1,) = ssh.hosts(1)
    for name in ("link", "real", "other"):
        (distrun.cwd / "job" / name).mkdir(parents=True)
        (distrun.cwd / "job" / name / "where").write_text(name)
    (distrun.cwd / "job" / "link" / "train.py").symlink_to("../real/main.py")
    (distrun.cwd / "job" / "real" / "main.py").write_text(
        "import pathlib, sib\n"
        "print(sib.word, pathlib.Path(__file__).with_name('where').read_text())\n"
    )
    (distrun.cwd / "job" / "real" / "sib.py").write_text("word = 'one'")
    spec = ssh.spec("", [h1], program={"script": "job/link/train.py"})
    here = distrun("launch", spec, "--set", "hosts=[localhost]")
    assert (here.returncode, here.stdout) == (0, "worker:0 | one link\n"), here.stderr
    h1.hide(distrun.cwd / "job")
    there = distrun("launch", spec)
    assert (there.returncode, there.stdout) == (0, here.stdout), there.stderr
    planned = " ".join(distrun("plan", spec).stdout.split())
    assert f" of {distrun.cwd}/job/link and {distrun.cwd}/job/real, into a new folder" in planned


# An agent that waits within a read when some of the files have come, however fast they come. A
# stopped one would be resumed by its guard.
HELD = """\
#!/bin/sh
[ "$3" = -c ] || exec /usr/bin/env -u PATH {python} "$@"
exec {python} "$1" "$2" "$3" "import os
read, left = os.read, 5_000_000
def counted(descriptor, size):
    global left
    block = read(descriptor, size)
    left -= len(block)
    if left <= 0:
        os.read = read
        open('{gate}').read()
    return block
os.read = counted
$4"
"""


def test_sending_that_is_broken_off_leaves_nothing_and_a_lost_link_goes_on_where_it_was(
    ssh: Ssh, distrun: Distrun
) -> None:
    (h1,) = ssh.hosts(1)
    gate = h1.folder / "gate"
    os.mkfifo(gate)
    h1.provide("python3", HELD.format(python=sys.executable, gate=gate))
    h1.hide(distrun.cwd)
    content = os.urandom(40_000_000)
    (distrun.cwd / "job").mkdir()
    (distrun.cwd / "job" / "weights").write_bytes(content)
    (distrun.cwd / "job" / "train.py").write_text(
        "import hashlib; print(hashlib.sha256(open('weights', 'rb').read()).hexdigest())"
    )
    spec = ssh.spec("", [h1], program={"script": "job/train.py"}, timeouts={"link": "60s"})

    def launch_and_hold(name: str) -> tuple[Any, Callable[[], str], int]:
        """Launch, until the host's agent waits amid the files; also the record, and the gate.

        The agent continues when the gate is closed.
        """
        process = distrun.start("launch", "--name", name, spec, stdout=-1, stderr=-1, text=True)

        def record() -> str:
            return "".join(p.read_text() for p in distrun.home.glob(f"jobs/{name}-*/events.jsonl"))

        opened = wait_until(lambda: opened_for_writing(gate))
        assert "SyncStarted" in record()
        assert "Synced" not in record()
        return process, record, opened[0]

    interrupted, record, agent_gate = launch_and_hold("first")
    interrupted.send_signal(signal.SIGINT)
    wait_until(lambda: "StopRequested" in record())
    os.close(agent_gate)
    assert interrupted.wait(60) == 130
    wait_until(lambda: not ssh.processes(h1), 90)  # an agent that was too slow has its lease
    left = [path for path in state_of(h1).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in left) < 1000, left  # the script's contents
    assert not (state_of(h1) / "agents").exists()

    launched, record, agent_gate = launch_and_hold("second")
    h1.cut()
    # Else its silence would be noticed after a part of the lease.
    for each in psutil.Process(distrun.status()["supervisor_pid"]).children():
        if h1.name in each.cmdline():
            each.kill()
    os.close(agent_gate)
    wait_until(lambda: "LinkLost" in record())
    h1.mend()
    printed, said = launched.communicate(timeout=120)
    assert launched.returncode == 0, said
    assert printed == f"worker:0 | {hashlib.sha256(content).hexdigest()}\n"
    happened = [json.loads(line)["event"] for line in record().splitlines()]
    order = ["SyncStarted", "LinkLost", "LinkRestored", "Synced", "TaskStarted"]
    assert [event for event in happened if event in order] == order


def opened_for_writing(fifo: Path) -> list[int]:
    """The descriptor; none before a process waits to read."""
    try:
        return [os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)]
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return []


def learnt(done: Any) -> list[str]:
    """What the epochs came to, without how long they took."""
    line = r"worker:0 \| epoch \d.*accuracy [\d.]+  loss [\d.]+  test_accuracy [\d.]+"
    return re.findall(line, done.stdout)


def last_loss(events: str) -> str:
    """The loss to six digits, as a task has sent it last."""
    told = [json.loads(line) for line in events.splitlines() if '"TaskReported"' in line]
    return str(next(each["values"]["LOSS"] for each in reversed(told) if "LOSS" in each["values"]))


@pytest.mark.e2e
def test_the_bundled_job_learns_across_two_hosts_what_it_learns_here(
    preloaded: PreloadedPython, small_mnist: Path, ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    for host in (h1, h2):
        host.hide(ROOT / "jobs")
        host.hide(ROOT / "launcher")
    # As many threads here as there: sums are taken in the same order.
    threads = {"OMP_NUM_THREADS": 1, "TF_NUM_INTRAOP_THREADS": 1}
    sizes = ["--epochs", 2, "--steps-per-epoch", 6]
    arguments = ["--data-dir", str(small_mnist), *sizes]
    program = {"script": "mnist", "env": threads, "args": arguments}
    program["python"] = preloaded.interpreter
    there = distrun.checked("launch", ssh.spec("", [h1, h2], program=program), timeout=240)
    loss = last_loss(distrun("events", "--json").stdout)
    local = ssh.spec("", [h1, h2], "here", hosts=["localhost"], program=program)
    here = distrun.checked("launch", local, timeout=240)
    assert len(learnt(here)) == 2
    assert learnt(there) == learnt(here)
    assert loss == last_loss(distrun("events", "--json").stdout)


def test_a_file_that_gitignore_keeps_here_is_told_before_the_launch_and_after_the_failure(
    ssh: Ssh, distrun: Distrun
) -> None:
    (h1,) = ssh.hosts(1)
    folder = distrun.cwd / "job"
    folder.mkdir()
    (folder / "train.py").write_text("print(len(open('data.csv').read()))\n")
    (folder / "data.csv").touch()
    (folder / ".gitignore").write_text("*.csv\n")
    h1.hide(distrun.cwd)
    spec = ssh.spec("", [h1], program={"script": "job/train.py"}, cluster={"worker": 1})
    warned = distrun("validate", spec)
    assert warned.returncode == 0
    assert "train.py:1:11: warning: data.csv exists here" in warned.stdout + warned.stderr
    assert distrun("launch", spec).returncode == 1
    verdict = distrun.status()["outcome"]["verdict"]
    assert (verdict["task"], verdict["kind"]) == ("worker:0", "file_not_sent")
    assert distrun("validate", "--strict", spec).returncode == 65

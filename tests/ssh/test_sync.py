"""The program's files get to hosts that do not see this machine's."""

import errno
import hashlib
import json
import os
import re
import sys
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun, write_program
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
    write_program(folder / "run.sh", "#!/bin/sh\necho it runs\n")
    (folder / "link").symlink_to("pkg/deep.py")
    (folder / "empty").touch()
    (folder / "a'b\n$(x)").write_text("odd")
    (folder / ".gitignore").write_text("*.log\n!kept.log\nruns/\n")
    (folder / "kept.log").write_text("kept")
    (folder / "other.log").write_text("not to be sent")
    (folder / "runs").mkdir()
    (folder / "runs" / "x").write_text("nor this")


def test_the_scripts_folder_is_sent_once_then_what_changed(ssh: Ssh, distrun: Distrun) -> None:
    h1, h2 = ssh.hosts(2)
    write_job(distrun.cwd / "job")
    for host in (h1, h2):
        host.hide(distrun.cwd)
    spec = ssh.spec("", [h1, h2], program={"script": "job/train.py"})
    distrun.checked("doctor", spec)  # although nothing has been sent
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
        kept = [each for agent in (state_of(host) / "agents").iterdir() for each in agent.iterdir()]
        assert kept == [Path(told[1])]
    wait_until(lambda: not any(map(ssh.processes, (h1, h2))))
    happened = distrun.asked("events")
    assert "h1 is sent 6 of 8 files" in happened  # two are empty, two the same
    assert "h2 is sent 6 of 8 files" in happened

    distrun.checked("launch", spec)
    happened = distrun.asked("events")
    assert "is sent" not in happened
    assert len(re.findall(r"h[12] has the program's files; none had to be sent", happened)) == 2

    (distrun.cwd / "job" / "pkg" / "deep.py").write_text("word = 'two'")
    done = distrun("launch", spec)
    assert "worker:1 | two it runs word = 'two' h2" in done.stdout.splitlines(), done.stderr
    assert "h2 is sent 1 of 8 files, 12 B of" in distrun.asked("events")


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


def test_sending_goes_on_where_it_was_when_the_link_was_lost(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    gate = h1.folder / "gate"
    os.mkfifo(gate)
    h1.provide("python3", HELD.format(python=sys.executable, gate=gate))
    h1.hide(distrun.cwd)
    content = os.urandom(12_000_000)
    (distrun.cwd / "job").mkdir()
    (distrun.cwd / "job" / "weights").write_bytes(content)
    (distrun.cwd / "job" / "train.py").write_text(
        "import hashlib; print(hashlib.sha256(open('weights', 'rb').read()).hexdigest())"
    )
    spec = ssh.spec("", [h1], program={"script": "job/train.py"}, timeouts={"link": "60s"})
    launched = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)

    def happened() -> list[str]:
        records = [each.read_text() for each in distrun.home.glob("jobs/*/events.jsonl")]
        return [json.loads(line)["event"] for line in "".join(records).splitlines()]

    (agent_gate,) = wait_until(lambda: opened_for_writing(gate), what="the agent waits")
    h1.cut()
    # Else its silence would be noticed after a part of the lease.
    for each in psutil.Process(distrun.status()["supervisor_pid"]).children():
        if h1.name in each.cmdline():
            each.kill()
    os.close(agent_gate)  # it continues
    wait_until(lambda: "LinkLost" in happened())
    h1.mend()
    printed, said = launched.communicate(timeout=120)
    assert launched.returncode == 0, said
    assert printed == f"worker:0 | {hashlib.sha256(content).hexdigest()}\n"
    order = ["SyncStarted", "LinkLost", "LinkRestored", "Synced", "TaskStarted"]
    assert [event for event in happened() if event in order] == order


def opened_for_writing(fifo: Path) -> list[int]:
    """The descriptor; none before a process waits to read."""
    try:
        return [os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)]
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return []


@pytest.mark.e2e
def test_the_bundled_job_learns_across_two_hosts(
    preloaded: PreloadedPython, small_mnist: Path, ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    for host in (h1, h2):
        host.hide(ROOT / "jobs")
        host.hide(ROOT / "launcher")
    arguments = ["--data-dir", str(small_mnist), "--epochs", 2, "--steps-per-epoch", 6]
    program = {"script": "mnist", "args": arguments, "python": preloaded.interpreter}
    done = distrun.checked("launch", ssh.spec("", [h1, h2], program=program), timeout=240)
    line = r"worker:0 \| epoch \d.*accuracy [\d.]+  loss ([\d.]+)  test_accuracy [\d.]+"
    first, last = map(float, re.findall(line, done.stdout))
    assert last < first

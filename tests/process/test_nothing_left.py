"""Commands leave nothing, however they end; nothing waits for what not even SIGKILL ends."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun, recorded_events, write_program
from harness.parts.cli import main
from harness.parts.job import leftovers
from harness.parts.linux import processes
from harness.parts.top import HostError
from harness.processes import alive
from harness.requirements import reason
from harness.waiting import SOON, wait_until

HANGS = """\
#!/bin/sh
# A wrapper whose processes leave its session, as some conda and container wrappers do.
setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &
echo $$ >> {pids}
sleep 600
"""


class Started:
    """A command whose program writes the ids of its processes into a file."""

    def __init__(self, folder: Path, distrun: Distrun, *words: str) -> None:
        self._pids = folder / "pids"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distrun", *words],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.found = wait_until(self._find, what="the program runs")

    def _find(self) -> list[processes.Process]:
        text = self._pids.read_text() if self._pids.exists() else ""
        found = [each for each in map(processes.find, map(int, text.split())) if each is not None]
        return found if len(found) == 2 else []

    def has_left_nothing(self) -> bool:
        return not any(map(processes.is_alive, self.found)) and not os.listdir(self.temporary)


def write_hanging(folder: Path, name: str) -> Path:
    return write_program(folder / name, HANGS.format(pids=folder / "pids"))


def write_spec(folder: Path, command: str) -> None:
    (folder / "train.py").write_text("print(1)\n")
    spec: dict[str, object] = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 1}}
    if command in ("doctor", "launch over ssh"):
        proxy = write_hanging(folder, "proxy")
        ssh = {"options": {"ProxyCommand": str(proxy)}, "connect_timeout": "10m"}
        spec |= {"hosts": ["hx"], "ssh": ssh, "program": {"command": ["true"], "sync": "off"}}
    else:
        write_hanging(folder, "py")
        spec |= {"program": {"script": "train.py", "python": "./py"}}
    (folder / "job.yaml").write_text(json.dumps(spec))


@pytest.fixture
def started(request: pytest.FixtureRequest, distrun: Distrun) -> Iterator[Started]:
    write_spec(distrun.cwd, request.param)
    found = Started(distrun.cwd, distrun, request.param.split()[0], "job.yaml")
    yield found
    for each in found.found:
        processes.send(each, signal.SIGKILL)


@pytest.mark.parametrize(
    ("started", "how"),
    [
        *(("doctor", signal.SIGKILL), ("launch over ssh", signal.SIGINT), ("plan", signal.SIGHUP)),
        *(("validate", "group"), ("doctor", "inner")),
    ],
    indirect=["started"],
)
def test_a_command_that_a_signal_ends(started: Started, how: signal.Signals | str) -> None:
    """A signal for the command, or SIGKILL for its group or for the process inside."""
    pid = started.process.pid
    if isinstance(how, signal.Signals):
        os.kill(pid, how)
    elif how == "group":
        os.killpg(pid, signal.SIGKILL)
    else:
        (inner,) = processes.children(pid)
        os.kill(inner, signal.SIGKILL)
    is_killed = how in (signal.SIGKILL, "group")
    number = how if isinstance(how, signal.Signals) else signal.SIGKILL
    assert started.process.wait(60) == (-number if is_killed else 128 + number)
    wait_until(started.has_left_nothing)


def test_an_interpreter_that_hangs(distrun: Distrun) -> None:
    write_spec(distrun.cwd, "plan")
    started = Started(distrun.cwd, distrun, "plan", "job.yaml")
    assert started.process.wait(60) == 0
    assert started.has_left_nothing()


SSH = """#!/bin/sh
case " $* " in
*" -V "*) echo 'OpenSSH_9.2p1' >&2; exit 0;;
*" -G "*) touch {folder}/asked; read -r _ < {folder}/gate
          echo "controlpath {folder}/gate"
          exit 0;;
esac
echo 'Connection timed out during banner exchange' >&2
exit 255
"""


def test_a_question_stops_nothing_else(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = distrun.cwd / "programs"
    os.mkfifo(distrun.cwd / "gate")
    write_program(programs / "ssh", SSH.format(folder=distrun.cwd))
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    spec = distrun.write_spec("true", workers=1, hosts=["h1"])

    def launch() -> subprocess.Popen[str]:
        process = distrun.start("launch", spec, stderr=subprocess.PIPE, text=True)
        wait_until((distrun.cwd / "asked").exists)
        (distrun.cwd / "asked").unlink()
        return process

    killed = launch()
    assert distrun("kill", "--grace", "0s").returncode == 0
    assert killed.wait(60) == 137
    times = {each["event"]: each["at"] for each in recorded_events(distrun)}
    assert times["JobEnded"] - times["StopRequested"] < 5.0, "the wait for ssh"
    told = launch()
    (distrun.cwd / "gate").write_text("go on\n")
    said = told.communicate(timeout=60)[1]
    assert told.returncode == 69, said
    assert "ssh shares the connection to h1 among logins" in said


_MOUNT = Path("/sys/fs/cgroup/freezer")


@contextlib.contextmanager
def freezer() -> Iterator[Callable[..., None]]:
    """Give a function that freezes processes by ids, until the end. Skips where that cannot be."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="distrun-", dir=_MOUNT))
    except OSError:
        pytest.skip(reason("no freezer cgroup (v1) can be made", "run as root, on cgroup v1"))
    state = folder / "freezer.state"

    def freeze(*pids: int) -> None:
        for pid in pids:
            (folder / "cgroup.procs").write_text(str(pid))
        state.write_text("FROZEN")
        wait_until(lambda: state.read_text().strip() == "FROZEN")

    def is_removed() -> bool:
        with contextlib.suppress(OSError):  # a process in it has yet to die
            folder.rmdir()
        return not folder.exists()

    try:
        yield freeze
    finally:
        state.write_text("THAWED")
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (_MOUNT / "cgroup.procs").write_text(pid)
        wait_until(is_removed)


def agents_of(distrun: Distrun, job: str) -> list[int]:
    agent = int(distrun.status(job)["hosts"][0]["agent_pid"])
    return [agent, psutil.Process(agent).ppid()]


def test_nothing_waits_without_end_and_what_does_not_die_is_named(distrun: Distrun) -> None:
    """Together, because each waits for seconds: of three jobs, one still has its agent, one has
    lost it, one its supervisor, too; of one that has ended, a client hangs, as an ssh client on a
    file system that does not answer."""
    with freezer() as freeze:
        restart = {"max": 3}
        jobs = {
            name: distrun.detached("exec sleep 600", name=name, restart=restart)
            for name in ("whole", "half")
        }
        launch = distrun.launched("exec sleep 600", name="lost")
        jobs["lost"] = wait_until(lambda: distrun.status("lost")["job_id"])
        ended = distrun.detached("exit 0", name="ended")
        assert distrun("wait", ended).returncode == 0
        token = (distrun.home / "jobs" / ended / "token").read_text()
        client_env = {**os.environ, "DISTRUN_TOKEN": token}
        shown = {name: distrun.status(job) for name, job in jobs.items()}
        named = {
            name: f"do not die, not even by SIGKILL: {job['tasks'][0]['pid']}"
            for name, job in shown.items()
        }
        victims = [*agents_of(distrun, jobs["half"]), *agents_of(distrun, jobs["lost"])]
        victims.append(shown["lost"]["supervisor_pid"])
        supervisor = psutil.Process(shown["whole"]["supervisor_pid"])
        client = subprocess.Popen(["sleep", "600"], env=client_env, start_new_session=True)
        freeze(client.pid, *(job["tasks"][0]["pid"] for job in shown.values()))
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        attached = distrun.start("attach", jobs["whole"], stdout=-1, stderr=-1, text=True)
        killing = distrun.start("kill", jobs["whole"], "--grace", "500ms", stderr=-1, text=True)

        # Its answer comes from the supervisor, which waits in its loop.
        assert distrun("wait", jobs["half"], "--timeout", "200ms").returncode == 124
        assert distrun("wait", jobs["half"], timeout=60).returncode == 69
        events = distrun.asked("events", jobs["half"])
        assert named["half"] in events
        assert "attempt 1" not in events, "something started beside what may still run"

        done = distrun.checked("kill", ended, timeout=60)
        words = f"processes of distrun, which run no task, remain: {client.pid}\n"
        assert words in done.stderr

        _, told = launch.communicate(timeout=60)
        assert launch.returncode == 70
        assert named["lost"] in told

        _, told = killing.communicate(timeout=60)
        assert killing.returncode == 69
        assert "answer" not in told
        words = f"is not all ended on localhost: processes that it started {named['whole']}"
        assert words in told
        assert words in attached.communicate(timeout=60)[1]
        assert words in distrun("wait", jobs["whole"]).stderr
        wait_until(lambda: not alive(supervisor))
        events = distrun.asked("events", jobs["whole"], "--json")
        assert '"JobEnded"' in events
        assert named["whole"] in distrun.asked("events", jobs["whole"])
    client.wait(SOON)


def test_a_task_of_a_lost_job_may_take_seconds_to_die(distrun: Distrun) -> None:
    with freezer() as freeze:
        job = distrun.detached("exec sleep 600", workers=1)
        shown = distrun.status(job)
        pid, victims = shown["tasks"][0]["pid"], [*agents_of(distrun, job), shown["supervisor_pid"]]
        freeze(pid)
        subprocess.run(["kill", "-KILL", *map(str, victims)], check=True)
        kill = distrun.start("kill", job)
        status = Path(f"/proc/{pid}/status")
        wait_until(lambda: re.search("Pnd:.*1..$", status.read_text(), re.MULTILINE))
        with pytest.raises(subprocess.TimeoutExpired):  # a second was too little
            kill.wait(4)
    assert kill.wait(SOON) == 0


def test_a_job_that_waits_for_what_a_task_has_left_says_so(distrun: Distrun) -> None:
    exits = distrun.home / "exits"
    child = distrun.home / "child"
    script = f"sleep 600 & echo $! > '{child}'; until [ -e '{exits}' ]; do sleep 0.1; done"
    with freezer() as freeze:
        job = distrun.detached(script, cluster={"worker": 1}, timeouts={"grace": "100ms"})
        wait_until(lambda: child.exists() and child.read_text())
        freeze(int(child.read_text()))
        exits.touch()
        words = "ago, but processes that it started do not die, not even by SIGKILL; `ps"
        wait_until(lambda: words in distrun.asked("status", job))
        assert distrun("wait", job, "--timeout", "100ms").returncode == 124
    assert distrun("wait", job).returncode == 0


def test_an_undying_nvidia_smi(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, exits = distrun.home / "asked", distrun.home / "exits"
    text = f"#!/bin/sh\ncase $* in *=index*) ;; *) echo $$ > '{asked}'; exec sleep 600;; esac\n"
    write_program(distrun.cwd / "nvidia-smi", text)
    monkeypatch.setenv("PATH", str(distrun.cwd), prepend=os.pathsep)
    with freezer() as freeze:
        job = distrun.detached(f"until [ -e '{exits}' ]; do sleep 0.1; done")
        freeze(wait_until(lambda: asked.exists() and int(asked.read_text() or 0)))
        exits.touch()
        assert distrun("wait", job, timeout=60).returncode == 0


UNENDED = f"""\
from {leftovers.__package__} import leftovers
from {HostError.__module__} import HostError
from {main.__name__} import main
leftovers.unended_error = lambda *_: HostError("it is not all ended")
main()
"""


@pytest.mark.parametrize(("code", "exits"), [(0, 69), (3, 3)])
def test_a_success_that_leaves_processes_is_none(distrun: Distrun, code: int, exits: int) -> None:
    spec = distrun.write_spec(f"exit {code}")
    distrun.argv = (sys.executable, "-c", UNENDED)
    assert "it is not all ended" in distrun.told(exits, "launch", spec)


def test_what_a_stop_leaves_is_not_told_as_undying_while_it_has_time(distrun: Distrun) -> None:
    exits = distrun.home / "exits"
    leftover = f"""sh -c 'trap "" TERM; until [ -e "{exits}" ]; do sleep 0.1; done' & """
    script = leftover + "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    job = distrun.detached(script, cluster={"worker": 1}, timeouts={"grace": "100ms"})
    kill = distrun.start("kill", job, "--grace", "1m", stderr=-1, text=True)
    exited = wait_until(lambda: distrun.status(job)["tasks"][0].get("exited_at"))
    wait_until(lambda: time.time() > exited + 6)  # grace, and five seconds
    assert "do not die" not in distrun.asked("status", job)
    exits.touch()
    kill.communicate(timeout=SOON)

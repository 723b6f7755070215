"""Tasks that replace files of their job: nothing waits for what is no regular file."""

from __future__ import annotations

import os

import pytest

from harness.command import Distrun

REPLACEMENTS = {
    "fifo": "mkfifo {0}",
    "device": "ln -s /dev/zero {0}",
    "folder": "mkdir {0}",
    "link": "ln -s /etc/passwd {0}",
    "socket": 'python3 -c "import socket, sys; socket.socket(1).bind(sys.argv[1])" {0}',
}
SECONDS = 30.0


def replacing(kind: str, path: str = '"$L"') -> str:
    make = REPLACEMENTS[kind].format(path)
    return f"echo hi; L=$(readlink /proc/$$/fd/1); rm -f {path}; {make}"


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_a_task_that_replaces_its_log_fails_by_its_own_exit(distrun: Distrun, kind: str) -> None:
    spec = distrun.write_spec(f"{replacing(kind)}; exit 3", workers=1)
    launch = distrun.start("launch", spec)
    try:
        assert launch.wait(SECONDS) == 3
    except BaseException:
        distrun("kill", "--grace", "0s")
        raise
    for command in (["logs"], ["logs", "--raw"], ["status"], ["ps", "-a"]):
        done = distrun(*command, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        assert "root:" not in done.stdout


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_task_that_has_replaced_its_log_can_restart(distrun: Distrun, kind: str) -> None:
    """Its restart fails, because it could print nothing, or it runs: it does not hang."""
    script = f"[ $DISTRUN_ATTEMPT = 0 ] || exit 0; {replacing(kind)}; exit 3"
    spec = distrun.write_spec(script, workers=1, restart={"max": 1, "backoff": "10ms"})
    launch = distrun.start("launch", spec)
    try:
        assert launch.wait(SECONDS) != 0
    except BaseException:
        distrun("kill", "--grace", "0s")
        raise


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_task_that_replaces_the_index_of_its_log_harms_nothing(
    distrun: Distrun, kind: str
) -> None:
    script = replacing(kind, '"${L%.log}.idx"')
    launch = distrun.start(
        "launch", distrun.write_spec(f"{script}; echo more; sleep 1; exit 3", workers=1)
    )
    try:
        assert launch.wait(SECONDS) == 3
    except BaseException:
        distrun("kill", "--grace", "0s")
        raise
    assert "more" in distrun("logs", timeout=SECONDS).stdout


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_commands_show_jobs_although_a_record_was_replaced(distrun: Distrun, kind: str) -> None:
    first = distrun.detached("exit 0", workers=1, name="first")
    assert distrun("wait", first).returncode == 0
    second = distrun.detached("exit 0", workers=1, name="second")
    assert distrun("wait", second).returncode == 0
    record = distrun.home / "jobs" / second / "events.jsonl"
    record.unlink()
    os.system(REPLACEMENTS[kind].format(record))
    shown = distrun("ps", "-a", timeout=SECONDS)
    assert shown.returncode == 0, shown.stderr
    assert first in shown.stdout
    assert distrun("status", second, timeout=SECONDS).returncode == 0
    waited = distrun("wait", second, timeout=SECONDS)
    assert waited.returncode == 69
    assert "is no regular file: the result of the job is unknown" in waited.stderr


@pytest.mark.parametrize("name", ["supervisor.log", "logs"])
def test_a_resume_names_the_file_that_it_cannot_write(distrun: Distrun, name: str) -> None:
    assert distrun.launch("exit 3", workers=1, name="one").returncode == 3
    (path,) = distrun.home.glob(f"jobs/one-*/{name}")
    path.rename(path.with_name("former"))
    if name == "logs":
        path.touch()
    else:
        path.mkdir()
    done = distrun("resume", timeout=SECONDS)
    assert done.returncode == 69
    assert str(path) in done.stderr
    assert "events.jsonl" not in done.stderr

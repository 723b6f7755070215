"""Files of a job that something else has replaced: nothing waits for what is no regular file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.command import Distrun

REPLACEMENTS = {
    "fifo": "mkfifo {0}",
    "device": "ln -s /dev/zero {0}",
    "folder": "mkdir {0}",
}
SECONDS = 30.0


def replacing(kind: str, path: str = '"$L"') -> str:
    make = REPLACEMENTS[kind].format(path)
    return f"echo hi; L=$(readlink /proc/$$/fd/1); rm -f {path}; {make}"


def exit_of_launch(distrun: Distrun, spec: Path) -> int:
    launch = distrun.start("launch", spec)
    try:
        return launch.wait(SECONDS)
    except BaseException:
        distrun("kill", "--grace", "0s")
        raise


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_a_task_that_replaces_its_log_fails_by_its_own_exit(distrun: Distrun, kind: str) -> None:
    spec = distrun.write_spec(f"{replacing(kind)}; exit 3", workers=1)
    assert exit_of_launch(distrun, spec) == 3
    for command in (["logs"], ["logs", "--raw"], ["status"], ["ps", "-a"]):
        done = distrun(*command, timeout=SECONDS)
        assert done.returncode == 0, done.stderr


def test_a_task_that_has_replaced_its_log_can_restart(distrun: Distrun) -> None:
    """Its restart fails, because it could print nothing, or it runs: it does not hang."""
    script = f"[ $DISTRUN_ATTEMPT = 0 ] || exit 0; {replacing('fifo')}; exit 3"
    spec = distrun.write_spec(script, workers=1, restart={"max": 1, "backoff": "10ms"})
    assert exit_of_launch(distrun, spec) != 0


def test_a_task_that_replaces_the_index_of_its_log_harms_nothing(distrun: Distrun) -> None:
    script = replacing("fifo", '"${L%.log}.idx"')
    spec = distrun.write_spec(f"{script}; echo more; sleep 1; exit 3", workers=1)
    assert exit_of_launch(distrun, spec) == 3
    assert "more" in distrun("logs", timeout=SECONDS).stdout


def test_commands_show_jobs_although_a_record_was_replaced(distrun: Distrun) -> None:
    first = distrun.detached("exit 0", workers=1, name="first")
    assert distrun("wait", first).returncode == 0
    second = distrun.detached("exit 0", workers=1, name="second")
    assert distrun("wait", second).returncode == 0
    record = distrun.home / "jobs" / second / "events.jsonl"
    record.unlink()
    record.mkdir()
    shown = distrun("ps", "-a", timeout=SECONDS)
    assert shown.returncode == 0, shown.stderr
    assert first in shown.stdout
    assert distrun("status", second, timeout=SECONDS).returncode == 0
    waited = distrun("wait", second, timeout=SECONDS)
    assert waited.returncode == 69
    assert "is no regular file: the result of the job is unknown" in waited.stderr


def test_a_resume_names_the_file_that_it_cannot_write(distrun: Distrun) -> None:
    assert distrun.launch("exit 3", workers=1, name="one").returncode == 3
    (path,) = distrun.home.glob("jobs/one-*/logs")
    path.rename(path.with_name("former"))
    path.touch()
    done = distrun("resume", timeout=SECONDS)
    assert done.returncode == 69
    assert str(path) in done.stderr
    assert "events.jsonl" not in done.stderr


NAMES = ("plan.json", "spec.json", "spec.yaml", "batch.json", "events.jsonl")


def test_no_command_waits_for_a_pipe(distrun: Distrun) -> None:
    assert distrun.launch("exit 0", workers=1).returncode == 0
    (folder,) = (distrun.home / "jobs").iterdir()
    for path in (folder / name for name in NAMES):
        text = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        for command in (["status"], ["ps"], ["logs"], ["report", "-o", "-"]):
            if command[0] == "report" and path.name not in ("plan.json", "events.jsonl"):
                continue  # what else it reads, the others read too
            done = distrun(*command, timeout=SECONDS)
            assert "Traceback" not in done.stderr, (path.name, command)
        done = distrun("bundle", "-o", distrun.cwd / f"{path.name}.tar.gz", timeout=SECONDS)
        assert "Traceback" not in done.stderr
        path.unlink()
        if text is not None:
            path.write_bytes(text)

"""Files of a job that something else has replaced: nothing waits for what is no regular file."""

from __future__ import annotations

import os

from harness.command import Distrun

REPLACEMENTS = {"fifo": "mkfifo {0}", "device": "ln -s /dev/zero {0}", "folder": "mkdir {0}"}
SECONDS = 30.0


def replacing(kind: str, path: str = '"$L"') -> str:
    make = REPLACEMENTS[kind].format(path)
    return f"echo hi; L=$(readlink /proc/$$/fd/1); rm -f {path}; {make}"


def test_a_task_that_replaces_its_log_or_its_index_fails_by_its_own_exit(distrun: Distrun) -> None:
    """And a restart of one fails, because it could print nothing, or it runs: it does not hang."""
    for kind in REPLACEMENTS:
        distrun.detached(f"{replacing(kind)}; exit 3", workers=1, name=kind)
    script = f"[ $DISTRUN_ATTEMPT = 0 ] || exit 0; {replacing('fifo')}; exit 3"
    restart = {"max": 1, "backoff": "10ms"}
    distrun.detached(script, workers=1, name="again", restart=restart)
    index = replacing("fifo", '"${L%.log}.idx"')
    distrun.detached(f"{index}; echo more; sleep 1; exit 3", workers=1, name="index")
    for kind in (*REPLACEMENTS, "index"):
        assert distrun("wait", kind, timeout=SECONDS).returncode == 3
        for command in (["logs"], ["logs", "--raw"], ["status"]):
            done = distrun(*command, kind, timeout=SECONDS)
            assert done.returncode == 0, done.stderr
    assert "more" in distrun("logs", "index", timeout=SECONDS).stdout
    assert distrun("wait", "again", timeout=SECONDS).returncode != 0
    assert distrun("ps", "-a", timeout=SECONDS).returncode == 0


NAMES = ("plan.json", "spec.json", "events.jsonl")


def test_no_command_waits_for_a_pipe_or_fails_of_a_folder(distrun: Distrun) -> None:
    assert distrun.launch("exit 3", workers=1).returncode == 3
    (folder,) = (distrun.home / "jobs").iterdir()
    for path in (folder / name for name in NAMES):
        text = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        for command in (["status"], ["ps"], ["logs"], ["bundle", "-o", "/dev/null"]):
            done = distrun(*command, timeout=SECONDS)
            assert "Traceback" not in done.stderr, (path.name, command)
        assert "Traceback" not in distrun("report", "-o", "-", timeout=SECONDS).stderr
        path.unlink()
        path.write_bytes(text)

    (folder / "logs").rename(folder / "former")
    (folder / "logs").touch()
    done = distrun("resume", timeout=SECONDS)
    assert done.returncode == 69
    assert str(folder / "logs") in done.stderr
    assert "events.jsonl" not in done.stderr

    (folder / "events.jsonl").unlink()
    (folder / "events.jsonl").mkdir()
    other = distrun.detached("exit 0", workers=1, name="other")
    shown = distrun("ps", "-a", timeout=SECONDS)
    assert shown.returncode == 0, shown.stderr
    assert other in shown.stdout
    assert distrun("status", folder.name, timeout=SECONDS).returncode == 0
    waited = distrun("wait", folder.name, timeout=SECONDS)
    assert waited.returncode == 69
    assert "is no regular file: the result of the job is unknown" in waited.stderr

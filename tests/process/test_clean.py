"""`distrun clean` removes ended jobs, and nothing else."""

import fcntl
import json
import os
import subprocess
import sys
import time

from harness.command import Distrun
from harness.processes import captured
from harness.requirements import AS_ROOT, skip
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import wait_until


def listed(distrun: Distrun) -> dict[str, str]:
    jobs = json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]
    return {job["job_id"]: job["state"] for job in jobs}


def test_an_incomplete_folder_is_removed_and_what_is_no_job_is_not(distrun: Distrun) -> None:
    job_id = distrun.detached("exit 0")
    distrun("wait")
    jobs = distrun.home / "jobs"
    (jobs / "half-abc234").mkdir()
    (jobs / "a-file").touch()
    for name in (".new-old", ".gone-old", ".new-fresh"):
        (jobs / name).mkdir()
    for name in (".new-old", ".gone-old"):
        os.utime(jobs / name, (time.time() - 3600,) * 2)
    target = distrun.home / "precious"  # and what is no job stays, however old it is
    target.mkdir()
    (target / "file").touch()
    (jobs / "link").symlink_to(target)
    (jobs / "thesis").mkdir()
    (jobs / "thesis" / "text").write_text("important")
    os.utime(jobs / "thesis", (time.time() - 2 * 86_400,) * 2)
    assert listed(distrun) == {job_id: "succeeded", "half-abc234": "lost"}
    for command in ("status", "logs", "kill"):
        distrun.checked(command, "half-abc234")
    assert distrun("clean", "--all").returncode == 0
    assert sorted(os.listdir(jobs)) == [".new-fresh", "a-file", "link", "thesis"]
    assert (target / "file").exists()
    assert (jobs / "thesis" / "text").read_text() == "important"


def test_a_choice_is_needed_without_a_terminal_and_running_jobs_stay(distrun: Distrun) -> None:
    running = distrun.detached("until echo out; test -e go; do sleep 0.2; done", workers=1)
    ids = [distrun.detached("exit 0", workers=1, name=f"over{n}") for n in range(3)]
    distrun("wait", *ids)
    refused = distrun.told(2, "clean")
    assert "would remove 3 jobs, " in refused
    assert "--all" in refused
    for wrong in ("--all --older-than 1h", "--older-than soon", "--all over1", f"over1 {running}"):
        assert distrun("clean", *wrong.split()).returncode == 2
    assert set(distrun("clean", "--dry-run").stdout.split()) == set(ids)
    assert distrun("clean", "over2").stdout.split() == [ids.pop()]
    hour_ago = time.time() - 3600
    os.utime(distrun.home / "jobs" / ids[0] / "events.jsonl", (hour_ago, hour_ago))
    assert distrun("clean", "--older-than", "2h").stdout == ""
    assert distrun("clean", "--older-than", "30m").stdout.split() == [ids[0]]
    assert set(listed(distrun)) == {running, *ids[1:]}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [distrun.start("clean", "--all", **options) for _ in range(2)]  # at once
    said = [process.communicate(timeout=30) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted("".join(out for out, _ in said).split()) == sorted(ids[1:])
    assert os.listdir(distrun.home / "jobs") == [running]
    (distrun.cwd / "go").touch()
    assert distrun("wait", running).returncode == 0
    assert "out" in distrun.asked("logs", running)


def answered(asked: Terminal, keys: str) -> Terminal:
    wait_until(lambda: asked.text().endswith("[y/N] "))
    asked.type(keys)
    asked.finish()
    return asked


def test_without_a_choice_it_lists_and_asks(distrun: Distrun, terminal: OpenTerminal) -> None:
    columns = 80
    name = "a-name-that-fills-half-of-a-terminal"
    failed = distrun.detached("exit 3", workers=1, name=name)
    held = distrun.detached("exit 0", workers=1, name="held")
    distrun("wait", failed, held)
    denied = answered(terminal("clean", columns=columns), "yess\r")
    assert denied.process.returncode == 0
    shown = denied.text()
    assert shown.endswith("distrun: nothing was removed\n"), shown
    assert f"{failed}  failed" in shown
    assert max(map(len, shown.splitlines())) <= columns
    agreed = terminal("clean", columns=columns)
    wait_until(lambda: agreed.text().endswith("[y/N] "))
    late = distrun.detached("exit 0", workers=1, name="late")
    distrun("wait", late)
    with (distrun.home / "jobs" / held / "supervisor.lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # as by a resume
        answered(agreed, "y\r")
        for command in ("clean", "resume"):
            assert "removed by another command" in distrun.told(2, command, held)
    assert agreed.process.returncode == 0
    assert "not removed" not in agreed.text()
    assert "removed 1 job, " in agreed.text()
    assert agreed.text().count(failed) == 1
    assert set(listed(distrun)) == {late, held}, "only what was listed is removed"


def test_one_that_cannot_be_removed_does_not_stop_the_others(distrun: Distrun) -> None:
    ids = [distrun.detached("exit 0", workers=1) for _ in range(2)]
    distrun("wait", *ids)
    mount = 'mount -t tmpfs none "$0" && exec "$@"'
    logs = distrun.home / "jobs" / ids[0] / "logs"
    command = ["unshare", "-rm", "sh", "-c", mount, str(logs), *distrun.argv, "clean", "--all"]
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        skip("it needs namespaces of mounts", AS_ROOT)
    done = captured(command)
    assert done.returncode == 69, done.stderr
    assert done.stdout.split() == ids[1:]
    refused, advice, end = done.stderr.splitlines()
    assert refused.startswith(f"distrun: job {ids[0]} was not removed: {logs}: ")
    assert f"umount {logs}" in advice
    assert end.startswith("distrun: removed 1 job, ")
    assert os.listdir(distrun.home / "jobs") == ids[:1]
    assert distrun("clean", "--all").stdout.split() == ids[:1]


def test_folders_of_any_depth_are_removed(distrun: Distrun) -> None:
    """A task may make them in its folder of logs, with paths that no system call takes."""
    code = "import os\nfor _ in range(2100): os.mkdir('d'); os.chdir('d')"
    script = f'd=$(readlink /proc/$$/fd/1) && cd "${{d%/*}}" && exec {sys.executable} -c "{code}"'
    try:
        deep = distrun.detached(script, workers=1)
        assert distrun("wait", deep).returncode == 0
        assert (distrun.home / "jobs" / deep / "logs" / "/".join("d" * 500)).is_dir()
        assert distrun.checked("clean", "--all").stdout.split() == [deep]
        assert os.listdir(distrun.home / "jobs") == []
    finally:  # pytest could not
        subprocess.run(["rm", "-rf", distrun.home / "jobs"], check=True)

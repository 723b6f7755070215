"""The first cause across hosts: by the logs that are fetched, and by a host that is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ECHO = "echo 'UnavailableError: Collective ops is aborted by: Socket closed'"
TRACEBACK = """\
cat <<'E'
Traceback (most recent call last):
  File "/home/user/train.py", line 3, in <module>
    import tensorflow_adons
ModuleNotFoundError: No module named 'tensorflow_adons'
E
"""


def test_the_lines_it_rests_on_come_from_the_other_host(
    hosts: Any, remote_spec: Any, distrun: Any, status: Any, tmp_path: Path
):
    up = tmp_path / "up"
    script = (
        "if test $DISTRUN_TASK = worker:1; then\n"
        f"while ! test -e {up}; do sleep 0.02; done\n{TRACEBACK}exit 3; fi\n"
        # It is told to end once the other's end is known: so its words come after that.
        f'trap "{ECHO}; exit 1" TERM; touch {up}; while :; do sleep 0.02; done'
    )
    done = distrun("launch", remote_spec(script, hosts(2)))
    assert done.returncode == 3, done.stderr
    assert "worker:0 | UnavailableError: Collective ops is aborted" in done.stdout
    verdict = status()["outcome"]["verdict"]
    assert (verdict["task"], verdict["kind"]) == ("worker:1", "import_error")
    assert verdict["evidence"][-1] == {
        "task": "worker:1",
        "place": "its log, line 4",
        "text": "ModuleNotFoundError: No module named 'tensorflow_adons'",
    }
    assert "  seen   worker:1, its log, line 4: ModuleNotFoundError" in done.stderr


def test_a_lost_host_is_the_cause_of_what_its_peers_say(
    hosts: Any, remote_spec: Any, distrun: Any, status: Any, wait_until: Any, tmp_path: Path
):
    up, cut = tmp_path / "up", tmp_path / "cut"
    script = (
        f"test $DISTRUN_TASK = worker:1 && {{ touch {up}; exec sleep 1000; }}; "
        f"while ! test -e {cut}; do sleep 0.02; done; {ECHO}; exit 1"
    )
    h1, h2 = hosts(2)
    job = distrun("launch", "-d", remote_spec(script, [h1, h2], timeouts={"link": "3s"}))
    assert job.returncode == 0, job.stderr
    wait_until(up.exists, 20)
    h2.cut()
    cut.touch()
    waited = distrun("wait", job.stdout.strip())
    assert waited.returncode == 69
    verdict = status()["outcome"]["verdict"]
    assert (verdict["task"], verdict["kind"]) == ("worker:1", "host_lost")
    assert verdict["echoes"] == ["worker:0"]
    assert "worker:1 was lost with h2" in waited.stderr

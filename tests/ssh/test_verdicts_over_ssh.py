"""The first cause across hosts: by the logs that are fetched, and by a host that is lost."""

from __future__ import annotations

from pathlib import Path

from harness.command import Distrun, Status
from harness.network import Hosts, RemoteSpec
from harness.waiting import wait_until

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
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, status: Status, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    script = (
        "if test $DISTRUN_TASK = worker:1; then\n"
        f"while ! test -e {up}; do sleep 0.02; done\n{TRACEBACK}exit 3; fi\n"
        f"{ECHO}; touch {up}; exec sleep 1000"
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
    assert "  evidence      worker:1, its log, lines 2 and 4\n" in done.stderr


def test_a_lost_host_is_the_cause_of_what_its_peers_say(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, status: Status, tmp_path: Path
) -> None:
    up, cut = tmp_path / "up", tmp_path / "cut"
    script = (
        f"test $DISTRUN_TASK = worker:1 && {{ touch {up}; exec sleep 1000; }}; "
        f"while ! test -e {cut}; do sleep 0.02; done; {ECHO}; exit 1"
    )
    h1, h2 = hosts(2)
    # No shorter: a host that was only slow for some seconds is none that is lost.
    spec = remote_spec(script, [h1, h2], timeouts={"link": "10s"})
    launch = distrun.start("launch", spec, stdout=-3, stderr=-1, text=True)
    wait_until(up.exists)
    h2.power_off()
    cut.touch()
    _, said = launch.communicate(timeout=60)
    assert launch.returncode == 69
    verdict = status()["outcome"]["verdict"]
    assert (verdict["task"], verdict["kind"]) == ("worker:1", "host_lost")
    assert verdict["echoes"] == ["worker:0"]
    assert "worker:1 was lost with h2" in said

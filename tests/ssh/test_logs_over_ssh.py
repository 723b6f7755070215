"""Output of tasks on other hosts, as the launching machine has it."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.waiting import wait_until


def test_a_limited_log_is_limited_on_its_host_and_here(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    own = "$(readlink /proc/$$/fd/1)"
    script = f"seq -f 'line %08.0f' 100000 299999; sleep 0.5; du -k {own}; sleep 1"
    launched = distrun.checked("launch", ssh.spec(script, [h1], logs={"max_size": "300KB"}))
    kept = int(re.findall(r"(\d+)\t/.*worker-0.log", launched.stdout)[0])
    assert 300_000 <= kept * 1024 <= 300_000 + 64 * 1024 + 4096
    log = Path(distrun.status()["tasks"][0]["log"])
    assert log.stat().st_size > 200_000 * 14
    assert log.stat().st_blocks * 512 <= 300_000 + 64 * 1024 + 4096
    numbers = re.findall(r"line (\d{8})$", distrun.asked("logs"), re.MULTILINE)
    assert list(map(int, numbers)) == list(range(int(numbers[0]), 300_000))


def no_large_files() -> None:
    """What writes more than 1 MB to a file is refused it, as by a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def test_logs_that_cannot_be_copied_stay_on_their_host(ssh: Ssh, distrun: Distrun) -> None:
    (h1,) = ssh.hosts(1)
    spec = ssh.spec("head -c 4000000 /dev/zero | tr '\\0' x; echo", [h1])
    launched = distrun.checked("launch", spec, preexec_fn=no_large_files)
    told = re.search(
        r"the logs of h1's tasks are not all here: the copy of worker-0.log cannot be written: "
        r"File too large; all of them are in (/\S+) on h1",
        launched.stderr,
    )
    assert told is not None, launched.stderr
    assert Path(told[1], "worker-0.log").stat().st_size == 4_000_001


def test_secrets_travel_over_the_link_alone(
    monkeypatch: pytest.MonkeyPatch, ssh: Ssh, distrun: Distrun
) -> None:
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

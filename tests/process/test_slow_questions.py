"""What ssh is asked about a host takes time: the supervisor does everything else meanwhile."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

SSH = """#!/bin/sh
case " $* " in
*" -V "*) echo 'OpenSSH_9.2p1' >&2; exit 0;;
*" -G "*) touch {folder}/asked; read -r _ < {folder}/gate
          printf 'hostname 10.0.0.7\\nuserknownhostsfile /known\\n'
          exit 0;;
esac
cat >&2 <<'WORDS'
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /known:7
Host key for 10.0.0.7 has changed and you have requested strict checking.
Host key verification failed.
WORDS
exit 255
"""
SOON = 5.0
"""Seconds. distrun waits longer for an answer of ssh."""


def test_a_question_stops_nothing_else(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = distrun.cwd / "programs"
    programs.mkdir()
    os.mkfifo(distrun.cwd / "gate")
    (programs / "ssh").write_text(SSH.format(folder=distrun.cwd))
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    spec = distrun.write_spec("true", workers=1, hosts=["h1"])

    def launch() -> subprocess.Popen[str]:
        process = distrun.start("launch", spec, stderr=subprocess.PIPE, text=True)
        wait_until((distrun.cwd / "asked").exists)
        (distrun.cwd / "asked").unlink()
        return process

    killed = launch()
    began = time.monotonic()
    assert distrun("kill", "--grace", "0s").returncode == 0
    assert killed.wait(SOON) == 137
    assert time.monotonic() - began < SOON
    told = launch()
    (distrun.cwd / "gate").write_text("go on\n")
    said = told.communicate(timeout=60)[1]
    assert told.returncode == 69, said
    assert "ssh-keygen -f /known -R 10.0.0.7" in said

"""What ssh starts to get to a host: nothing of it is left where it gets nowhere."""

from __future__ import annotations

import signal
from pathlib import Path

import yaml

from harness.command import Distrun
from harness.processes import alive
from harness.requirements import need_ssh_client


def test_a_proxy_that_hangs_is_ended_with_the_job(distrun: Distrun, tmp_path: Path) -> None:
    need_ssh_client()
    # ssh tells its proxy's command by SIGHUP that it is not needed; this one does not care.
    proxy = tmp_path / "proxy"
    proxy.write_text(
        f"#!/bin/sh\ngrep SigIgn /proc/self/status > {tmp_path}/ignored\n"
        f"trap '' HUP TERM\necho $$ > {tmp_path}/pid\nsleep 1000 & wait\n"
    )
    proxy.chmod(0o755)
    spec = tmp_path / "job.yaml"
    document = {
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 1},
        "hosts": ["nowhere"],
        "program": {"command": ["true"]},
    }
    pid = tmp_path / "pid"
    for patience in ("1s", "5s", "30s"):
        ssh = {"connect_timeout": patience, "options": {"ProxyCommand": str(proxy)}}
        spec.write_text(yaml.safe_dump({**document, "ssh": ssh}))
        done = distrun("launch", spec)
        assert done.returncode == 69, done.stderr
        assert "nowhere cannot be used" in done.stderr
        if pid.is_file() and pid.read_text():  # the machine let it come so far
            break
    assert not alive(int(pid.read_text()))
    ignored = int(tmp_path.joinpath("ignored").read_text().split()[1], 16)
    assert not ignored & 1 << signal.SIGHUP - 1, "one that does care would not hear it"

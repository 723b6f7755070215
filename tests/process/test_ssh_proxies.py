"""What ssh starts to get to a host: nothing of it is left where it gets nowhere."""

from __future__ import annotations

import signal

import yaml

from harness.command import Distrun
from harness.processes import alive
from harness.requirements import need_ssh_client


def test_a_proxy_that_hangs_is_ended_with_the_job(distrun: Distrun) -> None:
    need_ssh_client()
    # ssh tells its proxy's command by SIGHUP that it is not needed; this one does not care.
    proxy = distrun.cwd / "proxy"
    proxy.write_text(
        f"#!/bin/sh\ngrep SigIgn /proc/self/status > {distrun.cwd}/ignored\n"
        f"trap '' HUP TERM\necho $$ > {distrun.cwd}/pid\nsleep 1000 & wait\n"
    )
    proxy.chmod(0o755)
    spec = distrun.cwd / "job.yaml"
    document = {
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 1},
        "hosts": ["nowhere"],
        "program": {"command": ["true"]},
    }
    pid = distrun.cwd / "pid"
    for patience in ("1s", "5s", "30s"):
        ssh = {"connect_timeout": patience, "options": {"ProxyCommand": str(proxy)}}
        spec.write_text(yaml.safe_dump({**document, "ssh": ssh}))
        done = distrun("launch", spec)
        assert done.returncode == 69, done.stderr
        assert "nowhere cannot be used" in done.stderr
        if pid.is_file() and pid.read_text():  # the machine let it come so far
            break
    assert not alive(int(pid.read_text()))
    ignored = int(distrun.cwd.joinpath("ignored").read_text().split()[1], 16)
    assert not ignored & 1 << signal.SIGHUP - 1, "one that does care would not hear it"

"""What ssh starts to get to a host: nothing of it is left where it gets nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import yaml


def test_a_proxy_that_hangs_is_ended_with_the_job(distrun: Any, tmp_path: Path):
    # ssh tells its proxy's command by SIGHUP that it is not needed; one here does not care.
    proxy = tmp_path / "proxy"
    proxy.write_text(
        "#!/bin/sh\n[ $1 = deaf ] && trap '' HUP TERM\n"
        f"[ $1 = polite ] && trap 'echo told > {tmp_path}/told; exit' HUP\n"
        f"echo $$ > {tmp_path}/$1\nsleep 1000 & wait\n"
    )
    proxy.chmod(0o755)
    document = {
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 2},
        "hosts": ["deaf", "polite"],
        "ssh": {
            "connect_timeout": "1s",
            "options": {"ProxyCommand": f"{proxy} %n"},
        },
        "program": {"command": ["true"]},
    }
    spec = tmp_path / "job.yaml"
    spec.write_text(yaml.safe_dump(document))
    done = distrun("launch", spec)
    assert done.returncode == 69, done.stderr
    assert "2 of 2 hosts cannot be used" in done.stderr
    assert not psutil.pid_exists(int(tmp_path.joinpath("deaf").read_text()))
    assert tmp_path.joinpath("told").read_text() == "told\n"

"""`program.preload` on other hosts, which have no distrun."""

from __future__ import annotations

from pathlib import Path

from harness.command import Distrun, recorded_events
from harness.network import Hosts, RemoteSpec

SCRIPT = """\
import os, slow, sys
print("forked" if slow.IMPORTED_BY != os.getpid() else "executed", flush=True)
sys.exit(3 if os.environ["DISTRUN_ATTEMPT"] == "0" and os.environ["DISTRUN_RANK"] == "1" else 0)
"""


def test_each_host_imports_once(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "main.py").write_text(SCRIPT)
    (folder / "slow.py").write_text("import os\nIMPORTED_BY = os.getpid()\n")
    keys = {"script": str(folder / "main.py"), "python": "python3", "preload": ["slow"]}
    restart = {"max": 1, "backoff": "50ms"}
    done = distrun("launch", remote_spec("", hosts(2), program=keys, restart=restart))
    assert done.returncode == 0, done.stderr
    logs = distrun("logs").stdout
    assert logs.count("forked") in (3, 4)  # worker:0 may be stopped before it prints
    assert "executed" not in logs
    kinds = [each["event"] for each in recorded_events(distrun)]
    assert kinds.count("TaskStarted") == 4
    assert "NotPreloaded" not in kinds

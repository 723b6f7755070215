"""The preparation of hosts that `plan` and `doctor` run in the command's own process."""

from __future__ import annotations

import subprocess
import sys

from harness.command import Distrun

INTERRUPTED = """
import sys
import psutil
from distrun.spec.loader import load
from distrun.supervisor.dry_run import make_plan
from distrun.supervisor.hosts.host import Host

send = Host.send_agent

def interrupt(host):
    send(host)
    print(len(psutil.Process().children()), "agent")
    raise KeyboardInterrupt

Host.send_agent = interrupt
try:
    make_plan(load(sys.argv[1]))
except KeyboardInterrupt:
    print(len(psutil.Process().children()), "left")
"""


def test_ctrl_c_while_hosts_are_being_connected_waits_for_their_agents(distrun: Distrun) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(distrun.write_spec("true", workers=1))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["1 agent", "0 left"], done.stderr

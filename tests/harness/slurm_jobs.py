"""Submitted jobs, as the login node shows them."""

from __future__ import annotations

import json
from typing import Any

from harness.command import Distrun
from harness.waiting import wait_until

SECONDS = 60.0
SAVES = """\
trap 'trap "" TERM; echo saved; exit 0' TERM
echo attempt $DISTRUN_ATTEMPT
[ $DISTRUN_ATTEMPT = 1 ] && exit
while true; do sleep 60 & wait; done
"""
"""It loops, since Slurm signals one process after another: `sleep` may end before the shell."""
"""How long a short job may take to get somewhere on a busy machine."""


def job_of(distrun: Distrun, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(distrun("status", job_id, "--json").stdout)["job"]
    return found


def wait_for(distrun: Distrun, job_id: str, state: str) -> dict[str, Any]:
    """Wait until the login node shows a job in a state; return the job."""
    found: dict[str, Any] = {}

    def is_there() -> bool:
        found.update(job_of(distrun, job_id))
        return bool(found["state"] == state)

    wait_until(is_there, SECONDS, f"{job_id} is {state}")
    return found

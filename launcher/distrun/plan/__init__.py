"""The plan: the spec with every host, port, command and variable decided.

Pure: it takes the hosts' facts and the ports that are held, and does no I/O. :func:`place` assigns
tasks to hosts, :func:`ports_needed` returns the ports to hold there, and :func:`make` decides the
rest. `distrun plan` shows the same object that `distrun launch` runs.
"""

from distrun.plan.facts import READ, HostFacts, visible_gpus
from distrun.plan.placement import (
    Placed,
    PortNeed,
    place,
    place_again,
    ports_needed,
    room_of_hosts,
    split_address,
)
from distrun.plan.tasks import GPUS, LARGEST_VARIABLE, Plan, TaskPlan, common_env, make

__all__ = [
    "GPUS", "LARGEST_VARIABLE", "READ", "HostFacts", "Placed", "Plan",
    "PortNeed", "TaskPlan", "common_env", "make", "place", "place_again", "ports_needed",
    "room_of_hosts", "split_address", "visible_gpus",
]  # fmt: skip

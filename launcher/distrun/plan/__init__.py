"""What will run where: the spec with every host, port, command and variable decided.

Pure: it is given what the hosts said and which ports are held, and does no I/O. In order:
:func:`place` lays tasks on hosts, :func:`ports_needed` says what to hold there, :func:`make`
decides the rest. `distrun plan` shows the very object that `distrun launch` runs.
"""

from distrun.plan.facts import READ, HostFacts
from distrun.plan.placement import Placed, PortNeed, place, ports_needed, split_address
from distrun.plan.proxies import PROXY_VARIABLES, proxy_use
from distrun.plan.tasks import LARGEST_VARIABLE, Plan, TaskPlan, make

__all__ = [
    "LARGEST_VARIABLE",
    "PROXY_VARIABLES",
    "READ",
    "HostFacts",
    "Placed",
    "Plan",
    "PortNeed",
    "TaskPlan",
    "make",
    "place",
    "ports_needed",
    "proxy_use",
    "split_address",
]

"""A plan without a launch: a real agent says what this machine has, and holds ports for it."""

from __future__ import annotations

import select
import tempfile
from typing import TYPE_CHECKING

from distrun import transport
from distrun.agent import wire
from distrun.errors import HostError
from distrun.supervisor.preparation import Preparation, refusal

if TYPE_CHECKING:
    from distrun.agent.wire import Message
    from distrun.plan import Plan
    from distrun.spec.model import Spec


def rehearse(spec: Spec) -> Plan:
    """The plan that a launch would run, but for the ports: those held here are let go again.

    Raises:
        HostError: a host or port cannot be had.
        InvalidSpecError: no plan can be made of the spec.
    """
    preparation = Preparation(spec)
    plan: Plan | None = None
    with tempfile.TemporaryDirectory(prefix="distrun-plan-") as folder:
        for host in preparation.hosts:
            link = transport.start_local_agent(host, "plan")
            try:
                plan = _ask(preparation, link, folder)
            finally:
                link.channel.close()
                link.process.wait()
    if plan is None:
        raise HostError("no host answered")
    return plan


def _ask(preparation: Preparation, link: transport.AgentLink, folder: str) -> Plan | None:
    channel = link.channel
    channel.send(wire.Configure(wire.PROTOCOL, "plan", folder, lease=0.0))
    while not channel.ended:
        select.select([channel.reader], [], [])
        for _, message in channel.receive():
            if isinstance(message, wire.Hello):
                channel.send(preparation.on_hello(link.host, message))
            else:
                return _conclude(preparation, link, message)
    raise HostError(f"{link.host} cannot be prepared: its agent ended")


def _conclude(preparation: Preparation, link: transport.AgentLink, message: Message) -> Plan | None:
    if isinstance(message, wire.PortsHeld):
        return preparation.on_ports(link.host, message)
    if isinstance(message, wire.PortsRefused):
        raise refusal(link.host, message)
    raise HostError(f"{link.host} cannot be prepared: {message}")

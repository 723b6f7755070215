"""Messages between supervisors and agents: made and read here, so that their form is known here."""

from collections.abc import Sequence

from distrun.agent import protocol
from distrun.agent.protocol import Hello, StartTask

PLAIN = protocol.Detach()
"""A message without any field."""


def hello(hostname: str, address: str = "", seen_from: str = "", gpus: Sequence[int] = ()) -> Hello:
    """What a host says first."""
    return Hello(1, hostname, "3.8.0", 1.0, list(gpus), 0.0, address=address, seen_from=seen_from)


def gpus_of(said: Hello) -> list[int]:
    return said.gpus


def port_of(order: StartTask) -> int:
    """The port that the agent is to watch; 0: none."""
    return order.port

"""Where the agent's process begins: descriptors out of the way, a guard, then the loop."""

from __future__ import annotations

import os
import signal
from typing import Callable, NoReturn

from distrun.agent.agent import Agent
from distrun.agent.linux import processes, syscalls
from distrun.agent.protocol import Order
from distrun.agent.protocol.channel import Channel
from distrun.agent.tasks import program
from distrun.agent.tasks.task import LEFTOVER_GRACE


def main() -> NoReturn:
    """Serve the supervisor on standard input and output; never returns.

    Two processes: a guard, whose only work begins when the agent below it dies, and the agent.
    Each notices the other's death, whatever kills it.
    """
    reader, writer = take_link()
    serve(lambda: Agent(Channel(reader, writer, Order)), reader, writer)


def serve(make: Callable[[], Agent], reader: int, writer: int) -> NoReturn:
    """Part into the guard and the agent that `make` makes of the link; never returns."""
    syscalls.become_subreaper()
    guard = os.getpid()
    agent = os.fork()
    if agent:
        os.close(reader)
        os.close(writer)
        _guard(agent)
    syscalls.die_with_parent(guard, signal.SIGTERM)
    syscalls.become_subreaper()
    program.raise_descriptor_limit()
    make().run()
    os._exit(0)


def take_link() -> "tuple[int, int]":
    """Move the link away from 0 and 1 before anything can print on it; nothing is inherited."""
    reader, writer = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the descriptor of the listing itself
    return reader, writer


def _guard(agent: int) -> NoReturn:
    """Wait for the agent; end what it left, if it left anything."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == agent:
            break
    processes.end_all(LEFTOVER_GRACE)
    if os.WIFSIGNALED(status):
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()

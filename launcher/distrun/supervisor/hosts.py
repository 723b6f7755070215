"""The job's hosts: an agent on each, what they report, and when they are gone."""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING

from distrun import transport
from distrun.agent import family, wire
from distrun.lifecycle import PROMPT_GRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distrun.agent.wire import Message
    from distrun.jobstore import JobFolder


class Hosts:
    """Links to the agents of one job.

    Args:
        on_report: called with a host's name and each message of its agent.
        on_gone: called with the name of a host whose agent has ended and how, once nothing of
            what it had started is left.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        folder: JobFolder,
        on_report: Callable[[str, Message], None],
        on_gone: Callable[[str, str], None],
    ) -> None:
        self._selector = selector
        self._folder = folder
        self._on_report = on_report
        self._on_gone = on_gone
        self._links: dict[str, transport.AgentLink] = {}

    @property
    def connected(self) -> list[str]:
        return list(self._links)

    def connect(self, hosts: Iterable[str]) -> None:
        """Start an agent on each; its Hello follows as a report."""
        for host in hosts:
            link = transport.start_local_agent(host, self._folder.job_id)
            self._links[host] = link
            self._selector.register(
                link.channel.reader, selectors.EVENT_READ, lambda each=link: self._receive(each)
            )
            # A local agent without its supervisor is to end at once: no lease.
            self.order(
                host,
                wire.Configure(
                    wire.PROTOCOL, self._folder.job_id, str(self._folder.logs), lease=0.0
                ),
            )

    def order(self, host: str, message: Message) -> None:
        """Send one agent an order; one that is gone by now gets none."""
        if host in self._links:
            self._links[host].channel.send(message)

    def order_all(self, message: Message) -> None:
        for host in self._links:
            self.order(host, message)

    def watch_writing(self) -> None:
        for link in self._links.values():
            link.channel.watch_writing(self._selector)

    def look_for_exits(self) -> None:
        """To be called when a child of this process has ended."""
        for link in list(self._links.values()):
            self._release_if_gone(link)

    def _receive(self, link: transport.AgentLink) -> None:
        try:
            messages = link.channel.receive()
        except wire.WireError as error:
            messages = [(0, wire.Fault(str(error), time.time()))]
            link.channel.ended = True
            link.channel.send(wire.Shutdown())
        last = 0
        for seq, message in messages:
            last = max(last, seq)
            self._on_report(link.host, message)
        if last:
            link.channel.send(wire.Ack(last))
        if link.channel.ended:
            self._selector.unregister(link.channel.reader)
            self._release_if_gone(link)

    def _release_if_gone(self, link: transport.AgentLink) -> None:
        if self._links.get(link.host) is not link:
            return
        if not link.channel.ended or not link.has_exited():
            return
        if link.channel.writer in self._selector.get_map():
            self._selector.unregister(link.channel.writer)
        link.channel.close()
        del self._links[link.host]
        # What a dead agent and its guard left have become children of this process.
        family.end_all(PROMPT_GRACE, {other.process.pid for other in self._links.values()})
        self._on_gone(link.host, link.death)

"""The job's hosts: an agent on each, what they report, and when they are gone."""

from __future__ import annotations

import selectors
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.linux import processes
from distrun.agent.protocol.channel import ProtocolError
from distrun.errors import HostError
from distrun.lifecycle import PROMPT_GRACE
from distrun.supervisor.hosts import local
from distrun.supervisor.hosts.shared_connections import is_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from distrun.agent.protocol import Order, Report
    from distrun.spec.model import HostSpec, Spec
    from distrun.supervisor.hosts.diagnosis import Diagnosis
    from distrun.supervisor.hosts.file_sender import Sender
    from distrun.supervisor.hosts.host import RemoteHost

_MOST_CONNECTING = 16
"""How many ssh clients may be connecting at a time; each takes 80 ms of a core here."""


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """What is called when something happens to a host, with its name first."""

    report: Callable[[str, Report], None]
    """A message of its agent."""
    gone: Callable[[str, str], None]
    """Its agent has ended, and how; nothing of what it had started is left."""
    unreachable: Callable[[dict[str, Diagnosis]], None]
    """Some hosts could not be reached: why, by name. Called once for all of them."""
    link_lost: Callable[[str, str], None]
    link_restored: Callable[[str], None]
    logs_incomplete: Callable[[str, str], None]
    """A gone host's logs are not all here, and why."""


class _Spared:
    """What is not ended with what hosts have left: these, and what is not the job's alone."""

    def __init__(self, pids: set[int]) -> None:
        self._pids = pids

    def __contains__(self, pid: object) -> bool:
        if pid in self._pids:
            return True
        return isinstance(pid, int) and is_shared(pid)


class Hosts:
    """Links to the agents of one job.

    Args:
        logs: the folder that the tasks' logs are in, or copied to.
        variables: those of other hosts' environments whose values are asked for.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        spec: Spec,
        job_id: str,
        logs: Path,
        variables: tuple[str, ...],
        callbacks: Callbacks,
    ) -> None:
        self._selector = selector
        self._spec = spec
        self._job_id = job_id
        self._logs = logs
        self._variables = variables
        self._callbacks = callbacks
        self._links: dict[str, local.AgentLink] = {}
        self._remotes: dict[str, RemoteHost] = {}
        self._agents: dict[str, int] = {}
        """The process ids of other hosts' agents, for people."""
        self._unreachable: dict[str, Diagnosis] = {}

    @property
    def connected(self) -> list[str]:
        return [*self._links, *self._remotes]

    def connect(self, hosts: Iterable[HostSpec]) -> None:
        """Start an agent on each; its Hello follows as a report."""
        for host in hosts:
            if host.is_local:
                self._connect_local(host.name)
            else:
                self._add_remote(host)
        self._fill_slots()

    def _connect_local(self, host: str) -> None:
        link = local.start_local_agent(host, self._job_id)
        self._links[host] = link
        self._selector.register(
            link.channel.reader, selectors.EVENT_READ, lambda: self._receive(link)
        )
        # A local agent without its supervisor is to end at once: no lease.
        self.order(
            host, protocol.Configure(protocol.PROTOCOL, self._job_id, str(self._logs), lease=0.0)
        )

    def order(self, host: str, message: Order) -> None:
        """Send one agent an order; one that is gone by now gets none."""
        if host in self._links:
            self._links[host].channel.send(message)
        elif host in self._remotes:
            self._remotes[host].order(message)

    def order_all(self, message: Order) -> None:
        for host in self.connected:
            self.order(host, message)

    def deliver(self, host: str, sender: Sender, listed: list[Order]) -> None:
        """Send another host the files that it lacks of those in the list."""
        remote = self._remotes.get(host)
        if remote is not None:
            remote.deliver(sender, listed)

    def give_up_lost(self) -> None:
        """Somebody who wants the job's end at once does not wait for hosts out of reach."""
        for remote in list(self._remotes.values()):
            remote.give_up(self._agents.get(remote.name))

    def wake(self) -> None:
        """Let this machine's agent go on where it was suspended: it could not end anything."""
        for link in self._links.values():
            processes.wake(link.process.pid)

    def watch_writing(self) -> None:
        for remote in list(self._remotes.values()):
            remote.send_files()
        for link in self._links.values():
            link.channel.watch_writing(self._selector)
        for remote in self._remotes.values():
            remote.watch_writing()

    def look_for_exits(self) -> None:
        """To be called when a child of this process has ended."""
        for link in list(self._links.values()):
            self._release_if_gone(link)
        for remote in list(self._remotes.values()):
            remote.look_for_exit()
        if self._remotes:
            # What ssh itself had started, a jump's ssh for one, ends after it.
            processes.reap(self._own_children())
        self._fill_slots()

    @property
    def next_due(self) -> float | None:
        """When :meth:`on_time` is to be called."""
        dues = [remote.next_due for remote in self._remotes.values()]
        return min((due for due in dues if due is not None), default=None)

    def on_time(self) -> None:
        if self._remotes:
            for remote in list(self._remotes.values()):
                remote.on_time()
            self._fill_slots()

    # This machine --------------------------------------------------------------------------

    def _receive(self, link: local.AgentLink) -> None:
        try:
            messages = link.channel.receive()
        except ProtocolError as error:
            messages = [(0, protocol.Fault(error.cause, time.time()))]
            link.channel.ended = True
            link.channel.send(protocol.Shutdown())
        last = 0
        for seq, message in messages:
            last = max(last, seq)
            self._callbacks.report(link.host, message)
        if last:
            link.channel.send(protocol.Ack(last))
        if link.channel.ended:
            self._selector.unregister(link.channel.reader)
            self._release_if_gone(link)

    def _release_if_gone(self, link: local.AgentLink) -> None:
        if self._links.get(link.host) is not link:
            return
        if not link.channel.ended or not link.has_exited():
            return
        if link.channel.writer in self._selector.get_map():
            self._selector.unregister(link.channel.writer)
        link.channel.close()
        del self._links[link.host]
        # What a dead agent and its guard left have become children of this process.
        processes.end_all(PROMPT_GRACE, _Spared(self._own_children()))
        self._callbacks.gone(link.host, link.death)

    def _own_children(self) -> set[int]:
        """The processes that stand for hosts, here."""
        found = {link.process.pid for link in self._links.values()}
        found |= {remote.pid for remote in self._remotes.values() if remote.pid is not None}
        return found

    # Other hosts ---------------------------------------------------------------------------

    def _add_remote(self, host: HostSpec) -> None:
        from distrun.supervisor.hosts.host import RemoteHost
        from distrun.supervisor.hosts.link import Listener

        listener = Listener(
            report=self._on_remote_report,
            unreachable=self._on_unreachable,
            lost=lambda remote, why: self._callbacks.link_lost(remote.name, why),
            restored=lambda remote: self._callbacks.link_restored(remote.name),
            gone=self._on_remote_gone,
        )
        remote = RemoteHost(
            host, self._spec, self._job_id, self._logs, self._variables, self._selector, listener
        )
        self._remotes[host.name] = remote

    def _fill_slots(self) -> None:
        """Connect those whose turn it is."""
        if not self._remotes:
            return
        free = _MOST_CONNECTING - sum(each.is_connecting for each in self._remotes.values())
        fresh = []
        for remote in list(self._remotes.values()):
            if free <= 0:
                break
            if remote.wants_to_rejoin:
                remote.rejoin()
            elif remote.wants_to_connect:
                remote.connect()
                fresh.append(remote)
            else:
                continue
            free -= remote.is_connecting
        for remote in fresh:
            remote.send_agent()

    def _on_remote_report(self, remote: RemoteHost, message: Report) -> None:
        from distrun.agent.protocol import LogEnded

        if isinstance(message, LogEnded):
            remote.copies.end(message.name, message.size)
            return
        if isinstance(message, protocol.Hello):
            self._agents[remote.name] = message.pid
        self._callbacks.report(remote.name, message)
        if isinstance(message, protocol.Hello):
            self._tell_unreachable()

    def _on_unreachable(self, remote: RemoteHost, why: Diagnosis) -> None:
        self._unreachable[remote.name] = why
        self._forget(remote)
        self._tell_unreachable()

    def _forget(self, remote: RemoteHost) -> None:
        """With the last one, what its ssh had started ends too: a proxy's command may hang."""
        del self._remotes[remote.name]
        if not self._remotes:
            processes.end_all(PROMPT_GRACE, _Spared(self._own_children()))

    def _tell_unreachable(self) -> None:
        """Once all have answered or failed: then all that failed is told at once."""
        if any(each.is_unanswered for each in self._remotes.values()):
            return
        if self._unreachable:
            found, self._unreachable = self._unreachable, {}
            self._callbacks.unreachable(found)

    def _on_remote_gone(self, remote: RemoteHost, how: str) -> None:
        self._forget(remote)
        failure = remote.copies.failure
        is_known = remote.has_said_farewell or remote.copies.are_whole
        if remote.copies.sizes and (remote.kept or not is_known):
            failure = failure or how
        if failure is not None:
            place = f"; all of them are in {remote.kept} on {remote.name}" if remote.kept else ""
            self._callbacks.logs_incomplete(remote.name, f"{failure}{place}")
        self._callbacks.gone(remote.name, how)


def unreachable_error(found: dict[str, Diagnosis], count: int) -> HostError:
    """Why a job of `count` hosts cannot be, for people."""
    if len(found) == 1:
        name, why = next(iter(found.items()))
        return HostError(f"{name} cannot be used: {why.reason}", hint=why.hint)
    lines = [f"  {name}: {why.reason}" for name, why in found.items()]
    hints = "\n".join(dict.fromkeys(why.hint for why in found.values()))
    text = "\n".join([f"{len(found)} of {count} hosts cannot be used", *lines])
    return HostError(text, hint=hints)

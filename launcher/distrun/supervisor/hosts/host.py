"""One host that is reached by ssh: its link, lost and come back, until its agent is gone.

    WAITING <-> CONNECTING -> UP <-> LOST <-> REJOINING        and from each to GONE

An agent that did not say farewell is gone only when somebody on its host says so, or when its
lease has run out: then nothing of its tasks is left.
"""

from __future__ import annotations

import random
import selectors
import time
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.protocol import EXIT_NO_AGENT, file_messages
from distrun.agent.protocol.channel import Channel, ProtocolError
from distrun.agent.protocol.framing import Damage
from distrun.agent.protocol.outbox import Outbox
from distrun.cli.cause_text import cause_text
from distrun.supervisor.hosts import bootstrap, ssh
from distrun.supervisor.hosts.diagnosis import (
    Diagnosis,
    diagnose,
    how_ssh_ended,
    how_the_agent_ended,
    may_pass,
)
from distrun.supervisor.hosts.link import LONGEST_PAUSE, LinkPhase, Pulse, now
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.reconnect import LOGIN_SECONDS, Attempts

if TYPE_CHECKING:
    from pathlib import Path

    from distrun.agent.protocol import Order, Report
    from distrun.spec.model import HostSpec, Spec
    from distrun.supervisor.hosts.file_sender import Sender
    from distrun.supervisor.hosts.link import Listener

_NO_AGENT = "distrun: its agent is gone"
_MOST_TRIES = 4
_PAUSE_BEFORE_A_TRY = 0.5
_EXIT_SECONDS = 5.0
_PARTING_SECONDS = 2.0
"""How long ssh may take to end once the agent has said goodbye: what a login profile has left in
the background holds it for as long as that runs."""
_SSH_FAILED = 255
_SILENCE = "no sign of life"
_NEEDLESS = "it is not needed any more"
_ENDED = "its agent ended"
_HEEDED_WHILE_CATCHING_UP = (protocol.Reattached, protocol.Heartbeat, protocol.AgentExiting)
_NO_ROOM_HINT = "make room there, or set XDG_STATE_HOME for its login to a folder on another disk"


class RemoteHost:
    """A host by its name in the spec.

    Args:
        folder: where copies of its logs go.
        variables: those whose values there are asked for.
    """

    def __init__(
        self,
        host: HostSpec,
        spec: Spec,
        job_id: str,
        folder: Path,
        variables: tuple[str, ...],
        selector: selectors.BaseSelector,
        listener: Listener,
    ) -> None:
        self.name = host.name
        self.phase = LinkPhase.WAITING
        self.copies = LogMirror(folder)
        self.kept = ""
        """The folder on the host that its agent left there, where it did."""
        self._settings = spec.ssh
        self._lease = spec.timeouts.link
        self._job_id = job_id
        self._variables = variables
        self._selector = selector
        self._listener = listener
        self._client: ssh.SshClient | None = None
        self._outbox: Outbox[protocol.Order] = Outbox()
        self._sender: Sender | None = None
        self._last_report = 0
        self._door = ""
        self._has_said_farewell = False
        self._is_needless = False
        self._shutdown: protocol.Shutdown | None = None
        """The last that was ordered."""
        self._pulse = Pulse(spec.timeouts.link)
        self._turn = 0
        """How often the agent was asked for what it had said and noise had come into."""
        self._is_catching_up = False
        """Whether what comes is left out until it has answered that."""
        self._due: float | None = None
        """When the present phase is to end, see :meth:`on_time`."""
        self._mark = b""
        self._tries = 0
        self._attempts = Attempts(spec.ssh.connect_timeout, spec.timeouts.link)
        self._why = ""
        """Why the link is lost, or could not be taken up again."""
        self._death = ""
        """How the agent ended, where it did so without a farewell."""

    # What others want of it ----------------------------------------------------------------

    def connect(self) -> None:
        """Begin to reach it; :meth:`send_agent` is to follow."""
        self._tries += 1
        self._is_catching_up = False
        patience = self._settings.connect_timeout
        try:
            self._mark = self._open(LinkPhase.CONNECTING, patience, patience + LOGIN_SECONDS)
        except OSError as error:
            why = f"ssh cannot be started: {error.strerror}"
            self._give_up(Diagnosis(why, "install OpenSSH's client"))

    def send_agent(self) -> None:
        """Send it down the new connection.

        Whoever makes many connections first makes them all: ssh needs time for its own part, and
        so does putting together what is sent.
        """
        channel = self._channel
        if channel is None:
            return
        channel.send_bytes(bootstrap.agent(self._mark))
        channel.send(
            protocol.Configure(
                protocol.PROTOCOL, self._job_id, "", self._lease, self.name, self._variables
            )
        )

    def order(self, message: Order) -> None:
        """Send an order; while the link is lost it waits, and none is ever obeyed twice."""
        if isinstance(message, protocol.StartTask):
            self.copies.expect(message.log)
        elif isinstance(message, protocol.Shutdown):
            message = self._shutdown = protocol.Shutdown(keep=self.copies.failure is not None)
        number = self._outbox.add(message)
        if self.phase in (LinkPhase.CONNECTING, LinkPhase.UP) and self._channel is not None:
            self._channel.send(message, number)
        if isinstance(message, protocol.Shutdown):
            self._on_shutdown()

    def _on_shutdown(self) -> None:
        """Where nothing was started, little is waited for."""
        if self.copies.sizes:
            return
        self._is_needless = True
        if self.phase in (LinkPhase.CONNECTING, LinkPhase.UP):
            self._due = now() + _EXIT_SECONDS
        else:
            self._go(_NEEDLESS)

    def give_up(self, agent: int | None) -> None:
        """Wait no longer for one that is out of reach and would go on for ever."""
        if self._lease is None and self.phase in (LinkPhase.LOST, LinkPhase.REJOINING):
            # Its agent's guard ends all that it had started.
            how = "" if agent is None else f", with kill -9 {agent}, its agent"
            why = "it is out of reach, and its tasks go on (timeouts.link: off): end them there"
            self._go(f"{why}{how}")

    @property
    def has_said_farewell(self) -> bool:
        """Whether its agent ended in order, all that it had to say being said."""
        return self._has_said_farewell

    @property
    def pid(self) -> int | None:
        return None if self._client is None else self._client.process.pid

    @property
    def is_connecting(self) -> bool:
        return self.phase in (LinkPhase.CONNECTING, LinkPhase.REJOINING)

    @property
    def is_unanswered(self) -> bool:
        """Whether it is not known yet if it can be reached."""
        return self.is_connecting or self.phase is LinkPhase.WAITING

    @property
    def wants_to_connect(self) -> bool:
        """Whether :meth:`connect` is to be called as soon as there is a slot for it."""
        return self.phase is LinkPhase.WAITING and (self._due is None or self._due <= now())

    @property
    def wants_to_rejoin(self) -> bool:
        """Whether :meth:`rejoin` is."""
        return self.phase is LinkPhase.LOST and _is_over(self._due, now())

    @property
    def next_due(self) -> float | None:
        """When :meth:`on_time` is to be called."""
        if self.phase is LinkPhase.GONE:
            return None
        if self._has_said_farewell:
            return self._due
        # One that waits for a slot has to wait for something else to happen.
        dues = [] if self.wants_to_connect or self.wants_to_rejoin else [self._due]
        if self.phase is LinkPhase.UP:
            dues.append(self._pulse.silent_at)
        if self.phase in (LinkPhase.UP, LinkPhase.LOST, LinkPhase.REJOINING):
            dues.append(self._pulse.ends_at)
        return min((due for due in dues if due is not None), default=None)

    def on_time(self) -> None:
        """Do what is due; a lost link is taken up again by :meth:`rejoin`."""
        time_is = now()
        if self.phase is LinkPhase.GONE:
            return
        if self._has_said_farewell:
            if _is_over(self._due, time_is):
                self._go(_ENDED)
        elif _is_over(self._pulse.ends_at, time_is):
            self._go(f"{_SILENCE} for {self._lease:g} s (timeouts.link){self._because}")
        elif self.phase is LinkPhase.UP and _is_over(self._pulse.silent_at, time_is):
            self._lose(_SILENCE)
        elif _is_over(self._due, time_is):
            if self.phase is LinkPhase.CONNECTING:
                self._fail(None)
            elif self.phase is LinkPhase.REJOINING:
                self._try_later("no answer to ssh")
            elif self.phase is LinkPhase.UP:
                self._lose("ssh does not end")

    def rejoin(self) -> None:
        """Try to take the lost link up again."""
        how = self._attempts
        try:
            mark = self._open(LinkPhase.REJOINING, how.patience, how.limit, is_apart=how.is_apart)
        except OSError as error:
            self._try_later(f"ssh cannot be started: {error.strerror}")
            return
        if self._client is not None:
            self._client.channel.send_bytes(bootstrap.knock(mark, self._door))
            self._ask_again(self._client)

    def deliver(self, sender: Sender, listed: list[Order]) -> None:
        """Give it the list of the program's files; what it lacks of them is sent as it asks."""
        self._sender = sender
        for part in listed:
            self.order(part)

    def send_files(self) -> None:
        """Send as much of the files as the link takes now."""
        sender, channel = self._sender, self._channel
        if sender is None or channel is None or self.phase is not LinkPhase.UP:
            return
        sender.send(channel)
        if sender.failure is not None:
            self._sender = None
            self._listener.report(self, file_messages.FilesRefused(sender.failure, time.time()))

    def watch_writing(self) -> None:
        if self._channel is not None:
            self._channel.watch_writing(self._selector)

    def look_for_exit(self) -> None:
        """To be called when a child of this process has ended."""
        client = self._client
        if client is not None and client.channel.ended and client.has_exited:
            self._on_exit(client)

    # The client ----------------------------------------------------------------------------

    @property
    def _channel(self) -> Channel[protocol.Report, protocol.Order] | None:
        return None if self._client is None else self._client.channel

    def _open(
        self, phase: LinkPhase, patience: float, limit: float, *, is_apart: bool = False
    ) -> bytes:
        mark = ssh.new_mark()
        alive = max(1, round((self._lease or LONGEST_PAUSE * 4) / 4))
        argv = ssh.ssh_argv(self.name, self._settings, alive, patience, is_apart=is_apart)
        client = ssh.open_link(argv, mark, self._job_id)
        self._client = client
        self.phase = phase
        self._due = now() + limit
        self._selector.register(
            client.channel.reader, selectors.EVENT_READ, lambda: self._on_readable(client)
        )
        self._selector.register(
            client.complaints, selectors.EVENT_READ, lambda: self._on_complaint(client)
        )
        return mark

    def _close_client(self) -> None:
        client, self._client = self._client, None
        if self._sender is not None:
            self._sender.pause()
        if client is None:
            return
        client.kill()
        for descriptor in (client.channel.reader, client.channel.writer, client.complaints):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        client.close()

    def _on_complaint(self, client: ssh.SshClient) -> None:
        if not client.read_complaints():
            self._selector.unregister(client.complaints)
        # Its end is not waited for: what a login profile has left in the background may hold it.
        if self.phase is LinkPhase.REJOINING and _NO_AGENT in client.said:
            self._go_without_agent()

    def _on_readable(self, client: ssh.SshClient) -> None:
        try:
            messages = client.channel.receive()
        except ProtocolError as error:
            self._listener.report(self, protocol.Fault(error.cause, time.time()))
            self._lose(cause_text(error.cause))
            return
        self._take(client, messages)
        if client is self._client and client.channel.ended:
            self._selector.unregister(client.channel.reader)
            if not self._has_said_farewell:
                self._due = now() + _EXIT_SECONDS
            self.look_for_exit()

    def _on_exit(self, client: ssh.SshClient) -> None:
        client.read_complaints()
        status = client.process.returncode
        if self._has_said_farewell:
            self._go(_ENDED)
        elif self.phase is LinkPhase.CONNECTING:
            if self._tries < _MOST_TRIES and may_pass(status, client.said):
                self._wait_to_try_again()
            else:
                self._fail(status)
        elif self.phase is LinkPhase.UP:
            if 0 <= status != _SSH_FAILED:
                self._death = how_the_agent_ended(status, client.said)
            self._lose(self._death or how_ssh_ended(status, client.said))
        elif status == EXIT_NO_AGENT:
            self._go_without_agent()
        else:
            self._try_later(how_ssh_ended(status, client.said))

    def _go_without_agent(self) -> None:
        self._go(
            self._death
            or f"its agent is gone{self._because}: the host was restarted, or out of reach for "
            "longer than timeouts.link"
        )

    # Messages ------------------------------------------------------------------------------

    def _take(self, client: ssh.SshClient, messages: list[tuple[int, Report]]) -> None:
        last = written = 0
        for number, message in messages:
            if isinstance(message, Damage):
                self._ask_again(client)
            if self._is_catching_up and not isinstance(message, _HEEDED_WHILE_CATCHING_UP):
                continue
            if isinstance(message, protocol.LogData):
                if self.copies.write(message):
                    written += len(message.data) + protocol.LOG_OVERHEAD
            elif number == 0 or number > self._last_report:
                self._last_report = max(self._last_report, number)
                self._take_one(client, message)
            last = max(last, number)
            if client is not self._client:
                return
        if last:
            client.channel.send(protocol.Ack(last))
        if written:
            client.channel.send(protocol.LogReceived(written))
        self._wait_for_no_lost_logs()

    def _wait_for_no_lost_logs(self) -> None:
        """Have an agent that only waits for its logs to be taken leave them there, and end."""
        ordered = self._shutdown
        if ordered is not None and not ordered.keep and self.copies.failure is not None:
            self.order(protocol.Shutdown())

    def _take_one(self, client: ssh.SshClient, message: Report) -> None:
        if isinstance(message, protocol.Heartbeat):
            self._pulse.beat()
            client.channel.send(protocol.HeartbeatAck(message.number))
        elif isinstance(message, protocol.Ack):
            self._outbox.acknowledge(message.last)
        elif isinstance(message, protocol.Reattached):
            self._on_attached(client, message)
        elif isinstance(message, protocol.AgentExiting):
            self._has_said_farewell = True
            self._due = now() + _PARTING_SECONDS
            self.kept = message.kept
        elif isinstance(message, protocol.Fault) and self.phase is LinkPhase.CONNECTING:
            self._give_up(Diagnosis(cause_text(message.cause), _NO_ROOM_HINT))
        else:
            if isinstance(message, protocol.Hello):
                self._door = message.token
                self._be_up()
                self._follow_logs()
            elif isinstance(message, file_messages.FilesRequested) and self._sender is not None:
                self._sender.resume(message)
            elif isinstance(message, file_messages.FileDataReceived) and self._sender is not None:
                self._sender.have_taken(message.size)
            elif isinstance(message, file_messages.FilesRefused):
                self._sender = None
            self._listener.report(self, message)

    def _be_up(self) -> None:
        self.phase = LinkPhase.UP
        if self._client is not None:
            self._client.forget_complaints()
        self._pulse.beat()
        self._due = now() + _EXIT_SECONDS if self._is_needless else None
        self._why = ""

    def _ask_again(self, client: ssh.SshClient) -> None:
        """Have the agent say again what it said behind the last that came whole."""
        self._turn += 1
        self._is_catching_up = True
        if self._sender is not None:
            self._sender.pause()
        again = protocol.Reattach(protocol.PROTOCOL, self._job_id, self._last_report, self._turn)
        client.channel.send(again)

    def _on_attached(self, client: ssh.SshClient, message: protocol.Reattached) -> None:
        if message.turn != self._turn:
            return
        self._is_catching_up = False
        was_lost = self.phase is LinkPhase.REJOINING
        if was_lost:
            self._be_up()
        self._outbox.acknowledge(message.last)
        self._follow_logs()
        for number, order in self._outbox.after(message.last):
            client.channel.send(order, number)
        if was_lost:
            self._listener.restored(self)

    def _follow_logs(self) -> None:
        if self.phase is LinkPhase.UP and self._client is not None:
            have, window = self.copies.sizes, self._client.window
            self._client.channel.send(protocol.FollowLogs(have, window))

    # Ends ----------------------------------------------------------------------------------

    @property
    def _because(self) -> str:
        return f"; {self._why}" if self._why not in ("", _SILENCE) else ""

    def _lose(self, why: str) -> None:
        if self._has_said_farewell or self._is_needless:
            self._go(_ENDED if self._has_said_farewell else _NEEDLESS)
            return
        self._close_client()
        self._why = why
        self._attempts.on_loss(was_silent=why == _SILENCE)
        self.phase = LinkPhase.LOST
        self._due = now()
        self._listener.lost(self, why)

    def _try_later(self, why: str) -> None:
        self._close_client()
        self._why = why
        self.phase = LinkPhase.LOST
        self._due = now() + self._attempts.on_failure()

    def _wait_to_try_again(self) -> None:
        if self._is_needless:
            self._go(_NEEDLESS)
            return
        self._close_client()
        self.phase = LinkPhase.WAITING
        # Those that were turned away together are not to come back together.
        pause = _PAUSE_BEFORE_A_TRY * 2 ** (self._tries - 1)
        self._due = now() + random.uniform(pause / 2, pause * 3 / 2)  # noqa: S311 - no secret

    def _fail(self, status: int | None) -> None:
        if self._is_needless:
            self._go(_NEEDLESS)
            return
        client = self._client
        said = client.said if client is not None else ""
        noise = client.channel.noise if client is not None else b""
        seconds = self._settings.connect_timeout + LOGIN_SECONDS
        self._give_up(diagnose(self.name, self._settings, status, said, noise, seconds))

    def _give_up(self, found: Diagnosis) -> None:
        self._close_client()
        self.phase = LinkPhase.GONE
        self._listener.unreachable(self, found)

    def _go(self, how: str) -> None:
        self._close_client()
        self.phase = LinkPhase.GONE
        self._listener.gone(self, how)


def _is_over(due: float | None, time_is: float) -> bool:
    return due is not None and due <= time_is

"""The agent on a host that is reached by ssh: it outlives a lost link, and sends its logs.

What tells the two deaths apart: when the launching side is gone, ssh ends this side's standard
input and leaves standard output open; when the link is gone, sshd ends both.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
from typing import TYPE_CHECKING, List, NoReturn, Optional, Tuple, Union

from distrun.agent import agent_dir
from distrun.agent.agent import Agent
from distrun.agent.lease import Lease
from distrun.agent.linux import processes
from distrun.agent.logs.index import LogIndexer, index_of
from distrun.agent.logs.streamer import LogStreamer
from distrun.agent.main import serve, take_link
from distrun.agent.protocol import (
    Ack,
    AgentExiting,
    Cause,
    Code,
    Configure,
    FollowLogs,
    HeartbeatAck,
    Hello,
    LogEnded,
    LogReceived,
    Order,
    Reattach,
    Reattached,
    Report,
    Shutdown,
    StartTask,
)
from distrun.agent.protocol.channel import Channel
from distrun.agent.protocol.file_messages import FileData, FileList
from distrun.agent.protocol.framing import ChecksummedSender
from distrun.agent.reattach import Door, Presence, take_over
from distrun.agent.tasks.task import LEFTOVER_GRACE, Task

if TYPE_CHECKING:
    from distrun.agent.files.receiver import FileReceiver

_STAY_SECONDS = 86400.0
_SETTLING = 0.2
"""Seconds after the end of standard input in which standard output may end as well."""


def main(mark: bytes) -> NoReturn:
    """Leave sshd's session and serve the link; the process sshd knows waits for the end."""
    front = os.fork()
    if front:
        _stand_for(front)
    os.setsid()
    presence = Presence()
    reader, writer = take_link()
    os.write(writer, mark)
    serve(lambda: RemoteAgent(ChecksummedSender(reader, writer), presence.token), reader, writer)


def _stand_for(guard: int) -> NoReturn:
    """Be what sshd takes for the command: it would close the link if that ended."""
    os.close(0)
    os.close(1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(guard, 0)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


class RemoteAgent(Agent):
    """An agent whose link may be lost and come back."""

    def __init__(self, channel: Channel[Order, Report], token: str) -> None:
        super().__init__(channel)
        self._door = Door(token)
        self._lease_left: Optional[Lease] = None
        self._shipper: Optional[LogStreamer] = None
        self._taker: Optional[FileReceiver] = None
        self._stay_due: Optional[float] = None
        self._visitor: Optional[socket.socket] = None
        """Who handed over the present link; it waits for its end."""
        self._obeyed = 0
        self._settled: Optional[float] = None
        """When it is to be decided what the end of standard input means."""
        self._is_forsaken = False
        """Whether nobody will take the logs any more."""
        self._keeps_logs = False
        """Whether the launching side could not take them all, and has said so."""
        self._selector.register(self._door, selectors.EVENT_READ, self._on_knock)

    def run(self) -> None:
        super().run()
        if self._visitor is not None:
            self._visitor.close()

    def _has_work(self) -> bool:
        if super()._has_work():
            return True
        return not self._is_forsaken and self._shipper is not None and not self._shipper.is_done

    def _say_last(self) -> None:
        is_done = self._shipper is None or self._shipper.is_done
        has_all_logs = is_done and not self._keeps_logs
        is_empty = self._taker is None or self._taker.leave()
        if self._folder and has_all_logs and is_empty:
            agent_dir.leave(self._folder)
        self._channel.send(AgentExiting("" if has_all_logs else self._folder))
        super()._say_last()

    # Time ----------------------------------------------------------------------------------

    def _dues(self) -> List[Optional[float]]:
        dues = [*super()._dues(), self._settled, self._stay_due]
        if self._leaving is not None and not processes.children(os.getpid()):
            # Nothing is left to be killed; what is waited for are logs on their way.
            dues.remove(self._leaving)
        if self._taker is not None and self._taker.has_work and self._leaving is None:
            dues.append(self._clock())
        lease = self._lease_left
        if lease is not None:
            now = self._clock()
            if self._is_linked:
                dues.append(now + lease.until_beat)
            if lease.remaining is not None:
                dues.append(now + lease.remaining)
        return dues

    def _on_time(self) -> None:
        super()._on_time()
        lease = self._lease_left
        if self._settled is not None and self._settled <= self._clock():
            self._settle()
        if self._stay_due is not None and self._stay_due <= self._clock():
            self._stay_due += _STAY_SECONDS
            agent_dir.stay(self._folder)
        if lease is not None:
            if lease.remaining is not None and lease.remaining <= 0:
                self._on_lease_over(lease)
            else:
                self._beat_if_due()
        if self._taker is not None and self._leaving is None:
            self._taker.work(self._channel if self._is_linked else None)
        if self._shipper is not None and self._is_linked:
            self._shipper.send(self._channel)

    def _beat_if_due(self) -> None:
        lease = self._lease_left
        if lease is not None and lease.until_beat <= 0 and self._is_linked:
            self._channel.send(lease.beat())

    @property
    def _is_linked(self) -> bool:
        """Whether there is a link that may be written to."""
        return not self._channel.broken and self._settled is None

    def _on_lease_over(self, lease: Lease) -> None:
        """A launching side that was only slow gets to hear why its tasks ended."""
        if not self._is_forsaken:
            self._report_fault(Cause(Code.LEASE_EXPIRED, seconds=self._lease or 0.0))
        self._forsake(lease.grace)

    def _forsake(self, grace: float = LEFTOVER_GRACE) -> None:
        """Nobody will come back: end everything."""
        self._is_forsaken = True
        self._leave(grace)

    # The link ------------------------------------------------------------------------------

    def _on_link_lost(self) -> None:
        self._settled = self._clock() + _SETTLING

    def _settle(self) -> None:
        self._settled = None
        is_lost = self._channel.broken or _is_broken(self._channel.writer)
        if is_lost and self._lease_left is not None:
            self._let_go()
        else:
            # Somebody hears it only where sshd's end of this host's link was killed.
            self._report_fault(Cause(Code.LINK_CLOSED))
            self._forsake()

    def _let_go(self) -> None:
        """Forget the present link; the lease goes on."""
        channel, self._settled = self._channel, None
        for descriptor in {channel.reader, channel.writer}:
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        if not (channel.ended and channel.broken):
            channel.close()
        if self._visitor is not None:
            self._visitor.close()
            self._visitor = None
        if self._lease_left is not None:
            self._lease_left.forget_sent()
        self._pause()

    def _pause(self) -> None:
        """Have it said anew what is lacking on either side: of logs here, of files there."""
        if self._shipper is not None:
            self._shipper.pause()
        if self._taker is not None:
            self._taker.pause()

    def _on_knock(self) -> None:
        visitor = self._door.accept()
        if visitor is not None:
            self._selector.register(
                visitor, selectors.EVENT_READ, lambda: self._on_visitor(visitor)
            )

    def _on_visitor(self, visitor: socket.socket) -> None:
        self._selector.unregister(visitor)
        link = take_over(visitor)
        if link is None:
            visitor.close()
            return
        self._let_go()
        self._visitor = visitor
        self._channel = ChecksummedSender(*link)
        self._selector.register(self._channel.reader, selectors.EVENT_READ, self._on_link)

    def _obey_all(self, orders: List[Tuple[int, Order]]) -> None:
        last = 0
        for number, order in orders:
            # An order may come twice: before a link was lost, and after it.
            if number and number <= self._obeyed:
                continue
            if number:
                self._obeyed = last = number
            self._obey(order)
        if last:
            self._channel.send(Ack(last))

    def _obey(self, order: Order) -> None:
        if isinstance(order, Reattach):
            # Also on a link that goes on: noise had come into what was sent.
            self._pause()
            self._channel.send(Reattached(self._obeyed, order.turn))
        if isinstance(order, HeartbeatAck):
            if self._lease_left is not None:
                self._lease_left.echoed(order.number)
        elif isinstance(order, FollowLogs):
            if self._shipper is not None:
                self._shipper.resume(order)
        elif isinstance(order, (FileList, FileData)):
            self._take_files(order)
        elif isinstance(order, LogReceived):
            if self._shipper is not None:
                self._shipper.taken(order.size)
        else:
            if isinstance(order, Shutdown) and order.keep:
                self._is_forsaken = self._keeps_logs = True
            super()._obey(order)

    # The job -------------------------------------------------------------------------------

    def _configure(self, order: Configure) -> None:
        try:
            self._folder = agent_dir.settle(order.job_id, order.host)
        except agent_dir.NoRoomError as error:
            self._report_fault(error.cause)
            self._forsake()
            return
        self._stay_due = self._clock() + _STAY_SECONDS
        self._lease_left = Lease(order.lease, LEFTOVER_GRACE)
        super()._configure(order)

    def _open_logs(self, order: Configure) -> LogIndexer:  # noqa: ARG002 - the folder is chosen here
        self._shipper = LogStreamer(self._folder)
        return LogIndexer(self._clock, self._on_log_growth)

    def _on_log_growth(self, path: str) -> None:
        if self._shipper is not None:
            # In this order: who follows the copy has to know when what comes was written.
            self._shipper.has_grown(index_of(path))
            self._shipper.has_grown(path)

    def _take_files(self, order: Union[FileList, FileData]) -> None:
        if self._taker is None:
            # Most of what it imports, no other agent needs: it would start later for it.
            from distrun.agent.files.receiver import FileReceiver

            self._taker = FileReceiver(self._folder, self._report, self._beat_if_due)
        self._taker.obey(order, self._channel)

    def _hello(self, order: Configure) -> Hello:
        there, here = ends_of_connection(os.environ.get("SSH_CONNECTION", ""))
        return (
            super()
            ._hello(order)
            ._replace(
                address=here,
                seen_from=there,
                door=self._door.token,
                folder=self._folder,
                files=agent_dir.copy_of(self._folder),
            )
        )

    def _forget(self, task: Task) -> None:
        super()._forget(task)
        with contextlib.suppress(OSError):
            size = os.stat(task.log).st_size
            self._report(LogEnded(os.path.basename(task.log), size))

    def _start(self, order: StartTask) -> None:
        if self._shipper is not None:
            log = os.path.join(self._folder, order.log)
            self._shipper.add(index_of(log))
            self._shipper.add(log)
        super()._start(order)


def ends_of_connection(connection: str) -> Tuple[str, str]:
    """The client's address and this host's, in what sshd says; '' for what it does not know.

    It says client's address, its port, this host's address, its port; UNKNOWN for an address
    where it was given a pipe (`sshd -i` as the end of a ProxyCommand).
    """
    words = connection.split()
    there, here = (words[0], words[2]) if len(words) == 4 else ("", "")
    return (there if _is_address(there) else "", here if _is_address(here) else "")


def _is_address(text: str) -> bool:
    processes = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        socket.inet_pton(processes, text.partition("%")[0])
    except OSError:
        return False
    return True


def _is_broken(descriptor: int) -> bool:
    """Whether nobody reads any more what is written there."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))

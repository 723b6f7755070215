"""The entry points of the agent's process, one for each kind of link."""

from __future__ import annotations

import gc
import io
import os
import signal
import socket
from typing import Callable, List, NoReturn, Optional, Tuple

from distrun.agent.agent import Agent
from distrun.agent.link import Link
from distrun.agent.linux import labels, private_dir, processes, syscalls
from distrun.agent.protocol import KILL_GRACE, Order
from distrun.agent.protocol.channel import Channel


def main() -> NoReturn:
    """Serve a supervisor on standard input and output, a link that never comes back.

    Nothing else may print on it. Two processes remain: the agent, and its parent, the guard, which
    ends the agent's processes if the agent dies. Each notices the other's death.
    """
    reader, writer = move_stdio()
    _serve(lambda _: Agent(Link(Channel(reader, writer, Order))), reader, writer, syscalls.timer())


def main_over_ssh(
    mark: bytes, digest: str = "", modules: bytes = b"", in_pod: bool = False
) -> NoReturn:
    """Serve a supervisor over ssh: the link may be lost and restored, and others may print on it.

    The agent leaves sshd's session. One process stays there until nothing of the job is left,
    because sshd closes the connection when the command that it started ends. It stands by for the
    guard.

    `mark` is written first, so that the supervisor finds it in the output of the login. The host is
    to keep `modules`, the agent's own, with that digest. `in_pod`: kubectl has started it: then the
    end of standard input says only that the link is lost, and process 1 gets a signal at the end.
    """
    from distrun.agent.protocol.channel import ChecksummedSender
    from distrun.agent.reattach import LivenessSocket, ReattachListener

    private_dir.is_alone = in_pod
    lease_timer = syscalls.timer()
    liveness = LivenessSocket()
    agent, ours = os.pipe()
    strangers = processes.children(os.getpid())
    syscalls.become_subreaper()
    guard = os.fork()
    if guard:
        os.close(ours)
        _stand_by(guard, lease_timer, agent, strangers, in_pod)
    os.setsid()
    os.close(agent)
    reader, writer = move_stdio()
    os.write(writer, mark)

    def make(lease_timer: int) -> Agent:
        os.write(ours, str(os.getpid()).encode("ascii"))
        listener = ReattachListener(liveness.token, ChecksummedSender)
        channel = ChecksummedSender(reader, writer)
        link = Link(channel, listener, lease_timer, end_is_loss=in_pod)
        addresses = connection_addresses(os.environ.get("SSH_CONNECTION", ""))
        return Agent(link, addresses, digest, modules)

    _serve(make, reader, writer, lease_timer)


def move_stdio() -> Tuple[int, int]:
    """Move the link away from descriptors 0 and 1, so that nothing prints on it or inherits it."""
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the descriptor of the listing itself
    return reader, writer


def _serve(make: Callable[[int], Agent], reader: int, writer: int, lease_timer: int) -> NoReturn:
    """Fork into the guard and the agent that `make` returns; never returns.

    They share a timer, which `make` gets. The agent sets it to the end of its lease.
    """
    syscalls.become_subreaper()
    guard = os.getpid()
    gc.freeze()  # the two share most of their memory
    try:
        agent = os.fork()
    except OSError as error:
        os._exit(error.errno or 1)
    if agent:
        os.close(reader)
        os.close(writer)
        _guard(agent, lease_timer)
    syscalls.die_with_parent(guard, signal.SIGTERM)
    syscalls.become_subreaper()
    syscalls.raise_descriptor_limit()
    make(lease_timer).run()
    os._exit(0)


def _guard(agent: int, lease_timer: int) -> NoReturn:
    """Wait for the agent, then end the processes that it left, if any."""
    wakeup = _ignore_signals()
    status, grace = _watch(agent, lease_timer, wakeup)
    processes.Ending(grace, is_own=labels.runs_no_task).run()
    _exit_like(status)


def _stand_by(
    guard: int, lease_timer: int, agent: int, strangers: List[int], in_pod: bool
) -> NoReturn:
    """Wait until the guard and everything below it has ended, and exit as the guard did.

    If somebody kills the guard, this process takes its place. `agent` is a pipe with the agent's
    id, and `strangers` are the children that the profile of the login has started.
    """

    def is_stranger(pid: int) -> bool:
        """Whether the profile has left it: all orphans below this process become its children."""
        process = processes.find(pid)
        if process is None or pid in strangers:
            return True
        return process.session != guard and labels.read(pid) is None

    os.close(0)
    os.close(1)
    wakeup = _ignore_signals()
    status = _wait(guard) or 0
    pid, grace = int(os.read(agent, 20) or 0), KILL_GRACE
    if pid in processes.children(os.getpid()):
        grace = _watch(pid, lease_timer, wakeup)[1]
    left = processes.descendants
    processes.Ending(grace, lambda: left(is_stranger), is_own=labels.runs_no_task).run()
    if in_pod and status == 0:
        os.kill(1, signal.SIGUSR1)
    _exit_like(status)


def _ignore_signals() -> io.FileIO:
    """Ignore what ends the agent or the session; returns a pipe for the ends of children."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    return syscalls.signal_pipe((signal.SIGCHLD,))


def _watch(agent: int, lease_timer: int, wakeup: io.FileIO) -> Tuple[int, float]:
    """Wait for the agent, or for the end of its lease. A stopped agent is resumed.

    Returns its status, and the grace for what it has left: none at the end of its lease.
    """
    while (status := _wait(agent, os.WNOHANG)) is None:
        if lease_timer in syscalls.wait_until_ready([lease_timer, wakeup.fileno()]):
            # Without children, it is only slow to end, or hangs and does no harm.
            return (signal.SIGKILL if processes.children(agent) else _wait(agent) or 0), 0.0
        wakeup.read(4096)
    return status, KILL_GRACE


def _wait(child: int, options: int = 0) -> Optional[int]:
    """Wait for the end of a child, and resume it if it is stopped. None with WNOHANG: it lives."""
    while True:
        pid, status = os.waitpid(child, options | os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status if pid else None
        os.kill(pid, signal.SIGCONT)


def _exit_like(status: int) -> NoReturn:
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def connection_addresses(connection: str) -> Tuple[str, str]:
    """The client's address and this host's, from SSH_CONNECTION; '' for one that it lacks."""
    words = connection.split()
    client, own = (words[0], words[2]) if len(words) == 4 else ("", "")
    return (client if _is_address(client) else "", own if _is_address(own) else "")


def _is_address(text: str) -> bool:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        socket.inet_pton(family, text.partition("%")[0])
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()

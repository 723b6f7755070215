"""Ends what an earlier agent of a job has left on a host, and sends the rest of its logs.

A supervisor runs this over a login of its own. It is sent only then.
"""

from __future__ import annotations

import array
import contextlib
import os
import shutil
import socket
import time
from typing import Dict, List, NoReturn, Optional, Tuple

from distrun.agent import main as agent_main
from distrun.agent import orphans, protocol, reattach
from distrun.agent.files import staged_tree
from distrun.agent.linux import job_processes, labels, processes, syscalls
from distrun.agent.linux.regular import open_regular
from distrun.agent.protocol.channel import ChecksummedSender, encode
from distrun.agent.protocol.file_messages import FilesPreserved

_BLOCK = 64 * 1024
_DISMISSAL_SECONDS = 10.0
_ANSWER_SECONDS = 30.0


def main(
    mark: bytes,
    token: str,
    traces: Tuple[str, str, Dict[int, Tuple[str, int, float]], str, Tuple[str, int]],
    folder: str,
    have: Dict[str, int],
    limit: Optional[int],
    attempts: Optional[Dict[str, int]],
) -> NoReturn:
    """End the agent and its tasks, and send the rest of its logs.

    `mark` is written before the first message.

    `have`: how many bytes of each log, or of its index, the launching side has. `limit`: how many
    of the last bytes of each log are sent; None: all. `attempts`: the last one of each task: later
    ones are not ended; None: all tasks of the job are.
    """
    reader, writer = agent_main.move_stdio()
    os.write(writer, mark)
    _dismiss(token)
    orphans.wait_for_guard(reattach.liveness_name(token))
    left = _end_tasks(job_processes.Traces(*traces), attempts)
    if left:
        orphans.end_login([each.pid for each in left])
    channel = ChecksummedSender(reader, writer)
    for name, size in have.items():
        is_index = name.endswith(protocol.INDEX_SUFFIX)
        _send_rest(channel, folder, name, size, None if is_index else limit)
    if folder:
        _remove_files(channel, folder)
    channel.send(protocol.AgentExiting(""))
    if _is_received(channel):
        _remove_logs(folder, have)
    orphans.end_login([])


def _end_tasks(
    traces: job_processes.Traces, attempts: Optional[Dict[str, int]]
) -> List[processes.Process]:
    """End the job's processes, or those of these attempts. Returns those that have not ended."""
    if attempts is None:
        return job_processes.end_all(traces, protocol.KILL_GRACE).left
    last = attempts

    def search() -> List[processes.Process]:
        members = job_processes.find(traces)
        known = (each for each in members if 0 <= each.attempt <= last.get(each.task, -1))
        return [*(each.process for each in known), *labels.find(traces.job_id, last)]

    grace = protocol.KILL_GRACE
    return processes.Ending(grace, processes.searched(search), grace).run()


def _dismiss(token: str) -> None:
    """Order a living agent to end its tasks and itself; it leaves its logs on the host."""
    client = reattach.connect(token)
    if client is None:
        return
    ours, theirs = socket.socketpair()
    with client, theirs:
        link = array.array("i", [theirs.fileno(), theirs.fileno()])
        with contextlib.suppress(OSError):
            client.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, link)])
        ours.sendall(encode(protocol.Shutdown(preserve_logs=True)))
    deadline, has_ended = time.monotonic() + _DISMISSAL_SECONDS, False
    while not has_ended and (left := deadline - time.monotonic()) > 0:
        if syscalls.wait_until_ready([ours.fileno()], (), left):
            with contextlib.suppress(OSError):
                has_ended = not ours.recv(_BLOCK)


def _send_rest(
    channel: ChecksummedSender, folder: str, name: str, offset: int, limit: Optional[int]
) -> None:
    path = os.path.join(folder, name)
    with contextlib.suppress(OSError), open(path, "rb", 0, opener=open_regular) as file:
        # The start of a limited log is a hole, whose zeros nobody needs.
        offset = max(offset, syscalls.hole_size(os.fstat(file.fileno()).st_size, limit))
        file.seek(offset)
        while block := file.read(_BLOCK):
            channel.send(protocol.LogData(name, offset, block))
            offset += len(block)
            channel.drain()


def _remove_files(channel: ChecksummedSender, folder: str) -> None:
    """Remove the program's files, all but what tasks wrote among them, and report that."""
    shutil.rmtree(os.path.join(folder, staged_tree.UNFINISHED), ignore_errors=True)
    count, size = staged_tree.remove_sent(folder, lambda: None)
    if count:
        path = os.path.join(folder, staged_tree.TREE)
        channel.send(FilesPreserved(path, count, size, time.time()))


def _is_received(channel: ChecksummedSender) -> bool:
    """Whether the supervisor says that it has written everything."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while not channel.ended and time.monotonic() < deadline:
        if channel.pending:
            channel.flush()
        syscalls.wait_until_ready([channel.reader], (), deadline - time.monotonic())
        if any(isinstance(message, protocol.Ack) for _, message in channel.receive()):
            return True
    return False


def _remove_logs(folder: str, names: Dict[str, int]) -> None:
    """Remove the logs, and the folder unless the tasks have left files in it."""
    with contextlib.suppress(OSError):
        for name in names:
            index = os.path.splitext(name)[0] + protocol.INDEX_SUFFIX
            for each in (name, index):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, each))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, protocol.UNSENT_REPORTS))
        os.rmdir(folder)

"""Lists what tasks have written under their working folders on a host, and sends it.

`distrun fetch`, or a supervisor at the end of its job, runs this over a login of its own. It is
sent only then. It changes nothing on the host.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from typing import Any, Iterator, List, NoReturn, Tuple

from distrun.agent import main as agent_main
from distrun.agent.linux import syscalls
from distrun.agent.linux.regular import closing, data_start, open_regular
from distrun.agent.protocol.channel import ChecksummedSender
from distrun.agent.protocol.file_messages import (
    FileRead,
    FileReadEnd,
    FilesWritten,
    ReadFile,
    is_match,
)

_BLOCK = 64 * 1024
_ENTRIES = 500
_SECONDS = 5.0
"""How long a part of the list may take: so the other side sees that the search continues."""
_WILD = ("*", "?", "[")
_SKIPPED = "__pycache__"


def main(
    mark: bytes,
    folders: List[List[Tuple[str, str]]],
    patterns: List[str],
    began: float,
    skipped: List[str],
    most: int,
) -> NoReturn:
    """List the files, then send those that are ordered, until the link ends.

    `folders`: the working folders, each with the places where it may be: a path (`~`: the home
    folder), and the file that was made when all was sent there, after which tasks wrote; without
    that file, they wrote all that is there; empty: they wrote what has changed since `began`, when
    the first task began, by this host's clock (Unix seconds). `patterns`: of the files that are
    wanted; a folder's name means all in it. None: all files. `most`: how many files are listed at
    most in a folder.
    """
    reader, writer = agent_main.move_stdio()
    os.write(writer, mark)
    channel = ChecksummedSender(reader, writer)
    tops = []
    for number, places in enumerate(folders):
        known = [(os.path.expanduser(top), sent) for top, sent in places]
        top, sent = next((each for each in known if os.path.isdir(each[0])), ("", ""))
        tops.append(top)
        since = _since(sent) if sent else began
        _list(channel, number, _search(top, patterns, since, skipped), most)
    _send(channel, FilesWritten(0, [], [], last=True))
    while not channel.ended:
        syscalls.wait_until_ready([channel.reader])
        for _, order in channel.receive():
            if isinstance(order, ReadFile):
                _read(channel, tops[order.folder], order)
    os._exit(0)


def _send(channel: ChecksummedSender, message: Any) -> None:
    channel.send(message)
    channel.drain()


def _list(
    channel: ChecksummedSender, number: int, search: Iterator[Tuple[str, Any]], most: int
) -> None:
    files: List[List[Any]] = []
    left_out: List[List[str]] = []
    count, sent_at = 0, time.monotonic()
    for path, found in search:
        if isinstance(found, str):
            left_out.append([path, found])
        elif found is not None and count == most:
            left_out.append(["", f"there are more than {most} files"])
            break
        elif found is not None:
            used, mode = found.st_blocks * 512, found.st_mode & 0o777
            files.append([path, found.st_size, found.st_mtime_ns, used, mode])
            count += 1
        is_late = time.monotonic() > sent_at + _SECONDS
        if is_late or len(files) + len(left_out) >= _ENTRIES:
            _send(channel, FilesWritten(number, files, left_out, last=False))
            files, left_out, sent_at = [], [], time.monotonic()
    if files or left_out:
        _send(channel, FilesWritten(number, files, left_out, last=False))


def _search(
    top: str, patterns: List[str], since: float, skipped: List[str]
) -> Iterator[Tuple[str, Any]]:
    """Search a working folder: yield paths with the status of a file, or why it is left out.

    None: a sign of life.
    """
    never = {os.path.realpath(each) for each in skipped if each}
    is_plain = not any(wild in each for each in patterns for wild in _WILD)
    waiting = (patterns[::-1] if is_plain else []) or [""]
    while waiting and top:
        path = waiting.pop()
        full = os.path.join(top, path)
        yield path, None
        try:
            status = os.lstat(full) if path else os.stat(full)
            if stat.S_ISDIR(status.st_mode):
                is_skipped = os.path.basename(path) == _SKIPPED or os.path.realpath(full) in never
                names = [] if is_skipped else sorted(os.listdir(full), reverse=True)
                waiting += [os.path.join(path, name) for name in names]
            elif is_match(path, patterns) and status.st_ctime >= since:
                yield path, _kind(status) or status
        except OSError as error:
            if error.errno != errno.ENOENT:  # it was removed meanwhile, or is not there
                yield path, error.strerror or ""


def _since(sent: str) -> float:
    try:
        return os.stat(sent).st_mtime
    except FileNotFoundError:
        return 0.0


def _kind(status: os.stat_result) -> str:
    """Return what it is in place of a file; empty: it is one."""
    if stat.S_ISREG(status.st_mode):
        return ""
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    return "a named pipe, a socket or a device"


def _read(channel: ChecksummedSender, top: str, order: ReadFile) -> None:
    digest, offset, sent_at = hashlib.sha256(), order.offset, time.monotonic()
    try:
        path = os.path.join(top, order.path)
        with closing(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)) as descriptor:
            while not channel.broken:
                begin = data_start(descriptor, offset)  # a hole may be terabytes long
                # Blocks of a digest begin at the same places wherever the holes are.
                offset = max(offset, begin - begin % _BLOCK) if order.digest else begin
                size = max(0, min(_BLOCK, order.size - offset))
                block = os.pread(descriptor, size, offset)
                if not block:
                    break
                if not order.digest:
                    _send(channel, FileRead(offset, block))
                elif block.strip(b"\0"):
                    digest.update(b"%d:%b" % (offset, block))
                offset += len(block)
                if order.digest and time.monotonic() > sent_at + _SECONDS:
                    _send(channel, FileRead(offset, b""))  # a sign of life
                    sent_at = time.monotonic()
                channel.flush()
            status = os.fstat(descriptor)
    except OSError as error:
        _send(channel, FileReadEnd(0, 0, "", error.errno or errno.EIO))
        return
    found = digest.hexdigest() if order.digest else ""
    _send(channel, FileReadEnd(status.st_size, status.st_mtime_ns, found, 0))

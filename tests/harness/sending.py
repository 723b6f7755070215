"""A login to a host whose agent sends what a test has it send."""

import fcntl
import os
import struct
import zlib

from distrun.agent.protocol import Code, Report, channel
from distrun.agent.protocol.channel import encode
from distrun.supervisor.hosts.reach import Connection, Login
from distrun.supervisor.hosts.ssh import SshReach, open_connection


class Sending(SshReach):
    """Leads to a hostile agent, which sends what the test has it send, and never ends."""

    def __init__(self) -> None:
        self._host = "h1"
        self.connect_timeout = 5.0

    def open(self, job_id: str, login: Login) -> Connection:
        connection = open_connection(["sleep", "1000"], job_id, Code.SSH_NOT_STARTED)
        reader, self._writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 19)
        os.set_blocking(reader, False)
        os.close(connection.channel.reader)
        connection.channel.reader = reader
        os.write(self._writer, connection.mark)
        self._frames = 0
        return connection

    def send(self, report: Report) -> None:
        frame = encode(report)
        fields = channel.HEADER.pack(channel.MARK, self._frames, len(frame), zlib.crc32(frame))
        self._frames += 1
        os.write(self._writer, fields + struct.pack(">I", zlib.crc32(fields)) + frame)

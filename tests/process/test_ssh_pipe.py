"""ssh's standard output: what the host sends ahead has room there, also when nobody reads it."""

import sys

import pytest

from distrun.supervisor.hosts.ssh import open_connection

WRITER = """
import os, sys
os.set_blocking(1, False)
block, count = bytes(int(sys.argv[1])), 0
try:
    while True:
        count += os.write(1, block)
except BlockingIOError:
    sys.stderr.write(str(count))
"""


# A pipe's room is pages, and small pieces may leave half of each empty.
@pytest.mark.parametrize("size", [1, 1000, 2049, 2732, 4097, 6145, 32785])
def test_the_window_fits_whatever_the_size_of_a_write(size: int) -> None:
    connection = open_connection([sys.executable, "-c", WRITER, str(size)], "job-1")
    try:
        assert connection.process.wait(20) == 0
        connection.read_stderr()
        assert 0 < connection.log_window < int(connection.stderr_text)
    finally:
        connection.close()

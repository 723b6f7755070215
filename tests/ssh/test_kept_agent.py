"""Hosts keep the agent's modules, so that the next launch need not send them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.network import Host

# A python3 that keeps what a login is sent before its agent runs.
COPYING = """\
#!/bin/sh
[ "$3" = -c ] || exec {python} "$@"
exec {python} "$1" "$2" "$3" "import os
read = os.read
def copied(descriptor, size):
    block = read(descriptor, size)
    if descriptor == 0:
        with open('{file}', 'ab') as file:
            file.write(block)
    return block
os.read = copied
$4"
"""


class Launches:
    """Launches on one host, and counts what it is sent."""

    def __init__(self, host: Host, distrun: Distrun, spec: Path) -> None:
        self._sent = host.folder / "sent"
        host.provide("python3", COPYING.format(python=sys.executable, file=self._sent))
        self._host, self._distrun, self._spec = host, distrun, spec
        self.copies = host.home / ".local" / "state" / "distrun" / "files"

    def __call__(self) -> int:
        """Return how many bytes the host was sent before an agent ran."""
        done = self._distrun("launch", self._spec)
        assert (done.returncode, done.stdout) == (0, "worker:0 | here\n"), done.stderr
        size = self._sent.stat().st_size
        self._sent.unlink()
        return size

    @property
    def copy(self) -> Path:
        (found,) = (path for path in self.copies.rglob("*") if path.is_file())
        return found


@pytest.fixture
def launch(ssh: Ssh, distrun: Distrun) -> Launches:
    (host,) = ssh.hosts(1)
    return Launches(host, distrun, ssh.spec("echo here", [host]))


def test_only_a_copy_that_is_missing_or_not_what_it_was_is_sent_again(
    launch: Launches, distrun: Distrun
) -> None:
    assert launch() > 50_000
    assert launch.copy.stat().st_mode & 0o777 == 0o600
    assert launch() < 2_000
    copy, text = launch.copy, launch.copy.read_bytes()

    def replace_by(make: Callable[[Path], object]) -> None:
        copy.unlink()
        make(copy)

    harms: dict[str, Callable[[], object]] = {
        "changed": lambda: copy.write_bytes(text[:-9] + b"x" + text[-8:]),
        "cut off": lambda: copy.write_bytes(text[:100]),
        "removed": copy.unlink,
        "a FIFO": lambda: replace_by(os.mkfifo),
        "a folder": lambda: replace_by(Path.mkdir),
    }
    for harm, inflict in harms.items():
        inflict()
        assert launch() > 50_000, harm
        assert "unreachable" not in distrun("events").stdout
        assert harm == "a folder" or launch.copy.read_bytes() == text, harm


def test_a_host_that_cannot_keep_them_is_sent_them_each_time(launch: Launches) -> None:
    launch.copies.parent.mkdir(parents=True)
    launch.copies.symlink_to("/proc/none")
    assert launch() > 50_000
    assert launch() > 50_000

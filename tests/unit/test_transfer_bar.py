"""The progress bar for the files that other hosts are sent."""

import os
import select
import sys

import pytest

from harness.parts.cli import TransferBar


def read_until(screen: int, wanted: str) -> str:
    """Read what a terminal shows, in pieces, until it contains `wanted`."""
    shown = b""
    while wanted.encode() not in shown:
        assert select.select([screen], [], [], 10)[0], f"only {shown!r}"
        shown += os.read(screen, 10_000)
    return shown.decode()


def test_a_terminal_shows_a_bar_that_disappears_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    screen, terminal = os.openpty()
    with open(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        bar = TransferBar(delay=0.0)
        bar.update("sending files to 2 hosts", 30_000_000, 120_000_000)
        assert "sending files to 2 hosts  30 MB of 120 MB  25%" in read_until(screen, " left")
        bar.update("sending files to 2 hosts", 120_000_000, 120_000_000)
        assert bar.text == ""
        read_until(screen, "\x1b[K")
    os.close(screen)


def test_without_a_terminal_one_line_is_printed_and_none_for_a_short_transfer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = TransferBar(delay=1000.0)
    for done in (0, 60_000_000, 120_000_000):
        bar.update("sending files to 2 hosts", done, 120_000_000)
    assert capsys.readouterr().err == ""
    bar = TransferBar(delay=0.0)
    for done in range(0, 120_000_000, 10_000_000):
        bar.update("sending files to 2 hosts", done, 120_000_000)
    bar.close()
    assert capsys.readouterr().err == "distrun: sending files to 2 hosts, 120 MB\n"

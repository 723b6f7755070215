"""Files that commands write: whole or not at all, and never through a link."""

import os
import re
import stat
from pathlib import Path

import pytest

from harness.parts.cli import write_file
from harness.parts.top import HostError, UsageError


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file that nobody else may read or change."""
    (tmp_path / "own").mkdir()
    file = tmp_path / "own" / "key"
    file.write_text("private")
    file.chmod(0o600)
    return file


def is_untouched(private: Path) -> bool:
    return (private.read_text(), stat.S_IMODE(private.stat().st_mode)) == ("private", 0o600)


def test_a_link_is_replaced_and_not_followed(tmp_path: Path, private: Path) -> None:
    (tmp_path / "page").symlink_to(private)
    with write_file(tmp_path / "page") as file:
        file.write(b"new")
    assert is_untouched(private)
    assert (tmp_path / "page").read_bytes() == b"new"
    assert not (tmp_path / "page").is_symlink()
    (tmp_path / "page").unlink()
    (tmp_path / "page").symlink_to(private)
    with pytest.raises(UsageError), write_file(tmp_path / "page", replaces=False):
        pass
    assert is_untouched(private)


def test_the_mode_is_that_of_the_shell(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for mask in (0o027, 0o022):  # a file is never readable by more users than before
            os.umask(mask)
            with write_file(tmp_path / "page") as file:
                file.write(b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page").stat().st_mode) == 0o640


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("before")
    with pytest.raises(HostError), write_file(tmp_path / "page") as file:  # noqa: PT012
        file.write(b"new")
        raise OSError(28, "No space left on device")
    assert ((tmp_path / "page").read_text(), os.listdir(tmp_path)) == ("before", ["page"])


def test_a_device_a_pipe_or_a_descriptor_is_written_to_and_stays(tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to("/dev/null")
    os.mkfifo(pipe := tmp_path / "pipe")
    opened = os.open(pipe, os.O_RDWR)
    for path in ("/dev/null", link, pipe, f"/dev/fd/{opened}"):
        with write_file(path) as file:
            file.write(b"new")
    assert os.read(opened, 9) == b"newnew"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert link.is_symlink()
    os.close(opened)


def test_what_cannot_be_read_to_be_written_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "events.jsonl"
    with (
        pytest.raises(HostError, match=rf"page cannot be written: {re.escape(str(missing))}: No "),
        write_file(tmp_path / "page") as file,
    ):
        file.write(missing.read_bytes())
    assert list(tmp_path.iterdir()) == []

"""The agent as it goes over ssh: small, and whole on every Python that a host may have."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from distrun.agent import protocol
from distrun.agent.protocol.channel import encode
from distrun.supervisor.hosts import bootstrap
from harness.pythons import of_pyenv

MARK = b"\nhere it begins\n"


def pythons() -> list[str]:
    """This Python, the oldest and the newest that agents may meet, and one that is too old."""
    versions = (each for number in (7, 8, 13) for each in of_pyenv(f"3.{number}")[:1])
    return [sys.executable, *map(str, versions)]


def started(python: str, folder: Path, copy: str = "") -> subprocess.CompletedProcess[bytes]:
    """What comes of the payload where `python` is the host's python3."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    programs.joinpath("python3").unlink(missing_ok=True)
    programs.joinpath("python3").symlink_to(python)
    given = bootstrap.start_agent(MARK, copy)
    given += encode(protocol.Configure(protocol.PROTOCOL, "a job", "", 1.0, "user@host"))
    given += encode(protocol.Shutdown())
    return subprocess.run(
        ["/bin/sh", "-c", bootstrap.COMMAND],
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
        env={"PATH": str(programs), "XDG_STATE_HOME": str(folder / "state")},
    )


@pytest.fixture(scope="module")
def own_modules() -> bytes:
    """The modules as a host keeps them: what follows the compressed program."""
    inflate = zlib.decompressobj()
    inflate.decompress(bootstrap.start_agent(MARK).partition(b"\n")[2])
    return inflate.unused_data


def test_it_is_one_payload_of_less_than_225_kb() -> None:
    """Of the Python that runs the tests: the code of 3.11 is the largest."""
    assert len(bootstrap.start_agent(MARK)) < 225_000
    assert len(shlex.split(bootstrap.COMMAND)) == 6


@pytest.mark.parametrize("python", pythons())
def test_it_starts_where_python_is_new_enough_and_says_so_where_not(
    python: str, tmp_path: Path, own_modules: bytes
) -> None:
    """Also from the copy of its modules that a host keeps."""
    copy = tmp_path / "a 'copy' of\u2028hôme"
    copy.write_bytes(own_modules)
    for name in ("", str(copy)) if python == sys.executable else (str(copy),):
        done = started(python, tmp_path, name)
        if "/3.7." in python:
            assert done.returncode == bootstrap.EXIT_TOO_OLD
            assert done.stderr.startswith(b"distrun: its python3 is 3.")
            continue
        assert done.returncode == 0, done.stderr
        said = done.stdout.partition(MARK)[2]
        assert b'"type":"Hello"' in said
        assert b'"preserved":"","modules":"","type":"AgentExiting"' in said
        assert not [name for _, _, names in os.walk(tmp_path / "state") for name in names]


PACK = """\
import sys
from distrun.supervisor.hosts import bootstrap
bootstrap.start_agent(b"mark")
print(bootstrap.digest(), "ast" in sys.modules)
"""


@pytest.fixture
def pack(tmp_path: Path) -> Callable[[], list[str]]:
    """Make the payload in a fresh process, with a folder for compiled modules of its own."""
    launcher = str(Path(bootstrap.__file__).parents[3])
    env = {**os.environ, "PYTHONPATH": launcher, "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PACK], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return run


def test_the_modules_are_packed_once_and_again_when_they_have_changed(
    pack: Callable[[], list[str]], tmp_path: Path
) -> None:
    digest, is_packed = pack()
    assert is_packed == "True"
    assert pack() == [digest, "False"]
    (kept,) = (tmp_path / "compiled").rglob("*.modules")
    source = next(Path(bootstrap.__file__).parents[2].glob("agent/main.py"))
    before = str(source.stat().st_mtime_ns).encode()
    assert before in kept.read_bytes()
    kept.write_bytes(kept.read_bytes().replace(before, b"1" * len(before)))
    assert pack()[1] == "True"


def test_a_login_to_an_agent_that_is_gone_has_all_modules_that_it_needs() -> None:
    sent = bootstrap.reattach(b"\nmark\n", "0" * 24, "no-such-job", {"worker:0": 0})
    program = "exec(open(0, 'rb', 0, closefd=False).readline())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=sent,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == bootstrap.EXIT_NO_AGENT, done.stderr
    assert bootstrap.NO_AGENT.encode() in done.stderr

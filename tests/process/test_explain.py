"""`distrun explain`: keys of the spec, kinds of verdicts and exit codes."""

from __future__ import annotations

import pytest

from distrun.spec.reference import reference
from distrun.verdict.model import Kind
from distrun.words.kinds import kinds
from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

NAMES = {
    "backoff": "restart.backoff",
    "hosts[0].slots": "hosts[].slots",
    "cluster.dispatcher.ready": "cluster.<role>.ready",
    "cluster.worker": "cluster.worker",
}


def test_every_key_is_explained_in_the_words_of_the_reference(distrun: Distrun) -> None:
    keys = dict(reference())
    for topic, path in NAMES.items():
        assert distrun("explain", topic).stdout.startswith(f"{path}: ")
    for path in ("restart.backoff", "hosts[].slots"):
        done = distrun("explain", path)
        assert done.returncode == 0
        assert keys[path].help in done.stdout
        assert keys[path].schema.expected in done.stdout
        assert f"example {path.rpartition('.')[2]}: " in done.stdout
    section = distrun("explain", "timeouts").stdout
    for path in ("timeouts.grace", "timeouts.stall"):
        assert keys[path].help in section


def test_every_kind_is_explained(distrun: Distrun) -> None:
    assert set(kinds()) == {kind.value for kind in Kind}
    shown = distrun("explain", "host_memory").stdout
    both = distrun("explain", "oom").stdout
    assert both.startswith(shown)
    assert "\ngpu_memory: " in both
    assert distrun("explain", "nan").stdout == distrun("explain", "not_finite").stdout


def test_exit_codes(distrun: Distrun) -> None:
    words = {
        "0": "the job succeeded\n",
        "3": "the exit code of the task that failed first",
        "69": "a host could not be reached",
        "137": "stopped by `distrun kill`",
        "139": "killed by SIGSEGV",
    }
    for code, each in words.items():
        done = distrun("explain", code)
        assert done.returncode == 0
        assert done.stdout.startswith(f"exit code {code}: ")
        assert each in done.stdout


@pytest.mark.parametrize(
    ("topic", "near"),
    [
        ("backof", "restart.backoff"),
        ("out_of_memory", "host_memory"),
        ("9" * 5000, "distrun explain"),
        ("\x1b[31m", "distrun explain"),
    ],
)
def test_an_unknown_topic_gets_the_nearest_names(distrun: Distrun, topic: str, near: str) -> None:
    done = distrun("explain", topic)
    assert done.returncode == 2
    assert near in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


def test_the_overview_fits_the_terminal(terminal: OpenTerminal) -> None:
    overview = terminal("explain", columns=80)
    wait_until(overview.ended)
    assert overview.process.returncode == 0
    assert max(map(len, overview.text().splitlines())) <= 80
    for word in ("strategy", "host_memory", "129, 130, 143"):
        assert word in overview.text()

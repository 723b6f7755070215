"""`distrun explain`: keys of the spec, kinds of verdicts and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrun.cli.explain import kinds
from distrun.spec.reference import reference
from distrun.verdict.model import Kind
from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def test_every_key_is_explained_in_the_words_of_the_reference(distrun: Distrun) -> None:
    keys = dict(reference())
    for path in ("restart.backoff", "strategy", "hosts[].slots", "cluster.<role>.gpus"):
        done = distrun("explain", path)
        assert done.returncode == 0
        assert keys[path].help in done.stdout
        assert keys[path].schema.expected in done.stdout
        assert f"example {path.rpartition('.')[2]}: " in done.stdout
    section = distrun("explain", "timeouts").stdout
    for path in ("timeouts.grace", "timeouts.stall"):
        assert path in section
        assert keys[path].help in section
    assert "keepalive" not in section


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        ("backoff", "restart.backoff"),
        ("hosts.slots", "hosts[].slots"),
        ("hosts[0].slots", "hosts[].slots"),
        ("cluster.worker.gpus", "cluster.<role>.gpus"),
        ("cluster.dispatcher.ready", "cluster.<role>.ready"),
        ("cluster.worker", "cluster.worker"),
        ("stall", "timeouts.stall"),
    ],
)
def test_a_key_has_several_names(distrun: Distrun, topic: str, path: str) -> None:
    assert distrun("explain", topic).stdout.startswith(f"{path}: ")


def test_every_kind_is_explained_as_in_the_page(distrun: Distrun) -> None:
    assert set(kinds()) == {kind.value for kind in Kind}
    page = (ROOT / "docs" / "failures-reference.md").read_text()
    for kind, (looks, advice) in kinds().items():
        assert f"| `{kind}` | {looks} | {advice} |" in page
    shown = distrun("explain", "host_memory").stdout
    assert "counted an out-of-memory kill" in shown
    assert "a smaller batch" in shown
    both = distrun("explain", "oom").stdout
    assert both.startswith(shown)
    assert "\ngpu_memory: " in both
    for name, kind in (("nan", "not_finite"), ("hang", "stalled"), ("segfault", "crash")):
        assert distrun("explain", name).stdout == distrun("explain", kind).stdout


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("0", ["the job succeeded\n"]),
        ("3", ["the exit code of the task that failed first"]),
        ("69", ["a host could not be reached", "; or the exit code of the task"]),
        ("129", ["stopped by SIGHUP (the terminal closed); ", "killed by SIGHUP"]),
        ("130", ["stopped by SIGINT (Ctrl-C); ", "killed by SIGINT"]),
        ("143", ["stopped by SIGTERM; ", "killed by SIGTERM"]),
        ("137", ["stopped by `distrun kill`", "killed by SIGKILL"]),
        ("139", ["killed by SIGSEGV"]),
        ("255", ["the exit code of the task that failed first"]),
    ],
)
def test_exit_codes(distrun: Distrun, code: str, words: list[str]) -> None:
    done = distrun("explain", code)
    assert done.returncode == 0
    assert done.stdout.startswith(f"exit code {code}: ")
    for each in words:
        assert each in done.stdout


@pytest.mark.parametrize(
    ("topic", "near"),
    [
        ("restart.backof", "restart.backoff"),
        ("backof", "restart.backoff"),
        ("out_of_memory", "host_memory"),
        ("timout", "timeouts"),
        ("256", "distrun explain"),
        ("-1x", "No such option"),
        ("\x1b[31m", "distrun explain"),
    ],
)
def test_an_unknown_topic_gets_the_nearest_names(distrun: Distrun, topic: str, near: str) -> None:
    done = distrun("explain", topic)
    assert done.returncode == 2
    assert near in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("columns", [80, 120])
def test_the_overview_fits_the_terminal(terminal: OpenTerminal, columns: int) -> None:
    for topic in ([], ["restart"], ["hosts"], ["69"]):
        window = terminal("explain", *topic, columns=columns)
        wait_until(window.ended)
        assert window.process.returncode == 0
        assert max(map(len, window.text().splitlines())) <= columns
    overview = terminal("explain", columns=columns)
    wait_until(overview.ended)
    for word in ("strategy", "host_memory", "129, 130, 143"):
        assert word in overview.text()


def test_a_number_that_is_no_exit_code_is_no_topic(distrun: Distrun) -> None:
    for number in ("256", "9" * 5000):
        assert distrun("explain", number).returncode == 2

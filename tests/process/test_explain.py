"""`distrun explain`: keys of the spec, kinds of verdicts and exit codes."""

from __future__ import annotations

from distrun.spec.reference import reference
from distrun.verdict.model import Kind
from distrun.words.kinds import kinds
from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until


def explained(distrun: Distrun, topic: str) -> str:
    done = distrun("explain", topic)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_keys_kinds_and_exit_codes_are_explained(distrun: Distrun) -> None:
    keys = dict(reference())
    for topic, path in (
        ("backoff", "restart.backoff"),
        ("hosts[0].slots", "hosts[].slots"),
        ("cluster.dispatcher.ready", "cluster.<role>.ready"),
    ):
        text = explained(distrun, topic)
        assert text.startswith(f"{path}: ")
        assert f"example {path.rpartition('.')[2]}: " in text
    for said in (keys["restart.backoff"].help, keys["restart.backoff"].schema.expected):
        assert said in explained(distrun, "restart.backoff")
    section = explained(distrun, "timeouts")
    for path in ("timeouts.grace", "timeouts.stall"):
        assert keys[path].help in section

    assert set(kinds()) == {kind.value for kind in Kind}
    both = explained(distrun, "oom")
    assert both.startswith(explained(distrun, "host_memory"))
    assert "\ngpu_memory: " in both
    assert explained(distrun, "nan") == explained(distrun, "not_finite")

    for code, words in {
        "0": "the job succeeded\n",
        "3": "the exit code of the task that failed first",
        "69": "a host could not be reached",
        "137": "stopped by `distrun kill`",
        "139": "killed by SIGSEGV",
    }.items():
        text = explained(distrun, code)
        assert text.startswith(f"exit code {code}: ")
        assert words in text


def test_an_unknown_topic_gets_the_nearest_names(distrun: Distrun) -> None:
    for topic, near in {
        "backof": "restart.backoff",
        "out_of_memory": "host_memory",
        "oomm": "did you mean oom?",
        "9" * 5000: "distrun explain",
        "\x1b[31m": "distrun explain",
    }.items():
        done = distrun("explain", topic)
        assert (done.returncode, done.stdout) == (2, "")
        assert near in done.stderr
        assert "\x1b" not in done.stderr


def test_the_overview_fits_the_terminal(terminal: OpenTerminal) -> None:
    overview = terminal("explain", columns=80)
    wait_until(overview.ended)
    assert overview.process.returncode == 0
    assert max(map(len, overview.text().splitlines())) <= 80
    for word in ("strategy", "host_memory", "129, 130, 143"):
        assert word in overview.text()

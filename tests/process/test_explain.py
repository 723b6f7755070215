"""`distrun explain`: keys of the spec, kinds of verdicts and exit codes."""

from __future__ import annotations

from distrun.spec.reference import reference
from distrun.verdict.model import Kind
from distrun.words.kinds import kinds
from harness.command import Distrun


def explained(distrun: Distrun, topic: str) -> str:
    return str(distrun.checked("explain", topic).stdout)


def test_keys_kinds_and_exit_codes_are_explained(distrun: Distrun) -> None:
    keys = dict(reference())
    for topic, path in (
        ("backoff", "restart.backoff"),
        ("cluster.dispatcher.ready", "cluster.<role>.ready"),
    ):
        text = explained(distrun, topic)
        assert text.startswith(f"{path}: ")
        assert f"example {path.rpartition('.')[2]}: " in text
    for said in (keys["restart.backoff"].help, keys["restart.backoff"].schema.expected):
        assert said in explained(distrun, "restart.backoff")
    assert keys["timeouts.stall"].help in explained(distrun, "timeouts")

    assert set(kinds()) == {kind.value for kind in Kind}
    both = explained(distrun, "oom")
    assert both.startswith(explained(distrun, "host_memory"))
    assert "\ngpu_memory: " in both

    for code, words in {"3": "the task that failed first", "139": "killed by SIGSEGV"}.items():
        text = explained(distrun, code)
        assert text.startswith(f"exit code {code}: ")
        assert words in text


def test_an_unknown_topic_gets_the_nearest_names(distrun: Distrun) -> None:
    done = distrun("explain", "backof")
    assert (done.returncode, done.stdout) == (2, "")
    assert "restart.backoff" in done.stderr

"""What speaks against a success, found in events and in the ends of logs."""

from __future__ import annotations

import pytest

from distrun.verdict.log_analysis import LogTail
from distrun.verdict.success import success_verdict
from distrun.words.causes import cause_text

from .scenarios import play
from .test_verdict_words import raised

HIDDEN = (
    "worker:0 exited 0 although the log ends in an exception: ValueError: batch size 0, at t.py:9"
)
RAISED = raised("ValueError: batch size 0")


def found(*scenario: str, script: str = "", **logs: str) -> str:
    """What speaks against the success of a scenario whose tasks run a shell script."""
    texts = {name: text.encode() for name, text in logs.items()}
    verdict = success_verdict(
        play(scenario).state,
        lambda name: LogTail(texts.get(name.replace(":", ""), b"")),
        ("sh -c", script) if script else ("", ""),
    )
    return "" if verdict is None else cause_text(verdict.cause)


@pytest.mark.parametrize(
    ("script", "after", "hider"),
    [
        ("python own.py 2>&1 | tee log", "", "1: python own.py 2>&1 | tee log"),
        ("n=$(echo 1 | cat)\npython own.py || true", "", "2: python own.py || true"),
        ("python own.py > log 2>&1; cat log; exit 0", "", "1: python own.py > log"),
        ("python own.py\necho finished with $?", "finished with 1\n", "2: echo finished"),
        ("if ! python own.py; then\n  echo 'no luck'\nfi", "no luck\n", "1: if ! "),
        ("python own.py &\nwait", "", "2: wait"),
    ],
)
def test_the_line_that_hides_an_exception_is_named(script: str, after: str, hider: str) -> None:
    said = found("mwm worker", "worker:0 gone 0", script=script, worker0=RAISED + after)
    assert f"{HIDDEN}; its exit code is hidden at sh -c:{hider}" in said


@pytest.mark.parametrize("echo", ["", "\necho $?"])
@pytest.mark.parametrize("log", [f"{RAISED}up\n", "ValueError: none\n"])
def test_an_exception_after_which_it_went_on_is_none(log: str, echo: str) -> None:
    log += "0\n" if echo else ""
    assert not found("mwm worker", "worker:0 gone 0", script=f"python own.py{echo}", worker0=log)


@pytest.mark.parametrize(
    ("line", "first"), [("step {}: loss 0.5", 1), ("Epoch {}", 1), ("step {}", 41)]
)
def test_replicas_that_resume_at_different_steps_are_told(line: str, first: int) -> None:
    logs = {
        f"worker{index}": "".join(
            [
                f"Restored from /ckpt/worker:{index}/ckpt-{begin - 1}\n",
                *(f"{line.format(step)}\n" for step in range(begin, begin + 20)),
            ]
        )
        for index, begin in enumerate((41, first))
    }
    said = found(
        *("mwm worker:2 | max=1", "worker:0 exit 1", "again worker:0 worker:1"),
        "worker:0 worker:1 gone 0",
        **logs,
    )
    name = line.partition(" ")[0].lower()
    told = (
        "the tasks began at different steps after the restart, and trained different weights: "
        f"worker:0 at {name} 41 (from /ckpt/worker:0/ckpt-40); worker:1 at {name} 1 "
        "(from /ckpt/worker:1/ckpt-0)"
    )
    assert (told in said) == (first == 1)
    assert bool(said) == (first == 1)


def steps(last: int, form: str = "step {}\n", said: str = "") -> str:
    return "".join(form.format(step) for step in range(last + 1)) + said


LOSS = "Iteration {}: loss 0.1\n"
KNOWN = "worker:0 worker:1 reports STEP=20 STEPS=100"
"""How many steps there are is known."""
PREEMPTED = "worker:1 was preempted: it exited 0 at step 20 after a SIGTERM that distrun did not"


@pytest.mark.parametrize(
    ("reports", "first", "second", "told"),
    [
        ([], steps(99), steps(20, said="caught SIGTERM, saved\n"), PREEMPTED),
        ([], steps(99, LOSS), steps(20, LOSS, "preempted\n"), PREEMPTED),
        (
            [KNOWN],
            *[steps(20, said="caught SIGTERM, saved\n")] * 2,
            "worker:0, worker:1 were preempted: they exited 0 at step 20 of 100 after a SIGTERM",
        ),
        # A handler that is installed is no signal, and training may stop early.
        ([KNOWN], *["Installed a SIGTERM handler\n" + steps(20)] * 2, ""),
        (
            [],
            steps(199),
            steps(19),
            "worker:1 exited 0 at step 19, long before worker:0, which came to step 199",
        ),
    ],
)
def test_a_task_that_leaves_before_the_others_is_told(
    reports: list[str], first: str, second: str, told: str
) -> None:
    said = found(
        *("mwm worker:2 | rooms worker:1@h2", *reports),
        *("worker:1 gone 0", "wait 5", "worker:0 gone 0 after 15"),
        worker0=first,
        worker1=second,
    )
    assert told in said if told else not said

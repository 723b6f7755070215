"""Completion, called as each shell calls it, and in a real bash."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun


def in_bash(folder: Path, tools: Path, *lines: str) -> list[list[str]]:
    """What bash is given for each line: completions in COMPREPLY, and options of compopt."""
    script = [
        'compopt() { COMPREPLY+=("$2"); }',
        'eval "$(distrun completion bash)"',
        'asked=$(complete -p distrun | sed "s/.*-F //;s/ .*//")',
    ]
    for line in lines:
        script.append(f"COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}")
        script.append('"$asked" distrun; echo "${COMPREPLY[*]}"')
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)],
        cwd=folder,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture
def asked_by(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], str]:
    """distrun's answer to a shell's completion function, called with that shell's variables."""

    def ask(shell: str, words: str, current: str) -> str:
        with monkeypatch.context() as variables:
            variables.setenv("_DISTRUN_COMPLETE", f"{shell}_complete")
            variables.setenv("COMP_WORDS", words)
            variables.setenv("COMP_CWORD", current)
            done = distrun()
        assert "Traceback" not in done.stderr
        return str(done.stdout)

    return ask


def test_shells_complete_commands_jobs_and_tasks(
    asked_by: Callable[[str, str, str], str], distrun: Distrun
) -> None:
    ended = distrun.detached("exit 0", name="day", workers=1)
    distrun("wait")
    running = distrun.detached("exec sleep 600", name="night", cluster={"chief": 1, "worker": 2})
    for name in ("job.yaml", "job.yml", "jobs.txt", ".job.yaml", "b;$(id) x.yaml"):
        (distrun.cwd / name).touch()
    in_real_bash = {
        "la": ["launch"],
        "logs ": [running, ended],
        "logs --task=worker:": ["0", "1"],
        "launch jo": ["job.yaml", "job.yml", "plusdirs"],
        "launch b": ["b;$(id)", "x.yaml", "filenames", "plusdirs"],  # which puts it in quotes
        "launch x.yaml --set=placement=s": ["spread"],
    }
    lines = [f"distrun {line}" for line in in_real_bash]
    assert in_bash(distrun.cwd, distrun.write_tool(), *lines) == list(in_real_bash.values())

    for line, offered in {
        "kill ": [running],
        f"logs {ended} -t ch": [],
        "logs nothing -t ": [],
        "init scr": ["script"],
        "explain restart.back": ["restart.backoff", "restart.backoff_max"],
        "explain host_m": ["host_memory"],
        "launch x.yaml --set cluster.worker.g": ["cluster.worker.gpus="],
        "launch x.yaml --set strategy=parameter_server_n": [],
        "kill --signal SIGTE": ["SIGTERM"],
    }.items():
        answer = asked_by("fish", f"distrun {line}", line.rpartition(" ")[2])
        names = [each.partition("\t")[0].partition(",")[2] for each in answer.split("\n") if each]
        assert names == offered, line
    files = asked_by("zsh", "distrun launch ", "2").splitlines()
    assert "job.yaml" in files
    assert "jobs.txt" not in files
    every = asked_by("fish", "distrun plan a --set cluster.", "cluster.")
    assert "plain,cluster.worker.count=\t" in every
    assert "<" not in every, "no placeholder: it cannot be used as it is"
    zsh = asked_by("zsh", "distrun logs -t worker:", "3").splitlines()
    assert zsh[:2] == ["plain", "worker\\:0"]
    fish = asked_by("fish", "distrun status da", "da")
    assert fish == f"plain,{ended}\tmulti_worker_mirrored succeeded\n"
    distrun("kill")

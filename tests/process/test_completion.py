"""Completion, called as each shell calls it, and in a real bash."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun


def in_bash(folder: Path, *lines: str) -> list[list[str]]:
    """The completions that bash offers for each line, from COMPREPLY."""
    tool = folder / "bin" / "distrun"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m distrun "$@"\n')
    tool.chmod(0o755)
    script = [
        'eval "$(distrun completion bash)"',
        'asked=$(complete -p distrun | sed "s/.*-F //;s/ .*//")',
    ]
    for line in lines:
        script.append(f"COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}")
        script.append('"$asked" distrun; echo "${COMPREPLY[*]}"')
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)],
        cwd=folder,
        env={**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"},
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


def test_bash_completes_commands_jobs_and_tasks(distrun: Distrun) -> None:
    ended = distrun.detached("exit 0", name="day")
    distrun("wait")
    running = distrun.detached("exec sleep 600", name="night", cluster={"chief": 1, "worker": 2})
    for name in ("job.yaml", "job.yml", "jobs.txt", ".job.yaml"):
        (distrun.cwd / name).touch()
    assert in_bash(
        distrun.cwd,
        "distrun la",
        "distrun logs ",
        "distrun kill ",
        "distrun logs -t ",
        "distrun logs --task=worker:",
        f"distrun logs {ended} -t ch",
        f"distrun logs {ended} -t worker:0",
        "distrun logs nothing -t ",
        "distrun init scr",
        "distrun explain restart.back",
        "distrun explain host_m",
        "distrun launch jo",
        "distrun launch x.yaml --set cluster.worker.g",
        "distrun launch x.yaml --set strategy=parameter_server_n",
        "distrun launch x.yaml --set=placement=s",
        "distrun kill --signal SIGTE",
    ) == [
        ["launch"],
        [running, ended],
        [running],
        ["chief:0", "worker:0", "worker:1"],
        ["0", "1"],
        [],
        ["0"],
        [],
        ["script"],
        ["restart.backoff", "restart.backoff_max"],
        ["host_memory"],
        ["job.yaml", "job.yml"],
        ["cluster.worker.gpus="],
        [],
        ["spread"],
        ["SIGTERM"],
    ]
    distrun("kill")


def test_zsh_and_fish_get_completions(
    asked_by: Callable[[str, str, str], str], distrun: Distrun
) -> None:
    assert "launch" in asked_by("bash", "", "")
    job_id = distrun.detached("exit 0")
    distrun("wait")
    (distrun.cwd / "b.txt").touch()
    assert asked_by("zsh", "distrun launch ", "2").splitlines()[:2] == ["plain", "job.yaml"]
    assert "b.txt" not in asked_by("fish", "distrun validate ", "")
    every = asked_by("fish", "distrun plan a --set cluster.", "cluster.")
    assert "plain,cluster.worker.count=\t" in every
    assert "<" not in every, "no placeholder: it cannot be used as it is"
    zsh = asked_by("zsh", "distrun logs -t worker:", "3").splitlines()
    assert zsh[:3] == ["plain", "worker\\:0", "succeeded"]
    assert job_id in asked_by("zsh", "distrun status ", "2").splitlines()
    fish = asked_by("fish", "distrun status jo", "jo")
    assert fish == f"plain,{job_id}\tmulti_worker_mirrored succeeded\n"
    assert asked_by("fish", "distrun logs -t worker:", "worker:").count("plain,worker:") == 2

"""Slurm's commands where they are missing, slow, fail, or answer in a form nobody expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrun.job.scheduler import MissingCommandError, SchedulerError
from distrun.slurm import commands
from harness.slurm import Cluster


def test_a_command_answers(slurm: Cluster) -> None:
    answer = commands.run("scontrol", "show", "hostnames", "h[1-3]")
    assert answer.split() == ["h1", "h2", "h3"]
    with pytest.raises(commands.FailedCommandError, match="Invalid job id") as failed:
        commands.run("scontrol", "-o", "show", "job", "-d", "999999")
    assert failed.value.exit_code == 69


def _provide(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_missing_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingCommandError, match=r"squeue was not found.*PATH"):
        commands.run("squeue", "-h")


def test_a_slow_command_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _provide(tmp_path, "squeue", "exec sleep 600", monkeypatch)
    with pytest.raises(SchedulerError, match=r"squeue has not answered within 0\.2 s"):
        commands.run("squeue", limit=0.2)


def test_what_a_failed_command_printed_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _provide(tmp_path, "sacct", "echo 'accounting is off' >&2; exit 1", monkeypatch)
    with pytest.raises(commands.FailedCommandError, match="accounting is off"):
        commands.run("sacct", "-nP")


def test_an_unexpected_answer_is_quoted() -> None:
    assert "'<html>'" in str(commands.unexpected("squeue -h -o", "<html>\n"))
    assert "nothing" in str(commands.unexpected("squeue -h -o", ""))

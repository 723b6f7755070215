"""Runs Slurm's commands, each with a time limit.

Only output formats that have not changed between versions are asked for: `squeue -h -o`,
`sacct -nP -o`, `scontrol show hostnames`, `scontrol -o show job -d`, `sbatch --parsable`.
"""

from __future__ import annotations

import os
import subprocess

from distrun.errors import HostError

LIMIT = 20.0
"""Seconds that a command may take. A busy slurmctld needs some."""
_ANSWER_CHARACTERS = 300


class SlurmCommandError(HostError):
    """A command of Slurm is missing, too slow, failed, or answered in an unexpected form."""


class MissingCommandError(SlurmCommandError):
    """The command is not installed on this host."""


class SlowCommandError(SlurmCommandError):
    """The command took longer than its limit."""


class FailedCommandError(SlurmCommandError):
    """The command ended with an error. `printed` is what it wrote to standard error."""

    def __init__(self, message: str, *, hint: str | None, printed: str) -> None:
        super().__init__(message, hint=hint)
        self.printed = printed


def run(
    name: str,
    *arguments: str,
    limit: float = LIMIT,
    given: str | None = None,
    errors: bool = False,
) -> str:
    """Run a command and return what it printed, without the white space around it.

    Args:
        name: the command.
        arguments: its arguments.
        limit: in seconds.
        given: its standard input; None: there is none.
        errors: whether to return its standard error instead.

    Raises:
        SlurmCommandError: it is missing, took longer than `limit`, or failed.
    """
    try:
        # Slurm's own time zone and language stay: only its numbers are read.
        done = subprocess.run(
            [name, *arguments],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit,
            check=False,
            env=_environment(),
        )
    except FileNotFoundError:
        raise MissingCommandError(
            f"{name} was not found", hint="Is this a host of a Slurm cluster? Check PATH."
        ) from None
    except OSError as error:
        raise SlurmCommandError(f"{name} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SlowCommandError(
            f"{name} has not answered within {limit:g} s",
            hint="slurmctld may be down or busy; try again, or run: scontrol ping",
        ) from None
    if done.returncode:
        printed = done.stderr.strip() or done.stdout.strip()
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
        raise FailedCommandError(
            f"{name} failed ({how}): {_quoted(printed) or 'it printed nothing'}",
            hint=None,
            printed=printed,
        )
    return (done.stderr if errors else done.stdout).strip()


def unexpected(command: str, answer: str) -> SlurmCommandError:
    """Return the error for an answer that has another form than expected; it quotes the answer."""
    shown = repr(_quoted(answer)) if answer else "nothing"
    return SlurmCommandError(
        f"{command} answered in an unexpected form: {shown}",
        hint="distrun does not know this form; please report it with the output of: "
        f"{command.partition(' ')[0]} --version",
    )


def _quoted(text: str) -> str:
    text = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return text if len(text) <= _ANSWER_CHARACTERS else text[:_ANSWER_CHARACTERS] + "..."


def _environment() -> dict[str, str]:
    """Return this environment without variables that change what the commands print."""
    changing = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")
    return {name: value for name, value in os.environ.items() if not name.startswith(changing)}

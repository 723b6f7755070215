"""Runs Slurm's commands, each with a time limit.

Only output formats that have not changed between versions are asked for: `squeue -h -o`,
`sacct -nP -o`, `scontrol show hostnames`, `scontrol -o show job -d`, `sbatch --parsable`.
"""

from __future__ import annotations

import os
import subprocess

from distrun.job.scheduler import MissingCommandError, SchedulerError

LIMIT = 20.0
"""Seconds that a command may take. A busy slurmctld needs some."""
STEP_OPTIONS = (
    "--overlap",  # beside the steps that the user starts
    "--nodes=1",
    "--ntasks=1",
    "--mem=0",  # all that the job has on the node
    "--cpu-bind=none",  # all cores that the job has there
    "--mpi=none",
    "--chdir=/",
    "--unbuffered",
    "--kill-on-bad-exit=0",
    "--job-name=distrun",
)
_NO_OPTIONS = ("SLURM_CONF", "SLURM_CLUSTERS")
_ANSWER_CHARACTERS = 300
_HINTS = {
    "node configuration": "what nodes have (cores, MB of memory, GPUs): sinfo -o '%P %D %c %m %G'",
    "nvalid partition": "correct slurm.partition: `sinfo` lists the partitions",
    "configuration source": "is this a host of a Slurm cluster? It has no slurm.conf",
    "nvalid job id": "its allocation may have ended: leave this shell, or unset SLURM_JOB_ID",
}
"""What to do if these words are in what a command printed."""


class FailedCommandError(SchedulerError):
    """The command ended with an error. `printed` is what it wrote to standard error."""

    def __init__(self, message: str, printed: str) -> None:
        super().__init__(message, hint=next((_HINTS[it] for it in _HINTS if it in printed), None))
        self.printed = printed


def run(
    name: str, *arguments: str, limit: float = LIMIT, given: str | None = None, errors: bool = False
) -> str:
    """Run a command with this standard input; return what it printed, stripped.

    `limit`: in seconds. `errors`: return its standard error instead. Raises SchedulerError.
    """
    try:
        # Slurm's own time zone and language stay: only its numbers are read.
        done = subprocess.run(
            [name, *arguments],
            input=given or "",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=_environment(),
            timeout=limit,
            check=False,
        )
    except FileNotFoundError:
        raise MissingCommandError(
            f"{name} was not found", hint="Is this a host of a Slurm cluster? Check PATH."
        ) from None
    except OSError as error:
        raise SchedulerError(f"{name} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(
            f"{name} has not answered within {limit:g} s",
            hint="slurmctld may be down or busy; try again, or run: scontrol ping",
        ) from None
    code = done.returncode
    if code:
        complaint = done.stderr.strip() or done.stdout.strip()
        how = f"signal {-code}" if code < 0 else f"code {code}"
        message = f"{name} failed ({how}): {_quoted(complaint) or 'it printed nothing'}"
        raise FailedCommandError(message, complaint)
    return (done.stderr if errors else done.stdout).strip()


def unexpected(command: str, answer: str) -> SchedulerError:
    """Return the error for an answer that has another form than expected; it quotes the answer."""
    shown = repr(_quoted(answer)) if answer else "nothing"
    return SchedulerError(
        f"{command} answered in an unexpected form: {shown}",
        hint="distrun does not know this form; please report it with the output of: "
        f"{command.partition(' ')[0]} --version",
    )


def _quoted(text: str) -> str:
    text = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return text if len(text) <= _ANSWER_CHARACTERS else text[:_ANSWER_CHARACTERS] + "..."


def option_variables() -> list[str]:
    """Return the variables of this environment that are options of srun: they are of a shell."""
    slurm = ("SLURM_", "SRUN_")
    return [each for each in os.environ if each.startswith(slurm) and each not in _NO_OPTIONS]


def _environment() -> dict[str, str]:
    """Return this environment without variables that change what the commands print."""
    changing = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")
    return {name: value for name, value in os.environ.items() if not name.startswith(changing)}

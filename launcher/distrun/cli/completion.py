"""`distrun completion`, and the completion of job ids and task names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from distrun.cli import console
from distrun.errors import DistrunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.jobstore import JobStore

_SHELLS = ("bash", "zsh", "fish")


class Bash(BashComplete):
    """Click's completion for bash, changed for words with a colon.

    Bash splits `worker:0` into three words. This script reads the whole line instead, and gives
    bash only the part of each completion after the last colon: bash has kept the part before it.
    """

    source_template = r"""%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} word kept="" type value
    word=${line##*[[:space:]]}
    word=${word##*=}
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        kept=${word%%"${word##*:}"}
    fi
    COMPREPLY=()
    while IFS=, read -r type value; do
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        elif [[ $type == plain ]]; then
            COMPREPLY+=("${value#"$kept"}")
        fi
    done < <(COMP_LINE=$line %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words, incomplete


def register() -> None:
    """Make click use :class:`Bash` when a shell asks for completions."""
    add_completion_class(Bash)


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    """Print a shell script that completes distrun's commands, job ids and task names.

    Add one of these lines to your shell's startup file: the first to ~/.bashrc, the second to
    ~/.zshrc, or the third to ~/.config/fish/config.fish.

    \b
      eval "$(distrun completion bash)"
      eval "$(distrun completion zsh)"
      distrun completion fish | source
    """
    register()
    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover - click has all three
        raise click.UsageError(f"no completion for {shell}")
    console.print_text(
        kind(context.find_root().command, {}, "distrun", "_DISTRUN_COMPLETE").source()
    )
    return 0


def complete_jobs(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
    *,
    running: bool,
) -> list[CompletionItem[Any]]:
    """Job ids that begin with `incomplete`, the newest first. `running`: only running jobs."""
    from distrun.jobstore import JobStore

    return _matching(_jobs(JobStore.default(), running=running), incomplete)


def complete_tasks(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem[Any]]:
    """Task names of the job on the command line, or of the newest job."""
    from distrun.jobstore import JobStore

    # If the line ends with `-t`, click has not assigned the words to parameters yet.
    job = next(iter(ctx.params.get("jobs") or ctx.args), None)
    return _matching(_tasks(JobStore.default(), job), incomplete)


def _jobs(store: JobStore, *, running: bool) -> Iterator[CompletionItem[Any]]:
    for folder in reversed(store.running() if running else store.folders()):
        state = folder.state()
        is_running = folder.supervisor_pid() is not None
        phase = "running" if is_running and not state.phase.is_final else state.phase.value
        yield CompletionItem(folder.job_id, help=f"{state.strategy} {phase}")


def _tasks(store: JobStore, job: str | None) -> Iterator[CompletionItem[Any]]:
    state = (store.find(job) if job else store.newest()).state()
    for name, task in state.tasks.items():
        yield CompletionItem(name, help=task.phase.value)


def _matching(items: Iterator[CompletionItem[Any]], incomplete: str) -> list[CompletionItem[Any]]:
    """The items that begin with `incomplete`; none after an error, which would disturb typing."""
    try:
        return [item for item in items if item.value.startswith(incomplete)]
    except (DistrunError, OSError):
        return []

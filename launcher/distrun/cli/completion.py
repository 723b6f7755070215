"""`distrun completion`, and what it offers: ids of jobs and names of tasks."""

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
    """Click's, for words with a colon in them: bash takes `worker:0` for three words.

    So the whole line is looked at, and of what is offered only the part behind the last colon
    is given to bash, which has kept what is before it.
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
    """Have click use what is made here, when a shell asks for completions."""
    add_completion_class(Bash)


@click.command("completion", short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> int:
    """Print the script that completes distrun's commands, job ids and task names in a shell.

    Have your shell read it when it starts: the first line in ~/.bashrc, the second in ~/.zshrc,
    the third in ~/.config/fish/config.fish.

    \b
      eval "$(distrun completion bash)"
      eval "$(distrun completion zsh)"
      distrun completion fish | source
    """
    from distrun.cli.main import distrun

    register()
    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover - click has all three
        raise click.UsageError(f"no completion for {shell}")
    console.put(kind(distrun, {}, "distrun", "_DISTRUN_COMPLETE").source())
    return 0


def complete_jobs(incomplete: str, *, running: bool) -> list[CompletionItem[Any]]:
    """Ids of jobs that begin so, the newest first; only running ones where others are no use."""
    from distrun.jobstore import JobStore

    return _offered(_jobs(JobStore.default(), running=running), incomplete)


def complete_tasks(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    """Tasks of the job that the command line names, or of the newest."""
    from distrun.jobstore import JobStore

    # Where the line ends with `-t`, click stops before it has sorted out what the words are.
    job = ctx.params.get("job") or next(iter(ctx.args), None)
    return _offered(_tasks(JobStore.default(), job), incomplete)


def _jobs(store: JobStore, *, running: bool) -> Iterator[CompletionItem[Any]]:
    for folder in reversed(store.running() if running else store.folders()):
        state = folder.state()
        is_running = folder.supervisor_pid() is not None
        how = "running" if is_running and not state.phase.is_final else state.phase.value
        yield CompletionItem(folder.job_id, help=f"{state.strategy} {how}")


def _tasks(store: JobStore, job: str | None) -> Iterator[CompletionItem[Any]]:
    state = (store.find(job) if job else store.newest()).state()
    for name, task in state.tasks.items():
        yield CompletionItem(name, help=task.phase.value)


def _offered(items: Iterator[CompletionItem[Any]], incomplete: str) -> list[CompletionItem[Any]]:
    """Those that begin so. Somebody is typing: an error is no answer, and said later."""
    try:
        return [item for item in items if item.value.startswith(incomplete)]
    except (DistrunError, OSError):
        return []

"""`distrun completion`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from distrun.cli import console

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> int:
    """Print the script that completes distrun's commands, job ids and task names in a shell.

    \b
      eval "$(distrun completion bash)"           in ~/.bashrc
      eval "$(distrun completion zsh)"            in ~/.zshrc
      distrun completion fish | source            in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from distrun.cli.main import distrun

    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover - click has all three
        raise click.UsageError(f"no completion for {shell}")
    console.put(kind(distrun, {}, "distrun", "_DISTRUN_COMPLETE").source())
    return 0


def complete_jobs(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """Ids and names of jobs that begin so, the newest first."""
    from click.shell_completion import CompletionItem

    from distrun.jobstore import JobStore

    items = []
    for folder in reversed(JobStore.default().folders()):
        state = folder.state()
        running = "running" if folder.supervisor_pid() is not None else state.phase.value
        items.append(CompletionItem(folder.job_id, help=f"{state.strategy}, {running}"))
    return [item for item in items if item.value.startswith(incomplete)]


def complete_tasks(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """Tasks of the job that the command line names, or of the newest."""
    from click.shell_completion import CompletionItem

    from distrun.errors import UsageError
    from distrun.jobstore import JobStore

    store = JobStore.default()
    job = ctx.params.get("job")
    try:
        state = (store.find(job) if job else store.newest()).state()
    except UsageError:
        return []
    return [
        CompletionItem(name, help=task.phase.value)
        for name, task in state.tasks.items()
        if name.startswith(incomplete)
    ]

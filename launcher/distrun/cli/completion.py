"""`distrun completion`, and what is completed: jobs, tasks, spec files, values and signals."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from distrun.cli import console
from distrun.errors import DistrunError

if TYPE_CHECKING:
    from distrun.spec.schema import Key

_SHELLS = ("bash", "zsh", "fish")


@add_completion_class
class Bash(BashComplete):
    """Click's completion for bash, changed for words with a colon.

    Bash splits `worker:0` and `name=job` into three words. This script reads the whole line
    instead, and gives bash only the part of each completion after the last colon or equals sign:
    bash has kept the part before it. Bash puts only names of files in quotes where they need it.
    """

    source_template = Path(__file__).with_suffix(".bash").read_text()

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words, incomplete


@add_completion_class
class Zsh(ZshComplete):
    """Click's completion for zsh, also for a ~/.zshrc that has not called `compinit`."""

    source_template = ZshComplete.source_template.replace(
        "    compdef ",
        "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n    compdef ",
    )


@add_completion_class
class Fish(FishComplete):
    """Click's completion for fish, also for descriptions with a comma."""

    source_template = FishComplete.source_template.replace(
        'string split "," ', 'string split --max 1 "," '
    )


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
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has all three
    command = context.find_root().command
    console.print_text(kind(command, {}, "distrun", "_DISTRUN_COMPLETE").source())
    return 0


def _completes(
    items: Callable[..., Iterator[CompletionItem[Any]]],
) -> Callable[..., list[CompletionItem[Any]]]:
    """Keep the items that begin with `incomplete`; none after an error would disturb typing."""

    @functools.wraps(items)
    def complete(incomplete: str, **how: Any) -> list[CompletionItem[Any]]:
        try:
            return [each for each in items(incomplete, **how) if each.value.startswith(incomplete)]
        except (DistrunError, OSError):
            return []

    return complete


@_completes
def complete_jobs(_: str, *, only: str) -> Iterator[CompletionItem[Any]]:
    """Job ids, the newest first. `only`: `running`, `resumable`, or all."""
    from distrun.job.folder import JobStore

    store = JobStore.default()
    for folder in reversed(store.running() if only == "running" else store.folders()):
        state = folder.state()
        phase = state.phase.value
        if not state.phase.is_final and folder.supervisor_pid() is not None:
            phase = "running"
        elif not state.phase.is_final and not folder.is_elsewhere:
            phase = "lost"
        if only == "resumable" and phase in ("running", "succeeded"):
            continue
        yield CompletionItem(folder.job_id, help=f"{state.strategy} {phase}".strip())


@_completes
def complete_tasks(_: str, ctx: click.Context) -> Iterator[CompletionItem[Any]]:
    """Task names of the job on the command line, or of the newest job."""
    from distrun.job.folder import JobStore

    # If the line ends with `-t`, click has not assigned the words to parameters yet.
    job = ctx.params.get("job") or next(iter(ctx.params.get("jobs") or ctx.args), None)
    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    for name, task in folder.state().tasks.items():
        yield CompletionItem(name, help=task.phase.value)


@_completes
def complete_templates(_: str) -> Iterator[CompletionItem[Any]]:
    from distrun.spec.resources import describe, templates

    for name, path in templates().items():
        yield CompletionItem(name, help=describe(path))


@_completes
def complete_specs(incomplete: str) -> Iterator[CompletionItem[Any]]:
    """YAML files, and folders, which the shell completes itself."""
    folder, slash, begin = incomplete.rpartition("/")
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(os.path.expanduser(folder + slash) or "."))
    for name in names:
        is_shown = begin.startswith(".") or not name.startswith(".")
        if is_shown and name.endswith((".yaml", ".yml")):
            yield CompletionItem(f"{folder}{slash}{name}")
    yield CompletionItem(incomplete, type="dir")


@_completes
def complete_overrides(incomplete: str) -> Iterator[CompletionItem[Any]]:
    """`PATH=` for the keys of the spec; after that, the values of keys that have a few only."""
    from distrun.spec.reference import reference
    from distrun.spec.scalars import Choice

    path, has_path, _ = incomplete.partition("=")
    for name, key in _settable(reference()):
        if not has_path:
            yield CompletionItem(f"{name}=", help=key.help)
        elif name == path and isinstance(key.schema, Choice):
            yield from (CompletionItem(f"{path}={each}") for each in key.schema.values)


def _settable(keys: Iterator[tuple[str, Key]]) -> Iterator[tuple[str, Key]]:
    """The keys that `--set` takes: with the names of roles, and without the items of lists."""
    from distrun.strategies import Role

    for path, key in keys:
        if path.startswith("cluster.<role>."):
            for role in Role:
                if role is not Role.EVALUATOR or not path.endswith(".addresses"):
                    yield path.replace("<role>", role.value), key
        elif "[]" not in path and "<" not in path:
            yield path, key


def complete_signals(incomplete: str) -> list[str]:
    """The names of signals, in capitals, with `SIG` if that was typed."""
    word = incomplete.upper()
    prefix = "SIG" if word.startswith("S") and "SIG".startswith(word[:3]) else ""
    names = (each.name.removeprefix("SIG") for each in signal.Signals)
    return [prefix + name for name in names if (prefix + name).startswith(word)]

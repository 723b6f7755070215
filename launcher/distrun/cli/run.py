"""`distrun run`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import stat
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource

from distrun.cli import console
from distrun.cli.launch import launch, launch_options
from distrun.cli.options import LaunchOptions, ProgramCommand, key_of
from distrun.errors import UsageError
from distrun.spec.problems import nearest, printable
from distrun.strategies import STRATEGIES

if TYPE_CHECKING:
    from distrun.job.run_spec import RunOptions

AUTO = "auto"


class RunCommand(ProgramCommand):
    """Passes everything after the script to it."""

    allow_interspersed_args = False

    def said_of(self, option: str, *_: object) -> str:
        if (name := option.strip("-")) in ("gpus", "cpus"):
            return f"For each worker: -n 2 --set cluster.worker.{name}=1"
        own = "The script's own options follow SCRIPT; `distrun run --help` lists those of run."
        return own + key_of(option)


class StrategyName(click.Choice[str]):
    """A strategy; TensorFlow's name of one is an error that says ours."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from distrun.spec.model import strategy_name

            near = nearest(strategy_name(value), STRATEGIES)
            if near is None:
                raise
            text = f"{error.message} Did you mean {near}?"
            raise click.BadParameter(text, ctx, param) from None


class WorkerCount(click.IntRange):
    """A number of workers; `auto`: one for each node of the Slurm allocation."""

    name = "number or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return AUTO if value == AUTO else super().convert(value, param, ctx)


@click.command("run", cls=RunCommand)
@click.argument("program", metavar="SCRIPT", type=click.Path())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-n",
    "-np",
    "--workers",
    type=WorkerCount(min=1),
    metavar="N",
    help="How many workers. Default: one for each slot of the hosts, else 1. `auto`: one on each "
    "node of the Slurm allocation (--hosts slurm).",
)
@click.option(
    "--strategy",
    type=StrategyName(list(STRATEGIES)),
    metavar="NAME",
    help="The tf.distribute strategy. Default: the one that the script creates, if it is clear; "
    "else multi_worker_mirrored for several workers.",
)
@click.option("--ps", type=click.IntRange(min=1), metavar="N", help="How many parameter servers.")
@click.option("--chief", "has_chief", is_flag=True, help="Start a chief beside the workers.")
@click.option(
    "-H",
    "--hosts",
    "--on",
    multiple=True,
    metavar="A,B",
    help="The machines that run tasks: names, ranges such as gpu-[01-16], or gpu1:SLOTS. `slurm`: "
    "the nodes of the Slurm allocation. `kubernetes`: pods, which the job creates.",
)
@click.option("--image", metavar="NAME", help="The image of the pods (--on kubernetes).")
@click.option(
    "--hostfile",
    type=click.Path(),
    metavar="FILE",
    help="A file with one host per line: `host`, `host slots=N` or `host:N`.",
)
@click.option("--python", metavar="PATH", help="The interpreter for the script.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a variable of the tasks. NAME alone takes its value from this shell, and records "
    "none. Repeatable.",
)
@click.option("-m", "--module", "is_module", is_flag=True, help="SCRIPT is a module's name.")
@click.option("--print-spec", is_flag=True, help="Print the YAML file for `launch`; run nothing.")
@launch_options
def command(overrides: tuple[str, ...], print_spec: bool, **values: Any) -> int:
    """Run a script without a YAML file.

    SCRIPT is a Python script, a bundled job's name or, with -m, a module. Another program, such as
    ./train.sh, can be run, too. Everything after SCRIPT is passed to it, without a `--` in front.
    The job is the same as with `launch` of the file that --print-spec prints.

    \b
      distrun run -n 2 train.py --epochs 3
      distrun run -n 2 --ps 1 train.py
      distrun run -n 2 -d --name night mnist --epochs 100
      distrun run -n 2 --print-spec train.py --epochs 3 > train.yaml
    """
    from distrun.job import run_spec

    given = {each.name: values.pop(each.name) for each in dataclasses.fields(run_spec.RunOptions)}
    is_for_script = given["args"][:1] == ("--",)  # as before the arguments of `launch`
    given["args"] = given["args"][is_for_script:]
    options = run_spec.RunOptions(**_with_nodes(given))
    words = [word for word in sys.argv[1:] if word != "--print-spec"]
    if print_spec and values["strict"]:
        overrides += ("success.strict=true",)
    spec, choices = run_spec.load(
        options,
        f"# distrun {printable(shlex.join(words))}\n",
        overrides=overrides,
        absolute=print_spec and _is_file_elsewhere(sys.stdout),
        is_forced=values["force"],
        is_printed=print_spec,
    )
    if options.image is not None and not any(host.pod for host in spec.hosts):
        hosts = f" instead of --on {printable(','.join(options.hosts))}" if options.hosts else ""
        hint = f"write --on kubernetes{hosts}"
        raise UsageError("--image is for pods, and the job has none", hint=hint)
    for choice in choices:
        console.print_message(choice)
    if not is_for_script and (option := _misplaced_option(options)) is not None:
        name = option.split()[0]
        text = f"{option} follows SCRIPT, so it is passed to it, and its text does not have {name}"
        if name in ("--dry-run", "--print-spec"):  # nothing should start
            hint = f"write it before SCRIPT; to pass it to the script, write -- before {name}"
            raise UsageError(text, hint=hint)
        console.print_message(f"warning: {text}; for distrun, write it before SCRIPT")
    if not print_spec:
        return launch(spec, LaunchOptions(**values))
    console.print_text(spec.source.rstrip("\n"))
    return 0


def _with_nodes(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the hosts that `-n auto` means."""
    if given["workers"] != AUTO:
        return given
    has_hosts = given["hosts"] or given["hostfile"] is not None
    return {**given, "workers": None, "hosts": given["hosts"] if has_hosts else ("slurm",)}


def _misplaced_option(options: RunOptions) -> str | None:
    """Return `-n 2`, or another option of `run`, that follows a script without such an option."""
    from distrun.spec.regular_file import open_regular_file

    source = click.get_current_context().get_parameter_source
    missing = [each for each in command.params if source(str(each.name)) is ParameterSource.DEFAULT]
    own = {each for option in missing for each in option.opts if each[:1] == "-"}
    found = next((at for at, word in enumerate(options.args) if word in own), None)
    if found is None or not options.program.endswith(".py"):
        return None
    with contextlib.suppress(OSError), open_regular_file(options.program) as script:
        is_its_own = options.args[found].encode() in (script.read() or b"")
        return None if is_its_own else shlex.join(options.args[found : found + 2])
    return None


def _is_file_elsewhere(stream: TextIO) -> bool:
    """Whether a stream writes to a file that is not in the current folder."""
    try:
        descriptor = stream.fileno()
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return is_file and os.path.dirname(path) != os.getcwd()
    except (OSError, ValueError):
        return False

"""The command `distrun`. This is the only place that turns errors into exit codes."""

from __future__ import annotations

import atexit
import errno
import functools
import importlib
import io
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

import click

from distrun import __version__
from distrun.cli import console, signals, streams
from distrun.errors import DistrunError, HostError, InternalError, InterpreterError, OutputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_COMMANDS = {
    "run": "Run a script, without a YAML file.",
    "launch": "Run a job from its YAML file.",
    "submit": "Submit a job to Slurm or Kubernetes.",
    "plan": "Show what would run.",
    "validate": "Check a spec.",
    "doctor": "Check a job's hosts.",
    "ps": "List jobs.",
    "status": "Show one job's tasks.",
    "logs": "Show tasks' output.",
    "attach": "Show a running job as `launch` does.",
    "watch": "Watch a job on the whole screen.",
    "stacks": "Show the stacks of a job's tasks.",
    "profile": "Show where the time of each task goes.",
    "kill": "Stop jobs.",
    "resume": "Continue a job that failed, was killed or was lost.",
    "wait": "Wait until jobs have ended.",
    "events": "Show what happened to a job.",
    "report": "Write what happened to a job as one HTML page.",
    "compare": "Show jobs side by side.",
    "fetch": "Copy what tasks wrote on other hosts.",
    "bundle": "Pack a job into one archive, for a bug report.",
    "init": "List the templates, or write one.",
    "import": "Convert a TFJob of Kubeflow into a spec.",
    "schema": "Print the spec's JSON Schema.",
    "explain": "Explain a key, a verdict or an exit code.",
    "clean": "Remove the records of ended jobs.",
    "completion": "Print a shell's completion script.",
}
"""What each command does, in the order of the help. Each is a module with a click `command`."""
_NO_MEMORY = "failed to map segment"
"""What the dynamic linker says of a module in C for which there is no memory."""
_DISTRIBUTIONS = {"yaml": "PyYAML"}
"""By what name a package is installed, if that is not the one by which it is imported."""
_GUARDED = ("plan", "doctor", "validate", "submit", "fetch")
"""They start ssh clients, agents or interpreters, but no supervisor."""
_OF_BATCH_SCRIPTS = "batch-run"
"""A command that the batch scripts of `submit` run; the help does not list it."""


class CommandGroup(click.Group):
    """Imports a command's module only when that command is used, so that `distrun` starts fast.

    So the list of commands, in the help and for completion, comes from a table.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS and cmd_name != _OF_BATCH_SCRIPTS:
            return None
        name = "import_job" if cmd_name == "import" else cmd_name.replace("-", "_")
        module = importlib.import_module(f"distrun.cli.{name}")
        command: click.Command = module.command
        for parameter in command.params:
            if parameter.name != "args" and parameter.callback is None:  # a program's may be empty
                parameter.callback = _refuse_empty
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(n, help=h) for n, h in _COMMANDS.items() if n.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = args[1:]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            first = " A command comes first, as in `distrun run -n 2 train.py`." if rest else ""
            raise click.NoSuchOption(
                error.option_name, error.message + first, error.possibilities, ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":  # `distrun help launch`, as with git
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [args[1], "--help"]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib
            import shlex

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            if args[0].endswith((".py", ".yaml", ".yml")):
                verb = "run" if args[0].endswith(".py") else "launch"
                meant = f"Use {f'distrun {verb} {shlex.quote(args[0])}'!r}."
            elif near:
                meant = f"Did you mean {near[0]!r}?"
            else:
                raise
            raise click.UsageError(f"{error.format_message()} {meant}", ctx) from None


def _refuse_empty(_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse an empty text: it names nothing, and often stands for a variable that is not set."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("it is empty.", param=parameter)
    return value


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="distrun")
def distrun() -> None:
    """Launch and supervise multi-worker TensorFlow jobs.

    The command line, or a YAML file, names the program and the cluster. distrun starts every task
    with its TF_CONFIG, shows the output of all tasks, and leaves no process behind.

    JOB is a job's id, its name or a unique prefix. Default: the only running job, else the
    newest.

    \b
      distrun run -n 2 train.py      run a script with two workers
      distrun launch job.yaml        run a job here and show its output
      distrun launch job.yaml -d     run it in the background
      distrun status                 show the job's tasks
      distrun logs -f                follow its output
      distrun kill                   stop the running job
    """


def main() -> NoReturn:
    """Run a command and exit with its code. Only a defect in distrun prints a traceback."""
    streams.install()
    signals.command = _run.__code__
    try:
        is_guarded = bool(sys.argv[1:2]) and sys.argv[1] in _GUARDED and sys.argv[2:] != ["--help"]
        code = _run(is_guarded=is_guarded)
    except signals.ENDED as error:
        code = 128 + (signals.signal_of(error) or 0)
    signals.restore()
    try:
        sys.stdout.flush()
    except (OSError, OutputError):
        streams.discard(streams.STDOUT)  # otherwise Python exits with 120
    sys.stderr.flush()
    # Python would take its time, and reset the handlers first: a signal would change the exit code.
    atexit._run_exitfuncs()  # noqa: SLF001 - it has no other name
    os._exit(code)


def refuse(error: OSError | MemoryError) -> NoReturn:
    """Exit before any command has begun, because this machine lacks something."""
    console.print_error(_host_error(error))
    os._exit(HostError.exit_code)


def _run(*, is_guarded: bool) -> int:  # noqa: PLR0911 - one line for each way to end
    if "_DISTRUN_COMPLETE" in os.environ:
        importlib.import_module("distrun.cli.completion")
    try:
        code = _execute(is_guarded=is_guarded)
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        lines = shown.getvalue().expandtabs(2).splitlines()
        console.print_lines(lines)  # which escapes the arguments
        return error.exit_code
    except click.Abort:
        return 128 + signal.SIGINT
    except DistrunError as error:
        console.print_error(error)
        return error.exit_code
    except (BrokenPipeError, SystemExit):
        # The program that read our output exited. Click turns this into SystemExit(1).
        streams.discard(streams.STDOUT)
        return 128 + signal.SIGPIPE
    except (OSError, MemoryError) as error:
        console.print_error(_host_error(error))
        return HostError.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: the traceback is for a bug report
        number = signals.signal_of(error)
        if number is not None:
            return 128 + number
        traceback.print_exc()
        console.print_message("this is a defect in distrun: please report it with the lines above")
        return InternalError.exit_code
    return code


def _execute(*, is_guarded: bool) -> int:
    """Run the command, in a child process if it is guarded; return its exit code.

    Raises:
        MemoryError: also if there is none for a module in C.
        HostError: a package of another version, or a broken one, cannot be imported.
    """
    try:
        if not sys.executable:
            raise InterpreterError
        if is_guarded:
            from distrun.cli.guarded_command import run_guarded

            return run_guarded(functools.partial(_run, is_guarded=False))
        signals.install()
        return int(distrun.main(prog_name="distrun", standalone_mode=False) or 0)
    except ImportError as error:
        if _NO_MEMORY in str(error):
            raise MemoryError from error
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        importer = str(frame.f_globals.get("__name__")).partition(".")[0]
        package = (error.name or "").partition(".")[0] if importer == "distrun" else importer
        if package in ("", "distrun"):
            raise
        hint = "Python was built without a library that this needs: install another Python"
        if package not in sys.stdlib_module_names:
            named = _DISTRIBUTIONS.get(package, package)
            hint = console.install_command("--upgrade", "--force-reinstall", named)
        text = f"the package {package} of {sys.executable} cannot be used: {error}"
        raise HostError(text, hint=hint) from error


def _host_error(error: OSError | MemoryError) -> HostError:
    if isinstance(error, MemoryError) or error.errno == errno.ENOMEM:
        hint = "raise the limit on memory (`ulimit -v`), or end other programs"
        return HostError("there is not enough memory", hint=hint)
    from distrun.agent.protocol.causes import Cause, Code
    from distrun.words.causes import cause_advice, error_text

    what = f"{error.filename}: " if error.filename else ""
    advice = cause_advice(Cause(Code.UNCODED, errno=error.errno or 0))
    why = error_text(error.errno or 0) if advice else error.strerror or error
    return HostError(f"{what}{why}", hint=advice)

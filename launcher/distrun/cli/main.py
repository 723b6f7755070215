"""The command `distrun`: its verbs, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import traceback
from typing import NoReturn, TextIO

import click

from distrun import __version__
from distrun.cli import console
from distrun.errors import DistrunError, HostError, InternalError

_VERBS = (
    "launch", "plan", "validate", "doctor", "ps", "status", "logs", "kill", "wait", "events",
    "init", "schema", "clean", "completion",
)  # fmt: skip


class Verbs(click.Group):
    """Commands, one module each, imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"distrun.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], _VERBS, n=1)
            if not near:
                raise
            text = f"{error.format_message()} Did you mean {near[0]!r}?"
            raise click.UsageError(text, ctx) from None


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="distrun")
def distrun() -> None:
    """Launch and look after multi-worker TensorFlow jobs.

    A YAML file names the program and the cluster; distrun starts every task with its TF_CONFIG,
    shows their output, and leaves nothing behind.

    \b
      distrun launch job.yaml        run a job here, and see its output
      distrun launch job.yaml -d     run it in the background
      distrun status                 how the newest job is doing
      distrun logs -f                its output, as it comes
      distrun kill                   stop the job that is running
    """


class _Ended(BaseException):
    """This command is to end: whatever it has begun is undone on the way out."""

    def __init__(self, number: int) -> None:
        self.number = number


def main() -> NoReturn:
    """Run a command and exit with its code. No traceback is shown unless distrun is at fault."""
    code = _run()
    # What a terminal that is gone did not take would make Python exit with a code of its own, 120.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            _give_up(stream)
    sys.exit(code)


def _show_what_the_encoding_lacks() -> None:
    """Escaped, on stdout and stderr, instead of ending with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run() -> int:  # noqa: PLR0911 - one line for each way to end
    _show_what_the_encoding_lacks()
    if "_DISTRUN_COMPLETE" in os.environ:
        importlib.import_module("distrun.cli.completion").register()
    _end_on_signals()
    try:
        result = distrun.main(prog_name="distrun", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    except _Ended as ended:
        return 128 + ended.number
    except DistrunError as error:
        console.say_error(error)
        return error.exit_code
    except (BrokenPipeError, SystemExit):
        # Whoever read our output has gone; click makes it an exit of its own, with 1.
        _give_up(sys.stdout)
        return 128 + signal.SIGPIPE
    except OSError as error:
        _give_up(sys.stdout)
        what = f"{error.filename}: " if error.filename else ""
        console.say(f"{what}{error.strerror or error}")
        return HostError.exit_code
    except Exception:  # noqa: BLE001 - the last resort, where a traceback is what helps
        traceback.print_exc()
        console.say("this is a defect in distrun: please report it with the lines above")
        return InternalError.exit_code
    return int(result or 0)


def _end_on_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> NoReturn:
    raise _Ended(number)


def _give_up(stream: TextIO) -> None:
    """Python would say once more, while it closes the stream, that it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""Arguments and options that several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from distrun.frozen import Frozen
from distrun.spec.units import parse_duration

if TYPE_CHECKING:
    from distrun.agent.protocol import StopJob
    from distrun.job.resumption import Resumption

_FILES = (".yaml", ".yml", ".py", ".pyw")
_LIKE = 0.75
"""How alike an unknown option must be to one of distrun's to be a typing error."""


class LaunchOptions(Frozen, kw_only=True):
    """How a job is launched.

    Attributes:
        tasks: names or roles of the tasks whose output is shown; empty: all.
        all_output: show each line of each task, also start-up lines.
        force: start a program that certainly fails.
        shows_output: whether the output of tasks is shown, and not only messages.
        resumed: the job that is resumed; None: a new one.
        asked_to_stop: returns what a signal stands for, if another machine's command has sent it.
    """

    detach: bool = False
    tasks: tuple[str, ...] = ()
    all_output: bool = False
    strict: bool = False
    no_preflight: bool = False
    dry_run: bool = False
    force: bool = False
    shows_output: bool = True
    resumed: Resumption | None = None
    asked_to_stop: Callable[[], StopJob | None] = lambda: None


def duration(value: str) -> float:
    """Convert `500ms`, `10s`, `5m`, `1h` or `2d` to seconds."""
    seconds = parse_duration(value)
    if seconds is None:
        raise click.BadParameter(f"{value!r} is not a duration: write 500ms, 10s, 5m, 1h or 2d")
    return seconds


def completion_of(kind: str, **how: Any) -> Callable[..., Any]:
    """Complete with the function of that name, which is imported when a shell asks."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> Any:
        from distrun.cli import completion

        given = {"ctx": ctx} if kind == "tasks" else how
        return getattr(completion, f"complete_{kind}")(incomplete, **given)

    return complete


class ProgramCommand(click.Command):
    """A command whose line has options of a program, too: an unknown option may be one of those."""

    def said_of(self, option: str, ctx: click.Context, args: list[str]) -> str:
        """Say where such an option belongs. `args`: the whole line."""
        raise NotImplementedError

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            import difflib

            name = error.option_name
            words = [each.partition("=")[0] for each in given if each[:1] == "-"]
            if name not in words:  # of `-hostfile`, click names a letter
                name = next((each for each in words if name[1:] in each), name)
            known = [each for option in self.params for each in option.opts]
            # --gpus is no --ps.
            known = [each for each in known if len(each) > len("--ps")]
            near = difflib.get_close_matches(name, known, cutoff=_LIKE)
            text = f"No such option {name!r}. {self.said_of(name, ctx, given)}"
            raise click.NoSuchOption(name, text, possibilities=near, ctx=ctx) from None


def key_of(option: str) -> str:
    """How to set the one key of the spec that is called like an option; '' if there is none."""
    from distrun.spec.nodes import flow_style
    from distrun.spec.reference import reference

    name = option.lstrip("-").replace("-", "_")
    plain = (each for each in reference() if "<" not in each[0])
    found = [each for each in plain if each[0].rpartition(".")[2] == name]
    if len(found) != 1:
        return ""
    path, key = found[0]
    setting = shlex.quote(f"{path}={flow_style(key.examples[0])}")
    return f" To set the key {name}, for example: --set {setting}."


class WithProgramArguments(ProgramCommand):
    """A command whose SPEC is followed by arguments of the program, after `--`."""

    subject = "SPEC"

    def said_of(self, option: str, ctx: click.Context, args: list[str]) -> str:
        from distrun.spec.loader import refuse_script

        refuse_script(next((word for word in args if word.endswith(_FILES)), ""))
        at = next((n for n, word in enumerate(args) if word.startswith(option)), len(args))
        before = shlex.join(args[:at]) or self.subject
        if option in ("-n", "-np", "--workers"):
            return f"For two workers: {ctx.command_path} {before} --set cluster.worker=2"
        whole = f"{ctx.command_path} {before} -- {option} ..."
        return f"Arguments of your program follow `--`: {whole}{key_of(option)}"


def spec_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """SPEC: a YAML file, or `-`."""
    return click.argument(
        "spec_path",
        metavar="SPEC" if required else "[SPEC]",
        required=required,
        type=click.Path(allow_dash=True),
        shell_complete=completion_of("specs"),
    )


overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    shell_complete=completion_of("overrides"),
    help="Change one value of the spec, e.g. --set cluster.worker=4. Repeatable.",
)

name_option = click.option(
    "--name", help="The job's name. Default: the name in the spec, else that of its file."
)

detach_option = click.option(
    "-d", "--detach", is_flag=True, help="Print the job's id and leave it running."
)

no_preflight_option = click.option(
    "--no-preflight", is_flag=True, help="Do not check the hosts before starting."
)

strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Treat warnings about the program as errors (exit code 65), and a success with a warning "
    "as a failure (exit code 75).",
)

force_option = click.option(
    "--force",
    is_flag=True,
    help="Start a program that certainly fails: it cannot be parsed, a module is missing, or it is "
    "a notebook.",
)

task_option = click.option(
    "-t",
    "--task",
    "tasks",
    multiple=True,
    metavar="TASK",
    shell_complete=completion_of("tasks"),
    help="Show only this task, e.g. worker:0, or this role, e.g. worker. Repeatable.",
)

all_output_option = click.option(
    "--all-output", is_flag=True, help="Show all lines, also TensorFlow's harmless start-up lines."
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def output_option(
    text: str, *, dash: bool = False, default: str | None = None
) -> Callable[[Any], Any]:
    """-o FILE. `dash`: - is standard output."""
    file = click.Path(dir_okay=False, allow_dash=dash)
    return click.option("-o", "--output", type=file, metavar="FILE", default=default, help=text)


def _adopt(context: click.Context, _: click.Parameter, namespace: str | None) -> None:
    if namespace is None and context.meta.get("kubernetes context") is not None:
        raise click.UsageError("--context goes with --namespace")
    if namespace is not None:
        if not namespace:
            raise click.BadParameter("the name of a namespace cannot be empty")
        from distrun.job.folder import JobStore
        from distrun.kubernetes.batch_job import adopt

        adopt(JobStore.default(), namespace, context.meta.get("kubernetes context") or "")


def _note_context(context: click.Context, _: click.Parameter, name: str | None) -> None:
    context.meta["kubernetes context"] = name


def namespace_options(function: Callable[..., int]) -> Callable[..., int]:
    """--namespace: the jobs that were submitted there from other machines are known here, too."""
    of_context = click.option(
        "--context",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_note_context,
        help="The context of kubectl, for --namespace.",
    )
    of_namespace = click.option(
        "--namespace",
        metavar="NAME",
        expose_value=False,
        callback=_adopt,
        help="Also find jobs that were submitted to this namespace of Kubernetes.",
    )
    return of_namespace(of_context(function))


def job_argument(*, many: bool = False, only: str = "") -> Callable[[Any], Any]:
    """JOB: an id, a name, or a unique prefix, and the options that find it in Kubernetes.

    Args:
        many: take any number of jobs, as `jobs`; otherwise at most one, as `job`.
        only: complete the ids of all jobs, or only of those that are `running` or `resumable`.
    """
    complete = completion_of("jobs", only=only)
    if many:
        argument = click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete)
    else:
        argument = click.argument("job", metavar="[JOB]", required=False, shell_complete=complete)

    def decorated(function: Any) -> Any:
        parameters = argument(function).__click_params__  # in the reverse order of the help
        before = len(parameters)
        namespace_options(function)
        parameters[:] = [*parameters[before:], *parameters[:before]]  # the last ones in the help
        return function

    return decorated

"""`distrun plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.options import json_option, overrides_option

if TYPE_CHECKING:
    from distrun.plan import Plan, TaskPlan
    from distrun.spec.model import RestartSpec, Spec


@click.command("plan", short_help="Show what would run.")
@click.argument("spec_path", metavar="SPEC", type=click.Path(allow_dash=True))
@click.argument("args", nargs=-1)
@click.option("--name", help="Call the job this, instead of what the spec says.")
@overrides_option
@json_option
def command(
    spec_path: str,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what `distrun launch` would run: tasks, hosts, ports, commands, TF_CONFIG.

    Nothing is started. Ports that distrun chooses are provisional: a launch chooses anew. Values
    of variables that look like secrets, such as *_TOKEN and *PASSWORD*, are shown as ***.

    \b
      distrun plan job.yaml
      distrun plan job.yaml --set cluster.worker=4 --json
    """
    from distrun.spec import load

    spec = load(spec_path, overrides=overrides, extra_args=args, name=name)
    return show_plan(spec, as_json=as_json)


def show_plan(spec: Spec, *, as_json: bool) -> int:
    """Make the plan as a launch would, with the same agent, and show it."""
    from distrun.rehearsal import rehearse

    plan = rehearse(spec)
    if as_json:
        console.put_json({"plan": _plan_as_json(plan, spec)})
        return 0
    from distrun.cli.planview import plan_view

    console.put_view(plan_view(plan, console.rich_console().width, _notes(spec)))
    return 0


def _notes(spec: Spec) -> list[str]:
    from distrun.cli.launch import tensorboard_is_installed

    notes = [*_files_notes(spec), _restarts(spec.restart)]
    if spec.tensorboard is None:
        return notes
    if not tensorboard_is_installed():
        return [*notes, "TensorBoard is not installed: a launch goes on without it"]
    port = f"port {spec.tensorboard.port}" if spec.tensorboard.port else "a free port"
    where = f"of {spec.tensorboard.logdir}, at {port} of localhost"
    return [*notes, f"TensorBoard beside it, {where}"]


def _files_notes(spec: Spec) -> list[str]:
    if not spec.sends_files:
        return []
    from distrun.jobstore import JobStore
    from distrun.sync.files import place_of, survey

    found = survey(spec, [str(JobStore.default().jobs)])
    what = f"{console.count(found.count, 'file')} ({console.size(found.size)})"
    place = place_of(spec.program)
    return [f"sent to other hosts: {what} of {place}, to a folder made at launch"]


def _restarts(policy: RestartSpec) -> str:
    if policy.max == 0:
        return "no restarts: the first failure ends the job"
    words = [f"at most {console.count(policy.max, 'restart')}"]
    words.append(f"after {console.span(policy.backoff)} to {console.span(policy.backoff_max)}")
    if policy.reset_after is not None:
        words.append(f"counted from 0 again after {console.span(policy.reset_after)} of health")
    if policy.never_on:
        words.append(f"none after exit code {', '.join(map(str, policy.never_on))}")
    return "; ".join(words)


def _plan_as_json(plan: Plan, spec: Spec) -> dict[str, Any]:
    from distrun.cli.planview import AT_LAUNCH
    from distrun.codec import to_json

    return {
        **to_json(plan),
        "tasks": [_task_as_json(task) for task in plan.tasks],
        "set_at_launch": list(AT_LAUNCH),
        "restart": to_json(spec.restart),
        "tensorboard": to_json(spec.tensorboard),
    }


def _task_as_json(task: TaskPlan) -> dict[str, Any]:
    """A task as `status --json` names it, with its command, variables and TF_CONFIG."""
    from distrun.cli.planview import read_tf_config
    from distrun.cli.secrets import masked
    from distrun.codec import to_json

    return {
        "task": task.name,
        **to_json(task),
        "env": masked(task.env),
        "tf_config": read_tf_config(task),
    }

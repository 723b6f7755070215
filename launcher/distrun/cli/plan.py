"""`distrun plan`."""

from __future__ import annotations

from typing import Any

import click

from distrun.cli import console
from distrun.cli.options import json_option, name_option, overrides_option, spec_argument
from distrun.cli.plan_view import AT_LAUNCH, mask_secrets, plan_view, read_tf_config
from distrun.cli.text_format import format_count, format_duration
from distrun.codec import to_json
from distrun.jobstore import JobStore
from distrun.plan import Plan, TaskPlan
from distrun.spec.loader import load
from distrun.spec.model import RestartSpec, Spec
from distrun.spec.units import format_bytes
from distrun.supervisor import tensorboard
from distrun.supervisor.dry_run import make_plan
from distrun.sync.file_selection import select_files, sent_folders


@click.command("plan")
@spec_argument
@click.argument("args", nargs=-1)
@name_option
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

    No task is started. Ports that distrun chooses are provisional: the launch chooses new ones.
    Values of variables that look like secrets, such as *_TOKEN and *PASSWORD*, are shown as ***.

    \b
      distrun plan job.yaml
      distrun plan job.yaml --set cluster.worker=4 --json
    """
    spec = load(spec_path, overrides=overrides, extra_args=args, name=name)
    return show_plan(spec, as_json=as_json)


def show_plan(spec: Spec, *, as_json: bool) -> int:
    """Show the plan that a launch would run. The same agents gather the hosts' facts for it."""
    plan = make_plan(spec)
    if as_json:
        console.print_json({"plan": _plan_as_json(plan, spec)})
        return 0
    console.print_renderable(plan_view(plan, console.rich_console().width, _notes(spec)))
    return 0


def _notes(spec: Spec) -> list[str]:
    notes = [*_files_notes(spec), _restarts(spec.restart)]
    if spec.tensorboard is None:
        return notes
    if not tensorboard.is_installed():
        return [*notes, "TensorBoard is not installed: the job will run without it"]
    port = f"port {spec.tensorboard.port}" if spec.tensorboard.port else "a free port"
    return [*notes, f"TensorBoard shows {spec.tensorboard.logdir} at {port} of localhost"]


def _files_notes(spec: Spec) -> list[str]:
    if not spec.sends_files:
        return []
    found = select_files(spec, [str(JobStore.default().jobs)])
    what = f"{format_count(found.count, 'file')} ({format_bytes(found.size)})"
    place = sent_folders(spec.program)
    return [f"sent to other hosts: {what} of {place}, into a new folder"]


def _restarts(policy: RestartSpec) -> str:
    if policy.max == 0:
        return "no restarts: the first failure ends the job"
    words = [f"at most {format_count(policy.max, 'restart')}"]
    shortest, longest = format_duration(policy.backoff), format_duration(policy.backoff_max)
    words.append(f"after {shortest} to {longest}")
    if policy.reset_after is not None:
        healthy = format_duration(policy.reset_after)
        words.append(f"counted from 0 again after {healthy} without a failure")
    if policy.never_on:
        words.append(f"none after exit code {', '.join(map(str, policy.never_on))}")
    return "; ".join(words)


def _plan_as_json(plan: Plan, spec: Spec) -> dict[str, Any]:
    return {
        **to_json(plan),
        "tasks": [_task_as_json(task) for task in plan.tasks],
        "set_at_launch": list(AT_LAUNCH),
        "restart": to_json(spec.restart),
        "tensorboard": to_json(spec.tensorboard),
    }


def _task_as_json(task: TaskPlan) -> dict[str, Any]:
    """A task with its command, variables and TF_CONFIG; the keys are those of `status --json`."""
    return {
        "task": task.name,
        **to_json(task),
        "env": mask_secrets(task.env),
        "tf_config": read_tf_config(task),
    }

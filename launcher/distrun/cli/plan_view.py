"""What `distrun plan` shows: the tasks, then the settings common to all, then each task's own."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from distrun.agent.protocol.causes import Cause, CauseError
from distrun.cli import console
from distrun.cli.spec_warnings import print_warnings, success_text
from distrun.codec import to_json
from distrun.errors import HostError
from distrun.job.folder import JobStore
from distrun.job.json_output import output_json, task_json
from distrun.plan import Plan, TaskPlan
from distrun.plan.ranks import AT_LAUNCH, RANKS
from distrun.redaction.secrets import mask_arguments, mask_secrets
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Spec
from distrun.spec.problems import Problem, printable
from distrun.spec.restart_spec import RestartSpec
from distrun.spec.units import format_bytes
from distrun.strategies import Workers
from distrun.supervisor import tensorboard
from distrun.supervisor.dry_run import make_plan
from distrun.sync.file_selection import select_files, sent_folders
from distrun.words.causes import cause_text
from distrun.words.formats import format_codes, format_count, format_duration, format_names
from distrun.words.table import Column, make_table

_COLUMNS = (
    Column("TASK"),
    Column("HOST", drop_rank=1),
    Column("ADDRESS"),
    Column("GPUS", drop_rank=2),
    Column("THREADS", right=True, drop_rank=2),
)
_OWN = ("DISTRUN_TASK", *RANKS)
"""Variables that differ for every task. They are shown in a section of their own."""
_WRAP = 79


def show_plan(spec: Spec, warnings: tuple[Problem, ...], *, as_json: bool) -> int:
    """Show the plan that a launch would run. The same agents gather the hosts' facts for it."""
    if not as_json:
        print_warnings(warnings)
    if any(host.pod for host in spec.hosts):
        return _show_manifest(spec, warnings, as_json=as_json)
    left_out: dict[str, Cause] = {}
    plan = make_plan(spec, left_out)
    if as_json:
        shown = {"plan": _plan_as_json(plan, spec, left_out), "warnings": to_json(warnings)}
        console.print_json(shown, map(task_json, plan.tasks))
        return 0
    console.print_renderable(plan_view(plan, console.rich_console().width, _notes(spec, left_out)))
    return 0


def _show_manifest(spec: Spec, warnings: tuple[Problem, ...], *, as_json: bool) -> int:
    """Show what is created in Kubernetes; the rest of a plan is known once the pods run."""
    from distrun.kubernetes import kubectl, manifest, pods
    from distrun.spec.yamltext import dump

    jobs = manifest.make(spec, spec.name)
    if as_json:
        made = jobs[0] if len(jobs) == 1 else json.loads(pods.as_list(jobs))
        console.print_json({"plan": {"manifest": made}, "warnings": to_json(warnings)})
    else:
        console.print_text("---\n".join(map(dump, jobs)).rstrip("\n"))
    sys.stdout.flush()  # before what is wrong with it
    try:
        words = kubectl.prefix(spec.kubernetes)
        command = [*words, "create", "--dry-run=server", "-f", "-"]
        kubectl.run(command, pods.as_list(jobs), seconds=kubectl.READ_SECONDS)
        kubectl.require(words, manifest.references(*jobs))
    except CauseError as error:  # no cluster may be in reach
        if kubectl.is_refused(error.cause):
            raise HostError(cause=error.cause) from None
        if not as_json:
            console.print_message(f"the cluster was not asked: {cause_text(error.cause)}")
    return 0


def _notes(spec: Spec, left_out: Mapping[str, Cause]) -> list[str]:
    notes = _files_notes(spec)
    if spec.workers is Workers.INDEPENDENT:
        notes.append(f"{success_text(spec)}; the workers train by themselves")
    notes.append(_restarts(spec.restart))
    used = [spec.program.interpreter_on(host) for host in spec.hosts]
    notes += [f"interpreter: {each}" for each in dict.fromkeys(filter(None, used))]
    notes += _spares_notes(spec, left_out)
    own = ((each.role.value, each.restart) for each in spec.roles)
    notes += [f"{role}: {_restarts(policy)}" for role, policy in own if policy is not None]
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
    return [f"sent to other hosts: {what} of {place}, into a new folder", *found.failures]


def _spares_notes(spec: Spec, left_out: Mapping[str, Cause]) -> list[str]:
    """Return which hosts are spares, and how small the cluster may become."""
    notes = []
    usable = [host.name for host in spec.spares if host.name not in left_out]
    if usable:
        use = "no task runs there until a host is lost"
        if spec.restart.max == 0:
            use = "they are not used without `restart`"
        notes.append(f"spare hosts: {format_names(usable)}; {use}")
    notes += [
        f"warning: the spare {name} cannot be used: {cause_text(cause)}"
        for name, cause in left_out.items()
    ]
    if spec.restart.max and (spec.spares or spec.restart.min_workers is not None):
        smallest = ", ".join(f"{role}: {count}" for role, count in _smallest_cluster(spec).items())
        notes.append(f"smallest cluster: {{{smallest}}}")
    return notes


def _smallest_cluster(spec: Spec) -> dict[str, int]:
    """Return how many tasks of each role remain at least after hosts were lost."""
    counts = {each.role.value: each.count for each in spec.roles}
    if spec.restart.min_workers is not None:
        counts["worker"] = spec.restart.min_workers
    return counts


def _restarts(policy: RestartSpec) -> str:
    if policy.max == 0:
        return "no restarts: the first failure ends the job"
    words = [f"at most {format_count(policy.max, 'restart')}"]
    if policy.on != RestartSpec().on:
        words.append(f"on {', '.join(policy.on)}")
    shortest, longest = format_duration(policy.backoff), format_duration(policy.backoff_max)
    words.append(f"after {shortest} to {longest}")
    if policy.reset_after is not None:
        healthy = format_duration(policy.reset_after)
        words.append(f"counted from 0 again after {healthy} without a failure")
    if policy.never_on:
        words.append(f"none after exit code {format_codes(policy.never_on)}")
    return "; ".join(words)


def _plan_as_json(plan: Plan, spec: Spec, left_out: Mapping[str, Cause]) -> dict[str, Any]:
    return {
        "name": plan.name,
        "strategy": plan.strategy,
        "tasks": console.ITEMS,
        "pass_env": list(plan.pass_env),
        "hosts": hosts_json(host for host in spec.hosts if host.name in plan.hosts),
        "spares": hosts_json(host for host in spec.spares if host.name not in left_out),
        "spares_left_out": {name: cause_text(cause) for name, cause in left_out.items()},
        "smallest_cluster": _smallest_cluster(spec),
        "set_at_launch": list(AT_LAUNCH),
        "workers": to_json(spec.workers),
        "success": to_json(spec.success),
        "restart": output_json(spec.restart),
        "role_restarts": {
            each.role.value: output_json(each.restart) for each in spec.roles if each.restart
        },
        "tensorboard": to_json(spec.tensorboard),
    }


def hosts_json(hosts: Iterable[HostSpec]) -> list[dict[str, str]]:
    """Return hosts as `plan --json` and `doctor --json` print them."""
    return [{"name": host.name, "kind": host.reach} for host in hosts]


def plan_view(plan: Plan, width: int, notes: Sequence[str] = ()) -> Group:
    """A whole plan. Only the table is fitted to the width; the terminal wraps the other lines."""
    parts: list[Any] = [_headline(plan), Text(""), make_table(_COLUMNS, _rows(plan), width)]
    if any(task.port_is_provisional for task in plan.tasks):
        parts.append(_plain("* provisional: the launch chooses new free ports"))
    parts += [_plain(note) for note in notes]
    settings = {task.name: _settings(task) for task in plan.tasks}
    first, *others = settings.values()
    common = set(first).intersection(*others)
    title = "every task" if others else plan.tasks[0].name
    parts += _section(title, [*(each for each in first if each in common), *_other_variables(plan)])
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, lines in settings.items():
        own = tuple(line for line in lines if line not in common)
        groups.setdefault(own, []).append(name)
    for own, members in groups.items():
        parts += _section(format_names(members), own)
    parts += _section("ranks and addresses", list(_rank_lines(plan.tasks)))
    parts += _section("TF_CONFIG", list(_tf_config_lines(plan.tasks)))
    return Group(*parts)


def _headline(plan: Plan) -> Any:
    count = format_count(len(plan.tasks), "task")
    hosts = plan.hosts[0] if len(plan.hosts) == 1 else f"{len(plan.hosts)} hosts"
    return Text.assemble(
        (printable(plan.name), "bold"), f"  {plan.strategy}  {count} on {printable(hosts)}"
    )


def _plain(text: str) -> Any:
    return Text(printable(text), no_wrap=True, overflow="ignore")


def _section(title: str, lines: Sequence[str]) -> list[Any]:
    if not lines:
        return []
    return [Text(""), Text(title, style="bold"), *(_plain(f"  {line}") for line in lines)]


def _rows(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "TASK": task.name,
            "HOST": task.host,
            "ADDRESS": (task.address or "none") + ("*" if task.port_is_provisional else ""),
            "GPUS": _gpus(task.env.get("CUDA_VISIBLE_DEVICES")),
            "THREADS": task.env.get("TF_NUM_INTRAOP_THREADS", "inherited"),
        }
        for task in plan.tasks
    ]


def _gpus(visible: str | None) -> str:
    if visible is None:
        return "as found"
    return "none" if visible in ("", "-1") else visible


def _settings(task: TaskPlan) -> list[str]:
    """Return how a task is run, but for what differs for every task."""
    env = {name: value for name, value in task.env.items() if name not in _OWN}
    return [
        f"run    {shlex.join(mask_arguments(task.argv))}",
        f"in     {task.workdir}",
        *(f"set    {name}={value}" for name, value in mask_secrets(env).items()),
        *(f"unset  {name}" for name in task.unset),
    ]


def _other_variables(plan: Plan) -> list[str]:
    where = "(from this shell; its value is shown nowhere)"
    lines = [f"pass   {name} {where}" for name in plan.pass_env]
    own = textwrap.wrap(f"DISTRUN_TASK, {', '.join(AT_LAUNCH)}", _WRAP - len("  own    "))
    return [*lines, f"own    {own[0]}", *(f"       {rest}" for rest in own[1:])]


def _rank_lines(tasks: Sequence[TaskPlan]) -> Iterator[str]:
    """The addresses of all tasks once, then each task's ranks."""
    first = tasks[0]
    if first.all_addresses is not None:
        yield "DISTRUN_ADDRESS=(each task's ADDRESS above)"
        if first.all_addresses == first.cluster:
            yield "DISTRUN_ADDRESSES=(TF_CONFIG's cluster)"
        else:
            yield from _cluster_lines(first.all_addresses.addresses, "DISTRUN_ADDRESSES={", "}")
    lines = [
        " ".join(f"{name}={task.env[name]}" for name in RANKS if name in task.env) for task in tasks
    ]
    width = max(map(len, lines))
    for task, line in zip(tasks, lines, strict=True):
        yield f"{line:<{width}}  for {task.name}"


def _tf_config_lines(tasks: Sequence[TaskPlan]) -> Iterator[str]:
    """Each cluster once, and below it each task's own end of TF_CONFIG."""
    clusters: dict[str, list[TaskPlan]] = {}
    for task in tasks:
        if task.cluster is not None:
            clusters.setdefault(task.cluster.text, []).append(task)
    for text, members in clusters.items():
        yield from _cluster_lines(json.loads(text), '{"cluster": {', "},")
        ends = [task.tf_config_parts[-1].removeprefix(", ") for task in members]
        width = max(map(len, ends))
        for task, end in zip(members, ends, strict=True):
            yield f" {end:<{width}}  for {task.name}"
    if all(task.tf_config is None for task in tasks):
        if any(task.owns_tf_config for task in tasks):
            yield "not set: the program sets it (program.tf_config)"
        else:
            yield "not set: the strategy runs in one process"


def _cluster_lines(cluster: dict[str, Any], begin: str, last: str) -> Iterator[str]:
    if not cluster:
        yield begin + last
    for number, (role, addresses) in enumerate(cluster.items()):
        label = (begin if number == 0 else " " * len(begin)) + json.dumps(role) + ": "
        end = "," if number < len(cluster) - 1 else last
        words = json.dumps(addresses) + end
        yield from textwrap.wrap(
            words,
            width=_WRAP - 2,
            initial_indent=label,
            subsequent_indent=" " * (len(label) + 1),
            break_long_words=False,
            break_on_hyphens=False,
        )

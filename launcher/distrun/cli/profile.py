"""`distrun profile`."""

from __future__ import annotations

import click

from distrun.advice import profile
from distrun.cli import console
from distrun.cli.options import job_argument, json_option, output_option, task_option
from distrun.cli.output_file import write_file
from distrun.cli.profile_view import profile_json, profile_view, speedscope
from distrun.cli.stacks import take
from distrun.errors import HostError
from distrun.job.folder import JobStore
from distrun.supervisor.stack_collector import find_program


@click.command("profile")
@job_argument(running=True)
@task_option
@click.option(
    "--seconds", type=click.IntRange(1, 300), default=10, help="How long to look. Default: 10."
)
@output_option(
    "Write the stacks of all tasks, too, for https://www.speedscope.app (a flame graph)."
)
@json_option
def command(
    job: str | None, tasks: tuple[str, ...], seconds: int, output: str | None, as_json: bool
) -> int:
    """Show where the time of each task goes, not stopping it. Default: the running job.

    All tasks are sampled at the same time, on all hosts: what part of the time each one spends in
    its step, waits in it for others, waits for input, saves, evaluates, prints or runs its own
    Python, with the line of your program. If the others wait for one task, it is named, with what
    sets it apart: a longer step, less of a core, a generator that is slow, a checkpoint.

    With py-spy here (pip install py-spy), and nothing on the hosts; without it, only busy and idle
    times are known.

    \b
      distrun profile mnist --seconds 2 -o mnist.json
    """
    import json
    from pathlib import Path

    folder = JobStore.default().find(job)
    found = take(folder, tasks, seconds=seconds)
    profiles = [each for each in map(profile.profile, found.processes) if each is not None]
    state = folder.state()
    members = {task.name for task in state.synchronous_tasks}
    hosts = {task.name: task.host for task in state.tasks.values()}
    straggler = profile.straggler(profiles, members, hosts)
    if as_json:
        shown = profile_json(profiles, straggler, found)
        console.print_json({"job_id": folder.job_id, "seconds": seconds, **shown})
    else:
        has_program = find_program() is not None
        view = profile_view(
            profiles, straggler, found, console.rich_console().width, has_program=has_program
        )
        console.print_renderable(view)
    if output is not None:
        with write_file(Path(output)) as file:
            file.write(json.dumps(speedscope(profiles, folder.job_id)).encode())
        console.print_message(f"wrote {output}: open it with https://www.speedscope.app")
    return 0 if profiles else HostError.exit_code

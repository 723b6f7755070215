"""`distrun stacks`."""

from __future__ import annotations

import click

from distrun.cli import console
from distrun.cli.logs import check_choice, chosen_tasks
from distrun.cli.options import job_argument, json_option, task_option
from distrun.cli.stacks_view import stacks_json, stacks_view
from distrun.errors import HostError, UsageError
from distrun.job import control
from distrun.job.folder import JobFolder, JobStore
from distrun.supervisor.stack_collector import Stacks, find_program


@click.command("stacks")
@job_argument(running=True)
@task_option
@click.option("--native", is_flag=True, help="Show frames of C and C++ functions, too.")
@click.option("--all-threads", is_flag=True, help="Show the threads of libraries, too.")
@json_option
def command(
    job: str | None, tasks: tuple[str, ...], native: bool, all_threads: bool, as_json: bool
) -> int:
    """Show what each task of a running job executes, not stopping it. Default: the running job.

    Each Python thread is shown with its calls, the innermost first. Tasks whose main threads have
    the same stack are one entry; the entry with the fewest tasks comes first: in a job that hangs,
    that is the task to look at. Lines of your own program are marked with >.

    It needs py-spy here, and nothing on the hosts: pip install py-spy

    \b
      distrun stacks
      distrun stacks mnist -t worker:1 --all-threads
    """
    folder = JobStore.default().find(job)
    found = take(folder, tasks, native=native)
    if as_json:
        console.print_json({"job_id": folder.job_id, **stacks_json(found)})
    else:
        console.print_renderable(stacks_view(found, all_threads=all_threads))
    is_known = any(process.threads for process in found.processes)
    return 0 if is_known else HostError.exit_code


def take(
    folder: JobFolder, tasks: tuple[str, ...] = (), *, native: bool = False, seconds: int = 0
) -> Stacks:
    """Return where the tasks of a running job stand; `tasks` as `-t` names them, or all.

    `seconds`: record for so long, also without py-spy.

    Raises:
        DistrunError: it has ended, or they cannot be taken from here.
    """
    command = "profile" if seconds else "stacks"
    if folder.is_elsewhere:
        number = folder.state().batch_id
        raise HostError(
            f"the supervisor of job {folder.job_id} is not on this machine",
            hint=f"run it there: srun --jobid {number} --overlap distrun {command} {folder.job_id}",
        )
    program = find_program()
    if program is None and not seconds:
        raise HostError("py-spy is not installed here", hint="pip install py-spy")
    names = list(folder.state().tasks)
    check_choice([names], tasks)
    names = chosen_tasks(names, tasks) if tasks else []
    found = control.take_stacks(folder, program or "", names, native=native, seconds=seconds)
    if found is None:
        raise UsageError(
            f"job {folder.job_id} has ended: nothing of it runs",
            hint=f"see what it printed last: distrun logs {folder.job_id} -n 20",
        )
    return found

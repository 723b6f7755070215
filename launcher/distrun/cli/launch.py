"""`distrun launch`."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.findings import Findings
from distrun.cli.options import overrides_option

if TYPE_CHECKING:
    from distrun import events, lifecycle
    from distrun.agent.protocol import file_messages
    from distrun.logs import Follower
    from distrun.spec.model import Spec
    from distrun.sync.manifest import Manifest


_TICK_SECONDS = 1.0
"""How often the live line's time moves on, where there is one."""


@click.command("launch", short_help="Run a job.")
@click.argument("spec_path", metavar="SPEC", type=click.Path(allow_dash=True))
@click.argument("args", nargs=-1)
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and leave it running.")
@click.option("--name", help="Call the job this, instead of what the spec says.")
@overrides_option
@click.option("--no-preflight", is_flag=True, help="Start without trying out the hosts first.")
@click.option("--dry-run", is_flag=True, help="Show what would run: the same as `distrun plan`.")
def command(
    spec_path: str,
    args: tuple[str, ...],
    detach: bool,
    name: str | None,
    overrides: tuple[str, ...],
    no_preflight: bool,
    dry_run: bool,
) -> int:
    """Run the job that the YAML file SPEC describes.

    In the foreground the tasks' output is shown with a prefix for each task, and the exit code
    is the job's: 0, or that of the task that failed first. Ctrl-C ends the job gracefully, a
    second one at once. What stands after -- is added to the program's arguments.

    \b
      distrun launch job.yaml
      distrun launch job.yaml --set cluster.worker=4 -- --epochs 10
      id=$(distrun launch job.yaml -d) && distrun logs -f "$id"
    """
    from distrun.spec import load

    spec = load(spec_path, overrides=overrides, extra_args=args, name=name)
    if dry_run:
        from distrun.cli.plan import show_plan

        return show_plan(spec, as_json=False)
    from distrun.cli.sending import read_files

    manifest = read_files(spec)
    launch = _Launch(
        _without_missing_tensorboard(spec), preflight=not no_preflight, manifest=manifest
    )
    return launch.run(detach=detach)


def _without_missing_tensorboard(spec: Spec) -> Spec:
    """TensorBoard is an extra: where it is not installed, the job runs without it."""
    import dataclasses

    if spec.tensorboard is None or tensorboard_is_installed():
        return spec
    console.say("TensorBoard is not installed (pip install tensorboard); going on without it")
    return dataclasses.replace(spec, tensorboard=None)


def tensorboard_is_installed() -> bool:
    from importlib.util import find_spec

    found = find_spec("tensorboard")
    # A folder of that name, of logs for one, is a package without origin.
    return found is not None and found.origin is not None


class _Launch:
    """One launch: what is shown of it, and what it exits with."""

    def __init__(self, spec: Spec, *, preflight: bool, manifest: Manifest | None) -> None:
        from distrun.cli.screen import Screen
        from distrun.cli.sending import SendingBar
        from distrun.jobstore import JobStore
        from distrun.session import Output, Session

        self._began = time.monotonic()
        self._output = Output(sys.stdout.fileno())
        self._screen = Screen(self._output, sys.stdout)
        self._bar = SendingBar()
        self._follower: Follower | None = None
        self._asked_to_stop = False
        self._hung_up = False
        self._shows_output = False
        self._findings = Findings()
        self._before_tasks = "preparing the hosts"
        self._folder = JobStore.default().new_folder(spec.name)
        self._session = Session(
            self._folder,
            spec,
            preflight=preflight,
            on_event=self._on_event,
            on_signal=self._on_signal,
            on_sending=self._on_sending,
            manifest=manifest,
        )

    def run(self, *, detach: bool) -> int:
        """The exit code: the job's, or 0 for one that was left running."""
        self._shows_output = not detach
        try:
            for _ in self._session.run(_all_executed if detach else _never, self._tick):
                self._refresh()
            if detach and _all_executed(self._session.state) and not self._asked_to_stop:
                return self._leave()
            self._session.close()
            self._screen.show("")
            if self._follower is not None:
                self._screen.write(self._follower.finish())
        finally:
            self._bar.close()
            self._screen.clear()
            if self._follower is not None:
                self._follower.close()
        return self._result(self._session.state)

    def _leave(self) -> int:
        """Let the job go on. One that is over already had its tasks executed all the same.

        So what a detached launch says and exits with does not hang on how fast a job ends.
        """
        self._screen.show("")
        if self._session.state.phase.is_final:
            self._session.close()
        else:
            self._session.detach()
        console.put(self._folder.job_id)
        return 0

    def _tick(self) -> float | None:
        """How long to sleep while nothing happens; for ever, where nothing is to be drawn."""
        polls = None if self._follower is None else self._follower.poll_interval
        return polls or (_TICK_SECONDS if self._screen.is_live else None)

    def _refresh(self) -> None:
        from distrun.cli.screen import live_text
        from distrun.session import SIGPIPE_EXIT

        follower = self._follower
        if follower is not None and follower.poll_interval is not None:
            self._screen.write(follower.read())
        elapsed = time.monotonic() - self._began
        state, progress = self._session.state, self._session.progress
        live = live_text(state, progress, elapsed, self._before_tasks)
        self._screen.show("" if self._bar.is_shown else live)
        if self._output.is_gone and not self._asked_to_stop:
            if self._output.is_terminal:
                # Writing may fail a moment before the hang-up's signal is there.
                self._on_signal(signal.SIGHUP)
            else:
                # As any program in a pipe: when nobody reads any more, end.
                self._stop("the end of its output's reader", SIGPIPE_EXIT)

    def _on_event(self, event: events.Event, state: lifecycle.JobState) -> None:
        from distrun import events as kinds

        if isinstance(event, kinds.JobPlanned) and state.tasks and self._shows_output:
            hosts = list(dict.fromkeys(task.host for task in state.tasks.values()))
            where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
            self._say(f"job {state.job_id}: {console.count(len(state.tasks), 'task')} on {where}")
            self._follow(list(state.tasks))
        self._on_preflight(event, state.job_id)
        self._on_host(event, state)
        if isinstance(event, kinds.LogsIncomplete):
            from distrun.cli.event_text import logs_incomplete_words

            self._say(logs_incomplete_words(event))
        if isinstance(event, kinds.FilesPreserved):
            what = f"{console.count(event.files, 'file')} ({console.size(event.size)})"
            self._say(f"on {event.host} the tasks left {what}, now in {event.folder}")
        if isinstance(event, kinds.RestartPlanned):
            from distrun.cli.event_text import restart_words

            self._say(restart_words(event))
        if isinstance(event, kinds.VerdictReached) and state.outcome is None:
            self._on_verdict(event, state)
        if isinstance(event, kinds.TensorBoardStarted):
            self._say(f"TensorBoard is at {event.address}")
        if isinstance(event, kinds.TensorBoardEnded):
            self._say(f"TensorBoard {event.how}; the job goes on")

    def _on_host(self, event: events.Event, state: lifecycle.JobState) -> None:
        from distrun import events as kinds

        if isinstance(event, kinds.LinkLost):
            is_given_up = state.killing and state.timeouts.link is None
            next_ = "" if is_given_up else "; trying to reach it"
            self._say(f"the link to {event.host} is lost: {event.reason}{next_}")
        if isinstance(event, kinds.LinkRestored):
            self._say(f"the link to {event.host} is there again")
        if isinstance(event, (kinds.HostLost, kinds.HostFault)) and state.outcome is None:
            how = "is lost" if isinstance(event, kinds.HostLost) else "cannot go on"
            self._say(f"{event.host} {how}: {event.reason}; the job goes on without it")

    def _on_verdict(self, event: events.VerdictReached, state: lifecycle.JobState) -> None:
        """A failure with which the job goes on."""
        from distrun.cli.event_text import stays_down_words, verdict_words
        from distrun.lifecycle import TaskPhase

        failed = state.tasks.get(event.verdict.task or "")
        if failed is not None and failed.phase is TaskPhase.FAILED:
            self._say(stays_down_words(failed.name))
        self._say(verdict_words(event))

    def _on_sending(self, message: file_messages.TransferProgress) -> None:
        if self._session.state.outcome is not None:
            self._bar.close()
            return
        hosts = console.count(message.hosts, "host")
        self._bar.update(f"sending files to {hosts}", message.done, message.total)
        if self._bar.is_shown:
            self._screen.show("")

    def _on_preflight(self, event: events.Event, job_id: str) -> None:
        from distrun import events as kinds

        if isinstance(event, kinds.PreflightStarted):
            self._before_tasks = f"trying out {console.count(event.hosts, 'host')}"
        if isinstance(event, kinds.PreflightFound):
            self._screen.clear()
            self._findings.say(event)
        if isinstance(event, kinds.PreflightEnded) and self._findings.unsaid:
            self._say(f"and {self._findings.unsaid} more: distrun events {job_id}")

    def _follow(self, tasks: list[str]) -> None:
        from distrun.cli.logview import task_logs, view
        from distrun.logs import Follower

        follower = Follower(task_logs(self._folder, tasks), view(tasks, sys.stdout))
        self._follower = follower
        self._session.watch(follower.fileno(), lambda: self._screen.write(follower.read()))

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGHUP and self._hung_up:
            return  # noticed before it came
        self._hung_up = self._hung_up or (number == signal.SIGHUP and self._output.is_gone)
        if self._asked_to_stop:
            self._say("killing it at once")
        else:
            how = "; press Ctrl-C again to kill it at once" if number == signal.SIGINT else ""
            self._say(f"{name}: stopping job {self._folder.job_id}{how}")
        self._stop(name, 128 + number)

    def _say(self, text: str) -> None:
        self._bar.close()
        self._screen.clear()
        console.say(text)

    def _stop(self, reason: str, exit_code: int) -> None:
        from distrun.agent.protocol import StopJob

        self._asked_to_stop = True
        self._session.stop(StopJob(reason, signal.SIGTERM, None, exit_code))

    def _result(self, state: lifecycle.JobState) -> int:
        from distrun.cli.report import failure_report

        outcome = state.outcome
        if outcome is None:
            return 0
        if not self._folder.events_file.exists():
            console.say(f"the job's record, {self._folder.path}, was removed while it ran")
        if outcome.result != "succeeded":
            console.say_lines(failure_report(self._folder, state), headline=1)
        return outcome.exit_code


def _never(_: lifecycle.JobState) -> bool:
    return False


def _all_executed(state: lifecycle.JobState) -> bool:
    """Whether every task's program has been executed, whatever has come of it since."""
    return bool(state.tasks) and all(
        task.started_at is not None or task.attempt > 0 for task in state.tasks.values()
    )

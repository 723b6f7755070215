"""A job that `distrun launch` runs: its output, its messages and its result."""

from __future__ import annotations

import signal
import sys

from distrun.agent.protocol import Cause, Code, StopJob
from distrun.cli import console
from distrun.cli.launch_view import LaunchView
from distrun.cli.logs import task_logs
from distrun.cli.terminal import SIGPIPE_EXIT, Output
from distrun.events import Event, JobPlanned, Result
from distrun.frozen import replace
from distrun.jobstore import JobStore
from distrun.lifecycle import JobState
from distrun.logs import Follower, View
from distrun.session import Session
from distrun.spec.model import Spec
from distrun.supervisor import tensorboard
from distrun.sync.manifest import Manifest

_REDRAW_SECONDS = 1.0
"""How often the status line is redrawn on a terminal."""


def without_missing_tensorboard(spec: Spec) -> Spec:
    """Return the spec without TensorBoard if that is not installed, and say so."""
    if spec.tensorboard is None or tensorboard.is_installed():
        return spec
    console.print_message(
        "TensorBoard is not installed (pip install tensorboard); the job runs without it"
    )
    return replace(spec, tensorboard=None)


class LaunchedJob:
    """Runs one job: passes its events to the view, and signals to its supervisor."""

    def __init__(
        self, spec: Spec, *, preflight: bool, manifest: Manifest | None, detach: bool
    ) -> None:
        self._detach = detach
        self._output = Output(sys.stdout.fileno())
        self._view = LaunchView(self._output, sys.stdout)
        self._follower: Follower | None = None
        self._stop_requested = False
        self._terminal_is_gone = False
        self._folder = JobStore.default().new_folder(spec.name)
        self._session = Session(
            self._folder,
            spec,
            preflight=preflight,
            on_event=self._on_event,
            on_signal=self._on_signal,
            on_transfer=lambda message: self._view.show_transfer(message, self._session.state),
            manifest=manifest,
        )

    def run(self) -> int:
        """Return the exit code: the job's, or 0 if it was left running."""
        session, view = self._session, self._view
        try:
            for _ in session.run(
                _all_executed if self._detach else lambda _: False, self._sleep_time
            ):
                self._refresh()
            if self._detach and _all_executed(session.state) and not self._stop_requested:
                return self._detach_from_job()
            session.close()
            view.clear_status()
            if self._follower is not None:
                view.write_output(self._follower.finish())
        finally:
            view.close()
            if self._follower is not None:
                self._follower.close()
        return self._result(session.state)

    def _detach_from_job(self) -> int:
        """Print the job's id, and leave the job running without this command.

        A job that has ended already is treated the same way: all its tasks were executed. So the
        result of a detached launch does not depend on how fast the job ends.
        """
        self._view.clear_status()
        if self._session.state.phase.is_final:
            self._session.close()
        else:
            self._session.detach()
        console.print_text(self._folder.job_id)
        return 0

    def _sleep_time(self) -> float | None:
        """Seconds to wait for the next event; None: without limit, as nothing needs redrawing."""
        poll_interval = None if self._follower is None else self._follower.poll_interval
        return poll_interval or (_REDRAW_SECONDS if self._view.has_status_line else None)

    def _refresh(self) -> None:
        follower = self._follower
        if follower is not None and follower.poll_interval is not None:
            self._view.write_output(follower.read())
        self._view.show_status(self._session.state, self._session.progress)
        if self._output.is_gone and not self._stop_requested:
            if self._output.is_terminal:
                # Writing may fail a moment before SIGHUP arrives.
                self._on_signal(signal.SIGHUP)
            else:
                # Like any program in a pipe: end when nobody reads the output.
                self._stop(Cause(Code.OUTPUT_READER_GONE), SIGPIPE_EXIT)

    def _on_event(self, event: Event, state: JobState) -> None:
        if isinstance(event, JobPlanned) and state.tasks and not self._detach:
            self._view.show_plan(state)
            self._follow_logs(list(state.tasks))
        self._view.show_event(event, state)

    def _follow_logs(self, tasks: list[str]) -> None:
        view = View(tasks, colour=console.uses_colour(sys.stdout))
        follower = Follower(task_logs(self._folder, tasks), view)
        self._follower = follower
        self._session.watch(follower.fileno(), lambda: self._view.write_output(follower.read()))

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGHUP and self._terminal_is_gone:
            return  # _refresh has handled it already
        is_hangup = number == signal.SIGHUP and self._output.is_gone
        self._terminal_is_gone = self._terminal_is_gone or is_hangup
        if self._stop_requested:
            self._view.print("killing it at once")
        else:
            how = "; press Ctrl-C again to kill it at once" if number == signal.SIGINT else ""
            self._view.print(f"{name}: stopping job {self._folder.job_id}{how}")
        self._stop(Cause(Code.LAUNCH_SIGNALLED, signal=number), 128 + number)

    def _stop(self, cause: Cause, exit_code: int) -> None:
        self._stop_requested = True
        self._session.stop(StopJob(cause, signal.SIGTERM, None, exit_code))

    def _result(self, state: JobState) -> int:
        outcome = state.outcome
        if outcome is None:
            return 0
        if not self._folder.events_file.exists():
            console.print_message(
                f"the job's record, {self._folder.path}, was removed while the job ran"
            )
        if outcome.result is not Result.SUCCEEDED:
            from distrun.cli.report import failure_report

            console.print_lines(failure_report(self._folder, state), bold=1)
        return outcome.exit_code


def _all_executed(state: JobState) -> bool:
    """Whether every task's program was executed. Some may have exited since."""
    # Tasks start in their order, so the last one tells soonest that some are missing.
    tasks = (state.tasks[name] for name in reversed(state.tasks))
    return bool(state.tasks) and all(
        task.started_at is not None or task.attempt > 0 for task in tasks
    )

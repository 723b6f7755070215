"""A job that `launch` runs or `attach` shows: its output, its messages and its result."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from distrun.agent.linux.facts import pid_namespace
from distrun.agent.protocol import Cause, Code, StopJob
from distrun.agent.protocol.file_messages import TransferProgress
from distrun.cli import console, streams
from distrun.cli.launch_view import LaunchView
from distrun.cli.logs import DroppedOutput, left_out_text
from distrun.cli.options import LaunchOptions
from distrun.cli.output import MOST_AHEAD, Output
from distrun.cli.program_check import ProgramCheck
from distrun.cli.spec_warnings import find_warnings, runs_python, warning_lines
from distrun.errors import DistrunError, OutputError
from distrun.job import leftovers
from distrun.job.chosen_logs import chosen_tasks
from distrun.job.end_report import closing_lines
from distrun.job.events import Event, JobPlanned
from distrun.job.job import Job
from distrun.job.session import FollowedJob, Listener, Session, all_executed
from distrun.lifecycle import JobState
from distrun.logs import Follower, StartupFilter, TaskLog, View
from distrun.spec.model import Spec
from distrun.spec.problems import Problem
from distrun.words.causes import cause_text
from distrun.words.formats import format_names

_WATCH_SECONDS = 0.2
"""How long a job runs until its output is waited for."""
_CHECK_SECONDS = 0.5
"""How long after their start the checks of the program may delay the job's end."""
_REDRAW_SECONDS = 1.0
"""How often the status line is redrawn on a terminal."""
_END_SECONDS = 2.0
"""How long the job may take to end after the third signal."""
_OUTPUT_SECONDS = 2.0
"""How long the reader may take for the rest of the output of a job that a signal has stopped."""
_REPORT_SECONDS = 0.5
"""The same for the report after it."""


class ShownJob(Listener):
    """Shows a job until it ends: the output of its tasks, messages about its events, its result."""

    def __init__(self, session: FollowedJob, options: LaunchOptions) -> None:
        session.listener = self
        self._session, self._options = session, options
        self.folder = session.folder
        self._startup = None if options.all_output else StartupFilter()
        self._output = Output(1)
        self._messages = Output(2, beside=self._output, bounded=True)
        self._view = LaunchView(self._output, sys.stdout, (self._messages, sys.stderr))
        self._is_paused = False
        self._reported_failure = False
        self._deadline: float | None = None
        """When to stop waiting for the readers of the output; None: never."""
        self._follower: Follower | None = None
        self._chosen: list[str] = []
        """The tasks whose output is shown."""
        self._has_shown_all = False
        self._stop_requested = False

    def run(self) -> int:
        """Return the exit code: the job's, or another one if it was left running."""
        messages = streams.text_stream(self._messages, sys.stderr, line_buffering=True)
        try:
            with contextlib.redirect_stderr(messages):
                try:
                    code = self._run()
                finally:
                    self._finish_writing()
        finally:
            self._session.restore_signals()
            if self._stop_requested:
                streams.discard_when_stalled()  # an error may still be printed
        return code

    def _run(self) -> int:
        session, view = self._session, self._view
        session.watch(self._output.progress, self._on_written)
        try:
            for _ in session.run(lambda state: self._left(state) is not None, self._sleep_time):
                self._refresh()
            code = self._left(session.state)
            if code is not None:
                self._leave()
                return code
            session.close()
            view.clear_status()
            self._show_rest()
        finally:
            view.close()
            if self._follower is not None:
                self._follower.close()
        return self._result(session.state)

    def _show_rest(self) -> None:
        if self._stop_requested:
            self._deadline = time.monotonic() + _OUTPUT_SECONDS
        shown = True
        for block in () if self._follower is None else self._follower.finish():
            self._view.write_output([block])
            shown = self._wait_for_reader(self._output, at_most=MOST_AHEAD)
            if not shown:
                break
        shown = shown and self._wait_for_reader(self._output)
        self._report_failure()
        self._has_shown_all = shown and self._output.failure is None
        if not shown:
            self._view.print(
                "the last lines are not shown, because nothing reads the output: "
                f"distrun logs {self.folder.job_id}"
            )

    def _wait_for_reader(self, output: Output, at_most: int = 0) -> bool:
        """Wait until at most so many bytes are pending. A signal or the deadline ends this."""
        while not output.wait(at_most, self._session.signals, self._deadline):
            if not self._session.read_signals():
                return False
            self._deadline = time.monotonic()
            self._stop_requested = True
        return True

    def _finish_writing(self) -> None:
        """Wait for the readers of the last messages, and of what is left after an error."""
        if self._stop_requested:
            self._deadline = time.monotonic() + _REPORT_SECONDS
        self._wait_for_reader(self._messages)
        self._deadline = time.monotonic() + _REPORT_SECONDS
        self._wait_for_reader(self._output)

    def _sleep_time(self) -> float | None:
        """Seconds to wait for the next event; None: without limit, as nothing needs redrawing."""
        redraw = _REDRAW_SECONDS if self._view.has_status_line else None
        if self._follower is None or self._is_paused or self._follower.wait is None:
            return redraw
        return self._follower.wait if redraw is None else min(self._follower.wait, redraw)

    def _refresh(self) -> None:
        follower = self._follower
        if follower is not None and follower.wait == 0.0 and not self._is_paused:
            self._show_output()
        self._view.show_status(self._session.state, self._session.progress)
        if self._output.is_gone and not self._stop_requested:
            if self._output.is_terminal:
                # Writing may fail a moment before SIGHUP arrives.
                self.on_signal(signal.SIGHUP)
            else:
                # Like any program in a pipe: end when nobody reads the output.
                self._on_reader_gone()
        self._report_failure()

    def _report_failure(self) -> None:
        failure = self._output.failure
        if failure is not None and not self._output.is_gone and not self._reported_failure:
            self._reported_failure = True
            why, where = streams.failure_text(failure), f"distrun logs {self.folder.job_id}"
            self._view.print(f"{why}; the tasks' output is in the logs: {where}")

    def on_event(self, event: Event, state: JobState) -> None:
        is_first_plan = isinstance(event, JobPlanned) and self._follower is None
        if is_first_plan and state.tasks and not self._options.detach:
            self._view.show_plan(state)
            if self._options.shows_output:
                self._follow_logs(state)
        self._view.show_event(event, state)

    def _follow_logs(self, state: JobState) -> None:
        tasks = [*state.tasks]
        if self._startup is not None:
            self._startup = StartupFilter(state.gpu_tasks)
        colour = console.uses_colour(sys.stdout)
        view = View(tasks, colour=colour, startup=self._startup)
        self._chosen = chosen_tasks(tasks, self._options.tasks)
        logs = [TaskLog.of(self.folder, task) for task in self._chosen]
        self._follower = Follower(
            logs,
            view,
            starts=self._log_starts(logs, view),
            fold=self._startup is not None and self._output.is_terminal,
            polls=self.folder.is_elsewhere,
            watch_after=_WATCH_SECONDS,
        )
        self._session.watch(self._follower.fileno(), self._show_output)

    def _show_output(self) -> None:
        """Write new output. While the reader is behind, the rest stays in the logs."""
        if self._follower is None:
            return
        self._view.write_output(self._follower.read())
        if self._output.is_behind or self._output.failure is not None:
            self._session.unwatch(self._follower.fileno())
            self._is_paused = True

    def _on_written(self) -> None:
        self._output.acknowledge()
        can_write = not self._output.is_behind and self._output.failure is None
        if self._is_paused and can_write and self._follower is not None:
            self._is_paused = False
            self._session.watch(self._follower.fileno(), self._show_output)

    def _result(self, state: JobState) -> int:
        outcome = state.outcome
        if outcome is None:
            return 0
        if not self.folder.events_file.exists():
            text = f"the job's record, {self.folder.path}, was removed while the job ran"
            console.print_message(f"{text}; output since then is not shown")
        if self._follower is not None:
            on_dropped = DroppedOutput([self.folder])
            for task, size in self._follower.dropped.items():
                on_dropped(task, size)
        left_out = left_out_text(0 if self._startup is None else self._startup.count)
        is_seen = self._has_shown_all and self._output.shares(self._messages)
        shown = self._chosen if is_seen else []  # their last lines are not repeated
        lines = closing_lines(Job(self.folder, state), shown=shown, left_out=left_out)
        console.print_lines(lines, bold=None if len(lines) == 1 else 1)
        unended = leftovers.unended_error(self.folder, state)
        if unended is None:
            return outcome.exit_code
        console.print_error(unended)
        return outcome.exit_code or unended.exit_code

    def _left(self, state: JobState) -> int | None:
        """Return with which exit code to leave the job running; None: it is followed."""
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def _log_starts(self, logs: list[TaskLog], view: View) -> list[int]:
        """Return from which offsets on the logs are followed."""
        raise NotImplementedError

    def _on_reader_gone(self) -> None:
        raise NotImplementedError


class LaunchedJob(ShownJob):
    """Passes the events of a job to the view, and signals to its supervisor.

    `shown_before`: the sizes of logs that a resumed job had already: they are not shown again.
    """

    _session: Session

    def __init__(
        self, session: Session, spec: Spec, options: LaunchOptions, shown_before: dict[str, int]
    ) -> None:
        super().__init__(session, options)
        self._shown_before = shown_before
        self._spec = spec
        self._signals = 0
        self._check: ProgramCheck | None = None
        """The checks of the program that run beside the job."""
        self._return_due: float | None = None
        """When to return without the job's end, after the third signal."""
        self._exit_code = 0
        """The exit code then."""
        self._terminal_is_gone = False
        self._is_left = False

    def check_program(self, check: ProgramCheck | None) -> None:
        """Check the program while the job starts and runs, and print the warnings.

        The job's end does not wait for them. `check`: the one that has begun; it is closed.
        """
        if check is None and not runs_python(self._spec):
            self._print_warnings(find_warnings(self._spec))
            return
        try:
            self._check = check or ProgramCheck(self._spec)
        except OSError as error:
            self._view.print(f"the program is not checked: {error}")
            return
        self._session.watch(self._check.fileno(), self._on_checked)

    def _on_checked(self) -> None:
        if self._check is not None and self._check.read():
            self._reap_later(self._check)
            self._end_check()

    def _reap_later(self, check: ProgramCheck) -> None:
        with contextlib.suppress(OSError):
            exited = check.exit_descriptor()

            def reap() -> None:
                check.reap()
                self._session.unwatch(exited)
                os.close(exited)

            self._session.watch(exited, reap)

    def _end_check(self) -> None:
        check, self._check = self._check, None
        if check is None:
            return
        self._session.unwatch(check.fileno())
        with contextlib.closing(check):
            self._print_warnings(check.warnings_within(_CHECK_SECONDS))

    def _print_warnings(self, warnings: tuple[Problem, ...]) -> None:
        if warnings:
            self._view.print_lines(warning_lines(warnings))

    def run(self) -> int:
        try:
            code = super().run()
        finally:
            if self._check is not None:
                self._check.close()
        if self._is_left:
            self._print_job_id()
        return code

    def _result(self, state: JobState) -> int:
        self._end_check()
        return super()._result(state)

    def _left(self, state: JobState) -> int | None:
        # Also of one that has ended: how fast it does makes no difference to a detached launch.
        is_left = self._options.detach and all_executed(state) and not self._stop_requested
        return 0 if is_left else None

    def _leave(self) -> None:
        self._is_left = True
        self._view.clear_status()
        if self._session.state.phase.is_final:
            self._session.close()
        else:
            self._session.detach()
        self._end_check()

    def _log_starts(self, logs: list[TaskLog], view: View) -> list[int]:  # noqa: ARG002
        return [self._shown_before.get(log.task, 0) for log in logs]

    def _print_job_id(self) -> None:
        """Print the id of the job that was left running. The launch succeeds even if this fails."""
        job_id = self.folder.job_id
        try:
            console.print_text(job_id)
            sys.stdout.flush()
        except (OutputError, BrokenPipeError) as error:
            streams.discard(streams.STDOUT)
            console.print_message(f"job {job_id} was started, but its id was not printed: {error}")

    def _sleep_time(self) -> float | None:
        if self._return_due is not None and not self._session.state.phase.is_final:
            return max(0.0, self._return_due - time.monotonic())
        return super()._sleep_time()

    def _refresh(self) -> None:
        super()._refresh()
        if self._return_due is not None and self._return_due <= time.monotonic():
            raise self._unended_error()

    def _on_reader_gone(self) -> None:
        self._stop(Cause(Code.OUTPUT_READER_GONE), 128 + signal.SIGPIPE)

    def on_transfer(self, message: TransferProgress) -> None:
        self._view.show_transfer(message, self._session.state)

    def on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGHUP and self._terminal_is_gone:
            return  # _refresh has handled it already
        is_hangup = number == signal.SIGHUP and self._output.is_gone
        self._terminal_is_gone = self._terminal_is_gone or is_hangup
        asked = None if self._stop_requested else self._options.asked_to_stop()
        if asked is not None:
            self._view.print(f"stopping job {self.folder.job_id}: {cause_text(asked.cause)}")
            self._stop_requested = True
            self._session.stop(asked)
            return
        self._signals += 1
        if number == signal.SIGTERM and self._signals == 1 and self._is_ended_by_slurm():
            self._view.print("Slurm ends the allocation: waiting for its nodes")
            return
        if self._signals > 2:
            if self._return_due is None:
                self._return_due, self._exit_code = time.monotonic() + _END_SECONDS, 128 + number
                self._session.check_supervisor()
            return
        text, again = f"{name}: stopping job {self.folder.job_id}", "kill it at once"
        if self._stop_requested:
            text, again = "killing it at once", "stop waiting for it"
        how = f"; press Ctrl-C again to {again}" if number == signal.SIGINT else ""
        self._view.print(f"{text}{how}")
        self._stop(Cause(Code.LAUNCH_SIGNALLED, signal=number), 128 + number)

    def _is_ended_by_slurm(self) -> bool:
        """Whether Slurm ends the allocation of the hosts. Then they say why, and the job ends."""
        job = next((host.slurm.job for host in self._spec.hosts if host.slurm), None)
        if job is None:
            return False
        from distrun.slurm import step_end

        return step_end.of_job(job) is not None

    def _unended_error(self) -> DistrunError:
        """Kill a supervisor that does not answer; say what still runs, and how to end it."""
        state, job_id = self._session.state, self.folder.job_id
        tasks = [task for task in state.tasks.values() if not task.has_ended]
        if self._session.has_answered:
            running = format_names(f"{task.name} on {task.host}" for task in tasks)
            error = DistrunError(
                f"job {job_id} has not ended yet: waiting for {running or 'its hosts'}",
                hint=f"its supervisor still ends it; to wait for that: distrun kill {job_id}",
            )
        else:
            left = self._session.kill_supervisor()
            own = pid_namespace()
            here = {host.name for host in state.hosts.values() if host.pid_namespace == own}
            hosts = format_names(task.host for task in tasks if task.host not in here)
            rest = [f"processes {', '.join(map(str, left))} do not end"] if left else []
            if hosts:
                rest.append(f"the agents on {hosts} end their tasks by themselves")
            error = DistrunError(
                f"the supervisor of job {job_id} did not answer and was killed; "
                + ("; ".join(rest) or "nothing of the job is left"),
                hint=f"to try it again: distrun kill {job_id}" if left else None,
            )
        error.exit_code = self._exit_code
        return error

    def _stop(self, cause: Cause, exit_code: int) -> None:
        self._stop_requested = True
        self._session.stop(StopJob(cause, signal.SIGTERM, None, exit_code))

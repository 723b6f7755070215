"""`distrun attach`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import time
import tty

import click

from distrun.cli.job_faults import find_job
from distrun.cli.launched_job import ShownJob
from distrun.cli.options import LaunchOptions, all_output_option, job_argument, task_option
from distrun.job.chosen_logs import check_choice
from distrun.job.session import AttachedJob
from distrun.job.stop_order import order_of
from distrun.lifecycle import JobState
from distrun.logs import TaskLog, View, line_ends, merged

_LAST_LINES = 20
"""Of the output before: how much of it is shown."""


@click.command("attach")
@job_argument(only="running")
@task_option
@all_output_option
def command(job: str | None, tasks: tuple[str, ...], all_output: bool) -> int:
    """Show a running job as `distrun launch` does, from any terminal. Default: the running job.

    It begins with the last lines of the output. Ctrl-C asks whether to stop the job, or only to
    leave it (`d`); without a keyboard, or a second time, it only leaves. The job does not depend
    on this command; several can be attached at once. The exit code is the job's; 0 if you leave it
    with `d`, and 130 with Ctrl-C.

    \b
      id=$(distrun launch job.yaml -d) && distrun attach "$id"
      distrun attach mnist -t chief
    """
    options = LaunchOptions(tasks=tasks, all_output=all_output)
    return _AttachedView(AttachedJob(find_job(job)), options).run()


class _AttachedView(ShownJob):
    def __init__(self, session: AttachedJob, options: LaunchOptions) -> None:
        super().__init__(session, options)
        self._exit_code: int | None = None
        """With which to leave the job running; None: it is followed."""
        self._old_terminal: list[object] | None = None
        """The settings of a terminal that reads single keys; None: no question is open."""
        state = session.state
        self._view.began_before(time.time() - state.created_at)
        if state.tasks:
            self._view.show_plan(state)
            self._follow_logs(state)
        if not session.has_supervisor:
            self._chosen = []  # only the end of all output was shown, perhaps not theirs

    def _follow_logs(self, state: JobState) -> None:
        check_choice([state.task_names], self._options.tasks)
        super()._follow_logs(state)

    def run(self) -> int:
        try:
            return super().run()
        finally:
            self._end_question()

    def _left(self, state: JobState) -> int | None:
        return None if state.phase.is_final else self._exit_code

    def _leave(self) -> None:
        self._session.close()
        self._view.clear_status()
        if not self._output.is_gone:
            self._view.print(
                f"job {self.folder.job_id} runs on; to return: distrun attach {self.folder.job_id}"
            )

    def _log_starts(self, logs: list[TaskLog], view: View) -> list[int]:
        ends = line_ends(logs)
        self._view.write_output(merged(logs, view, last=_LAST_LINES, ends=ends))
        return ends

    def _on_reader_gone(self) -> None:
        self._exit_code = 128 + signal.SIGPIPE

    def on_signal(self, number: int) -> None:
        """Ask what Ctrl-C means. Any other signal, and a second one, leaves the job."""
        is_question = number == signal.SIGINT and not self._stop_requested
        if not is_question or self._old_terminal is not None or not self._ask():
            self._end_question()
            self._exit_code = 128 + number

    def _ask(self) -> bool:
        """Ask whether to stop the job; return whether there is a keyboard to answer with."""
        try:
            if os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
                return False
            self._old_terminal = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin, termios.TCSADRAIN)
            mode = termios.tcgetattr(sys.stdin)
            mode[6][termios.VSUSP] = b"\0"  # the shell would set other modes meanwhile
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)
        except (OSError, ValueError, AttributeError, termios.error):
            return False
        self._view.ask("s: stop the job, d: leave it, other keys: go on")
        self._session.watch(sys.stdin.fileno(), self._on_key)
        return True

    def _end_question(self) -> None:
        old, self._old_terminal = self._old_terminal, None
        if old is None:
            return
        self._view.ask("")
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, old)  # type: ignore[arg-type]
        with contextlib.suppress(KeyError):
            self._session.unwatch(sys.stdin.fileno())

    def _on_key(self) -> None:
        try:
            key = os.read(sys.stdin.fileno(), 1)
        except OSError:
            key = b""
        self._end_question()
        if key in (b"s", b"S"):
            self._stop_requested = True
            self._view.print(f"stopping job {self.folder.job_id}; Ctrl-C leaves it")
            self._session.stop(order_of("distrun attach"))
        elif key in (b"d", b"D", b""):
            self._exit_code = 0

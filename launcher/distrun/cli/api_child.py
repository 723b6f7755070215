"""A process that plans or starts a job for a Python program, which may have threads.

Both need signals, and child processes that outlive the call; the program keeps its own. The request
is a line of JSON on standard input, the answer is JSON on standard output. If standard input ends
before the job is running, the program has died, and with any more input it was interrupted: the job
is stopped.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable
from typing import Any

from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause, Code, StopJob
from distrun.cli.guarded_command import run_guarded
from distrun.cli.program_check import ProgramCheck, require_keras_2
from distrun.cli.signals import TerminatedError
from distrun.cli.spec_warnings import find_warnings
from distrun.cli.transfer_bar import read_files
from distrun.codec import from_json, to_json
from distrun.errors import DistrunError
from distrun.frozen import replace
from distrun.job.folder import JobStore
from distrun.job.session import Session, all_executed
from distrun.lifecycle import JobState
from distrun.spec.model import Spec
from distrun.supervisor import supervisor_process
from distrun.words.causes import cause_advice, cause_text

_STDIN = 0
_CHECK_SECONDS = 2.0
"""How long after their start the checks of the program may delay the return of `launch`."""


def main() -> None:
    """Answer the request on standard input."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a thread of the program may block some
    request = json.loads(sys.stdin.buffer.readline())
    spec = from_json(Spec, request["spec"])
    if request["operation"] == "launch":
        supervisor_process.start_early()
        _answer(lambda: _launch(spec, request))
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    syscalls.die_with_parent(request["parent"], signal.SIGTERM)
    make = _plan if request["operation"] == "plan" else _warnings
    with contextlib.suppress(TerminatedError):  # nobody waits for an answer
        run_guarded(lambda: _answer(lambda: make(spec)))


def _answer(make: Callable[[], dict[str, Any]]) -> int:
    try:
        answer = make()
    except DistrunError as error:
        cause, hint = error.cause, error.hint and error.hint.replace("--force", "force=True")
        answer = {
            "exit_code": error.exit_code,
            "message": error.message if cause is None else cause_text(cause),
            "hint": hint if cause is None else cause_advice(cause),
            "problems": to_json(getattr(error, "problems", ())),
        }
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 0


def _warnings(spec: Spec) -> dict[str, Any]:
    return {"warnings": to_json(find_warnings(spec))}


def _plan(spec: Spec) -> dict[str, Any]:
    from distrun.job.json_output import task_json
    from distrun.supervisor.dry_run import make_plan

    plan = make_plan(spec)
    return {"tasks": list(map(task_json, plan.tasks)), "hosts": list(plan.hosts)}


def _launch(spec: Spec, request: dict[str, Any]) -> dict[str, Any]:
    """Start the job as `distrun launch` does.

    The answer says whether it was left running, or ended before, and has the warnings.
    """
    if request["preflight"]:
        require_keras_2(spec)
    with contextlib.closing(ProgramCheck(spec)) as check:
        if request["strict"] or not request["force"]:
            check.refuse(strict=request["strict"])
        return _run(replace(spec, strict=spec.strict or request["strict"]), request, check)


def _run(spec: Spec, request: dict[str, Any], check: ProgramCheck) -> dict[str, Any]:
    folder = JobStore.default().new_folder(spec.name)
    session = Session(folder, spec, preflight=request["preflight"], manifest=read_files(spec))
    is_wanted = True

    def on_input() -> None:
        nonlocal is_wanted
        is_wanted = False
        session.unwatch(_STDIN)
        cause, number = Cause(Code.LAUNCH_COMMAND_DIED), signal.SIGHUP
        if sys.stdin.buffer.read(1):
            cause, number = Cause(Code.LAUNCH_SIGNALLED, signal=signal.SIGINT), signal.SIGINT
        session.stop(StopJob(cause, signal.SIGTERM, None, 128 + number))

    def has_started(state: JobState) -> bool:
        return is_wanted and all_executed(state)

    session.watch(_STDIN, on_input)
    for _ in session.run(has_started):
        pass
    started = has_started(session.state)
    warnings = check.warnings_within(_CHECK_SECONDS)
    if session.state.phase.is_final:
        session.close()
    else:
        session.detach()
    return {"job_id": folder.job_id, "started": started, "warnings": to_json(warnings)}


if __name__ == "__main__":
    main()

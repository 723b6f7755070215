"""A process that plans or starts a job for a Python program, which may have threads.

Both need signals, and child processes that outlive the call; the program keeps its own. The request
is a line of JSON on standard input, the answer is JSON on standard output. If standard input ends
before the job is running, the program does not want it any more, and it is stopped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from distrun.agent.protocol import Cause, Code, StopJob
from distrun.codec import from_json, to_json
from distrun.errors import DistrunError
from distrun.jobstore import JobStore
from distrun.session import Session, all_executed
from distrun.spec.model import Spec

if TYPE_CHECKING:
    from distrun.lifecycle import JobState

_STDIN = 0


def main() -> None:
    """Answer the request on standard input."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a thread of the program may block some
    request = json.loads(_read_line(_STDIN))
    spec = from_json(Spec, request["spec"])
    try:
        answer = _plan(spec) if request["operation"] == "plan" else _launch(spec, request)
    except DistrunError as error:
        answer = {
            "exit_code": error.exit_code,
            "message": error.message,
            "hint": error.hint,
            "cause": to_json(error.cause),
        }
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()


def _read_line(descriptor: int) -> bytes:
    """Read to the end of the line, and nothing after it."""
    line = bytearray()
    while not line.endswith(b"\n") and (block := os.read(descriptor, 1 << 20)):
        line += block
    return bytes(line)


def _plan(spec: Spec) -> dict[str, Any]:
    from distrun.supervisor.dry_run import make_plan

    plan = make_plan(spec)
    tasks = [
        {**task.fields(), "env": task.environment, "tf_config": task.tf_config}
        for task in plan.tasks
    ]
    return {"tasks": tasks, "hosts": list(plan.hosts)}


def _launch(spec: Spec, request: dict[str, Any]) -> dict[str, Any]:
    """Start the job. The answer says whether it was left running, or ended before."""
    manifest = None
    if spec.sends_files:
        from distrun.sync.file_selection import select_files

        manifest = select_files(spec, [str(JobStore.default().jobs)]).manifest(lambda _: None)
    folder = JobStore.default().new_folder(spec.name)
    session = Session(
        folder,
        spec,
        preflight=request["preflight"],
        on_event=lambda _event, _state: None,
        on_signal=lambda _number: None,
        on_transfer=lambda _message: None,
        manifest=manifest,
    )
    is_wanted = True

    def on_input() -> None:
        nonlocal is_wanted
        is_wanted = False
        session.unwatch(_STDIN)
        cause = Cause(Code.LAUNCH_SIGNALLED, signal=signal.SIGINT)
        session.stop(StopJob(cause, signal.SIGTERM, None, 128 + signal.SIGINT))

    def has_started(state: JobState) -> bool:
        return is_wanted and all_executed(state)

    session.watch(_STDIN, on_input)
    for _ in session.run(has_started):
        pass
    started = has_started(session.state)
    if session.state.phase.is_final:
        session.close()
    else:
        session.detach()
    return {"job_id": folder.job_id, "started": started}


if __name__ == "__main__":
    main()

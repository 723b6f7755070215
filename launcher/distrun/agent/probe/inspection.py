"""Inspects the programs of a host's tasks: folder, executable, script and versions; and the disks.

Call :func:`inspect` in a forked child: a file may be on a network disk, and a program may hang.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Dict, Optional

from distrun.agent.linux import facts
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.probe_messages import Inspect, Inspected, Program, ProgramFacts
from distrun.agent.tasks import program

_PREFIX = b"distrun-versions:"
_VERSIONS = ("python", "tensorflow", "has_tf_keras", "missing")
"""What the script prints of the facts of a program: see distrun/spec/interpreter_probe.py."""


def inspect(order: Inspect, folder: str) -> Inspected:
    """Inspect the programs and the disks. `folder`: the folder of this job's logs."""
    due = time.monotonic() + order.seconds
    programs = [_inspect_program(each, order.script, due) for each in order.programs]
    folders = dict.fromkeys([os.path.dirname(folder), *(each.workdir for each in order.programs)])
    free = [(folder, facts.free_bytes(folder)) for folder in folders]
    found = Inspected(programs, {folder: count for folder, count in free if count is not None})
    if order.with_exposure:
        # Imported here because only `distrun doctor` asks for it.
        from distrun.agent.linux import exposure

        found = found._replace(users=exposure.other_users(), addresses=exposure.addresses())
    return found


def _inspect_program(wanted: Program, script: str, due: float) -> ProgramFacts:
    env = program.environment(wanted)
    wanted = wanted._replace(workdir=program.workdir(wanted))
    digest, workdir_problem, script_problem = "", None, None
    try:
        os.chdir(os.fsencode(wanted.workdir))
    except OSError as error:
        number = error.errno or 0
        workdir_problem = Cause(Code.WORKDIR_NOT_ENTERED, path=wanted.workdir, errno=number)
    if wanted.script:
        try:
            digest = facts.file_digest(os.path.join(wanted.workdir, wanted.script))
        except OSError as error:
            number = error.errno or 0
            script_problem = Cause(Code.SCRIPT_NOT_READ, path=wanted.script, errno=number)
    found = ProgramFacts(
        wanted.argv[0],
        wanted.workdir,
        script=wanted.script,
        is_python=wanted.is_python,
        workdir_problem=workdir_problem,
        program_problem=_program_problem(wanted, env),
        script_problem=script_problem,
        digest=digest,
    )
    if wanted.is_python and not workdir_problem and not found.program_problem:
        found = found._replace(**_python_versions(wanted, script, env, due))
    return found


def _program_problem(wanted: Program, env: Dict[bytes, bytes]) -> Optional[Cause]:
    """Return why the program cannot be executed, as far as its file shows it."""
    name, folders = wanted.argv[0], [wanted.workdir]
    if "/" not in name:
        folders = os.fsdecode(env.get(b"PATH", os.fsencode(os.defpath))).split(":")
    if facts.find_program(name, folders) is not None:
        return None
    if "/" not in name:
        return Cause(Code.PROGRAM_NOT_FOUND, name=name)
    code = Code.PROGRAM_NOT_EXECUTABLE
    try:
        os.stat(os.path.join(wanted.workdir, name))
    except PermissionError:  # of a folder above it, such as another user's home
        pass
    except OSError:
        code = Code.PROGRAM_NOT_FOUND
    return Cause(code, name=name, path=wanted.workdir)


def _python_versions(
    wanted: Program, script: str, env: Dict[bytes, bytes], due: float
) -> Dict[str, Any]:
    """Run the interpreter for its versions. Returns fields of :class:`ProgramFacts`."""
    import subprocess

    argv = [wanted.argv[0], "-c", script, wanted.script, *wanted.modules]
    try:
        process = subprocess.Popen(
            [os.fsencode(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=os.fsencode(wanted.workdir),
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        return {"python_problem": Cause(Code.INTERPRETER_FAILED, errno=error.errno or 0)}
    try:
        output, errors = process.communicate(timeout=max(0.0, due - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet: the id is its own
        process.wait()
        return {"is_slow": True}
    for line in output.splitlines():
        if line.startswith(_PREFIX):
            found = json.loads(line[len(_PREFIX) :])
            return {each: found[each] for each in _VERSIONS}
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
    failed = Cause(Code.INTERPRETER_FAILED, status=process.returncode, text="".join(last))
    return {"python_problem": failed}

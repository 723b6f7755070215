"""What a host has of what a task needs: its folder, program, script, versions, disk.

To be done by an errand: a file may be on another machine's disk, a program may hang. What only
some programs need is imported where it is needed: many hosts may share one machine's processors.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Dict, List

from distrun.agent.protocol.probe_messages import Disk, Inspect, Inspected, Program, ProgramFacts
from distrun.agent.tasks import program

_BLOCK = 1 << 20
_SIGN = b"distrun-versions:"
_QUESTION = """\
import json, os, sys
names = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tensorflow-rocm",
         "tensorflow-cpu-aws", "tensorflow-aarch64", "tensorflow-macos", "tf-nightly",
         "tf-nightly-cpu", "intel-tensorflow")
if sys.argv[1]:
    sys.path[0] = os.path.dirname(sys.argv[1])
found = ""
try:
    from importlib import metadata
    for name in names:
        try:
            found = metadata.version(name)
            break
        except metadata.PackageNotFoundError:
            pass
except ImportError:
    pass
if not found:
    from importlib.util import find_spec
    spec = find_spec("tensorflow")
    if spec is not None and spec.origin is not None:
        import re
        with open(spec.origin, encoding="utf-8", errors="replace") as file:
            literal = re.search(r"^__version__\\s*=\\s*['\\"]([^'\\"]+)", file.read(), re.M)
        found = literal.group(1) if literal else "unknown"
print("\\ndistrun-versions:" + json.dumps(["%d.%d.%d" % sys.version_info[:3], found]))
"""
"""Asks what is installed, not TensorFlow itself: importing that takes 2 s and 670 MB."""


def inspect(order: Inspect, folder: str) -> Inspected:
    """Look at everything. `folder`: one of this job's own, where the logs are written."""
    due = time.monotonic() + order.seconds
    facts = [_look_at(each, due) for each in order.programs]
    folders = dict.fromkeys([os.path.dirname(folder), *(each.workdir for each in order.programs)])
    return Inspected(facts, [disk for each in folders for disk in _disk(each)])


def _look_at(asked: Program, due: float) -> ProgramFacts:
    env = program.environment(asked)
    asked = asked._replace(workdir=program.workdir(asked))
    workdir_problem = _try_folder(asked.workdir)
    digest, script_problem = "", ""
    if asked.script:
        try:
            digest = _digest(os.path.join(asked.workdir, asked.script))
        except OSError as error:
            script_problem = error.strerror or str(error)
    facts = ProgramFacts(
        asked.argv[0],
        asked.workdir,
        environ={
            name: os.fsdecode(env[name.encode()])
            for name in asked.variables
            if name.encode() in env
        },
        script=asked.script,
        is_python=asked.is_python,
        workdir_problem=workdir_problem,
        program_problem=_try_program(asked, env),
        script_problem=script_problem,
        digest=digest,
    )
    if asked.is_python and not workdir_problem and not facts.program_problem:
        facts = facts._replace(**_ask_python(asked, env, due))
    return facts


def _try_folder(folder: str) -> str:
    try:
        os.chdir(os.fsencode(folder))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _try_program(asked: Program, env: Dict[bytes, bytes]) -> str:
    """Why the program cannot be executed, as far as its file tells."""
    name = asked.argv[0]
    if "/" in name:
        path = os.path.join(asked.workdir, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return ""
        return "may not be executed" if os.path.exists(path) else "is not there"
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        file = os.path.join(folder, os.fsencode(name))
        if os.access(file, os.X_OK) and os.path.isfile(file):
            return ""
    return "is nowhere in PATH"


def _digest(path: str) -> str:
    import hashlib

    made = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            made.update(block)
    return made.hexdigest()


def _disk(folder: str) -> List[Disk]:
    try:
        found = os.statvfs(os.fsencode(folder))
    except OSError:
        return []
    return [Disk(folder, found.f_bavail * found.f_frsize)]


def _ask_python(asked: Program, env: Dict[bytes, bytes], due: float) -> Dict[str, Any]:
    """Python's version and TensorFlow's, as fields of ProgramFacts."""
    import subprocess

    argv = [asked.argv[0], "-c", _QUESTION, asked.script]
    try:
        process = subprocess.Popen(
            [os.fsencode(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=os.fsencode(asked.workdir),
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        return {"python_problem": error.strerror or str(error)}
    try:
        said, complaints = process.communicate(timeout=max(0.0, due - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet: the id is its own
        process.wait()
        return {"is_slow": True}
    for line in said.splitlines():
        if line.startswith(_SIGN):
            python, tensorflow = json.loads(line[len(_SIGN) :])
            return {"python": python, "tensorflow": tensorflow}
    last = complaints.decode("utf-8", "replace").strip().splitlines()[-1:]
    how = "it exited with {}".format(process.returncode)
    return {"python_problem": "; ".join([how, *last])}

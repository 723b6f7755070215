"""Inspects the programs of a host's tasks: folder, executable, script and versions; and the disks.

Call :func:`inspect` in a forked child: a file may be on a network disk, and a program may hang.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from typing import Any, Dict, List, Optional

from distrun.agent.linux import facts, processes
from distrun.agent.linux.regular import lines
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.probe_messages import Inspect, Inspected, Program, ProgramFacts
from distrun.agent.tasks import program

_PREFIX = b"distrun-versions:"
_VERSIONS = ("python", "tensorflow", "has_tf_keras", "missing")
"""What the script prints of the facts of a program: see distrun/spec/interpreter_probe.py."""
_MOST_EXPOSED = 100
_NO_LOGIN = ("/nologin", "/false")
_IPV4_ADDRESS = r"\|-- (\S+)\n +/32 host LOCAL"


def inspect(order: Inspect, folder: str) -> Inspected:
    """Inspect the programs and the disks. `folder`: the folder of this job's logs."""
    due = time.monotonic() + order.seconds
    programs = [_inspect_program(each, order.script, due) for each in order.programs]
    folders = dict.fromkeys([os.path.dirname(folder), *(each.workdir for each in order.programs)])
    free = [(folder, facts.free_bytes(folder)) for folder in folders]
    found = Inspected(programs, {folder: count for folder, count in free if count is not None})
    if order.with_exposure:
        found = found._replace(users=other_users(), addresses=addresses())
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


# Who else can connect to its ports ---------------------------------------------------------


def other_users() -> List[str]:
    """People other than this user who can log in here by /etc/passwd, or have processes."""
    names: Dict[int, str] = {}
    users = set()
    for line in lines("/etc/passwd"):
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdigit():
            names[int(fields[2])] = fields[0]
            if not fields[6].endswith(_NO_LOGIN):
                users.add(int(fields[2]))
    for pid in processes.every_pid():
        with contextlib.suppress(OSError):  # it has ended
            users.add(os.stat("/proc/{}".format(pid)).st_uid)
    # Not those of the system and of services: see UIDS-GIDS.md of systemd.
    people = sorted(uid for uid in users - {os.geteuid()} if 1000 <= uid < 61184 or uid > 65535)
    return [names.get(uid, str(uid)) for uid in people[:_MOST_EXPOSED]]


def addresses() -> List[str]:
    """The addresses by which other machines may reach this host, in no order."""
    ipv4 = "\n".join(lines("/proc/net/fib_trie"))
    found = dict.fromkeys(re.findall(_IPV4_ADDRESS, ipv4))
    for line in lines("/proc/net/if_inet6"):
        digits, _, _, scope = line.split()[:4]
        if scope == "00":  # global, see ip-address(8)
            found[":".join(digits[at : at + 4] for at in range(0, 32, 4))] = None
    return [address for address in found if not address.startswith("127.")][:_MOST_EXPOSED]

"""How the agent executes a program, and what it says where it cannot."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from distrun.agent import protocol
from distrun.words.causes import cause_text
from harness.agents import Host, MakeHost, script


def refusal(host: Host, *argv: str, **options: Any) -> str:
    host.start("worker:0", *argv, **options)
    return cause_text(host.expect(protocol.TaskNotStarted).cause)


def test_why_a_program_cannot_be_executed_is_said(any_host: Host, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo hello\n")
    assert "there is no program './no-such'" in refusal(any_host, "./no-such")
    assert "may not be executed" in refusal(any_host, str(plain))
    plain.chmod(0o755)
    assert "its first line should be like #!/bin/sh" in refusal(any_host, str(plain))
    gone = str(tmp_path / "gone")
    assert f"working folder '{gone}'" in refusal(any_host, "true", workdir=gone)
    assert "128 KiB" in refusal(any_host, "true", env={"TF_CONFIG": "x" * (128 * 1024)})
    assert "null byte" in refusal(any_host, "true", "a\0b")
    plain.write_text("#!/opt/no/python\n")  # what is missing is its interpreter
    assert "/opt/no/python" in refusal(any_host, "./plain", workdir=str(tmp_path))
    (tmp_path / "closed").mkdir(mode=0o000)
    env = {"PATH": f"{tmp_path}/closed:{tmp_path}"}
    assert "there is no program 'no-such' in PATH" in refusal(any_host, "no-such", env=env)
    (any_host.folder / "link.log").symlink_to(tmp_path / "elsewhere")
    assert "its log 'link.log' cannot be opened" in refusal(any_host, "true", log="link.log")
    assert not (tmp_path / "elsewhere").exists()
    assert not any_host.all(protocol.TaskStarted)


def test_a_tasks_environment(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(os.environb, b"RAW", b"caf\xe9")
    monkeypatch.setenv("TF_CONFIG", "from the shell")
    monkeypatch.setenv("DISTRUN_HOME", "/nowhere")
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("OVERWRITTEN", "old")
    host = make_host()
    show = script(tmp_path, "show.py", "import os; os.write(1, repr(dict(os.environb)).encode())")
    env = {"OVERWRITTEN": "new", "BYTES": b"\xff\n'".decode("utf-8", "surrogateescape")}
    host.run("worker:0", *show, env=env, unset=["TF_CONFIG"])
    host.expect(protocol.TaskEnded)
    shown = eval(host.log("worker:0"))
    names = (b"RAW", b"BYTES", b"KEPT", b"OVERWRITTEN", b"TF_CONFIG")
    assert [shown.get(name) for name in names] == [b"caf\xe9", b"\xff\n'", b"kept", b"new", None]
    own = {b"DISTRUN_JOB_ID", b"DISTRUN_TASK", b"DISTRUN_NOTIFY"}
    assert {name for name in shown if name.startswith(b"DISTRUN_")} == own
    show = script(tmp_path, "show2.py", "import os; print(os.environ['TF_CONFIG'], end='')")
    host.run("worker:1", *show, tf_config=['{"cluster": ', "{}", ', "task": {}}'])
    host.expect(protocol.TaskEnded, "worker:1")
    assert host.log("worker:1") == b'{"cluster": {}, "task": {}}'


INSPECT = """
import os, signal
state = {line.split(":")[0]: line.split(":")[1].strip() for line in open("/proc/self/status")}
print("stdin", repr(os.read(0, 10)))
print("umask", state["Umask"])
print("session", os.getsid(0) == os.getpid() == os.getpgid(0))
print("descriptors", sorted(os.listdir("/proc/self/fd")))
"""


def test_a_task_starts_with_nothing_of_the_agents(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a shell script with `trap '' ...` or nohup would leave them.
    ignored = [signal.SIGUSR1, signal.SIGTTOU, signal.SIGALRM, signal.SIGHUP, signal.SIGRTMIN]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        host = make_host()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for number, handler in before.items():
            signal.signal(number, handler)
    host.send(protocol.HoldPorts(3, []))
    host.run("worker:1", "sleep", "60")
    # Python ignores SIGPIPE and SIGXFSZ itself; the shell shows what it was given.
    host.run("worker:2", "sh", "-c", "exec cat /proc/self/status")
    host.expect(protocol.TaskEnded, "worker:2")
    status = {line.partition(":")[0]: line.partition(":")[2] for line in host.lines("worker:2")}
    for mask in (int(status["SigIgn"], 16), int(status["SigBlk"], 16)):
        # Not 32 and 33: they are the C library's own, and posix_spawn, as make uses it, ignores
        # them for its children; no program can tell or change it.
        assert [number for number in signal.valid_signals() if mask >> (number - 1) & 1] == []
    host.run("worker:0", *script(tmp_path, "inspect.py", INSPECT))
    host.expect(protocol.TaskEnded, "worker:0")
    shown = dict(line.split(" ", 1) for line in host.lines("worker:0"))
    umask = os.umask(0)
    os.umask(umask)
    assert shown["stdin"] == "b''"
    assert int(shown["umask"], 8) == umask
    assert shown["session"] == "True"
    assert shown["descriptors"] == "['0', '1', '2', '3']", "3 is the listing's"

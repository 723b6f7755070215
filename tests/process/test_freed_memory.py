"""`program.memory`: what the C library of tasks does with freed memory."""

from __future__ import annotations

import json

import pytest

from harness.command import Distrun

SHOW = """
import ctypes, os, sys

class Usage(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
                 "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.mallinfo2.restype = Usage
before = libc.mallinfo2().hblkhd
block = libc.malloc(100 << 20)
is_mapped = libc.mallinfo2().hblkhd > before
attempt = os.environ["DISTRUN_ATTEMPT"]
print(attempt, "mapped" if is_mapped else "kept", os.environ.get("GLIBC_TUNABLES"))
sys.exit(attempt == "0")
"""


@pytest.mark.parametrize(
    ("memory", "is_kept"), [(None, True), ("system", False), ("MALLOC_ARENA_MAX", False)]
)
def test_tasks_have_what_the_plan_shows_also_when_they_restart(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch, memory: str | None, is_kept: bool
) -> None:
    program = {"script": "show.py"}
    if memory == "MALLOC_ARENA_MAX":
        monkeypatch.setenv(memory, "4")
    elif memory:
        program["memory"] = memory
    spec = distrun.write_spec("", program=program, restart={"max": 1, "backoff": "1ms"})
    spec.with_name("show.py").write_text(SHOW)
    planned = json.loads(distrun("plan", spec, "--json").stdout)["plan"]["tasks"]
    (value,) = {task["env"].get("GLIBC_TUNABLES") for task in planned}
    assert bool(value) == is_kept
    assert (f"  set    GLIBC_TUNABLES={value}\n" in distrun("plan", spec).stdout) == is_kept
    assert distrun("launch", spec).returncode == 0
    shown = [line.partition("| ")[2] for line in distrun("logs").stdout.splitlines()]
    expected = f"{'kept' if is_kept else 'mapped'} {value}"
    assert shown.count(f"1 {expected}") == len(planned) == 2
    assert f"0 {expected}" in shown

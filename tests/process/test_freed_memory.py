"""`program.memory`: what the C library of tasks does with freed memory."""

from __future__ import annotations

import json

import pytest

from harness.command import Distrun

SHOW = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
is_kept = libc.malloc(ctypes.c_size_t(100 << 20)) < libc.sbrk(ctypes.c_long(0))
attempt = os.environ["DISTRUN_ATTEMPT"]
print(attempt, "kept" if is_kept else "mapped", os.environ.get("GLIBC_TUNABLES"))
raise SystemExit(attempt == "0")
"""


def test_tasks_have_what_the_plan_shows_also_when_they_restart(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(**memory: str) -> str:
        program = {"script": "show.py", **memory}
        distrun.write_spec("", program=program, restart={"max": 1, "backoff": "1ms"})
        tasks = json.loads(distrun("plan", "job.yaml", "--json").stdout)["plan"]["tasks"]
        values = [task["env"].get("GLIBC_TUNABLES") for task in tasks]
        assert values[0] == values[1]
        return str(values[0] or "")

    (distrun.cwd / "show.py").write_text(SHOW)
    assert planned(memory="system") == ""
    value = planned()
    assert f"  set    GLIBC_TUNABLES={value}\n" in distrun("plan", "job.yaml").stdout
    done = distrun.checked("launch", "job.yaml")
    for attempt in (0, 1):
        assert f"| {attempt} kept {value}\n" in done.stdout
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert planned() == ""

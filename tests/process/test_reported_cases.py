"""What people run, by their public reports: what they are told, or what must happen.

Programs that need TensorFlow are in tests/e2e/reported_cases.txt; what libraries print as they
fail is in tests/unit/test_verdict_words.py.
"""

import shlex
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.tables import read_cases

CASES = read_cases(Path(__file__).with_name("reported_cases.txt"))


@pytest.mark.parametrize("name", CASES)
def test_the_user_is_told(name: str, distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    case = CASES[name]
    case.write_files(distrun.cwd, shlex.quote(sys.executable))
    (command,), (code,) = case.lines["$"], case.lines["exit"]
    done = distrun(*shlex.split(command))
    assert done.returncode == int(code), done.stderr
    assert case.told.search(done.stderr), done.stderr
    assert not [words for words in case.lines["not told"] if words in done.stderr]
    if name == "flags of TensorFlow 1":
        tasks = distrun.status()["tasks"]
        assert sorted(each["task"] for each in tasks) == ["ps:0", "worker:0", "worker:1"]
        address = next(each["address"] for each in tasks if each["task"] == "ps:0")
        assert f"{address} worker:0" in distrun.asked("logs", "-t", "worker:0")

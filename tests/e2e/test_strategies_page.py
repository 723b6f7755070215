"""The Python code of docs/strategies.md, run as one program."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.training import MAIN, RunPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(100)]

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
BLOCK = re.compile(
    rf"<!-- run by: tests/e2e/{Path(__file__).name} -->\n```python\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PRINTED = re.compile(r"^print\(.*\)  # ([^:\n]+)", re.MULTILINE)


def test_the_code_prints_what_its_comments_say(run_python: RunPython, tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == PAGE.read_text().count("```python\n")
    code = "\n".join(blocks)
    expected = PRINTED.findall(code)
    assert len(expected) == code.count("print(") > 8
    assert {"3.5", "1.75"} <= set(expected)
    script = tmp_path / "page.py"  # a file: tf.function reads the source of a loop
    script.write_text(code)
    # Two replicas on a machine with two cores need more threads than cores.
    output = run_python(str(script), cwd=tmp_path, TF_NUM_INTEROP_THREADS="8")
    assert output.splitlines() == expected


def test_the_bundled_job_has_the_options_of_the_page() -> None:
    table = PAGE.read_text().partition("## The options of the bundled job")[2]
    shown = set(re.findall(r"--[a-z][a-z-]+", table))
    asked = subprocess.run(
        [sys.executable, MAIN, "--help"], capture_output=True, text=True, check=True
    )
    assert shown - set(re.findall(r"--[a-z][a-z-]+", asked.stdout)) == set()
    assert {"--reduction", "--devices"} <= shown

"""What users of other tools type first, and what distrun answers."""

from __future__ import annotations

import re
from difflib import get_close_matches

from harness.command import Distrun

SLIPS = {
    "train.py": "No such command 'train.py'. Use 'distrun run train.py'.",
    "lanch job.yaml": "",
    "launch -n 2 train.py --epochs 3": "is a Python script, not a YAML file\n  distrun run",
    "plan job.yaml --epochs=3": "distrun plan job.yaml -- --epochs",
    "plan job.yaml --strct": "Did you mean '--strict'?",
    "run --num-workers 2 train.py": "",
    "logs jobb": "did you mean 'job'?",
    "logs worker": "distrun logs -t worker",
    "logs job worker:0": "distrun logs job -t worker:0",
    "explain keras2": "",
    "init kerasfit": "",
}
"""What is typed, and a part of the answer."""


def test_who_does_what_is_suggested_succeeds(distrun: Distrun) -> None:
    (distrun.cwd / "train.py").write_text("import sys\nprint(sys.argv)\n")
    distrun.write_spec("exit 0", name="job")
    assert distrun("run", "--name", "job", "true").returncode == 0
    for words, answer in SLIPS.items():
        done = distrun(*words.split())
        assert done.returncode == 2, words
        assert answer in done.stderr, words
        assert " -- --epochs" not in answer or "Did you mean" not in done.stderr
        said = done.stderr.partition("Error: ")[2] or done.stderr
        command = re.search(r"(?m)(?:Use '|: |^  )distrun ([^'\n]+)'?\.?$", said)
        meant = re.search(r"[Dd]id you mean '?(.+?)'?(?: or .*)?\?", said)
        if command is not None:
            again = command[1].split()
        else:
            assert meant is not None, done.stderr
            (wrong,) = get_close_matches(meant[1], words.split(), 1, 0.4)
            again = [meant[1] if each == wrong else each for each in words.split()]
        done = distrun(*again)
        assert done.returncode == 0, (again, done.stderr)
    far = distrun("launch", "training")
    assert (far.returncode, "job.yaml" in far.stderr) == (2, False), "nothing is like it"


def test_advice_names_the_job_also_the_newest(distrun: Distrun) -> None:
    """Without a name, another one may be meant: one that runs, or a newer one."""
    (distrun.cwd / "bad.py").write_text("raise ValueError('7 is odd')\n")
    said = distrun.launch("", program={"script": "bad.py"}, workers=1).stderr
    job = distrun.status()["job_id"]
    for text in (said, distrun.asked("status"), distrun.asked("events", "--json")):
        assert f"distrun logs {job} -t worker:0" in text
        assert "distrun logs -t" not in text

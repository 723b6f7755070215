"""What users of other tools type first, and what distrun answers."""

from __future__ import annotations

import re
from difflib import get_close_matches

from harness.command import Distrun

SLIPS = {
    "train.py": "No such command 'train.py'. Use 'distrun run train.py'.",
    "job.yaml": "No such command 'job.yaml'. Use 'distrun launch job.yaml'.",
    "lanch job.yaml": "",
    "launch train.py": "",
    "launch -n 2 train.py --epochs 3": "is a Python script, not a YAML file\n  distrun run",
    "plan --epochs=3 train.py": "is a Python script, not a YAML file\n  distrun run",
    "launch job.yml": "",
    "launch job.yaml --epochs 3": "distrun launch job.yaml -- --epochs",
    "plan job.yaml --epochs=3": "distrun plan job.yaml -- --epochs",
    "plan job.yaml --strct": "Did you mean '--strict'?",
    "launch job.yaml --strct": "Did you mean '--strict'?",
    "validate jb.yaml": "",
    "run --worker 2 train.py": "",
    "run --num-workers 2 train.py": "",
    "status jobb": "did you mean 'job'?",
    "logs jobb": "did you mean 'job'?",
    "logs worker": "distrun logs -t worker",
    "logs job worker:0": "distrun logs job -t worker:0",
    "explain program.arg": "",
    "explain keras2": "",
    "init kerasfit": "",
    "kill jobb": "did you mean 'job'?",
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
    done = distrun.launch("", program={"script": "bad.py"}, workers=1)
    job = distrun("ps", "-a").stdout.splitlines()[1].split()[0]
    assert f"distrun logs {job} -t worker:0" in done.stderr
    for shown in ("status", "events"):
        for as_json in ([], ["--json"]):
            text = distrun(shown, job, *as_json).stdout
            assert f"distrun logs {job} -t worker:0" in text
            assert "distrun logs -t" not in text


def test_a_misspelt_key_is_not_also_missing(distrun: Distrun) -> None:
    for text in ("program:\n  scrip: train.py", "scrip: train.py", "progrm: {script: mnist}"):
        (distrun.cwd / "job.yaml").write_text(f"strategy: default\n{text}\n")
        done = distrun("validate", "job.yaml")
        assert done.returncode == 65
        assert "did you mean" in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr

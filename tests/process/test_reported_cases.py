"""What people run, by their public reports: what they are told, or what must happen.

Programs that need TensorFlow are in tests/e2e/test_reported_cases.py; what libraries print as they
fail is in tests/unit/test_verdict_words.py.
"""

import re
import shlex
import sys
from typing import NamedTuple

import pytest

from harness.command import Distrun

RUN = ["run", "-n", "2"]
SPEC = "strategy: multi_worker_mirrored\ncluster: {{worker: 2}}\nprogram: {}\n"
SCRIPT = "{script: train.py}"
IN_ONE = "import os, signal, sys, time\nif os.environ['DISTRUN_TASK'] == 'worker:1':\n"
PYTHON = shlex.quote(sys.executable)


class Case(NamedTuple):
    """Files, a command, its exit code, and the patterns of what it says, one after the other."""

    files: dict[str, str]
    command: list[str]
    code: int
    told: tuple[str, ...]
    not_told: str = "Traceback: none"


def run(script: str, code: int, *told: str, name: str = "") -> Case:
    """Two workers run a script, of a shell or of Python."""
    name = name or ("./t.sh" if script.startswith("#!") else "train.py")
    return Case({name: script}, [*RUN, name], code, told)


def launch(program: str, code: int, *told: str, more: str = "", **scripts: str) -> Case:
    """Two workers of a YAML file with this `program`; `more` keys; scripts by their names."""
    files = {name.replace("_", "."): text for name, text in scripts.items()}
    files["job.yaml"] = SPEC.format(program) + more
    return Case(files, ["launch", "job.yaml"], code, told)


FORKS = """import multiprocessing, threading
lock = threading.Lock()
lock.acquire()
def decode(i): lock.acquire()
with multiprocessing.get_context("fork").Pool(2) as p: p.map(decode, range(4))
"""
STOPS = """import os, signal, sys, time
def stop(*_): print("caught SIGTERM, checkpoint saved, leaving", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
if os.environ["DISTRUN_TASK"] == "worker:1" and os.fork() == 0:
    time.sleep(1); os.kill(os.getppid(), signal.SIGTERM); os._exit(0)
for i in range(60): print("step", i, flush=True); time.sleep(0.05)
"""
CALLS = """import os, pathlib, subprocess, sys
folder = pathlib.Path("runs/9"); folder.mkdir(parents=True, exist_ok=True)
pathlib.Path("own.py").write_text("print(*range(99999), sep=chr(10)); {{}}['x']")
with (folder / f"{{os.environ['DISTRUN_TASK'][-1]}}.txt").open("w") as log:
    subprocess.run([sys.executable, "own.py"], stdout=log, stderr=log, check={})
"""
FLAGS = """import sys, time
import tensorflow.compat.v1 as tf
tf.train.replica_device_setter(); print(*sys.argv[1:], flush=True)
if sys.argv[2].startswith("ps"): time.sleep(60)
"""
TENSORFLOW_1 = {
    "tensorflow/__init__.py": "", "tensorflow/compat/__init__.py": "",
    "tensorflow/compat/v1/__init__.py": "class train: replica_device_setter = staticmethod(bool)",
}  # fmt: skip
HELLO = """import argparse
p = argparse.ArgumentParser(); p.add_argument("--epochs", type=int); print(p.parse_args())
"""
CASES = {
    "executed notebook": run(
        '{"cells": [], "nbformat": 4}', 65, "is a notebook, not a script",
        "jupyter nbconvert --to script 'a b.ipynb'", name="a b.ipynb"),
    "converted notebook": run("get_ipython().system('pip install -q x')\nprint('hi')\n",
        *(65, "is for IPython, not for Python", "line 1: get_ipython", "sed -i -E")),
    "Git LFS": run(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", 65,
        "is a pointer of Git LFS, not the script itself", "git lfs pull --include train.py"),
    "a page": run("<!DOCTYPE html>\n<html>", 65, "is a page in HTML", "curl -L -o train.py"),
    "a script that another one calls hides": Case(
        {
            "train.py": IN_ONE + "  time.sleep(0.2); raise ValueError('batch size 0')",
            "bin/own.sh": f"{PYTHON} train.py\necho training finished",
            "bin/setup.sh": f"{PYTHON} -c ''\necho ready",
            "bin/run.sh": "#!/bin/bash\n# as bin/other.sh\nbash bin/setup.sh\n"
            'bash "$(dirname "$0")/own.sh" | cat\necho all done',
        },
        *([*RUN, "bin/run.sh"], 0),
        (r"train\.py:3; its exit code is hidden at own\.sh:2: echo training finished",)),
    "a shard is missing": run(
        "raise RuntimeError('ck/m-1.data-00000-of-00001; No such file or directory')",
        *(1, "could not read a file of ck/m-1, which is incomplete")),
    "sigterm, exit 0": run(
        STOPS, 0, r"worker:1 was preempted: it exited 0 at step \d+ after a SIGTERM that distrun "
        "did not .*worker:0 reached step 59"),
    "a trap that ends its own script": run("#!/bin/bash\ntrap 'kill 0' EXIT\necho trained\n",
        *(143, r"which its own script sends, too, at t\.sh:2", r"kill \$\(jobs -p\)")),
    "a trap that ends its own script after an error": run(
        "#!/bin/bash\ntrap 'kill 0' EXIT\npython3 -c 'import nn'\n",
        *(143, "exited 143 by itself, after it had printed ModuleNotFoundError")),
    "a wait for what its own script ends": run("#!/bin/bash\nsleep 99 &\nkill $!\nwait $!\n",
        *(143, r"which its own script sends, too, at t\.sh:3: kill", "`exit 0` after its `wait`")),
    "output that is sent to a file": run(
        "#!/bin/bash\nL=${USER}_$(date +%s).log\npython3 -c 'import nn' &> $L\ntail -n 1 $L\n",
        *(0, r"exited 0 although .*ModuleNotFoundError: .*'nn'.* hidden at t\.sh:4: tail -n 1 ")),
    "a failure whose output is sent to a file": run(
        "#!/bin/bash\ncd /no/folder\npython3 -c 'import nn' &> log",
        *(1, r"cause .*ModuleNotFoundError: .*'nn'", r"cd: /no/.*log:\d: ModuleNotFoundError")),
    "a failure of a child whose output is sent to a file": run(
        CALLS.format(True), 1, r"cause .*Error: 'x', at own\.py:1", r"\.txt: Key.*: /.+runs/9/\d"),
    "a child whose exit code and output are lost": run(
        CALLS.format(False), 0, r"exited 0 although .*'x' \(in runs/9/\d\.txt\), at own\.py:1"),
    "a child whose exit code a program looks at": run(
        CALLS.format("False).returncode  # ("), 0, r"succeeded in [\d.]+ s · logs: "),
    "a file that a former attempt wrote": launch(
        SCRIPT, 0, r"after 1 restart[^·]*· logs: ", more="restart: {max: 1, backoff: 0s}\n",
        train_py="from subprocess import run; o = open('o.log','a')\nrun(['python3', '-c', \"import"
        " os; {'1': 0}[os.environ['DISTRUN_ATTEMPT']]\"], check=True, stdout=o, stderr=o)\n"),
    "a failure that only a program's own log has": run(
        "import logging as l, sys; l.basicConfig(filename='own.log')\ntry: {}['x']\n"
        "except KeyError: l.exception('no x'); sys.exit(1)\n",
        *(1, r"cause .*KeyError: 'x', at train\.py:2", r"try .*: /.*/own\.log")),
    "children of a fork that hang": launch(
        SCRIPT,
        *(75, r'train\.py:5 made by fork, .*use multiprocessing\.get_context\("spawn"\)'),
        more="timeouts: {stall: 4s}\n", train_py=FORKS),
    "relative import": Case(
        {"pkg/train.py": "from . import model\n", "pkg/model.py": "", "pkg/__init__.py": ""},
        *([*RUN, "pkg/train.py"], 65),
        (r"pkg/train\.py:1:1: .*run it as a module: `run -m pkg\.train`", "nothing was started")),
    "a line of a shell as a list": launch(
        "{command: [source, venv/bin/activate, '&&', python]}",
        *(69, re.escape("write [bash, -c, 'source venv/bin/activate && python']"))),
    "a line as one word": launch(
        "{command: ['python train.py --epochs 2']}", 69,
        re.escape("write [python, train.py, --epochs, 2]"), train_py=HELLO),
    "flags of TensorFlow 1": Case(
        {"train.py": FLAGS, **TENSORFLOW_1},
        *([*RUN, "--ps", "1", "train.py", "{address:ps:0}", "{role}:{index}"], 0),
        ("without a chief: the job succeeds when worker:0 exits 0", "3 tasks"), "chief:0"),
    "options after the script": Case(
        *({"train.py": HELLO}, ["run", "train.py", "-n", "2"], 2),
        (r"options of `distrun run` go before it: distrun run -n 2 train\.py",), "program.args"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_user_is_told(name: str, distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    case = CASES[name]
    for path, text in case.files.items():
        file = distrun.cwd / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, newline="")
        file.chmod(0o755)
    done = distrun(*case.command)
    assert done.returncode == case.code, done.stderr
    assert re.search(".*".join(case.told), done.stderr, re.DOTALL), done.stderr
    assert not re.search(case.not_told, done.stderr), done.stderr
    if name == "flags of TensorFlow 1":
        tasks = distrun.status()["tasks"]
        assert sorted(each["task"] for each in tasks) == ["ps:0", "worker:0", "worker:1"]
        address = next(each["address"] for each in tasks if each["task"] == "ps:0")
        assert f"{address} worker:0" in distrun.asked("logs", "-t", "worker:0")

"""`validate`, `plan` and `launch` read the program and warn, and refuse it with --strict."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun

SETS = "import os\n\nos.environ['TF_CONFIG'] = '{}'\nprint('it ran')\n"
WARNED = (
    "train.py:3:1: {}the program sets or removes TF_CONFIG, which distrun sets for each task: the "
    "tasks will not find each other; remove this line"
)


def write_job(folder: Path, script: str | bytes = SETS, **keys: Any) -> Path:
    """Write a spec and its script, which does not need TensorFlow."""
    folder.joinpath("train.py").write_bytes(
        script if isinstance(script, bytes) else script.encode()
    )
    spec = folder / "job.yaml"
    program = {"script": "train.py", **keys.pop("program", {})}
    strategy = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 1}}
    spec.write_text(json.dumps({**strategy, "program": program, **keys}))
    return spec


def test_a_warning_does_not_stop_but_strict_does(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd)
    warned, refused = WARNED.format("warning: "), WARNED.format("")

    done = distrun("validate", spec)
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == warned
    assert "is valid" in done.stderr.splitlines()[1]

    done = distrun("launch", spec)
    assert (done.returncode, done.stdout) == (0, "worker:0 | it ran\n")
    assert done.stderr.splitlines().count(warned) == 1

    done = distrun("plan", spec)
    assert (done.returncode, done.stderr.splitlines()) == (0, [warned])
    assert distrun("launch", "--dry-run", spec).stderr.splitlines() == [warned]

    jobs = len(json.loads(distrun("ps", "-a", "--json").stdout)["jobs"])
    for command in (["validate"], ["plan"], ["plan", "--json"], ["launch"], ["launch", "-d"],
                    ["launch", "--dry-run"]):  # fmt: skip
        done = distrun(*command, "--strict", spec)
        assert (done.returncode, done.stdout, done.stderr) == (65, "", f"{refused}\n"), command
    assert len(json.loads(distrun("ps", "-a", "--json").stdout)["jobs"]) == jobs


def test_the_plan_as_json_has_the_warnings(distrun: Distrun) -> None:
    done = distrun("plan", "--json", write_job(distrun.cwd))
    assert done.stderr == ""
    (warning,) = json.loads(done.stdout)["warnings"]
    assert (warning["file"], warning["line"], warning["column"]) == ("train.py", 3, 1)
    assert (warning["message"], warning["hint"]) == (
        WARNED.format("").partition(": ")[2].partition(";")[0],
        "remove this line",
    )
    done = distrun("plan", "--json", write_job(distrun.cwd, "print(1)\n"))
    assert json.loads(done.stdout)["warnings"] == []


def test_the_script_is_not_run(distrun: Distrun) -> None:
    write_job(distrun.cwd, "open('ran', 'w')\nimport beside\nimport nowhere_at_all\n")
    (distrun.cwd / "beside.py").write_text("open('ran', 'w')\n")
    done = distrun("validate", "job.yaml")
    assert "train.py:3:1: warning: there is no module 'nowhere_at_all'" in done.stderr
    assert not (distrun.cwd / "ran").exists()


def test_a_job_that_runs_a_module_of_a_package(distrun: Distrun) -> None:
    (distrun.cwd / "pkg").mkdir()
    (distrun.cwd / "pkg" / "__init__.py").touch()
    (distrun.cwd / "pkg" / "main.py").write_text("from . import inner\n")
    (distrun.cwd / "pkg" / "inner.py").write_text(SETS)
    spec = write_job(distrun.cwd)
    for program in ({"module": "pkg.main"}, {"command": [sys.executable, "-m", "pkg.main"]}):
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "program": program}))
        assert "pkg/inner.py:3:1: warning: the program sets" in distrun("validate", spec).stderr
    program = {"command": ["python3", "-u", "train.py"]}
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "program": program}))
    assert WARNED.format("warning: ") in distrun("validate", spec).stderr


def test_a_module_that_python_does_not_find(distrun: Distrun) -> None:
    (distrun.cwd / "pkg").mkdir()
    (distrun.cwd / "pkg" / "__init__.py").touch()
    (distrun.cwd / "pkg" / "wrong.py").write_text("x = = 1\n")
    spec = write_job(distrun.cwd)
    for module in ("trian", "pkg.mian", "nowhere.at_all"):
        program = {"module": module, "workdir": "."}
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "program": program}))
        assert distrun("validate", spec).stderr.startswith(
            f"program.module: warning: there is no module '{module}': neither in {distrun.cwd}, nor"
        )
    for module in ("train", "json.tool"):
        program = {"module": module, "workdir": "."}
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "program": program}))
        assert "there is no module" not in distrun("validate", spec).stderr
    program = {"module": "pkg.wrong", "workdir": "."}
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "program": program}))
    assert distrun("validate", spec).stderr.startswith("pkg/wrong.py:1:5: warning: Python 3.")


# Syntax ------------------------------------------------------------------------------------


def test_a_syntax_error_has_its_place_and_the_version(distrun: Distrun) -> None:
    done = distrun("validate", write_job(distrun.cwd, "import os\nprint('é', os.sep\n"))
    version = "{}.{}".format(*sys.version_info)
    assert done.stderr.startswith(
        f"train.py:2:6: warning: Python {version} cannot parse this: '(' was never closed\n"
    )
    done = distrun("validate", "--strict", "job.yaml")
    assert done.returncode == 65
    (distrun.cwd / "train.py").write_text("import beside\n")
    (distrun.cwd / "beside.py").write_text("x = \n")
    assert "beside.py:1:5: warning: Python" in distrun("validate", "job.yaml").stderr


def test_another_interpreter_parses_for_itself(distrun: Distrun) -> None:
    python = distrun.cwd / "python9"
    answer: dict[str, Any] = {"version": "9.9", "missing": [], "keras": None, "errors": {}}
    python.write_text(f"#!/bin/sh\ncat > asked\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    spec = write_job(distrun.cwd, "x = = 1\n", program={"python": "./python9"})
    done = distrun("validate", spec)
    ours = "{}.{}".format(*sys.version_info)
    unread = f"train.py:1:5: warning: not checked: the Python {ours} that runs distrun cannot parse"
    assert done.stderr.startswith(unread)
    assert len(done.stderr.splitlines()) == 2
    assert distrun("validate", "--strict", spec).returncode == 65
    assert json.loads((distrun.cwd / "asked").read_text())["files"] == [
        str(distrun.cwd / "train.py")
    ]

    errors = {str(distrun.cwd / "train.py"): [1, 5, "invalid syntax"]}
    script = f"#!/bin/sh\necho '{json.dumps({**answer, 'errors': errors})}'\n"
    python.write_text(script)
    warned = "train.py:1:5: warning: Python 9.9 cannot parse this: invalid syntax\n"
    assert distrun("validate", spec).stderr.startswith(warned)
    python.write_text("#!/bin/sh\necho no answer\n")
    assert "train.py:1:5: warning: Python 3." in distrun("validate", spec).stderr


def test_a_real_interpreter_is_asked_for_its_modules(distrun: Distrun) -> None:
    other = distrun.cwd / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    site = next(other.glob("lib/python3*/site-packages"))
    (site / "only_there.py").write_text("raise SystemExit('it was imported')\n")
    spec = write_job(distrun.cwd, "import only_there\nimport json\n")
    assert "3:" not in distrun("validate", spec).stderr
    assert "train.py:1:1: warning: there is no module 'only_there'" in (
        distrun("validate", spec).stderr
    )
    spec = write_job(
        distrun.cwd, "import only_there\nimport yaml\n", program={"python": "other/bin/python"}
    )
    stderr = distrun("validate", spec).stderr
    assert stderr.startswith("train.py:2:1: warning: there is no module 'yaml': neither beside")
    assert f"nor in {other}/bin/python" in stderr
    env = {"PYTHONPATH": str(site)}
    spec = write_job(distrun.cwd, "import only_there\n", program={"env": env})
    assert "warning" not in distrun("validate", spec).stderr


# What cannot be read -----------------------------------------------------------------------

DEEP = "x = " + "(" * 90 + ")" * 90 + "\ny = " + "+".join(["1"] * 50_000) + "\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (b"# " + b"x" * (3 << 20) + b"\n" + SETS.encode(), "it is larger than 512 KB"),
        (DEEP.encode(), "it nests too deeply"),
        (b"x = " + b"-" * 200_000 + b"1\n", "it nests too deeply"),
        ("\n".join(f"from m{n} import x" for n in range(1001)).encode(), "more than 1000 modules"),
    ],
    ids=["large", "deep", "minus", "imports"],
)
def test_a_check_that_cannot_be_made_is_told_and_strict_fails(
    distrun: Distrun, script: bytes, why: str
) -> None:
    spec = write_job(distrun.cwd, script)
    done = distrun("validate", spec, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    told = [line for line in done.stderr.splitlines() if "not checked" in line]
    assert len(told) == 1
    assert told[0].startswith(f"train.py: warning: not checked: {why}"), done.stderr
    done = distrun("plan", "--strict", spec, timeout=60)
    assert (done.returncode, done.stdout) == (65, "")
    assert f"not checked: {why}" in done.stderr


INTERPRETERS = {
    "no program": ("not a program", "cannot be started"),
    "dies": ("#!/bin/sh\nkill -9 $$\n", "was killed by SIGKILL"),
    "silent": ("#!/bin/sh\nexit 0\n", "cannot be understood"),
    "other types": (
        """#!/bin/sh\necho '{"version": "3.9", "missing": [], "keras": null, "errors": []}'\n""",
        "cannot be understood",
    ),
    "hangs": ("#!/bin/sh\nsleep 600 & wait\n", "did not answer within 5 s"),
}


@pytest.mark.parametrize("name", INTERPRETERS)
def test_an_interpreter_that_does_not_answer_is_told_and_strict_fails(
    distrun: Distrun, name: str
) -> None:
    text, why = INTERPRETERS[name]
    python = distrun.cwd / "py"
    python.write_text(text)
    python.chmod(0o755)
    spec = write_job(distrun.cwd, program={"python": "./py"})
    done = distrun("validate", spec, timeout=60)
    assert done.returncode == 0
    assert len([line for line in done.stderr.splitlines() if why in line]) == 1, done.stderr
    assert WARNED.format("warning: ") in done.stderr, "the other checks are made"
    done = distrun("launch", "--strict", spec, timeout=60)
    assert (done.returncode, done.stdout) == (65, "")
    assert why in done.stderr


CRASHING = """\
import sys
from distrun.lint import rules

def crash(program, around):
    raise KeyError("a defect")

rules.RULES = tuple(crash if each is rules.missing_chief else each for each in rules.RULES)
from distrun.__main__ import main
main()
"""


@pytest.mark.parametrize("command", ["validate", "launch"])
def test_a_rule_that_crashes_is_told_and_the_others_hold(distrun: Distrun, command: str) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", CRASHING, command, *options, "job.yaml"],
            capture_output=True,
            text=True,
            cwd=distrun.cwd,
            timeout=60,
            check=False,
        )

    write_job(distrun.cwd)
    done = run()
    assert done.returncode == 0
    assert "train.py: warning: not checked: the check has failed (KeyError" in done.stderr
    assert WARNED.format("warning: ") in done.stderr
    done = run("--strict")
    assert (done.returncode, done.stdout) == (65, "")
    assert "the check has failed" in done.stderr
    assert WARNED.format("") in done.stderr


def test_a_slow_interpreter_delays_no_output_and_no_end(distrun: Distrun) -> None:
    python = distrun.cwd / "py"
    python.write_text(
        f"#!/bin/sh\ncase $* in *probe.py*) sleep 600;; *) exec {sys.executable} $@;; esac\n"
    )
    python.chmod(0o755)
    spec = write_job(distrun.cwd, "print('it ran')\n", program={"python": "./py"})
    started = time.monotonic()
    for detach in ([], ["-d"]):
        done = distrun("launch", *detach, spec, timeout=60)
        assert done.returncode == 0
        assert "program: warning: not checked: the checks had not ended when" in done.stderr
    assert time.monotonic() - started < 8.0, "each of the two checks takes 5 s"
    done = distrun("launch", "--strict", spec, timeout=60)
    assert (done.returncode, done.stdout) == (65, ""), "it waits for the checks"


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        ("\ufeff".encode() + SETS.encode(), "train.py:3:1: warning: the program sets"),
        (b"# -*- coding: latin-1 -*-\nimport os\nx = '\xe9'; os.environ['TF_CONFIG'] = ''\n",
         "train.py:3:10: warning: the program sets"),
        ("import os\nx = 'éé'; os.environ['TF_CONFIG'] = ''\n".encode(), "train.py:2:11: warning:"),
        (b"x = '\xe9'\n", "train.py:1:"),
        (b"# -*- coding: klingon -*-\n", "cannot parse this: unknown encoding: klingon"),
        (b"# \xff\n", "train.py:1:1: warning: Python"),
        (b"x = 1\0\n", "warning: Python"),
        (b"#!/bin/sh\nif true; then echo; fi\n", "train.py:2:8: warning: Python"),
    ],
)  # fmt: skip
def test_encodings_and_other_languages(distrun: Distrun, script: bytes, warned: str) -> None:
    done = distrun("validate", write_job(distrun.cwd, script))
    assert done.returncode == 0
    assert warned in done.stderr
    assert "Traceback" not in done.stderr


def test_a_neighbour_that_is_a_pipe_or_a_folder_is_not_opened(distrun: Distrun) -> None:
    os.mkfifo(distrun.cwd / "pipe.py")
    (distrun.cwd / "data").mkdir()
    (distrun.cwd / "loop.py").symlink_to("loop.py")
    script = "import pipe, data.inner, loop\nfrom data import more\n"
    done = distrun("validate", write_job(distrun.cwd, script), timeout=60)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    # Python does not take these for modules either.
    missing = re.findall(r"there is no module '(\w+)'", done.stderr)
    assert missing == ["pipe", "loop"]


def test_thousands_of_modules_beside_the_script(distrun: Distrun) -> None:
    for number in range(2000):
        (distrun.cwd / f"m{number}.py").write_text(f"import m{number + 1}\n")
    done = distrun("validate", write_job(distrun.cwd, f"import m0\n{SETS}"), timeout=60)
    assert done.stderr.startswith("train.py:4:1: warning: the program sets or removes TF_CONFIG")
    told = "train.py: warning: not checked: of its modules, the first 200, or 512 KB, are read"
    assert done.stderr.splitlines()[1] == told
    assert len(done.stderr.splitlines()) == 3


def test_a_program_that_is_made_to_be_slow_is_read_in_time(distrun: Distrun) -> None:
    """The time limit of the command is two minutes."""
    lines = [f"x{number} = x{number - 1}.y(tf.Session)" for number in range(1, 15_000)]
    script = "import tensorflow as tf\nx0 = m = tf.keras.Model()\n" + "\n".join(lines)
    cluster = {"chief": 1, "worker": 2, "ps": 1}
    spec = write_job(distrun.cwd, script, strategy="parameter_server", cluster=cluster)
    assert distrun("validate", spec).returncode == 0

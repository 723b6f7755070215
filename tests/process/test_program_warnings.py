"""`validate`, `plan` and `launch` read the program and warn, and refuse it with --strict."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distrun as package
from harness.command import Distrun, write_program, write_spec
from harness.parts.lint import rules

SETS = "import os\n\nos.environ['TF_CONFIG'] = '{}'\nprint('it ran')\n"
WARNED = (
    "train.py:3:1: {}the program sets or removes TF_CONFIG, which distrun sets for each task: the "
    "tasks may not find each other; remove this line, or write program.tf_config: mine if it is "
    "right for each task"
)


def write_job(folder: Path, script: str | bytes = SETS, **keys: Any) -> Path:
    """Write a spec and its script, which does not need TensorFlow."""
    text = script if isinstance(script, bytes) else script.encode()
    folder.joinpath("train.py").write_bytes(text)
    program = {"script": "train.py", **keys.pop("program", {})}
    return write_spec(folder, "", 1, program=program, **keys)


def test_a_warning_does_not_stop_but_strict_does(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd)
    warned, refused = WARNED.format("warning: "), WARNED.format("")
    done = distrun.checked("validate", spec)
    assert done.stderr.splitlines()[0] == warned
    assert "is valid" in done.stderr.splitlines()[1]
    done = distrun("launch", spec)
    assert (done.returncode, done.stdout) == (0, "worker:0 | it ran\n")
    assert done.stderr.splitlines().count(warned) == 1
    for command in (["plan"], ["launch", "--dry-run"]):
        done = distrun(*command, spec)
        assert (done.returncode, done.stderr.splitlines()) == (0, [warned])
    for command in (["validate"], ["plan", "--json"], ["launch", "-d"]):
        done = distrun(*command, "--strict", spec)
        assert (done.returncode, done.stdout, done.stderr) == (65, "", f"{refused}\n"), command
    assert len(json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]) == 1

    done = distrun("plan", "--json", spec)
    assert done.stderr == ""
    (warning,) = json.loads(done.stdout)["warnings"]
    assert (warning["file"], warning["line"], warning["column"]) == ("train.py", 3, 1)
    assert warning["message"] == refused.partition(": ")[2].partition(";")[0]
    assert warning["hint"] == refused.partition("; ")[2]
    done = distrun("plan", "--json", write_job(distrun.cwd, "print(1)\n"))
    assert json.loads(done.stdout)["warnings"] == []


def test_a_real_interpreter_is_asked_for_its_modules(distrun: Distrun) -> None:
    other = distrun.cwd / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    site = next(other.glob("lib/python3*/site-packages"))
    (site / "only_there.py").write_text("raise SystemExit('it was imported')\n")
    spec = write_job(distrun.cwd, "import only_there\nimport json\n")
    (line, _) = distrun("validate", spec).stderr.splitlines()
    assert line.startswith("train.py:1:1: warning: there is no module 'only_there'")
    code, program = "import only_there\nimport yaml\n", {"python": "other/bin/python"}
    spec = write_job(distrun.cwd, code, program=program)
    stderr = distrun("validate", spec).stderr
    assert stderr.startswith("train.py:2:1: warning: there is no module 'yaml': neither beside")
    assert f"nor in {other}/bin/python" in stderr
    env = {"PYTHONPATH": str(site)}
    spec = write_job(distrun.cwd, "import only_there\n", program={"env": env})
    assert "warning" not in distrun("validate", spec).stderr
    (distrun.cwd / "trainer").mkdir()
    (distrun.cwd / "trainer/__init__.py").touch()
    said = distrun("validate", distrun.write_spec("", program={"module": "trainer.mian"})).stderr
    assert f"no module 'trainer.mian': neither in {distrun.cwd}, nor in" in said


# Programs that certainly fail ---------------------------------------------------------------

CERTAIN = {
    "syntax": ("import os\nprint('é', os.sep\n", "train.py:2:6: Python {}.{} cannot parse this: "
        "'(' was never closed\n".format(*sys.version_info)),
    "encoding": ("# coding: no-such\n", "train.py:1:1: Python"),
    "syntax of a module": ("import faulty\n", "faulty.py:1:5: Python"),
    "syntax of a package": ("from package import x\n", "__init__.py:1:5: Python"),
    "in a function that runs": ("def main():\n    import no_such\nmain()\n", "is no module"),
}  # fmt: skip
UNCERTAIN = """\
import os, subprocess, sys
try:
    import no_such_module
except ImportError:
    pass
try:
    import faulty
except SyntaxError:
    pass
if 'X_Y' in os.environ:
    import no_such_module, faulty
def unused():
    import no_such_module, faulty
subprocess.run([sys.executable, '-c', 'open("made.py", "w")'])
import made
sys.path.append('elsewhere')
import there
"""


@pytest.fixture
def modules(distrun: Distrun) -> Path:
    (distrun.cwd / "faulty.py").write_text("x = = 1\n")
    for name, text in (("package/__init__.py", "x = = 1\n"), ("elsewhere/there.py", "")):
        distrun.cwd.joinpath(name).parent.mkdir()
        distrun.cwd.joinpath(name).write_text(text)
    return distrun.cwd


def test_a_program_that_certainly_fails_is_refused(modules: Path, distrun: Distrun) -> None:
    for case, (script, words) in CERTAIN.items():
        spec = write_job(modules, script)
        others = (["submit", spec, "--dry-run"], ["launch", "-d", spec], ["run", "train.py"])
        for command in (["launch", spec], *(others if case == "syntax" else ())):
            said = distrun.told(65, *command)
            assert words in said
            assert said.endswith("nothing was started; to start it anyway: --force\n")
        doctor = distrun("doctor", spec)
        assert (doctor.returncode, "failed" in doctor.stdout) == (69, True), doctor.stdout
        assert words.rstrip() in doctor.stdout or case == "in a function that runs"
    distrun.checked("submit", spec, "--dry-run", "--force")
    with pytest.raises(package.DistrunError, match="to start it anyway: force=True"):
        package.launch(package.load(spec))
    for first, words in (("", "write a first line like #!/bin/bash, and "), ("#!/bin/sh\n", "")):
        (modules / "go.sh").write_text(f"{first}echo went $1\n")
        (command,) = re.findall(rf"not Python: {words}(chmod .*)", distrun("run", "go.sh").stderr)
    assert json.loads(distrun.asked("ps", "-a", "--json"))["jobs"] == []
    subprocess.run(shlex.split(command), cwd=modules, check=True)
    assert distrun("run", "go.sh", "on").stdout == "worker:0 | went on\n"
    (modules / "a.ipynb").write_text('{"cells": [{"outputs": null}], "nbformat": 4}')
    refused, done = distrun("run", "a.ipynb"), distrun("run", "--force", "a.ipynb")
    assert [refused.returncode, done.returncode, "'null' is not" in done.stderr] == [65, 1, True]


def test_a_program_that_may_go_well_runs(modules: Path, distrun: Distrun) -> None:
    distrun.checked("launch", write_job(modules, UNCERTAIN))
    finds = "exec('import sys; sys.path.append(\"elsewhere\")')\nimport there\n"
    distrun.checked("launch", write_job(modules, finds))
    program = {"script": "/only/in/the/image.py", "sync": "off"}
    spec = write_job(modules, program=program, hosts=["h1"])
    assert "warning" not in distrun.checked("validate", "--strict", spec).stderr


# What cannot be read -----------------------------------------------------------------------

DEEP = "x = " + "(" * 90 + ")" * 90 + "\ny = " + "+".join(["1"] * 50_000) + "\n"


UNREAD = {
    "it is larger than 512 KB": "# " + "x" * (3 << 20) + "\n" + SETS,
    "it nests too deeply": DEEP,
    "it is a zip archive, or compiled": "PK\3\4\0, as of zipapp and pex, PK\5\6",
}
INTERPRETERS = {
    "cannot be started": "not a program",
    "cannot be understood": (
        """#!/bin/sh\necho '{"version": "3.9", "missing": [], "keras": null, "errors": []}'\n"""
    ),
    "its answer cannot be": "#!/bin/sh\necho '{}'\n",
}


def write_python(folder: Path, text: str) -> dict[str, str]:
    write_program(folder / "py", text)
    return {"python": "./py"}


def test_a_check_that_cannot_be_made_is_told_and_strict_fails(distrun: Distrun) -> None:
    for why, script in UNREAD.items():
        spec = write_job(distrun.cwd, script)
        said = distrun.told(0, "validate", spec, timeout=60)
        told = [line for line in said.splitlines() if "not checked" in line]
        assert len(told) == 1
        assert told[0].startswith(f"train.py: warning: not checked: {why}"), said
        assert f"not checked: {why}" in distrun.told(65, "validate", "--strict", spec)
    for why, text in INTERPRETERS.items():
        spec = write_job(distrun.cwd, program=write_python(distrun.cwd, text))
        done = distrun.checked("validate", spec)
        assert len([line for line in done.stderr.splitlines() if why in line]) == 1, done.stderr
        assert WARNED.format("warning: ") in done.stderr, "the other checks are made"
        assert why in distrun.told(65, "validate", "--strict", spec)


CRASHING = f"""\
import sys
import {rules.__name__} as rules

def crash(program, around):
    raise KeyError("a defect")

rules.RULES = tuple(crash if each is rules.servers else each for each in rules.RULES)
from distrun.__main__ import main
main()
"""


def test_a_rule_that_crashes_is_told_and_the_others_hold(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd)
    distrun.argv = (sys.executable, "-c", CRASHING)
    done = distrun.checked("launch", spec, env=dict(os.environ))
    assert "train.py: warning: not checked: the check has failed (KeyError" in done.stderr
    assert WARNED.format("warning: ") in done.stderr
    said = distrun.told(65, "launch", "--strict", spec, env=dict(os.environ))
    assert "the check has failed" in said
    assert WARNED.format("") in said
    dies = CRASHING.replace("raise KeyError", "import os; os.kill(os.getpid(), 9) or str")
    distrun.argv = (*distrun.argv[:2], dies)
    early = "the process that checks it has ended early"
    assert early in distrun.checked("launch", spec, env=dict(os.environ)).stderr
    assert early in distrun.told(65, "launch", "--strict", spec, env=dict(os.environ))


def test_a_slow_interpreter_delays_no_output_and_no_end(distrun: Distrun) -> None:
    text = (
        f"#!/bin/sh\ncase $* in *probe.py*) sleep 600 & wait;; *) exec {sys.executable} $@;; esac\n"
    )
    program = write_python(distrun.cwd, text)
    spec = write_job(distrun.cwd, "print('it ran')\n", program=program)
    done = distrun.checked("launch", spec)
    assert "program: warning: not checked: the checks had not ended when" in done.stderr
    assert "did not answer within 5 s" in distrun.told(65, "launch", "--strict", spec)


def test_more_gpus_than_there_are(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    # It lists two GPUs.
    write_program(distrun.cwd / "nvidia-smi", "#!/bin/sh\necho asked >> asked\necho 0\necho 1\n")
    monkeypatch.setenv("PATH", str(distrun.cwd), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def told(command: str, *options: str, **keys: Any) -> tuple[int, str]:
        done = distrun(command, distrun.write_spec("true", **keys), *options)
        return done.returncode, done.stderr

    far = {"cluster": {"worker": {"count": 2, "gpus": 9}}, "hosts": ["far1", "far2"]}
    assert "warning" not in told("validate", **far)[1]
    assert not (distrun.cwd / "asked").exists(), "asked though the spec asks for nothing here"

    asks: Any = {"cluster": {"worker": {"count": 2, "gpus": 2}}}
    warned = "the tasks on localhost ask for 4 GPUs, and it has 2"
    code, said = told("validate", **asks)
    assert code == 0
    assert f"cluster.worker.gpus: warning: {warned}; lower `gpus`" in said
    for command, *options in (("validate", "--strict"), ("launch",)):
        code, said = told(command, *options, **asks)
        assert code == 65
        assert warned in said

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "ask for 4 GPUs, and it has 1" in told("validate", **asks)[1]


def test_gpus_that_cannot_be_listed(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    program = distrun.cwd / "nvidia-smi"
    write_program(program, "#!/bin/sh\necho Driver/library version mismatch\necho more\nexit 18\n")
    monkeypatch.setenv("PATH", str(distrun.cwd), prepend=os.pathsep)
    why = "nvidia-smi exited with 18: Driver/library version mismatch; "
    done = distrun.checked("launch", distrun.write_spec("true"))
    assert f"warning: localhost: {why}" in done.stderr
    assert why in distrun("doctor", distrun.write_spec("true")).stdout
    asks = distrun.write_spec("true", cluster={"worker": {"count": 2, "gpus": 1}})
    assert f"ask for 2 GPUs, and it has 0; {why}" in distrun.told(65, "launch", asks)
    assert why in distrun("validate", asks).stderr

    # A machine without GPUs may have nvidia-smi all the same.
    program.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    assert "nvidia-smi" not in distrun("launch", distrun.write_spec("true")).stderr

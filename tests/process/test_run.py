"""`distrun run`: the job, the file that it amounts to, the chosen strategy, wrong usage."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.processes import survivors
from harness.terminal import OpenTerminal
from harness.values import not_none
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SHOW = """\
import json, os, sys

print(json.dumps([sys.argv[1:], os.environ.get("TF_CONFIG"), os.environ.get("COLOUR")]))
"""
CREATES = """\
import tensorflow as tf

strategy = tf.distribute.{}(*())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SHOW)
    return path


def shown(line: str) -> tuple[list[str], dict[str, object] | None, str | None]:
    args, config, colour = json.loads(line.partition(" | ")[2])
    return args, None if config is None else json.loads(config), colour


def printed_spec(distrun: Distrun, *args: str) -> str:
    done = distrun("run", "--print-spec", *args)
    assert done.returncode == 0, done.stderr
    text: str = done.stdout
    return text


def cluster_of(distrun: Distrun, *args: str) -> tuple[str, str]:
    """The strategy and the cluster that `run` chooses, as the YAML file has them."""
    text = printed_spec(distrun, *args)
    strategy = not_none(re.search(r"^strategy: (\w+)$", text, re.MULTILINE))[1]
    cluster = re.search(r"^cluster:\n((?:  .*\n)+)", text, re.MULTILINE)
    return strategy, "" if cluster is None else " ".join(cluster[1].split())


@pytest.mark.usefixtures("script")
def test_the_line_of_the_readme_starts_two_workers(distrun: Distrun) -> None:
    readme = (ROOT / "README.md").read_text()
    line = not_none(re.search(r"test_run.py -->\n```sh\ndistrun (.*)\n```", readme))[1]
    assert readme.index(line) < readme.index("distrun launch "), "the README shows `run` first"
    done = distrun(*shlex.split(line))
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [each.partition(" ")[0] for each in lines] == ["worker:0", "worker:1"]
    for index, each in enumerate(lines):
        args, config, _ = shown(each)
        assert args == ["--epochs", "3"]
        assert not_none(config)["task"] == {"type": "worker", "index": index}
    assert distrun.status("train")["strategy"] == "multi_worker_mirrored"


ODD = [
    *("-n", "5", "--", "-d", "--help", "", "a b", "0.10", "true", "null", "~", "'", '"', "x\ny"),
    *("${HOME}", "$HOME", "- a", "a: b", "#", "[", "*x", "\u00e4\U0001f600", "\x1b[1m", "\u2028"),
]


@pytest.mark.usefixtures("script")
def test_everything_after_the_script_is_the_scripts(distrun: Distrun) -> None:
    done = distrun("run", "train.py", *ODD)
    assert done.returncode == 0, done.stderr
    assert shown(done.stdout) == (ODD, None, None)
    before = distrun("run", "train.py", "--", "--lr", "--", "-d")  # as `launch` takes them
    assert shown(before.stdout) == (["--lr", "--", "-d"], None, None)
    (distrun.cwd / "job.yaml").write_text(printed_spec(distrun, "train.py", *ODD))
    again = distrun("launch", "job.yaml")
    assert again.stdout == done.stdout, again.stderr


def test_the_printed_file_is_the_same_job(distrun: Distrun, script: Path) -> None:
    hostfile = distrun.cwd / "hosts.txt"
    hostfile.write_text("# this machine\nlocalhost slots=4\n")
    words = ["-n", "3", "--chief", "--name", "night", "--env", "COLOUR=red", "--env", "PATH"]
    words += ["--python", sys.executable, "--hostfile", "hosts.txt", "--set", "timeouts.grace=3s"]
    words += ["train.py", "--epochs", "0.10"]
    text = printed_spec(distrun, *words)
    assert text.startswith("# distrun run -n 3 --chief")
    assert "  args: [--epochs, 0.10]\n" in text, "not readable"
    (distrun.cwd / "job.yaml").write_text(text)
    assert distrun("validate", "job.yaml").returncode == 0
    launched, run = distrun("plan", "job.yaml", "--json"), distrun("run", "--dry-run", *words)
    assert run.returncode == 0, run.stderr
    plan = json.loads(launched.stdout)["plan"]
    assert [task["task"] for task in plan["tasks"]] == [
        *("chief:0", "worker:0", "worker:1", "worker:2")
    ]
    for task in plan["tasks"]:
        assert task["argv"] == [sys.executable, str(script), "--epochs", "0.10"]
        assert task["env"]["COLOUR"] == "red"

    def without_ports(text: str) -> str:
        return re.sub(r"localhost:\d+", "localhost:PORT", text)

    shown_plan = distrun("plan", "job.yaml").stdout
    assert without_ports(shown_plan) == without_ports(run.stdout)
    assert distrun("run", *words).returncode == 0
    folder = Path(json.loads(distrun("status", "night", "--json").stdout)["job"]["folder"])
    recorded = (folder / "spec.yaml").read_text()
    assert recorded.partition("\n")[2] == text.partition("\n")[2], "the record has another spec"


@pytest.mark.usefixtures("script")
def test_the_printed_file_works_in_another_folder(distrun: Distrun) -> None:
    elsewhere = distrun.cwd / "specs" / "job.yaml"
    elsewhere.parent.mkdir()
    with elsewhere.open("w") as file:
        distrun("run", "--print-spec", "train.py", "--out", "x", stdout=file)
    done = distrun("launch", elsewhere, cwd=elsewhere.parent)
    assert done.returncode == 0, done.stderr
    assert shown(done.stdout)[0] == ["--out", "x"]
    assert f"workdir: {distrun.cwd}\n" in elsewhere.read_text()
    with (distrun.cwd / "beside.yaml").open("w") as file:
        distrun("run", "--print-spec", "train.py", stdout=file)
    assert "script: train.py\n" in (distrun.cwd / "beside.yaml").read_text()


@pytest.mark.parametrize(
    ("creates", "words", "chosen"),
    [
        (None, [], ("default", "")),
        (None, ["-n", "2"], ("multi_worker_mirrored", "worker: 2")),
        (None, ["-np", "2", "--chief"], ("multi_worker_mirrored", "chief: 1 worker: 2")),
        (None, ["--ps", "2", "-n", "3"], ("parameter_server", "chief: 1 worker: 3 ps: 2")),
        (None, ["--strategy", "parameter_server"],
         ("parameter_server", "chief: 1 worker: 1 ps: 1")),
        (None, ["--hosts", "a:2,b-[1,3]"], ("multi_worker_mirrored", "worker: 4")),
        (None, ["--hosts", "a", "--hosts", "b"], ("multi_worker_mirrored", "worker: 2")),
        (None, ["--set", "strategy=parameter_server", "-n", "2"],
         ("parameter_server", "chief: 1 worker: 2 ps: 1")),
        (None, ["-n", "2", "--set", "cluster.evaluator=1"],
         ("multi_worker_mirrored", "worker: 2 evaluator: 1")),
        ("MirroredStrategy", [], ("mirrored", "")),
        ("MirroredStrategy", ["--hosts", "a:4"], ("mirrored", "")),
        ("MultiWorkerMirroredStrategy", [], ("multi_worker_mirrored", "worker: 1")),
        ("experimental.CentralStorageStrategy", [], ("central_storage", "")),
        ("experimental.ParameterServerStrategy", ["-n", "2"],
         ("parameter_server", "chief: 1 worker: 2 ps: 1")),
        ("MirroredStrategy", ["-n", "2", "--strategy", "multi_worker_mirrored"],
         ("multi_worker_mirrored", "worker: 2")),
    ],
)  # fmt: skip
def test_the_strategy_is_that_of_the_script_where_it_is_plain(
    distrun: Distrun, script: Path, creates: str | None, words: list[str], chosen: tuple[str, str]
) -> None:
    if creates is not None:
        script.write_text(CREATES.format(creates))
    assert cluster_of(distrun, *words, "train.py") == chosen
    told = distrun("run", "--print-spec", *words, "train.py").stderr
    is_read = creates is not None and "--strategy" not in words
    because = f"distrun: strategy: {chosen[0]}, because train.py:3:12 creates "
    assert told.startswith(because) if is_read else told == ""


def test_a_strategy_that_depends_on_a_condition_is_not_plain(
    distrun: Distrun, script: Path
) -> None:
    script.write_text(
        "import sys\nimport tensorflow as tf\nif len(sys.argv) > 1:\n"
        "    strategy = tf.distribute.MirroredStrategy()\n"
    )
    assert cluster_of(distrun, "-n", "2", "train.py")[0] == "multi_worker_mirrored"
    assert cluster_of(distrun, "train.py")[0] == "default"


def test_a_strategy_of_one_process_cannot_have_two_workers(distrun: Distrun, script: Path) -> None:
    script.write_text(CREATES.format("MirroredStrategy"))
    done = distrun("run", "-n", "2", "train.py")
    assert done.returncode == 65
    assert done.stderr.startswith("train.py:3:12: the script creates MirroredStrategy, which runs ")
    assert "leave out -n" in done.stderr
    asked = distrun("run", "-n", "2", "--strategy", "mirrored", "train.py")
    assert asked.returncode == 65
    assert "--strategy: mirrored runs in one process, but -n is 2" in asked.stderr


def test_modules_bundled_jobs_and_other_programs(distrun: Distrun) -> None:
    package = distrun.cwd / "trainer"
    package.mkdir()
    (package / "main.py").write_text(SHOW)
    done = distrun("run", "-m", "trainer.main", "-m", "x")
    assert shown(done.stdout)[0] == ["-m", "x"], done.stderr
    assert printed_spec(distrun, "-m", "trainer.main").splitlines()[1] == "name: main"

    text = printed_spec(distrun, "-n", "2", "mnist", "--epochs", "3")
    assert "  script: mnist\n" in text
    assert text.splitlines()[1] == "name: mnist"

    shell = distrun.cwd / "go.sh"
    shell.write_text('#!/bin/sh\necho "$DISTRUN_TASK $*"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    for word in ("go.sh", "./go.sh", str(shell)):
        done = distrun("run", "-n", "2", word, "--fast")
        assert sorted(line.partition(" | ")[2] for line in done.stdout.splitlines()) == [
            *("worker:0 --fast", "worker:1 --fast")
        ], done.stderr
    (distrun.cwd / "train.py").write_text(SHOW)
    done = distrun("run", sys.executable, "train.py", "-x")
    assert shown(done.stdout)[0] == ["-x"], done.stderr
    assert "name: train\n" in printed_spec(distrun, "python3", "train.py")


@pytest.mark.usefixtures("script")
def test_a_hostfile_in_the_usual_forms(distrun: Distrun) -> None:
    hostfile = distrun.cwd / "hosts.txt"
    hostfile.write_text("# a comment\n\nlocalhost slots=1\ngpu1:2\ngpu2 slots=3 max_slots=3 # b\n")
    assert cluster_of(distrun, "--hostfile", "hosts.txt", "train.py")[1] == "worker: 6"
    hostfile.write_text("localhost\ngpu1 slot=2\n")
    done = distrun("run", "-n", "2", "--hostfile", "hosts.txt", "train.py")
    assert done.returncode == 65
    assert done.stderr.startswith("hosts.txt:2:6: unknown word 'slot=2'")


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "Missing argument 'SCRIPT'"),
        (["-n", "0", "train.py"], 2, "Invalid value for '-n'"),
        (["--epochs", "3", "train.py"], 2, "The script's own options follow SCRIPT"),
        (["job.yaml"], 2, "distrun launch job.yaml"),
        (["job.yml"], 2, "distrun launch job.yml"),
        (["trian.py"], 65, "SCRIPT: program.script names no file: "),
        (["trian.py"], 65, "did you mean 'train.py'?"),
        (["train"], 65, "did you mean 'train.py'?"),
        (["--env", "DISTRUN_X=1", "train.py"], 65, "--env DISTRUN_X: program.env: the variable "),
        (["--env", "NO_SUCH", "train.py"], 65, "--env NO_SUCH: program.pass_env names 'NO_SUCH'"),
        (["--ps", "1", "--strategy", "mirrored", "train.py"], 65, "--ps: mirrored has no ps"),
        (["--chief", "--strategy", "mirrored", "train.py"], 65, "--chief: mirrored has no chief"),
        (["--hosts", "a:0", "train.py"], 65, "--hosts: hosts[0].slots"),
        (["--hosts", "a,,b", "train.py"], 65, "--hosts: hosts[1]"),
        (["--hosts", "a", "--hostfile", "x", "train.py"], 65, "--hostfile: hosts and hostfile"),
        (["--hostfile", "x", "train.py"], 65, "--hostfile: hostfile names no file"),
        (["--name", "a\nb", "train.py"], 65, "--name: name has a line break"),
        (["--set", "strateg=x", "train.py"], 65, "--set strateg=x: unknown key 'strateg'"),
        (["-m", "a b"], 65, "SCRIPT: program.module must be a module's name"),
    ],
)
def test_wrong_usage_names_the_option(
    distrun: Distrun, words: list[str], code: int, message: str
) -> None:
    done = distrun("run", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["launch", "plan", "validate", "doctor"])
def test_a_script_in_place_of_a_spec_is_for_run(
    distrun: Distrun, script: Path, command: str
) -> None:
    done = distrun(command, script.name)
    assert done.returncode == 2
    assert "distrun run train.py" in done.stderr


def test_a_bundled_job_in_place_of_a_spec_is_for_run(distrun: Distrun) -> None:
    done = distrun("launch", "mnist")
    assert done.returncode == 2
    assert "distrun run mnist" in done.stderr


def test_detached_it_prints_its_id_and_other_commands_find_it(
    distrun: Distrun, script: Path
) -> None:
    script.write_text("import time\ntime.sleep(100)\n")
    done = distrun("run", "-n", "2", "-d", "--name", "night", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == distrun.status("night")["job_id"]
    assert distrun("kill", "night").returncode == 0
    assert distrun("wait", "night").returncode == 137
    assert not survivors(done.stdout.strip())


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_ctrl_c_ends_it(terminal: OpenTerminal, script: Path, columns: int) -> None:
    script.write_text(
        "import os, time\nprint('ready', os.environ['DISTRUN_TASK'], flush=True)\ntime.sleep(100)\n"
    )
    window = terminal("run", "-n", "2", str(script), columns=columns, rows=24)
    wait_until(lambda: window.read().count("ready") == 2, timeout=30)
    window.type("\x03")
    wait_until(window.ended, timeout=60)
    assert window.process.returncode == 128 + signal.SIGINT


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("distrun r", "run"),
        ("distrun run --print", "--print-spec"),
        ("distrun run --det", "--detach"),
    ],
)
def test_the_shell_completes_it(distrun: Distrun, line: str, found: str) -> None:
    done = distrun(env={**os.environ, "_DISTRUN_COMPLETE": "bash_complete", "COMP_LINE": line})
    assert f"plain,{found}" in done.stdout.splitlines()


@pytest.mark.usefixtures("script")
def test_the_module_runs_alike(distrun_home: Path, tmp_path: Path) -> None:
    assert distrun_home
    line = [sys.executable, "-m", "distrun", "run", "-n", "2", "train.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 2


def test_braces_in_a_path_are_only_braces(distrun: Distrun, script: Path) -> None:
    for folder in ("{rank}", "{address:worker:7}"):
        (script.parent / folder).mkdir()
        shutil.copy(script, script.parent / folder)
        done = distrun("run", f"{folder}/train.py", "{index}")
        assert done.returncode == 0, done.stderr
        assert shown(done.stdout)[0] == ["0"]
    program = script.parent / "{rank}" / "echo.sh"
    program.write_text("#!/bin/sh\necho $1\n")
    program.chmod(0o755)
    done = distrun("run", "./{rank}/echo.sh", "{role}")
    assert (done.returncode, done.stdout) == (0, "worker:0 | worker\n"), done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [("pipe.py", "is no regular file"), ("loop.py", "is a link that leads to no file")],
)
def test_a_script_that_is_there_but_no_file(distrun: Distrun, name: str, words: str) -> None:
    os.mkfifo(distrun.cwd / "pipe.py")
    (distrun.cwd / "loop.py").symlink_to("loop.py")
    done = distrun("run", name)
    assert done.returncode == 65
    assert words in done.stderr
    assert "did you mean" not in done.stderr


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--nproc_per_node=2", "Use -n."),
        ("--nproc-per-node 2", "Use -n."),
        ("-H localhost", "Use --hosts."),
        ("-x A=1", "Use --env NAME=VALUE."),
        ("--nnodes 2", "The script's own options follow SCRIPT."),
        ("--worker 2", "The script's own options follow SCRIPT. Did you mean '--workers'?"),
        ("--strategy MirroredStrategy", "Did you mean mirrored?"),
        ("--strategy=tf.distribute.MultiWorkerMirroredStrategy", "Did you mean multi_worker_m"),
        ("--strategy parameter-server", "Did you mean parameter_server?"),
    ],
)
def test_the_options_of_other_launchers_get_an_answer(
    distrun: Distrun, words: str, answer: str
) -> None:
    done = distrun("run", *words.split(), "train.py")
    assert done.returncode == 2
    assert answer in done.stderr
    if "nnodes" in words:
        assert "Did you mean" not in done.stderr
    assert not distrun("ps", "-a").stdout.strip()


def test_advice_on_what_nothing_expands_is_right_for_run(distrun: Distrun, script: Path) -> None:
    done = distrun("run", "--env", "COLOUR=$HOME", str(script))
    assert shown(done.stdout)[2] == "$HOME"
    assert "write the whole text or, in a YAML file, ${HOME}" in " ".join(done.stderr.split())


def test_a_worker_that_leaves_early_left_no_place(distrun: Distrun, script: Path) -> None:
    early = "import os, time\nos.environ['DISTRUN_TASK'] == 'worker:1' or time.sleep(60)\n"
    script.write_text(early)
    done = distrun("run", "-n", "2", "--ps", "1", str(script))
    assert "exited 0 while the others still needed it (left_early)" in done.stderr

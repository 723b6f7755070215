"""`distrun run`: the job, the file that it amounts to, the chosen strategy, wrong usage."""

import json
import re
import shlex
import stat
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.parts.spec import Spec, load
from harness.values import not_none

SHOW = """\
import json, os, sys

print(json.dumps([sys.argv[1:], os.environ.get("TF_CONFIG"), os.environ.get("COLOUR")]))
"""
CREATES = """\
import tensorflow as tf

strategy = tf.distribute.{}(*())
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SHOW)
    return path


def shown(line: str) -> tuple[list[str], dict[str, object] | None, str | None]:
    args, config, colour = json.loads(line.partition(" | ")[2])
    return args, None if config is None else json.loads(config), colour


def printed_spec(distrun: Distrun, *args: str) -> str:
    done = distrun.checked("run", "--print-spec", *args)
    text: str = done.stdout
    return text


def read(text: str) -> Spec:
    path = Path.cwd() / "printed.yaml"
    path.write_text(text)
    return load(path)


def cluster_of(text: str) -> tuple[str, str]:
    strategy = not_none(re.search(r"^strategy: (\w+)$", text, re.MULTILINE))[1]
    cluster = re.search(r"^cluster:\n((?:  .*\n)+)", text, re.MULTILINE)
    return strategy, "" if cluster is None else " ".join(cluster[1].split())


@pytest.mark.usefixtures("script")
def test_the_line_of_the_readme_starts_two_workers(distrun: Distrun) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    line = not_none(re.search(r"test_run.py -->\n```sh\ndistrun (.*)\n```", readme))[1]
    assert readme.index(line) < readme.index("distrun launch "), "the README shows `run` first"
    done = distrun.checked(*shlex.split(line))
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
    assert shown(distrun.checked("run", "train.py", *ODD).stdout) == (ODD, None, None)
    text = printed_spec(distrun, "train.py", *ODD)
    recorded = (Path(distrun.status()["folder"]) / "spec.yaml").read_text()
    assert recorded.partition("\n")[2] == text.partition("\n")[2], "the record has another spec"
    assert read(text).program.args == tuple(ODD)
    before = printed_spec(distrun, "train.py", "--", "--lr", "--", "-d")  # as `launch` takes them
    assert read(before).program.args == ("--lr", "--", "-d")


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


@pytest.mark.usefixtures("script")
def test_the_printed_file_is_as_strict_as_the_command(distrun: Distrun) -> None:
    assert read(printed_spec(distrun, "--strict", "train.py")).strict
    assert not read(printed_spec(distrun, "train.py")).strict


@pytest.mark.usefixtures("script")
def test_the_printed_file_works_in_another_folder(distrun: Distrun) -> None:
    """Paths in it are relative to the folder that it is written to, where there is one."""
    elsewhere = distrun.cwd / "specs" / "job.yaml"
    elsewhere.parent.mkdir()
    with elsewhere.open("w") as file:
        distrun("run", "--print-spec", "train.py", "--out", "x", stdout=file)
    assert f"workdir: {distrun.cwd}\n" in elsewhere.read_text()
    done = distrun("launch", elsewhere, cwd=elsewhere.parent)
    assert shown(done.stdout)[0] == ["--out", "x"], done.stderr
    with (distrun.cwd / "beside.yaml").open("w") as file:
        distrun("run", "--print-spec", "train.py", stdout=file)
    assert "script: train.py\n" in (distrun.cwd / "beside.yaml").read_text()


@pytest.mark.parametrize(
    ("creates", "words", "chosen"),
    [
        (None, [], ("default", "")), (None, ["-np", "2"], ("multi_worker_mirrored", "worker: 2")),
        (None, ["--ps", "2", "-n", "3"], ("parameter_server", "chief: 1 worker: 3 ps: 2")),
        (None, ["--hosts", "a:2,b-[1,3]"], ("multi_worker_mirrored", "worker: 4")),
        (None, ["--hosts", "a,a", "--on", "b"], ("multi_worker_mirrored", "worker: 3")),
        (None, ["-n", "2", "--set", "cluster.evaluator=1"],
         ("multi_worker_mirrored", "worker: 2 evaluator: 1")),
        ("MirroredStrategy", [], ("mirrored", "")),
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
    done = distrun("run", "--print-spec", *words, "train.py")
    assert cluster_of(done.stdout) == chosen
    told = done.stderr
    is_read = creates is not None and "--strategy" not in words
    because = f"distrun: strategy: {chosen[0]}, because train.py:3:12 creates "
    assert told.startswith(because) if is_read else told == ""


def test_a_strategy_of_one_process_cannot_have_two_workers(distrun: Distrun, script: Path) -> None:
    script.write_text(CREATES.format("MirroredStrategy"))
    said = distrun.told(65, "run", "-n", "2", "train.py")
    assert said.startswith("train.py:3:12: the script creates MirroredStrategy, which runs ")
    assert "leave out -n" in said


@pytest.mark.usefixtures("script")
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
    done = distrun("run", "go.sh", "--fast")
    assert done.stdout == "worker:0 | worker:0 --fast\n", done.stderr
    assert read(printed_spec(distrun, str(shell))).program.argv == (str(shell),)
    python = read(printed_spec(distrun, "python3", "train.py", "-x"))
    assert (python.name, python.program.argv) == ("train", ("python3",))
    assert python.program.args == ("train.py", "-x")


WRONG: tuple[tuple[list[str], int, str], ...] = (
    ([], 2, "Missing argument 'SCRIPT'"), (["-n", "0", "train.py"], 2, "Invalid value for '-n'"),
    (["--epochs", "3", "train.py"], 2, "The script's own options follow SCRIPT"),
    (["job.yaml"], 2, "distrun launch job.yaml"), (["trian.py"], 65, "did you mean 'train.py'?"),
    (["--env", "DISTRUN_X=1", "train.py"], 65, "--env DISTRUN_X: program.env: the variable "),
    (["-n", "2", "--strategy", "mirrored", "train.py"], 65, "--strategy: mirrored runs in one "),
    (["--ps", "1", "--strategy", "mirrored", "train.py"], 65, "--ps: mirrored has no ps"),
    (["--hosts", "a:0", "train.py"], 65, "--hosts: hosts[0].slots"),
    (["--hosts", "a", "--hostfile", "x", "train.py"], 65, "--hostfile: hosts and hostfile"),
    (["--set", "strateg=x", "train.py"], 65, "--set strateg=x: unknown key 'strateg'"),
    (["--set", "[0]=1", "train.py"], 65, "this is not PATH=VALUE"),
    (["--worker", "2", "train.py"], 2, "Did you mean '--workers'?"),
    (["--strategy", "MirroredStrategy", "train.py"], 2, "Did you mean mirrored?"),
    (["--time", "1h", "train.py"], 2, "--set slurm.time=12h"),
    (["train.py", "--dry-run"], 2, "write -- before --dry-run"),
)  # fmt: skip


@pytest.mark.usefixtures("script")
def test_wrong_usage_names_the_option(distrun: Distrun) -> None:
    for words, code, message in WRONG:
        said = distrun.told(code, "run", *words)
        assert message in said
    assert distrun.asked("ps", "-a", "-q") == ""


@pytest.mark.usefixtures("script")
def test_a_count_after_the_script_is_the_scripts(distrun: Distrun) -> None:
    (distrun.cwd / "own.py").write_text("parser.add_argument('-n', type=int)\n")
    for words, is_told in (("train.py -n 2", True), ("-n 1 train.py -n 2", False)):
        assert ("-n 2 follows SCRIPT" in distrun("run", *words.split()).stderr) is is_told
    assert "--name x follows" in distrun("run", "--print-spec", "own.py", "--name", "x").stderr
    assert "SCRIPT" not in distrun("run", "--print-spec", "own.py", "-n", "2").stderr

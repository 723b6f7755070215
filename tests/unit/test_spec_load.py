"""What a valid spec means once it is loaded; `--set`; which interpreter runs a script."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.command import write_program
from harness.parts.job import run_spec
from harness.parts.settings import HostSpec, RestartSpec
from harness.parts.spec import Placement, ProgramKind, Sync, load, load_mapping, program, reload
from harness.parts.top import Role, Success, UsageError, replace
from harness.specs import load_text, refusal

SMALL = """\
strategy: multi_worker_mirrored
cluster:
  worker: 2
program:
  script: train.py
"""


def test_the_defaults(folder: Path) -> None:
    spec = load_text(folder, SMALL)

    assert (spec.name, spec.hosts) == ("job", (HostSpec(),))
    assert (spec.success, spec.program.kind) == (Success.CHIEF_AND_WORKERS, ProgramKind.SCRIPT)
    target = str(folder / "train.py")
    assert (spec.program.target, spec.program.workdir) == (target, str(folder))
    assert (spec.timeouts.start, spec.timeouts.run) == (300, None)
    assert (spec.program.python, spec.port_range, spec.tensorboard) == (None, None, None)


EVERYTHING = Path(__file__).with_name("every_key.yaml").read_text()


def test_every_key_is_kept(folder: Path) -> None:
    (folder / "sub").mkdir()

    spec = load_text(folder, EVERYTHING, environ={"TOKEN": "secret"})

    assert spec.name == "all of it"
    assert [(role.role, role.count) for role in spec.roles] == [
        (Role.CHIEF, 1), (Role.WORKER, 2), (Role.PS, 6),
    ]  # fmt: skip
    chief, worker, ps = spec.roles
    assert worker.addresses == ("localhost:12345", "[::1]:23456")
    assert (ps.gpus, ps.cpus, ps.args, ps.env) == (0, 1, ("--ps", "0.10"), {"A": "1e3"})
    assert chief.gpus is None
    assert [host.name for host in spec.hosts] == [
        "localhost", "gpu-08", "gpu-09", "gpu-10", "gpu-3", "u@big", "other",
    ]  # fmt: skip
    big, other = spec.hosts[-2:]
    assert (big.address, big.slots, big.gpus) == ("10.0.0.5", 4, (0, 1))
    assert (big.python, big.workdir, big.env) == ("/opt/python", "/data", {"B": "yes"})
    assert other.gpus == (3, 1)
    assert spec.placement is Placement.PACK
    assert (spec.ssh.user, spec.ssh.port, spec.ssh.connect_timeout) == ("u", 2222, 2.0)
    assert spec.ssh.options == {"Compression": "yes"}
    program = spec.program
    assert (program.kind, program.target) == (ProgramKind.MODULE, "trainer.main")
    assert program.python == str(folder / "env/bin/python")
    assert program.args == (
        "--epochs", "3", "0.10", "1e3", "007", "0x1F", "yes", "null", "~", "True", "", "1:30",
        "2024-01-01", " a ",
    )  # fmt: skip
    assert program.workdir == str(folder / "sub")
    assert program.env == {"ZERO": "0.10", "OFF": "off", "QUOTED": "1"}
    assert program.pass_env == ("TOKEN",)
    assert program.sync is Sync.PATHS
    assert program.sync_paths == (str(folder / "train.py"), str(folder / "sub"))
    assert "secret" not in repr(spec)
    assert (spec.success, spec.strict) == (Success.WORKER_0, False)
    assert load_text(folder, SMALL + "success: {tasks: worker0, strict: true}\n").strict
    restart = spec.restart
    assert (restart.max, restart.backoff, restart.backoff_max) == (3, 0.5, 60.0)
    assert (restart.reset_after, restart.never_on) == (None, (2, 3))
    timeouts = spec.timeouts
    assert (timeouts.start, timeouts.run, timeouts.grace) == (1.5, 3600.0, 0.0)
    assert (timeouts.stall, timeouts.link) == (300.0, None)
    assert spec.port_range == (20000, 20000), "one port on each of 7 hosts, for 7 tasks"
    assert spec.log_max_size == 1536
    assert spec.tensorboard is not None
    assert (spec.tensorboard.logdir, spec.tensorboard.port) == (str(folder / "sub/logs"), 6006)


def test_a_folder_in_which_tasks_run_goes_by_the_path_that_is_sent(folder: Path) -> None:
    (folder / "real" / "sub").mkdir(parents=True)
    (folder / "real" / "train.py").touch()
    (folder / "link").symlink_to("real")
    (folder / "link" / "top.yaml").write_text(
        "strategy: mirrored\ncluster: {worker: 1}\nhosts: [h1]\n"
        "program: {script: train.py, python: sub/../../python}\n"
    )
    (folder / "python").symlink_to("/usr/bin/python3")
    spec = load(str(folder / "link" / "top.yaml"), cwd=str(folder / "real" / "sub"))
    assert spec.program.sync_base == str(folder / "link")
    assert spec.program.python == str(folder / "python")  # its environment has the link
    assert spec.program.workdir == str(folder / "link" / "sub")
    assert load(str(folder / "link" / "top.yaml"), cwd=str(folder)).program.workdir == str(folder)


BY_PYTHON = "command: [python3, -u, a b.py, --lr, 1]"


@pytest.mark.parametrize(
    ("program", "script", "told"),
    [
        ("script: a b.py", b"import os\n!pip install x\n", "line 2: !pip install x"),
        ("script: a b.py", b"if 1:\n  %matplotlib inline\n", "line 2: %matplotlib inline"),
        ("script: a b.py", b"import os\nfiles = !ls data\n", "line 2: files = !ls data"),
        ("script: a b.py", b"import os\nos.path?\n?os\n", "line 2: os.path?"),
        (BY_PYTHON, b"x = 1\nget_ipython().system('ls')\n", "line 2: get_ipython().system('ls')"),
        (BY_PYTHON, "print('hi')\n".encode("utf-16"), "in UTF-16"),
        ("command: [bash, -e, a b.py]", b"x=1\r\n", "carriage return"),
        ("command: ['./a b.py']", b"#!/bin/sh\r\n", "carriage return"),
        ("command: ['./a b.py']", b"\xef\xbb\xbf#!/bin/sh\n", "byte order mark"),
    ],
)
def test_a_script_to_be_converted(folder: Path, program: str, script: bytes, told: str) -> None:
    spec = f"strategy: mirrored\nprogram: {{{program}}}\n"
    (folder / "a b.py").write_bytes(script)
    error = str(refusal(folder, spec))
    assert told in error
    convert = re.split("such lines: |convert it: ", error)[1]
    subprocess.run(convert, shell=True, cwd=folder, check=True)
    load_text(folder, spec)
    compile((folder / "a b.py").read_text(), "a b.py", "exec")


@pytest.mark.parametrize(
    "script",
    [
        "try:\n  get_ipython()\nexcept NameError: pass\n",
        "from IPython import get_ipython\nget_ipython()\n", f"x = (2\n%1)\ny = {'-' * 200_000}1\n",
        'a = (10\n%3)\nb = """\n!pip install\n"""\n',
    ],
)  # fmt: skip
def test_a_script_that_resembles_one_for_ipython_is_not_refused(folder: Path, script: str) -> None:
    (folder / "a b.py").write_text(script)
    load_text(folder, "strategy: mirrored\nprogram: {script: a b.py}\n")


def test_a_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "home" / "venv").mkdir(parents=True)
    for name in ("train.py", "venv/python"):
        (folder / "home" / name).touch()
    program = "script: ~/train.py, python: ~/venv/python, workdir: ~/venv"
    text = f"strategy: mirrored\nprogram: {{{program}}}\n"
    read = load_text(folder, text).program
    assert read.target == str(folder / "home" / "train.py")
    assert read.python == str(folder / "home" / "venv" / "python")
    assert read.workdir == str(folder / "home" / "venv")
    assert "home/trian.py' is not there" in str(refusal(folder, text.replace("train", "trian")))


def test_paths_of_other_hosts_need_not_be_here(folder: Path) -> None:
    text = (
        "strategy: multi_worker_mirrored\ncluster: {worker: 1}\nhosts: [gpu1]\n"
        'program: {script: /there/train.py, workdir: /there, sync: "off"}\n'
    )
    spec = load_text(folder, text)
    assert (spec.program.target, spec.program.workdir) == ("/there/train.py", "/there")
    first, second = refusal(folder, text.replace("gpu1", "gpu1, localhost")).problems
    assert "names no file" in first.message
    assert "is not a folder" in second.message


def test_a_bundled_job_is_found_by_name_unless_there_is_a_file(folder: Path) -> None:
    text = "strategy: mirrored\nprogram: {script: mnist}\n"
    assert load_text(folder, text).program.target == str(folder / "bundled" / "main.py")
    (folder / "mnist").touch()
    assert load_text(folder, text).program.target == str(folder / "mnist")


def test_the_name_on_the_command_line_wins(folder: Path) -> None:
    hostile = "a '$(rm)'/../\"b"
    assert load_text(folder, f"name: x\n{SMALL}", name=hostile).name == hostile
    for name, shown in (("", "''"), ("a\nb", r"'a\nb'")):
        error = str(refusal(folder, SMALL, name=name))
        assert error.startswith(f"--name: {shown} cannot be the name of a job; use 1 to 100")
    assert str(refusal(folder, SMALL, extra_args=["fine", "a\0b"])).startswith("after --: ")


def test_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(SMALL.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)

    spec = load("-", cwd=str(folder))

    assert (spec.name, spec.program.target) == ("job", str(folder / "train.py"))
    assert not stdin.buffer.closed


def test_a_mapping_is_kept_as_text_that_people_can_read() -> None:
    program = {"command": ["true"], "env": {"A": "grüße", "." * 40: "dots are no depth"}}
    assert "A: grüße" in load_mapping({"strategy": "mirrored", "program": program}).source


@pytest.mark.parametrize("name", ["job.yaml/x", "a\0b", "\udcff.yaml"])
def test_a_missing_file_is_wrong_usage(folder: Path, name: str) -> None:
    (folder / "job.yaml").touch()
    with pytest.raises(UsageError) as raised:
        load(name, cwd=str(folder))
    assert raised.value.message.endswith(": there is no such file")
    assert raised.value.message.isprintable()


def test_this_machines_address_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Me.example")
    text = SMALL.replace("worker: 2", "worker: ['me:1', 'me.example:2', '127.0.1.1:3']")

    assert len(load_text(folder, text).roles[0].addresses) == 3
    assert load_text(folder, f"{SMALL}hosts: [me]\n").hosts[0].is_local


def test_which_keras_and_whose_tf_config(folder: Path) -> None:
    program = load_text(folder, SMALL).program
    assert (program.keras, program.owns_tf_config) == (None, False)
    text = "  keras: 2\n  tf_config: mine\n  env: {TF_USE_LEGACY_KERAS: True, TF_CONFIG: '{}'}\n"
    program = load_text(folder, SMALL + text).program
    assert (program.keras, program.owns_tf_config) == (2, True)
    assert program.env == {"TF_USE_LEGACY_KERAS": "True", "TF_CONFIG": "{}"}
    program = load_text(folder, SMALL + "  keras: 3\n  env: {TF_USE_LEGACY_KERAS: no}\n").program
    assert (program.keras, program.env) == (3, {"TF_USE_LEGACY_KERAS": "no"})


def test_variables_of_the_launching_shell_that_contradict_the_spec(folder: Path) -> None:
    environ = {"TF_CONFIG": "{}", "TF_USE_LEGACY_KERAS": "0"}
    text = f"{SMALL}  pass_env: [TF_CONFIG, TF_USE_LEGACY_KERAS]\n  keras: 2\n"
    config, legacy = str(refusal(folder, text, environ=environ)).splitlines()
    assert config.startswith("job.yaml:6:14: program.pass_env sets TF_CONFIG, which distrun sets")
    assert legacy.startswith("job.yaml:6:25: program.pass_env sets TF_USE_LEGACY_KERAS to '0'")
    environ["TF_USE_LEGACY_KERAS"] = "1"
    assert load_text(folder, f"{text}  tf_config: mine\n", environ=environ).program.owns_tf_config


def test_a_role_takes_from_the_jobs_policy_what_its_own_leaves_out(folder: Path) -> None:
    spec = load_text(
        folder,
        "strategy: parameter_server\n"
        "program: {script: train.py}\n"
        "cluster:\n"
        "  chief: 1\n"
        "  worker: {count: 2, restart: {max: 9, on: [preemption, 130-255, 3]}}\n"
        "  ps: {count: 1, restart: never}\n"
        "  evaluator: {count: 1, restart: always}\n"
        "restart: {max: 2, backoff: 5s, on: any failure, never_on: [64-66, 2]}\n",
    )
    common = RestartSpec(max=2, backoff=5.0, never_on=(2, 64, 65, 66))
    assert spec.restart == common
    assert {role.role: role.restart for role in spec.roles} == {
        Role.CHIEF: None,
        Role.WORKER: replace(common, max=9, on=("preemption", "130-255", "3")),
        Role.PS: replace(common, max=0),
        Role.EVALUATOR: replace(common, on=("always",)),
    }
    spec = load_text(folder, SMALL.replace("2", "{count: 2, restart: {on: 7}}"))
    assert spec.restart == RestartSpec(max=0)
    assert spec.roles[0].restart == RestartSpec(on=("7",))


# `--set` ------------------------------------------------------------------------------------------


TEXT = """\
strategy: multi_worker_mirrored
cluster: {worker: 2}
program: {script: train.py, args: [a]}
hosts: [localhost, {name: gpu1}]
"""


def test_values_are_replaced_added_and_read_as_yaml(folder: Path) -> None:
    overrides = (
        "cluster.worker=4", "program.args=[--epochs, 5, 0.10]", "timeouts.grace=3s",
        "restart.max=7", "hosts[1].slots=2", "hosts[2]=gpu2", "program.env.A=b=c",
        "cluster.evaluator=1", "cluster.evaluator.env={X: off}", "name=a", "name=42",
    )  # fmt: skip
    text = f"{TEXT}restart:\n"
    spec = load_text(folder, text, overrides=overrides, extra_args=["--last"])

    assert [role.count for role in spec.roles] == [4, 1]
    assert spec.program.args == ("--epochs", "5", "0.10", "--last")
    assert (spec.timeouts.grace, spec.restart.max) == (3.0, 7)
    assert [(host.name, host.slots) for host in spec.hosts[1:]] == [("gpu1", 2), ("gpu2", None)]
    assert (spec.program.env, spec.roles[1].env) == ({"A": "b=c"}, {"X": "off"})
    assert spec.name == "42"
    for changes, args, expected in (
        (["cluster.worker=2"], None, ["--epochs", "5", "0.10", "--last"]),
        ([], ["-n"], ["--epochs", "5", "0.10", "-n"]),
        (["program.args=[-n]"], None, ["-n"]),
        (["program.args=[-n]"], ["-m"], ["-n", "-m"]),
    ):
        assert [*reload(spec, changes, args).program.args] == expected
    made, _ = run_spec.load(run_spec.RunOptions(program="true", args=("-a",)), "", overrides=[])
    assert reload(made, [], ["-b"]).program.args == ("-b",)


WRONG_SETTINGS = Path(__file__).with_name("wrong_settings.txt").read_text().splitlines()[2:]


@pytest.mark.parametrize("line", WRONG_SETTINGS)
def test_a_wrong_setting_is_told_as_it_was_written(folder: Path, line: str) -> None:
    setting, told = line.split(" | ")
    assert str(refusal(folder, TEXT, overrides=(setting,))) == f"--set {setting}: {told}"


@pytest.mark.parametrize(
    "setting", ["a." * 5000 + "a=1", "a\udcff=1", "name=\udcff", "name=\0", "hosts[999999]=1"]
)
def test_a_hostile_setting_is_told(folder: Path, setting: str) -> None:
    problems = refusal(folder, TEXT, overrides=(setting,)).problems
    assert all(str(problem).isprintable() for problem in problems)


def test_the_caret_is_below_the_place_also_behind_wide_characters(folder: Path) -> None:
    assert "here:\n    名: ]\n        ^" in str(refusal(folder, "名: ]\n"))


# The interpreter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("active", "first_line", "expected"),
    [
        ({}, "", sys.executable),
        ({"VIRTUAL_ENV": "venv"}, "", "venv/bin/python"),
        ({"CONDA_PREFIX": "conda"}, "", "conda/bin/python"),
        ({"VIRTUAL_ENV": "venv", "CONDA_PREFIX": "conda"}, "", "venv/bin/python"),
        ({"VIRTUAL_ENV": "removed", "CONDA_PREFIX": "conda"}, "", "conda/bin/python"),
        (REMOVED := {"VIRTUAL_ENV": "removed"}, "", sys.executable),
        ({"VIRTUAL_ENV": "venv"}, "#!{}/opt/python3.9", "venv/bin/python"),
        ({"VIRTUAL_ENV": sys.prefix}, "#!{}/opt/python3.9", sys.executable),
        ({}, "#!{}/opt/python3.9", "opt/python3.9"),
        ({}, "#!/usr/bin/env -S A=1 python3 -u", "path/python3"),
        ({}, "#!/usr/bin/env -S python3 -O -W error", "path/python3"),
        ({}, "#!/usr/bin/env python2", sys.executable),  # it is not there
        ({}, "#!/bin/sh", sys.executable),
        ({}, "\xff\xfe", sys.executable),
    ],
)
def test_it_is_as_by_hand(
    active: dict[str, str],
    first_line: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("venv/bin/python", "conda/bin/python", "path/python3", "opt/python3.9"):
        write_program(tmp_path / name, "#!/bin/sh\n")
    environ = {"PATH": str(tmp_path / "path")}
    script = write_program(tmp_path / "train.py", f"{first_line.format(tmp_path)}\nprint(1)\n")
    relative = environ | active
    environ |= {name: value and str(tmp_path / value) for name, value in active.items()}
    found = program.find_interpreter(str(script), environ)
    assert program.find_interpreter(str(script), relative) == found
    assert found.path == str(tmp_path / expected)
    assert (program.OWN_INTERPRETER.why in found.why) is (expected == sys.executable)
    assert found.why.endswith(", without its options") is (" -O" in first_line)
    assert ("'python2', which is not there" in found.why) is ("python2" in first_line)
    assert ("/removed/bin/python' is not there" in found.why) is (active == REMOVED)
    script.chmod(0o644)  # by hand, its first line would mean nothing then
    expected = expected if active else sys.executable
    assert program.find_interpreter(str(script), environ).path == str(tmp_path / expected)

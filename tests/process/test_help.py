"""`--help`, `explain`, `init` and slips: what is said and suggested works, and is fast."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

import pytest

from harness import tfjobs
from harness.command import Distrun, run_here, write_program
from harness.parts.cli import main
from harness.parts.settings import examples, reference, templates
from harness.parts.verdict import Kind
from harness.parts.words import topics
from harness.processes import captured
from harness.requirements import missing, need_tensorflow
from harness.values import not_none

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    found
    for path in sorted((ROOT / "launcher" / "distrun" / "cli").glob("*.py"))
    for found in re.findall(r'^@click.command\("([a-z]+)"', path.read_text(), re.MULTILINE)
]
README = (ROOT / "README.md").read_text().partition("<!-- commands -->")[2].partition("\n\n")[0]
JOB = """\
name: mnist
strategy: multi_worker_mirrored
cluster: {chief: 1, worker: 2}
program: {command: [sh, -c, 'echo "loss of $DISTRUN_TASK"']}
"""
SLEEPS = """\
name: mnist
strategy: multi_worker_mirrored
cluster: {{worker: 2}}
program: {{command: [{python}, -c, 'import time; time.sleep(600)']}}
"""
FAILS_ONCE = """\
name: mnist
strategy: default
program: {command: [sh, -c, 'test -e done || { touch done; exit 3; }']}
"""
TRAIN = """\
import os, signal
if os.environ["DISTRUN_STRATEGY"] == "parameter_server" and os.environ["DISTRUN_TASK"] != "chief:0":
    signal.pause()  # as a server does
print("epoch 1")
"""


Bash = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bash(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Bash:
    """Run a line as a user would type it, in a folder with job.yaml and train.py.

    Without the shell that it names, only the command whose output that shell would have read.
    """
    (distrun.cwd / "job.yaml").write_text(JOB)
    (distrun.cwd / "train.py").write_text(TRAIN)
    for name, file in {"dist": "tfjob.yaml", "mnist": "all.yaml"}.items():
        text = tfjobs.manifest("i:1").replace("name: dist", f"name: {name}")
        (distrun.cwd / file).write_text(text)
    (distrun.cwd / "sleeps.yaml").write_text(SLEEPS.format(python=sys.executable))
    (distrun.cwd / "fails-once.yaml").write_text(FAILS_ONCE)
    tools = distrun.write_tool()
    for name, line in {"sbatch": "echo 7", "squeue": "echo '7|CANCELLED|N/A|N/A|None'"}.items():
        write_program(tools / name, f"#!/bin/sh\n{line}\n")
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    monkeypatch.chdir(distrun.cwd)

    def run(line: str) -> subprocess.CompletedProcess[str]:
        shell = next((name for name in ("zsh", "fish") if f"completion {name}" in line), "bash")
        if shutil.which(shell) is None:
            shell, line = "bash", not_none(re.search(r"distrun completion \w+", line))[0]
        return captured([shell, "-c", line], cwd=distrun.cwd)

    return run


READING = {"ps", "status", "logs", "events", "wait", "compare", "explain", "validate", "schema"}
READING |= {"report", "bundle", "init", "import"}
"""Commands that this process can run."""


def run_example(distrun: Distrun, bash: Bash, line: str) -> tuple[int, str]:
    """Run an example; without a shell or even a process, much faster, where it needs none."""
    words = shlex.split(line)
    arguments = words[1 : words.index(">") if ">" in words else None]
    if {"&&", "|", "#"} & {*words} or "$" in line:
        done = bash(line)
    elif arguments[0] in READING and "-f" not in arguments:
        code, *said = run_here(arguments)
        return code, "".join(said)
    else:
        done = distrun(*arguments)
    return done.returncode, done.stdout + done.stderr


GROUPS = (
    *("ps status logs events wait report bundle compare attach plan explain schema", "submit"),
    *("launch completion validate kill clean watch fetch", "run doctor", "stacks profile"),
    *("resume", "init", "import"),
)
"""Commands whose examples may follow each other, of the same jobs."""


def test_every_command_is_listed_in_the_order_of_the_readme(distrun: Distrun) -> None:
    text = distrun("help").stdout
    listing = text.partition("\nCommands:\n")[2]
    listed = re.findall(r"^  ([a-z]+)", listing, re.MULTILINE)
    assert sorted(listed) == sorted(" ".join(GROUPS).split()) == COMMANDS
    assert listed == re.findall(r"^\| `distrun ([a-z]+)", README, re.MULTILINE), "another order"
    assert max(map(len, text.splitlines())) <= 80
    assert "'status'" in distrun("statsu").stderr.partition("id you mean")[2]


@pytest.mark.parametrize("commands", GROUPS)
def test_the_examples_work(distrun: Distrun, bash: Bash, commands: str) -> None:
    if "doctor" in commands:
        need_tensorflow()  # which is looked for
    page = (ROOT / "docs" / "cli.md").read_text()
    examples = []
    for command in commands.split():
        code, text, _ = run_here(("help", command))
        assert (code, text) == run_here((command, "--help"))[:2]
        assert max(map(len, text.splitlines())) <= 80
        section = page.partition(f"\n## distrun {command}\n")[2].partition("\n## ")[0]
        options = re.findall(r"^  .*?(--[a-z-]+)", text, re.MULTILINE)
        assert [name for name in ("--help", *options) if name not in section] == []
        found = re.findall(r"^    (\S.*)$", text.partition("\nOptions:")[0], re.MULTILINE)
        assert found, f"{command} has no example"
        assert all(f"distrun {command}" in example for example in found)
        examples += found
    if commands == "stacks profile":
        distrun.checked("launch", "-d", "sleeps.yaml")
    elif commands[:2] in ("ps", "la"):
        distrun.checked("launch", "job.yaml")
        distrun.checked("launch", "job.yaml", "-d", "--name", "night")
    if any("-o job.yaml" in example for example in examples):
        (distrun.cwd / "job.yaml").unlink()
    for example in examples:
        if re.compile("distrun (watch|fetch)|--serve").search(example):
            continue
        if "distrun resume" in example:
            (distrun.cwd / "done").unlink(missing_ok=True)
            assert distrun("launch", "fails-once.yaml").returncode == 3
        # The bundled job would train for minutes.
        code, said = run_example(distrun, bash, example.replace(" mnist --ep", " train.py --ep"))
        assert code == 0, f"{example}\n{said}"
        assert "Traceback" not in said
    distrun("kill", "--all")


def test_the_generated_pages_are_up_to_date() -> None:
    done = captured(
        [sys.executable, ROOT / "scripts" / "docs.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "launcher")},
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: make docs"


SLOW = {"distrun.agent", "distrun.job.events", "distrun.job.folder", "distrun.spec.model", "psutil"}
SLOW |= {"asyncio", "rich", "subprocess", "tensorflow", "yaml"}
QUICK = "run launch plan validate doctor ps status logs kill wait events init schema explain clean"
IMPORTED = """
import atexit, os, sys, click
slow = {slow} - set(sys.modules)  # click imports uuid, which imports subprocess in Python 3.10
from {main} import distrun, main
for command in {commands}:
    distrun.main([*command.split(), "--help"], prog_name="distrun", standalone_mode=False)
os.environ.update(_DISTRUN_COMPLETE="bash_complete", COMP_LINE="distrun launch --")
sys.argv[1:] = []
atexit.register(lambda: print("slow:", *slow & set(sys.modules), file=sys.stderr))
main()
"""


def test_help_and_completion_import_nothing_slow() -> None:
    quick = [*QUICK.split(), ""]
    done = captured(
        [sys.executable, "-c", IMPORTED.format(slow=SLOW, commands=quick, main=main.__name__)]
    )
    assert done.stderr.strip() == "slow:"
    assert done.stdout.count("Usage: ") == len(quick)
    assert "--detach" in re.split(r"[\n,]", done.stdout)


def test_a_plain_success_imports_nothing_that_judges_failures(distrun: Distrun) -> None:
    command = [sys.executable, *"-X importtime -m distrun run -n 2 true".split()]
    done = captured(command, cwd=distrun.cwd, check=True)
    (log,) = distrun.home.glob("jobs/*/supervisor.log")
    found = set(re.findall(r"\| +([\w.]+)$", done.stderr + log.read_text(), re.MULTILINE))
    assert {"distrun.supervisor.supervisor", "distrun.verdict.trainers"} <= found
    slow = ("distrun.verdict.log_analysis", "distrun.lint", "distrun.kubernetes", "hashlib")
    assert [each for each in found if each.startswith(slow)] == []


def explained(distrun: Distrun, topic: str) -> str:
    return str(distrun.checked("explain", topic).stdout)


def test_keys_kinds_and_exit_codes_are_explained(distrun: Distrun) -> None:
    keys = dict(reference())
    for topic, path in (
        ("backoff", "restart.backoff"),
        ("cluster.dispatcher.ready", "cluster.<role>.ready"),
        *((topic, "hosts[].slots") for topic in ("slots", "hosts.slots", "hosts[0].slots")),
    ):
        text = explained(distrun, topic)
        assert text.startswith(f"{path}: ")
        assert f"example {path.rpartition('.')[2]}: " in text
    for said in (keys["restart.backoff"].help, keys["restart.backoff"].schema.expected):
        assert said in explained(distrun, "restart.backoff")
    for topic, below in (("timeouts", "timeouts.stall"), ("hosts", "hosts[].slots")):
        assert keys[below].help in explained(distrun, topic)

    assert set(topics("kind")) == {kind.value for kind in Kind}
    names = {"straggler": "waited_for", "segv": "crash", "cuda": "gpu_memory", "stuck": "stalled",
             "slow": "behind", "lost": "supervisor_died", "watch": "kill",
             "SIGTERM": "143", "TF_CONFIG": "program.tf_config"}  # fmt: skip
    for name, kind in names.items():
        assert explained(distrun, name).startswith(explained(distrun, kind))
    both = explained(distrun, "oom")
    assert both.startswith(explained(distrun, "host_memory"))
    assert "\ngpu_memory: " in both

    for code, words in {"3": "the task that failed first", "139": "killed by SIGSEGV"}.items():
        text = explained(distrun, code)
        assert text.startswith(f"exit code {code}: ")
        assert words in text


def test_init_writes_a_valid_spec_and_its_script(distrun: Distrun, tmp_path: Path) -> None:
    listed = distrun("init", "--list").stdout
    assert "-o needs a template's name" in distrun.told(2, "init", "-o", "job.yaml")
    for name in ("mnist", "train.py"):
        assert "with your script: distrun init script\n" in distrun.told(2, "init", name)
    for name, script in examples().items():
        assert any(line.split()[:3] == [name, "Example", "script:"] for line in listed.splitlines())
        (folder := tmp_path / name).mkdir()
        done = distrun.checked("init", name, "-o", f"{name}/a job.yaml")
        assert f"wrote {name}/a job.yaml and {name}/{name}.py" in done.stderr
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            "a job.yaml": templates()[name].read_bytes(),
            f"{name}.py": script.read_bytes(),
        }
        assert distrun(*shlex.split(done.stderr)[-2:]).returncode == 0


def test_init_overwrites_nothing_unless_told_to(distrun: Distrun, tmp_path: Path) -> None:
    mine = "keras_fit.py"
    (tmp_path / mine).write_text("mine")
    assert f"{mine} exists already" in distrun.told(2, "init", "keras_fit")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {mine: "mine"}
    assert distrun("init", "keras_fit", "--force").returncode == 0
    assert (tmp_path / "keras_fit.py").read_bytes() == examples()["keras_fit"].read_bytes()
    assert (tmp_path / "keras_fit.yaml").read_bytes() == templates()["keras_fit"].read_bytes()


SLIPS = {
    "train.py": "No such command 'train.py'. Use 'distrun run train.py'.", "lanch job.yaml": "",
    "launch -n 2 train.py --epochs 3": "to write its YAML file: distrun run --print-spec",
    "plan job.yaml --epochs=3": "distrun plan job.yaml -- --epochs",
    "launch job.yaml -n 2": "--set cluster.worker=2", "run --num-workers 2 train.py": "",
    "plan job.yaml --strct": "Did you mean '--strict'?", "logs job.yaml": "did you mean 'job'?",
    "logs jobb": "did you mean 'job'?", "logs worker": "distrun logs -t worker",
    "logs job worker:0": "distrun logs job -t worker:0", "explain keras2": "",
    "explain backof": "restart.backoff", "init kerasfit": "", "--versio 2": "A command comes first",
}  # fmt: skip
"""What is typed, and a part of the answer."""


def test_who_does_what_is_suggested_succeeds(distrun: Distrun) -> None:
    (distrun.cwd / "train.py").write_text("import sys\nprint(sys.argv)\n")
    distrun.write_spec("exit 0", name="job")
    assert distrun("run", "--name", "job", "true").returncode == 0
    for words, answer in SLIPS.items():
        told = distrun.told(2, *words.split())
        assert answer in told, words
        assert " -- --epochs" not in answer or "Did you mean" not in told
        said = told.partition("Error: ")[2] or told
        command = re.search(r"(?m)(?:Use '|: |^  )distrun ([^'\n]+)'?\.?$", said)
        meant = re.search(r"[Dd]id you mean '?(.+?)'?(?: or .*)?\?", said)
        if command is not None:
            again = command[1].split()
        else:
            assert meant is not None, told
            (wrong,) = get_close_matches(meant[1], words.split(), 1, 0.4)
            again = [meant[1] if each == wrong else each for each in words.split()]
        distrun.checked(*again)
    assert "job.yaml" not in distrun.told(2, "launch", "training"), "nothing is like it"
    assert "name the manifest of a TFJob" in distrun.told(2, "import", "training")
    (distrun.cwd / "tfjob.yaml").write_text("kind: Job  # {{ name }}")
    assert "helm" not in distrun.told(65, "import", "tfjob.yaml"), "that is no template"


def test_advice_names_the_job_also_the_newest(distrun: Distrun) -> None:
    """Without a name, another one may be meant: one that runs, or a newer one."""
    (distrun.cwd / "bad.py").write_text("raise ValueError('7 is odd')\n")
    said = distrun.launch("", program={"script": "bad.py"}, workers=1).stderr
    job = distrun.status()["job_id"]
    for text in (said, distrun.asked("status"), distrun.asked("events", "--json")):
        assert f"distrun logs {job} -t worker:0" in text
        assert "distrun logs -t" not in text


def in_bash(folder: Path, tools: Path, *lines: str) -> list[list[str]]:
    """What bash is given for each line: completions in COMPREPLY, and options of compopt."""
    script = [
        'compopt() { COMPREPLY+=("$2"); }',
        'eval "$(distrun completion bash)"',
        'asked=$(complete -p distrun | sed "s/.*-F //;s/ .*//")',
    ]
    for line in lines:
        script.append(f"COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}")
        script.append('"$asked" distrun; echo "${COMPREPLY[*]}"')
    done = captured(
        ["bash", "--norc", "-c", "\n".join(script)],
        cwd=folder,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        check=True,
    )
    return [line.split() for line in done.stdout.splitlines()]


NEVER_ON = "Exit codes and ranges after which nothing is restarted, whatever `on` says."


@pytest.mark.parametrize(
    ("shell", "script", "printed"),
    [
        ("zsh -fc", 'eval "$(distrun completion zsh)"; print $_comps[distrun]',
         "_distrun_completion\n"),
        ("fish -Nc",
         "distrun completion fish | source; complete -C 'distrun launch x --set restart.never'",
         f"restart.never_on=\t{NEVER_ON}\n"),
    ],
)  # fmt: skip
def test_other_shells_complete_without_any_set_up(
    distrun: Distrun, shell: str, script: str, printed: str
) -> None:
    name, option = shell.split()
    if lacking := missing([name]):
        pytest.skip(lacking)
    path = f"{distrun.write_tool()}:{os.environ['PATH']}"
    done = captured([name, option, script], env={"PATH": path, "HOME": str(distrun.home)})
    assert (done.stdout, done.stderr) == (printed, "")


@pytest.fixture
def asked_by(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], str]:
    """distrun's answer to a shell's completion function, called with that shell's variables."""

    def ask(shell: str, words: str, current: str) -> str:
        with monkeypatch.context() as variables:
            variables.setenv("_DISTRUN_COMPLETE", f"{shell}_complete")
            variables.setenv("COMP_WORDS", words)
            variables.setenv("COMP_CWORD", current)
            done = distrun()
        assert "Traceback" not in done.stderr
        return str(done.stdout)

    return ask


def test_shells_complete_words(asked_by: Callable[[str, str, str], str], distrun: Distrun) -> None:
    ended = distrun.detached("exit 0", name="day", workers=1)
    distrun("wait")
    running = distrun.detached("exec sleep 600", name="night", cluster={"chief": 1, "worker": 2})
    for name in ("job.yaml", "job.yml", "jobs.txt", ".job.yaml", "b;$(id) x.yaml"):
        (distrun.cwd / name).touch()
    in_real_bash = {
        "la": ["launch"], "logs ": [running, ended], "logs --task=worker:": ["0", "1"],
        "launch jo": ["job.yaml", "job.yml", "plusdirs"],
        "launch b": ["b;$(id)", "x.yaml", "filenames", "plusdirs"],  # which puts it in quotes
        "launch x.yaml --set=placement=s": ["spread"],
    }  # fmt: skip
    lines = [f"distrun {line}" for line in in_real_bash]
    assert in_bash(distrun.cwd, distrun.write_tool(), *lines) == list(in_real_bash.values())

    for line, offered in {
        "kill ": [running], f"attach {ended} --task=ch": [], f"logs {ended} -t ch": [],
        "logs nothing -t ": [], "init scr": ["script"],
        "explain restart.back": ["restart.backoff", "restart.backoff_max"],
        "explain host_m": ["host_memory"], "resume ": [],
        "launch x.yaml --set cluster.worker.g": ["cluster.worker.gpus="],
        "launch x.yaml --set strategy=parameter_server_n": [], "kill --signal SIGTE": ["SIGTERM"],
    }.items():  # fmt: skip
        answer = asked_by("fish", f"distrun {line}", line.rpartition(" ")[2])
        names = [each.partition("\t")[0].partition(",")[2] for each in answer.split("\n") if each]
        assert names == offered, line
    files = asked_by("zsh", "distrun launch ", "2").splitlines()
    assert ("job.yaml" in files, "jobs.txt" in files) == (True, False)
    every = asked_by("fish", "distrun plan a --set cluster.", "cluster.")
    assert "plain,cluster.worker.count=\t" in every
    assert "<" not in every, "no placeholder: it cannot be used as it is"
    assert asked_by("zsh", "distrun logs -t worker:", "3").startswith("plain\nworker\\:0\n")
    fish = asked_by("fish", "distrun status da", "da")
    assert fish == f"plain,{ended}\tmulti_worker_mirrored succeeded\n"
    (distrun.home / "jobs" / ended / "events.jsonl").unlink()
    assert asked_by("fish", "distrun status da", "da") == f"plain,{ended}\tlost\n"
    distrun("kill")

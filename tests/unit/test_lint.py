"""What the program is warned about before a launch, and what it is not: each rule by itself."""

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.parts.lint import RULES, Program, check, check_program, imported_modules
from harness.parts.spec import Target, load, resources
from harness.requirements import need_tensorflow

MWM, PS, MIRRORED = "multi_worker_mirrored", "parameter_server", "mirrored"
NO_CHIEF = "parameter_server, workers: independent"
TF = "import tensorflow as tf\n"
CLUSTERS = {
    MWM: "{worker: 2}", PS: "{chief: 1, worker: 2, ps: 1}", NO_CHIEF: "{worker: 2, ps: 1}",
    MIRRORED: "{worker: 1}", "tpu": "{worker: 1}",
}  # fmt: skip
CREATED = "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Check a program: `train.py` and files beside it; returns `line:column message`."""
    monkeypatch.chdir(tmp_path)

    def run(
        code: str,
        strategy: str = MWM,
        *,
        keras: int | None = 3,
        lacks: str = "",
        beside: dict[str, str] | None = None,
        program: str = "script: train.py",
    ) -> list[str]:
        for name, text in {"train": code, **(beside or {})}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        target = Target(path=str(tmp_path / "train.py"), folder=str(tmp_path), python=None)
        read = Program(target)
        assert not read.faults
        (tmp_path / "job.yaml").write_text(
            f"{{strategy: {strategy}, cluster: {CLUSTERS[strategy]}, program: {{{program}}}}}"
        )
        read.keras = keras
        read.missing = frozenset(lacks.split()) & set(imported_modules(read))
        found = check(read, load(tmp_path / "job.yaml"), RULES)
        return [str(each).removeprefix("train.py:") for each in found]

    return run


CASES = [
    tuple(case.split("\n", 1))
    for case in Path(__file__).with_name("linted_programs.txt").read_text().split("\n=== ")[1:]
]


@pytest.mark.parametrize(("title", "code"), CASES)
def test_a_mistake_is_told_and_what_may_be_right_is_not(lint: Any, title: str, code: str) -> None:
    beside = {"helper": "x = 1", "package/inner": "y = 1", "package/__init__": ""}
    strategy, *expected = title.split(" | ")
    found = lint(code, strategy, lacks="nowhere", beside=beside)
    assert len(found) == len(expected[1:]), found
    for place, words in [expected] if expected else []:
        assert found[0].startswith(f"{place}: ")
        assert words in found[0]


def test_modules_beside_the_script_are_read_as_well(lint: Any) -> None:
    code = TF + "import helper\nfrom package import inner\nhelper.setup()\n"
    beside = {
        "helper": "import os\ndef setup():\n  os.environ['TF_CONFIG'] = '{}'\n",
        "package/__init__": "",
        "package/inner": "from . import deep\n",
        "package/deep": TF + "tf.keras.metrics.Mean().reset_states()\nimport nowhere\n",
    }
    found = [each.partition(": ")[0] for each in lint(code, beside=beside, lacks="nowhere")]
    assert found == ["helper.py:3:3", "package/deep.py:2:1", "package/deep.py:3:1"]


def test_a_missing_module_has_a_suggestion(lint: Any) -> None:
    hints = {
        "helpr": "did you mean 'helper'? Or inst", "tensorflow": "run python -m pip install tens",
        "trains": "install it or correct its name", "outer": "it is in /", "helpers": "it is in /",
    }  # fmt: skip
    beside = {"helper": "", "../outer/inner": "", "src/helpers": ""}
    for name, hint in hints.items():  # train.py is the script
        (found,) = lint(f"import {name}\nimport helper\n", beside=beside, lacks=name)
        words = f"there is no module {name!r}: neither beside the script, nor in python"
        assert found.partition(": set PYTHONPATH=/")[0].startswith(f"1:1: {words}; {hint}")
    code = f"import os, numpy\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n{TF}tf.keras.Model()\n"
    legacy = lint(code, lacks="numpy tf_keras")
    assert [each.partition(":")[0] for each in legacy] == ["1", "2"]
    assert all(each.endswith("pip install numpy tf_keras") for each in legacy)
    assert lint(code.replace("'1'", "'0'"), lacks="tf_keras") == []
    words = "1:1: keras.py beside the script hides the package keras; rename that file"
    assert lint("import keras\n", beside={"keras": ""}) == [words]
    assert lint(f"{TF}tf.keras.Model()\n", beside={"keras": ""}) == [f"2{words[1:]}"]
    assert lint("import keras\n", beside={"keras/__init__": ""}) == []


def test_what_the_environment_or_the_spec_makes_right_is_not_warned_about(lint: Any) -> None:
    code = TF + "tf.keras.metrics.Mean().reset_states()\n"
    assert [len(lint(code, keras=keras)) for keras in (3, 2, None)] == [1, 0, 0]
    code = "import os\nos.environ['TF_CONFIG'] = '{}'\n"
    assert [len(lint(code)), lint(code, program="script: train.py, tf_config: mine")] == [1, []]


@pytest.mark.parametrize(
    "line",
    ["a{1} = a{0}.x\na{1} = a{0}.y\n", "def a{1}():\n    return a{0}().x if q else a{0}().y\n",
     "def a{1}():\n    if q:\n        return a{0}().x\n    return a{0}().y\n"],
)  # fmt: skip
def test_meanings_that_double_with_each_line_are_not_all_listed(lint: Any, line: str) -> None:
    code = TF + "a0 = tf\n" + "".join(line.format(n, n + 1) for n in range(24))
    assert lint(code + "a24.train()\na24().train()\n") == []


ROOT = Path(__file__).resolve().parents[2]
RIGHT = Path(__file__).parent / "right_programs"
PLAIN = ROOT / "tests" / "e2e" / "plain"
EXAMPLES = ROOT / "jobs" / "examples"
WORKERS = f"{MWM}, cluster: {{worker: 2}}"
SERVERS = f"{PS}, cluster: {{chief: 1, worker: 2, ps: 2}}"


@pytest.mark.parametrize(
    ("strategy", "program"),
    [
        (WORKERS, f"script: {PLAIN}/tutorial.py, env: {{TF_USE_LEGACY_KERAS: 1}}"),
        (WORKERS, f"script: {PLAIN}/tutorial.py, keras: 2"),
        ("mirrored", f"script: {EXAMPLES}/custom_loop.py"),
        (WORKERS, f"script: {EXAMPLES}/keras_fit.py"),
        (SERVERS, f"script: {EXAMPLES}/parameter_server.py"),
        ("mirrored", f"script: {EXAMPLES}/data_service.py"), (SERVERS, "script: mnist"),
        (SERVERS, f"module: trainer.main, workdir: {RIGHT}"),
        (SERVERS, f"command: [{sys.executable}, -u, -m, trainer.main], workdir: {RIGHT}"),
    ],
)  # fmt: skip
def test_a_right_program_has_no_warning(
    strategy: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_tensorflow()
    # A launch does not read the bundled jobs; here they are checked like others.
    monkeypatch.setattr(Target, "is_bundled", False)
    python = "" if "command" in program else f", python: {sys.executable}"
    spec = f"{{strategy: {strategy}, program: {{{program}{python}}}}}"
    (tmp_path / "job.yaml").write_text(spec)
    assert check_program(load(tmp_path / "job.yaml")) == ()


@pytest.mark.parametrize("name", sorted(resources.templates()))
def test_a_template_has_no_warning(name: str, tmp_path: Path) -> None:
    need_tensorflow()
    spec = tmp_path / "job.yaml"
    spec.write_text(resources.templates()[name].read_text())
    examples = resources.examples()
    if name in examples:
        (tmp_path / examples[name].name).write_text(examples[name].read_text())
    (tmp_path / "train.py").write_text((PLAIN / "replicas.py").read_text())
    assert check_program(load(spec)) == ()

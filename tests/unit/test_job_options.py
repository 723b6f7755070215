"""What the job is asked, and what it says where it is asked wrongly."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mnist_job import JobError, options
from mnist_job.options import read_task

CLUSTER = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}


def environ(**config: Any) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({**CLUSTER, **config})}


def test_the_page_has_each_option_and_no_other() -> None:
    page = Path(__file__).parents[2] / "docs" / "job.md"
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page.read_text()))
    assert 10 < len(named - {"--help"}) <= 20
    assert named == set(options._parser()._option_string_actions) - {"-h"}


def test_the_strategy_follows_the_cluster_then_the_launcher_then_the_argument() -> None:
    assert options.parse([], {}).strategy == "auto"
    assert options.parse([], environ()).strategy == "multi_worker_mirrored"
    launched = {**environ(), "DISTRUN_STRATEGY": "mirrored"}
    assert options.parse([], launched).strategy == "mirrored"
    chosen = options.parse(["--strategy", "one_device"], launched)
    assert chosen.strategy == "one_device"
    assert chosen.task == options.Task(), "one process is in no cluster"


def test_a_cluster_with_a_ps_is_for_parameter_server() -> None:
    cluster = {"chief": ["a:1"], "worker": ["a:2"], "ps": ["a:3"]}
    chief = environ(cluster=cluster, task={"type": "chief", "index": 0})
    assert options.parse([], chief).strategy == "parameter_server"


def test_an_evaluation_is_one_process_whatever_the_launcher_trains_with() -> None:
    argv = ["--devices", "2", "--evaluate", "x"]
    chosen = options.parse(argv, {"DISTRUN_STRATEGY": "mirrored"})
    assert (chosen.strategy, chosen.devices) == ("default", None)
    alone = environ(cluster={"worker": ["a:1"]}, task={"type": "worker", "index": 0})
    assert options.parse(["--evaluate", "x"], alone).strategy == "default"
    with pytest.raises(SystemExit):
        options.parse(["--evaluate", "x"], environ())


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--epochs", "0"], "--epochs: '0' is not a whole number from 1 to 2147483647"),
        (["--learning-rate", "nan"], "--learning-rate: 'nan' is not a number from 1e-30"),
        (["--strategy", "mirorred"], "--strategy: invalid choice: 'mirorred'"),
        (["--dataset", "synthetic", "--data-dir", "x"], "takes no --data-dir"),
        (["--devices", "GPU:0"], "--devices is for one_device, mirrored and"),
        (
            ["--checkpoint-dir", "gs://bucket/run"],
            "takes :// in 'gs://bucket/run' for a pattern or",
        ),
        (["--learning-rate", "64:0.1,x:0.2"], "--learning-rate: 'x' is not a whole number"),
        (
            ["--strategy", "mirrored", "--reduction", "ring"],
            "has nccl or hierarchical_copy or one_d",
        ),
        (["--reduction", "ring"], "--reduction ring is not for auto, which has none"),
        (["--batch-size", "all:64"], "--batch-size: 'all:64' is not a whole number from 1"),
        (["--step", "3"], "unrecognized arguments: --step"),
        (["--loop", "epoch", "--strategy", "parameter_server"], "takes --loop iterator, or"),
        (
            ["--loop", "fit", "--input", "distribute", "--strategy", "parameter_server"],
            "or --loop fit without --input distribute",
        ),
        (["--strategy", "parameter_server"], "parameter_server needs a chief, workers and ps"),
        (["--checkpoint-every", "5"], "--checkpoint-every needs a --checkpoint-dir"),
        (["--checkpoint-every", "0e", "--checkpoint-dir", "x"], "'0' is not a whole number from 1"),
        (["--checkpoint-dir", "run[1]"], "TensorFlow takes [1] in 'run[1]' for a pattern"),
        (["--evaluate", "run?/ckpt-1"], "name a folder without"),
        (["--seed", "4294967296"], "is not a whole number from 0 to 4294967295"),
        (["--evaluate", "x", "--checkpoint-dir", "y"], "--evaluate only reads"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(
    argv: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        options.parse(argv, {})
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert says in said
    assert said.count("\n") == 1


def test_a_table_of_learning_rates() -> None:
    def rates(*argv: str) -> Any:
        return options.parse(argv, {}).learning_rate

    assert rates() == {0: 0.001}
    assert rates("--learning-rate", "0.1") == {0: 0.1}
    assert rates("--learning-rate", "5:0.1, 10:0.15,20:0.175") == {5: 0.1, 10: 0.15, 20: 0.175}


def test_worker_0_is_chief_only_without_a_chief() -> None:
    assert not read_task(environ()).is_chief
    assert read_task(environ(task={"type": "worker", "index": 0})).is_chief
    with_chief = {"chief": ["c:1"], "worker": ["a:1"]}
    worker = read_task(environ(cluster=with_chief, task={"type": "worker", "index": 0}))
    chief = read_task(environ(cluster=with_chief, task={"type": "chief", "index": 0}))
    assert (worker.is_chief, chief.is_chief) == (False, True)
    assert worker.trainers == chief.trainers == 2


def test_an_index_may_be_text_as_for_tensorflow_and_an_evaluator_in_no_cluster() -> None:
    assert read_task(environ(task={"type": "worker", "index": "1"})).index == 1
    assert read_task(environ(task={"type": "evaluator", "index": 0})).name == "evaluator:0"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": ["a:1"], "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
        '{"cluster": {"worker": 1}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": ["a:1"], "task": {"type": "evaluator", "index": 0}}',
        "[]",
    ],
)
def test_a_wrong_cluster(text: str) -> None:
    with pytest.raises(JobError, match="TF_CONFIG"):
        read_task({"TF_CONFIG": text})


@pytest.mark.parametrize("name", ["run[1]", "all/run*", "run?/ckpt-1", "a\\b", "gs://bucket/run"])
def test_what_tensorflow_takes_for_a_pattern_or_an_address_is_no_folder(name: str) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--summary-dir", name], {})


@pytest.mark.parametrize("name", ["{1} ]a[b", "a b", "[", "/x/logs"])
def test_other_names_are_folders(name: str) -> None:
    assert options.parse(["--summary-dir", name], {}).summary_dir == Path(name)

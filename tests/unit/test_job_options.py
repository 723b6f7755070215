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
    launched = {**environ(), "DISTRUN_STRATEGY": "mirrored"}
    with_ps = {"chief": ["a:1"], "worker": ["a:2"], "ps": ["a:3"]}
    alone = environ(cluster={"worker": ["a:1"]}, task={"type": "worker", "index": 0})
    for argv, variables, expected in (
        ([], {}, "auto"),
        ([], environ(), "multi_worker_mirrored"),
        ([], environ(cluster=with_ps, task={"type": "chief", "index": 0}), "parameter_server"),
        ([], launched, "mirrored"),
        (["--strategy", "one_device"], launched, "one_device"),
        # An evaluation is one process, whatever the launcher trains with.
        (["--devices", "2", "--evaluate", "x"], {"DISTRUN_STRATEGY": "mirrored"}, "default"),
        (["--evaluate", "x"], alone, "default"),
    ):
        chosen = options.parse(argv, variables)
        assert chosen.strategy == expected
        assert expected != "one_device" or chosen.task == options.Task(), "it is in no cluster"
        assert expected != "default" or chosen.devices is None
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
        (["--checkpoint-dir", "gs://bucket/run"], "takes :// in 'gs://bucket/run' for a pattern"),
        (["--learning-rate", "64:0.1,x:0.2"], "--learning-rate: 'x' is not a whole number"),
        (["--strategy", "mirrored", "--reduction", "ring"], "has nccl or hierarchical_copy or"),
        (["--reduction", "ring"], "--reduction ring is not for auto, which has none"),
        (["--batch-size", "all:64"], "--batch-size: 'all:64' is not a whole number from 1"),
        (["--step", "3"], "unrecognized arguments: --step"),
        (["--loop", "epoch", "--strategy", "parameter_server"], "takes --loop iterator, or"),
        (["--loop", "fit", "--input", "distribute", "--strategy", "parameter_server"],
         "or --loop fit without --input distribute"),
        (["--strategy", "parameter_server"], "parameter_server needs a chief, workers and ps"),
        (["--checkpoint-every", "5"], "--checkpoint-every needs a --checkpoint-dir"),
        (["--checkpoint-every", "0e", "--checkpoint-dir", "x"], "'0' is not a whole number from 1"),
        (["--checkpoint-dir", "run[1]"], "TensorFlow takes [1] in 'run[1]' for a pattern"),
        (["--evaluate", "run?/ckpt-1"], "name a folder without"),
        (["--seed", "4294967296"], "is not a whole number from 0 to 4294967295"),
        (["--evaluate", "x", "--checkpoint-dir", "y"], "--evaluate only reads"),
    ],
)  # fmt: skip
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


def test_who_is_chief_and_how_many_train() -> None:
    with_chief = {"chief": ["c:1"], "worker": ["a:1"]}
    for task, cluster, is_chief in (
        ({"type": "worker", "index": "1"}, None, False),  # an index may be text, as for TensorFlow
        ({"type": "worker", "index": 0}, None, True),
        ({"type": "worker", "index": 0}, with_chief, False),
        ({"type": "chief", "index": 0}, with_chief, True),
        ({"type": "evaluator", "index": 0}, None, False),  # it is in no cluster
    ):
        found = read_task(environ(task=task, **({"cluster": cluster} if cluster else {})))
        assert (found.name, found.is_chief) == (f"{task['type']}:{task['index']}", is_chief)
        assert found.trainers == 2 or task["type"] == "evaluator"


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


@pytest.mark.parametrize(
    ("name", "is_folder"),
    [
        # What TensorFlow takes for a pattern or an address
        *((name, False) for name in ("run[1]", "all/run*", "run?/ckpt-1", "a\\b", "gs://b/run")),
        *((name, True) for name in ("{1} ]a[b", "a b", "[", "/x/logs")),
    ],
)
def test_which_names_are_folders(name: str, is_folder: bool) -> None:
    if is_folder:
        assert options.parse(["--summary-dir", name], {}).summary_dir == Path(name)
    else:
        with pytest.raises(SystemExit):
            options.parse(["--summary-dir", name], {})

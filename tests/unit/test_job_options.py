"""What the job is asked, and what it says where it is asked wrongly."""

import re
import shlex
from pathlib import Path

import pytest

from harness.tables import read_table
from harness.training import tf_config
from mnist_job import JobError, options
from mnist_job.options import read_task


def test_the_page_has_each_option_and_no_other() -> None:
    page = Path(__file__).parents[2] / "docs" / "job.md"
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page.read_text()))
    assert 10 < len(named - {"--help"}) <= 20
    assert named == set(options._parser()._option_string_actions) - {"-h"}


def test_the_strategy_follows_the_cluster_then_the_launcher_then_the_argument() -> None:
    launched = {**tf_config(), "DISTRUN_STRATEGY": "mirrored"}
    with_ps = {"chief": ["a:1"], "worker": ["a:2"], "ps": ["a:3"]}
    alone = tf_config(cluster={"worker": ["a:1"]}, task={"type": "worker", "index": 0})
    for argv, variables, expected in (
        ([], {}, "auto"),
        ([], tf_config(), "multi_worker_mirrored"),
        ([], tf_config(cluster=with_ps, task={"type": "chief", "index": 0}), "parameter_server"),
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
        options.parse(["--evaluate", "x"], tf_config())


TABLE = Path(__file__).with_name("wrong_arguments.txt")


@pytest.mark.parametrize(("argv", "says"), read_table(TABLE, "options").items())
def test_wrong_arguments_exit_2(argv: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        options.parse(shlex.split(argv), {})
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert says in said
    assert said.count("\n") == 1


def test_a_table_of_learning_rates() -> None:
    found = options.parse(["--learning-rate", "5:0.1, 10:0.15,20:0.175"], {})
    assert found.learning_rate == {5: 0.1, 10: 0.15, 20: 0.175}


def test_who_is_chief_and_how_many_train() -> None:
    with_chief = {"chief": ["c:1"], "worker": ["a:1"]}
    for task, cluster, is_chief in (
        ({"type": "worker", "index": "1"}, None, False),  # an index may be text, as for TensorFlow
        ({"type": "worker", "index": 0}, None, True),
        ({"type": "worker", "index": 0}, with_chief, False),
        ({"type": "chief", "index": 0}, with_chief, True),
        ({"type": "evaluator", "index": 0}, None, False),  # it is in no cluster
    ):
        found = read_task(tf_config(task=task, **({"cluster": cluster} if cluster else {})))
        assert (found.name, found.is_chief) == (f"{task['type']}:{task['index']}", is_chief)
        assert found.trainers == 2 or task["type"] == "evaluator"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": ["a:1"], "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
        "[]",
    ],
)
def test_a_wrong_cluster(text: str) -> None:
    with pytest.raises(JobError, match="TF_CONFIG"):
        read_task({"TF_CONFIG": text})

"""`--set PATH=VALUE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .specs import load_text, refusal

TEXT = """\
strategy: multi_worker_mirrored
cluster: {worker: 2}
program: {script: train.py, args: [a]}
hosts: [localhost, {name: gpu1}]
"""


def test_values_are_replaced_added_and_read_as_yaml(folder: Path) -> None:
    overrides = (
        "cluster.worker=4",
        "program.args=[--epochs, 5, 0.10]",
        "timeouts.grace=3s",
        "hosts[1].slots=2",
        "hosts[2]=gpu2",
        "program.env.A=b=c",
        "cluster.evaluator={count: 1, env: {X: off}}",
        "name=a",
        "name=42",
    )
    spec = load_text(folder, TEXT, overrides=overrides, extra_args=["--last"])

    assert [role.count for role in spec.roles] == [4, 1]
    assert spec.program.args == ("--epochs", "5", "0.10", "--last")
    assert spec.timeouts.grace == 3.0
    assert [(host.name, host.slots) for host in spec.hosts[1:]] == [("gpu1", 2), ("gpu2", None)]
    assert spec.program.env == {"A": "b=c"}
    assert spec.roles[1].env == {"X": "off"}
    assert spec.name == "42"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("cluster.wroker=2", "unknown role 'wroker' in cluster; did you mean 'worker'?"),
        (
            "cluster.worker=two",
            "cluster.worker must be a whole number of 0 or more, not the text 'two'",
        ),
        (
            "cluster.worker.gpus=1",
            "cluster.worker is 2, which has no key 'gpus'; set the whole of it instead",
        ),
        ("hosts[3]=x", "hosts has 2 items and no hosts[3]; set the whole of it instead"),
        ("cluster[0]=x", "cluster is a mapping, not a list; set the whole of it instead"),
        ("ports[0]=x", "ports is not there, so it has no item 0; set the whole of it instead"),
        ("cluster.worker", "this is not PATH=VALUE; write for example cluster.worker=4"),
        ("=4", "this is not PATH=VALUE; write for example cluster.worker=4"),
        ("[0]=4", "this is not PATH=VALUE; write for example cluster.worker=4"),
        ("a..b=4", "this is not PATH=VALUE; write for example cluster.worker=4"),
        ("name=[", "not valid YAML: while parsing a flow node, did not find expected node content"),
        ("name=", "name is empty; write a name"),
        ("name=!!str a", "the YAML tag '!!str' is not allowed; write the value without a tag"),
        ("timeouts={grace: 1s, grace: 2s}", "the key 'grace' is given twice; keep one of them"),
    ],
)
def test_a_wrong_setting_is_told_as_it_was_written(folder: Path, setting: str, told: str) -> None:
    assert str(refusal(folder, TEXT, overrides=(setting,))) == f"--set {setting}: {told}"


@pytest.mark.parametrize(
    "setting", ["a." * 5000 + "a=1", "a\udcff=1", "name=\udcff", "name=\0", "hosts[999999]=1"]
)
def test_a_hostile_setting_is_told(folder: Path, setting: str) -> None:
    problems = refusal(folder, TEXT, overrides=(setting,)).problems
    assert all(str(problem).isprintable() for problem in problems)

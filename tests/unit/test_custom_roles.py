"""Custom roles and ranks in the pure parts: the plan, the watch, the checks."""

import re
from pathlib import Path
from typing import Any

import pytest

from harness.histories import PS
from harness.parts.lint import check_program
from harness.parts.settings import HostSpec, fill, names
from harness.parts.spec import EnvStyle, ProgramKind, ProgramSpec, Ready, RoleSpec, load
from harness.parts.top import replace
from harness.plans import SCRIPT, A, B, planned, role, spec_of, task
from harness.requirements import need_tensorflow
from harness.values import not_none

SERVE = ProgramSpec(kind=ProgramKind.COMMAND, target="", argv=("serve",), workdir="/src")


def custom(name: str, count: int = 1, **options: Any) -> RoleSpec:
    options = {"in_tf_config": False, "expects_free_port": True, "program": SERVE, **options}
    return role(name, count, **options)


def test_chief_and_workers_are_one_group_and_other_roles_are_their_own() -> None:
    roles = role("worker", 3), role("chief"), role("ps", 2), custom("proxy", 2)
    made = planned(spec_of(*roles, strategy=PS, hosts=(A, B)))
    assert {
        each.name: f"{each.env['DISTRUN_RANK']}/{each.env['DISTRUN_WORLD_SIZE']}"
        for each in made.tasks
    } == {
        "chief:0": "0/4", "worker:0": "1/4", "worker:1": "2/4", "worker:2": "3/4",
        "ps:0": "0/2", "ps:1": "1/2", "proxy:0": "0/2", "proxy:1": "1/2",
    }  # fmt: skip
    group = [task(made, name) for name in ("chief:0", "worker:0", "worker:1", "worker:2")]
    for host in "ab":
        here = [each.env["DISTRUN_LOCAL_RANK"] for each in group if each.host == host]
        assert here == [str(number) for number in range(len(here))]


def test_a_custom_role_has_a_port_and_its_own_program_but_no_cluster() -> None:
    hub_role = custom("hub", in_tf_config=True)
    made = planned(spec_of(role("worker", 2, args=("x",)), custom("proxy"), hub_role))
    proxy, hub, worker = (task(made, name) for name in ("proxy:0", "hub:0", "worker:0"))
    assert proxy.argv == hub.argv == ("serve",)
    assert (proxy.tf_config, proxy.unset) == (None, ("TF_CONFIG",))
    assert list(worker.cluster.addresses if worker.cluster else ()) == ["worker", "hub"]
    assert (proxy.joins_cluster, hub.joins_cluster, worker.joins_cluster) == (False, True, False)
    assert (proxy.binds_port, worker.binds_port) == (True, False)
    assert (proxy.ready, worker.ready) == (Ready.PORT, Ready.PORT)
    addresses = made.record()["addresses"]
    assert addresses == {
        "worker": [worker.address, task(made, "worker:1").address],
        "proxy": [proxy.address],
        "hub": [hub.address],
    }


def test_torchrun_gives_each_group_a_master_of_its_own() -> None:
    roles = [role(name, expects_free_port=True) for name in ("chief", "worker", "evaluator")]
    program = replace(SCRIPT, env_style=EnvStyle.TORCHRUN)
    made = planned(spec_of(*roles, program=program, hosts=(HostSpec(name="a", address="::1"),)))
    worker, evaluator = task(made, "worker:0").env, task(made, "evaluator:0").env
    assert (worker["RANK"], worker["WORLD_SIZE"], worker["MASTER_ADDR"]) == ("1", "2", "::1")
    assert worker["MASTER_PORT"] == not_none(task(made, "chief:0").address).rpartition(":")[2]
    own = not_none(task(made, "evaluator:0").address)
    assert evaluator["MASTER_PORT"] == own.rpartition(":")[2]
    assert list(not_none(task(made, "worker:0").cluster).addresses) == ["chief", "worker"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{rank}", "<rank>"), ("a{port}b{address:x:0}", "a<port>b<address:x:0>"),
        ("{{rank}} {{{role}}}", "{rank} {{role}}"),
        ("{rank }{ranks}{}{{}}{Rank}", "{rank }{ranks}{}{{}}{Rank}"),
    ],
)  # fmt: skip
def test_only_placeholders_are_replaced(text: str, expected: str) -> None:
    assert fill(text, "<{}>".format) == expected
    assert [f"<{name}>" for name in names(text)] == re.findall(r"<.*?>", expected)


def test_a_custom_role_is_checked_but_not_against_the_strategy(tmp_path: Path) -> None:
    need_tensorflow()
    (tmp_path / "train.py").write_text("print('no strategy')\n")
    (tmp_path / "serve.py").write_text(
        "import tensorflow as tf\nimport os\nos.environ['TF_CONFIG'] = '{}'\n"
        "tf.distribute.MirroredStrategy()\n"
    )
    (tmp_path / "broken.py").write_text("def f(:\n")
    spec = tmp_path / "job.yaml"
    workers = "{strategy: multi_worker_mirrored, cluster: {worker: 2%s}, program: {script: %s.py}}"
    spec.write_text(workers % (", proxy: {script: serve.py}, hub: {script: broken.py}", "train"))
    found = check_program(load(spec))
    assert [(Path(each.file).name, each.line) for each in found] == [("broken.py", 1)]
    spec.write_text(workers % ("", "serve"))
    assert len(check_program(load(spec))) == 2

"""What will run where: placement, addresses, TF_CONFIG, GPUs, threads, variables, commands."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun import plan
from distrun.codec import from_json, to_json
from distrun.errors import InvalidSpecError
from distrun.plan import Plan, PortNeed
from distrun.spec.model import (
    HostSpec,
    Placement,
    ProgramKind,
    ProgramSpec,
    Sync,
)
from distrun.strategies import STRATEGIES
from distrun.words.causes import cause_advice
from harness.values import not_none

from .plans import FACTS, MWM, PS, SCRIPT, A, B, env, planned, refused, role, spec_of, task

# TF_CONFIG ----------------------------------------------------------------------------------


def test_tf_config_is_what_tensorflow_reads() -> None:
    addresses = ("localhost:12345", "localhost:23456")
    made = planned(spec_of(role("worker", addresses=addresses)))
    for index in (0, 1):
        text = task(made, f"worker:{index}").tf_config
        assert text is not None
        assert json.loads(text) == {
            "cluster": {"worker": ["localhost:12345", "localhost:23456"]},
            "task": {"type": "worker", "index": index},
        }
        assert list(json.loads(text)) == ["cluster", "task"]
        assert list(json.loads(text)["task"]) == ["type", "index"]
        assert task(made, f"worker:{index}").address == addresses[index]
        assert not task(made, f"worker:{index}").port_is_provisional


def test_all_tasks_have_the_same_cluster_and_an_evaluator_is_not_in_it() -> None:
    made = planned(
        spec_of(role("ps", 2), role("evaluator"), role("worker", 2), role("chief"), strategy=PS)
    )
    configs = {each.name: json.loads(each.tf_config or "") for each in made.tasks}
    members = ["chief:0", "worker:0", "worker:1", "ps:0", "ps:1"]
    assert list(configs) == [*members, "evaluator:0"]
    for name, config in configs.items():
        kind, _, index = name.partition(":")
        assert config["task"] == {"type": kind, "index": int(index)}
        counts = {each: len(addresses) for each, addresses in config["cluster"].items()}
        assert list(counts.items()) == [("chief", 1), ("worker", 2), ("ps", 2)]
        address = None if kind == "evaluator" else config["cluster"][kind][int(index)]
        assert task(made, name).address == address
    assert len({json.dumps(each["cluster"]) for each in configs.values()}) == 1
    assert len({task(made, name).address for name in members}) == 5
    assert not task(made, "evaluator:0").port_is_provisional


@pytest.mark.parametrize(
    "strategy", sorted(name for name, row in STRATEGIES.items() if not row.tf_config)
)
def test_a_job_of_one_process_has_no_tf_config_nor_inherits_one(strategy: str) -> None:
    spec = spec_of(role("worker"), strategy=strategy)
    made = planned(spec, replace(FACTS, environ={"TF_CONFIG": "old"}))
    (only,) = made.tasks
    assert only.tf_config is None
    assert only.unset == ("TF_CONFIG",)
    assert only.address is None
    assert "no_proxy" not in only.env
    assert plan.ports_needed(spec, plan.place(spec)) == {}


def test_a_tf_config_that_linux_cannot_pass_is_refused() -> None:
    sizes = []
    for length in range(131072 - 120, 131072):
        spec = spec_of(role("worker", addresses=("x" * length + ":1",)))
        try:
            made = planned(spec)
        except InvalidSpecError:
            continue
        sizes.append(len(f"TF_CONFIG={made.tasks[0].tf_config}\0"))
    assert max(sizes) == plan.LARGEST_VARIABLE, "the longest that passes is passed"
    with refused("128 KiB"):
        planned(spec)


# Addresses and placement --------------------------------------------------------------------


def hosts_of(made: Plan) -> list[str]:
    return [each.host for each in made.tasks]


def test_spread_goes_round_and_pack_fills_up() -> None:
    workers = role("worker", 4)
    assert hosts_of(planned(spec_of(workers, hosts=(A, B)))) == ["a", "b", "a", "b"]
    packed = spec_of(workers, hosts=(A, B), placement=Placement.PACK)
    assert hosts_of(planned(packed)) == ["a", "a", "b", "b"]


def test_slots_bound_both() -> None:
    hosts = (replace(A, slots=3), replace(B, slots=1))
    assert hosts_of(planned(spec_of(role("worker", 4), hosts=hosts))) == ["a", "b", "a", "a"]
    packed = spec_of(role("worker", 4), hosts=hosts, placement=Placement.PACK)
    assert hosts_of(planned(packed)) == ["a", "a", "a", "b"]
    with refused("5 tasks do not fit on the hosts' 4 slots"):
        plan.place(spec_of(role("worker", 5), hosts=hosts))


def test_an_explicit_address_is_placed_on_its_host() -> None:
    hosts = (HostSpec(address="10.0.0.4"), replace(A, address="10.0.0.5"), B)
    addresses = ("10.0.0.5:1", "b:2", "10.0.0.4:3", "this-machine:4")
    spec = spec_of(role("worker", addresses=addresses), hosts=hosts)
    made = planned(spec, dict.fromkeys(("localhost", "a", "b"), FACTS))
    assert hosts_of(made) == ["a", "b", "localhost", "localhost"]
    assert tuple(each.address for each in made.tasks) == addresses
    assert plan.ports_needed(spec, plan.place(spec)) == {
        "a": PortNeed(wanted=(1,)),
        "b": PortNeed(wanted=(2,)),
        "localhost": PortNeed(wanted=(3, 4)),
    }


def test_chosen_addresses_are_the_hosts_and_say_that_they_may_change() -> None:
    hosts = (replace(A, address="10.0.0.5"), HostSpec(name="six", address="fd00::1"))
    made = planned(spec_of(role("worker", 3), hosts=hosts))
    assert [each.address for each in made.tasks] == [
        "10.0.0.5:20001",
        "[fd00::1]:20001",
        "10.0.0.5:20002",
    ]
    assert all(each.port_is_provisional for each in made.tasks)
    assert made.hosts == ("a", "six")


@pytest.mark.parametrize("one", ["10.0.2.15", "fd00::1"])
def test_hosts_at_the_same_address_are_refused_where_their_ports_are_the_same(one: str) -> None:
    machines = {"a": replace(FACTS, address=one), "b": replace(FACTS, address=one)}
    spec = spec_of(role("worker", 2), hosts=(A, B))
    with refused("worker:0 on a and worker:1 on b would both be at "):
        planned(spec, machines)
    made = plan.make(spec, plan.place(spec), machines, {"a": [20001], "b": [20002]})
    assert [each.host for each in made.tasks] == ["a", "b"]


@pytest.mark.parametrize(
    "machine", ["localhost", "LOCALHOST", "127.0.0.1", "127.0.1.1", "[::1]", "[0:0::1]", "0.0.0.0"]
)
def test_no_task_is_at_localhost_in_a_cluster_that_spans_hosts(machine: str) -> None:
    addresses = (f"{machine}:23000", "a:23000")
    spec = spec_of(role("worker", addresses=addresses), hosts=(HostSpec(), A))
    with refused("worker:0 on localhost would be at"):
        planned(spec)
    hosts = (replace(A, address=machine.strip("[]")), B)
    with refused("worker:0 on a would be at") as raised:
        planned(spec_of(role("worker", 2), hosts=hosts))
    assert "give a an `address:`" in not_none(cause_advice(raised.value.as_cause()))
    # On one host it is what it means.
    planned(spec_of(role("worker", 2), role("evaluator"), hosts=(replace(hosts[0], slots=2), B),
                    placement=Placement.PACK, strategy=MWM))  # fmt: skip


@given(
    counts=st.tuples(st.integers(0, 1), st.integers(1, 9), st.integers(1, 4), st.integers(0, 1)),
    slots=st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=5),
    placement=st.sampled_from(Placement),
)
def test_every_task_has_one_place_and_no_host_more_than_its_slots(
    counts: list[int], slots: list[int], placement: Placement
) -> None:
    names = ("chief", "worker", "ps", "evaluator")
    roles = [role(name, count) for name, count in zip(names, counts, strict=True) if count]
    hosts = tuple(HostSpec(name=f"h{n}", slots=each) for n, each in enumerate(slots))
    spec = spec_of(*roles, strategy=PS, hosts=hosts, placement=placement)
    try:
        made = planned(spec)
    except InvalidSpecError:
        assert None not in slots
        assert sum(slots) < sum(counts)
        return
    assert len({each.name for each in made.tasks}) == sum(counts)
    taken = [each.address for each in made.tasks if each.address]
    assert len(set(taken)) == len(taken) == sum(counts[:3])
    for host in hosts:
        here = [each for each in made.tasks if each.host == host.name]
        assert host.slots is None or len(here) <= host.slots
    assert planned(spec) == made
    assert from_json(Plan, json.loads(json.dumps(to_json(made)))) == made


# Variables ----------------------------------------------------------------------------------


def test_sets_have_one_order_in_a_group_unless_the_user_chooses() -> None:
    made = planned(spec_of(role("worker", 2), role("evaluator")))
    seeds = [each.env.get("PYTHONHASHSEED") for each in made.tasks]
    assert seeds == ["0", "0", None]
    alone = planned(spec_of(role("worker"), strategy="mirrored"))
    inherited = planned(spec_of(role("worker", 2)), replace(FACTS, environ={"PYTHONHASHSEED": "7"}))
    for each in (alone, inherited):
        assert all("PYTHONHASHSEED" not in task.env for task in each.tasks)
    chosen = spec_of(role("worker", 2, env={"PYTHONHASHSEED": "random"}))
    assert env(planned(chosen), "worker:1")["PYTHONHASHSEED"] == "random"


def test_cores_are_divided_unless_a_role_or_the_shell_says_otherwise() -> None:
    def threads(made: Plan) -> list[tuple[str | None, str | None]]:
        names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
        return [(each.env.get(names[0]), each.env.get(names[1])) for each in made.tasks]

    assert threads(planned(spec_of(role("worker", 3)))) == [("1", "1")] * 3
    ten = replace(FACTS, cores=10.5)
    assert threads(planned(spec_of(role("worker", 3)), ten)) == [("3", "3")] * 3
    assert threads(planned(spec_of(role("worker", 9)), FACTS)) == [("1", "1")] * 9
    split = spec_of(role("chief", cpus=4), role("worker", 2))
    assert threads(planned(split, ten)) == [("4", "4"), ("3", "3"), ("3", "3")]
    greedy = spec_of(role("chief", cpus=40), role("worker", 2))
    assert threads(planned(greedy)) == [("40", "40"), ("1", "1"), ("1", "1")]
    inherited = replace(FACTS, environ={"OMP_NUM_THREADS": "7"})
    assert threads(planned(spec_of(role("worker", 2)), inherited)) == [(None, "2")] * 2


def test_what_the_spec_sets_wins_the_role_over_the_program_over_the_host() -> None:
    program = replace(SCRIPT, env={"A": "program", "B": "program", "no_proxy": "mine"})
    made = planned(
        spec_of(
            role("worker", 2, env={"B": "role", "OMP_NUM_THREADS": "5", "TF_CONFIG": "{}"}),
            program=program,
            hosts=(HostSpec(env={"A": "host", "C": "host", "PYTHONUNBUFFERED": ""}),),
        )
    )
    told = env(made, "worker:0")
    assert (told["A"], told["B"], told["C"]) == ("program", "role", "host")
    assert told["PYTHONUNBUFFERED"] == ""
    assert told["OMP_NUM_THREADS"] == "5"
    assert told["no_proxy"] == "mine"
    assert told["TF_CONFIG"] == "{}"


@pytest.mark.parametrize(("keras", "value"), [(None, None), (2, "1"), (3, "0")])
def test_keras_sets_its_variable_unless_the_spec_sets_it(
    keras: int | None, value: str | None
) -> None:
    program = replace(SCRIPT, keras=keras)
    made = planned(spec_of(role("worker", 2), program=program))
    assert {each.env.get("TF_USE_LEGACY_KERAS") for each in made.tasks} == {value}
    mixed = spec_of(role("worker", env={"TF_USE_LEGACY_KERAS": "True"}), program=program)
    assert env(planned(mixed), "worker:0")["TF_USE_LEGACY_KERAS"] == "True"


@pytest.mark.parametrize(("strategy", "count"), [(MWM, 2), ("mirrored", 1)])
def test_a_program_with_a_tf_config_of_its_own_gets_none(strategy: str, count: int) -> None:
    program = replace(SCRIPT, owns_tf_config=True)
    made = planned(spec_of(role("worker", count), strategy=strategy, program=program))
    usual = planned(spec_of(role("worker", count), strategy=strategy))
    for each, other in zip(made.tasks, usual.tasks, strict=True):
        assert each.tf_config is None
        assert "TF_CONFIG" not in each.environment
        assert each.unset == ()
        assert each.owns_tf_config
        assert (each.address, each.env) == (other.address, other.env)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "a,::1"),
        ({"no_proxy": "x, y,,a"}, "x,y,a,::1"),
        ({"NO_PROXY": "x"}, "x,a,::1"),
        ({"no_proxy": "x", "NO_PROXY": "y"}, "x,a,::1"),
    ],
)
def test_the_clusters_hosts_are_added_to_no_proxy(environ: dict[str, str], expected: str) -> None:
    spec = spec_of(role("worker", addresses=("a:1", "a:2", "[::1]:3")), hosts=(A,))
    made = planned(spec, replace(FACTS, environ=environ))
    assert {each.env["no_proxy"] for each in made.tasks} == {expected}


def test_pass_env_is_named_but_never_written_down() -> None:
    program = replace(SCRIPT, pass_env=("WANDB_API_KEY",))
    spec = spec_of(role("worker", 2), program=program)
    made = planned(spec, replace(FACTS, environ={"WANDB_API_KEY": "secret"}))
    assert made.pass_env == ("WANDB_API_KEY",)
    assert "secret" not in json.dumps(to_json(made))


# Commands -----------------------------------------------------------------------------------


def argv_of(program: ProgramSpec, **host: Any) -> tuple[str, ...]:
    program = replace(program, args=("--epochs", "3"))
    spec = spec_of(role("worker", args=("--role",)), program=program, hosts=(HostSpec(**host),))
    return planned(spec).tasks[0].argv


def test_a_script_runs_by_the_hosts_python_before_the_programs_before_the_default() -> None:
    rest = ("/src/main.py", "--epochs", "3", "--role")
    assert argv_of(SCRIPT) == ("/usr/bin/python3", *rest)
    assert argv_of(replace(SCRIPT, python="py")) == ("py", *rest)
    assert argv_of(replace(SCRIPT, python="py"), python="/opt/py") == ("/opt/py", *rest)


def test_a_module_and_a_command() -> None:
    module = replace(SCRIPT, kind=ProgramKind.MODULE, target="pkg.train")
    assert argv_of(module) == ("/usr/bin/python3", "-m", "pkg.train", "--epochs", "3", "--role")
    command = replace(SCRIPT, kind=ProgramKind.COMMAND, target="", argv=("sh", "-c", "x $y"))
    assert argv_of(command) == ("sh", "-c", "x $y", "--epochs", "3", "--role")


# Files that were sent ------------------------------------------------------------------------

SENT = replace(FACTS, files="/there/files")


@pytest.mark.parametrize(
    ("program", "argv", "workdir"),
    [
        # Launched in the script's folder, below it, and elsewhere.
        ({}, "/there/files/main.py", "/there/files"),
        ({"workdir": "/src/sub"}, "/there/files/main.py", "/there/files/sub"),
        ({"workdir": "/srcs"}, "/there/files/main.py", "/there/files"),
        ({"workdir": "/"}, "/there/files/main.py", "/there/files"),
        # Who names a folder of the hosts has it.
        ({"workdir": "/data", "is_workdir_chosen": True}, "/there/files/main.py", "/data"),
        ({"sync_base": "/"}, "/there/files/src/main.py", "/there/files/src"),
        ({"sync_base": ""}, "/src/main.py", "/src"),
    ],
)
def test_paths_that_are_sent_are_those_of_the_copy(
    program: dict[str, Any], argv: str, workdir: str
) -> None:
    given = replace(SCRIPT, **{"sync_base": "/src", **program})
    facts = SENT if given.sync_base else FACTS
    hosts = (HostSpec(name="far"),)
    made = planned(spec_of(role("worker"), program=given, hosts=hosts), facts)
    assert task(made, "worker:0").argv[1] == argv
    assert task(made, "worker:0").workdir == workdir
    own = (HostSpec(name="far", workdir="/own"),)
    made = planned(spec_of(role("worker"), program=given, hosts=own), facts)
    assert task(made, "worker:0").workdir == "/own"


def test_only_a_default_folder_that_nothing_was_sent_to_may_be_missing() -> None:
    command = ProgramSpec(kind=ProgramKind.COMMAND, target="", argv=("true",), workdir="/here")
    chosen = replace(command, is_workdir_chosen=True)

    def may_be_home(program: ProgramSpec, host: HostSpec) -> bool:
        facts = replace(FACTS, has_launch_folders=host.name == "localhost")
        made = planned(spec_of(role("worker"), program=program, hosts=(host,)), facts)
        assert task(made, "worker:0").workdir == (host.workdir or "/here")
        return task(made, "worker:0").or_home

    assert may_be_home(command, HostSpec(name="far"))
    assert not may_be_home(chosen, HostSpec(name="far"))
    assert not may_be_home(command, HostSpec(name="far", workdir="/own"))
    assert not may_be_home(command, HostSpec())
    assert not may_be_home(replace(command, sync=Sync.OFF), HostSpec(name="far"))


def test_only_parameter_server_fails_fast() -> None:
    made = planned(spec_of(role("chief"), role("worker"), role("ps"), strategy=PS))
    assert {each.env["GRPC_FAIL_FAST"] for each in made.tasks} == {"use_caller"}


def test_what_every_task_is_told() -> None:
    made = planned(spec_of(role("worker", 2)))
    told = env(made, "worker:1")
    assert told["DISTRUN_TASK"] == "worker:1"
    assert told["DISTRUN_STRATEGY"] == MWM
    assert told["PYTHONUNBUFFERED"] == "1"
    assert told["PYTHONFAULTHANDLER"] == "1"
    assert told["TF_GRPC_REUSE_PORT"] == "true"
    assert "TF_NUM_INTEROP_THREADS" not in told
    assert "GRPC_FAIL_FAST" not in told
    assert task(made, "worker:1").log == "worker-1.log"
    assert task(made, "worker:1").unset == ()

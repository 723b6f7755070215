"""What will run where: placement, addresses, TF_CONFIG, GPUs, threads, variables, commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun import plan
from distrun.codec import from_json, to_json
from distrun.errors import InvalidSpecError
from distrun.plan import HostFacts, Placed, Plan, PortNeed, place, place_again, room_of_hosts
from distrun.spec.model import (
    HostSpec,
    Memory,
    Placement,
    ProgramKind,
    ProgramSpec,
    RestartSpec,
    Spec,
    Sync,
)
from distrun.strategies import STRATEGIES
from distrun.words.causes import cause_advice
from harness.values import not_none

from .plans import FACTS, MWM, PS, SCRIPT, A, B, planned, refused, role, spec_of, task
from .specs import load_text, refusal

# TF_CONFIG ----------------------------------------------------------------------------------


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
    def cluster(length: int) -> Spec:
        return spec_of(role("worker", addresses=("x" * length + ":1",)))

    others = len(f"TF_CONFIG={planned(cluster(0)).tasks[0].tf_config}\0")
    planned(cluster(plan.LARGEST_VARIABLE - others))
    with refused("128 KiB"):
        planned(cluster(plan.LARGEST_VARIABLE - others + 1))


# Addresses and placement --------------------------------------------------------------------


def hosts_of(made: Plan) -> list[str]:
    return [each.host for each in made.tasks]


@pytest.mark.parametrize(
    ("slots", "placement", "expected"),
    [
        ((None, None), Placement.SPREAD, "abab"),
        ((None, None), Placement.PACK, "aabb"),
        ((3, 1), Placement.SPREAD, "abaa"),
        ((3, 1), Placement.PACK, "aaab"),
    ],
)
def test_spread_goes_round_and_pack_fills_up(
    slots: tuple[int | None, ...], placement: Placement, expected: str
) -> None:
    hosts = (replace(A, slots=slots[0]), replace(B, slots=slots[1]))
    made = planned(spec_of(role("worker", 4), hosts=hosts, placement=placement))
    assert "".join(hosts_of(made)) == expected
    if slots[0]:
        with refused("5 tasks do not fit on the hosts' 4 slots"):
            plan.place(spec_of(role("worker", 5), hosts=hosts))


def test_an_explicit_address_is_placed_on_its_host() -> None:
    hosts = (HostSpec(address="10.0.0.4"), replace(A, address="10.0.0.5"), B)
    addresses = ("10.0.0.5:1", "b:2", "10.0.0.4:3", "this-machine:4")
    spec = spec_of(role("worker", addresses=addresses), hosts=hosts)
    made = planned(spec, dict.fromkeys(("localhost", "a", "b"), FACTS))
    assert hosts_of(made) == ["a", "b", "localhost", "localhost"]
    assert tuple(each.address for each in made.tasks) == addresses
    assert not any(each.port_is_provisional for each in made.tasks)
    assert plan.ports_needed(spec, plan.place(spec)) == {
        "a": PortNeed(wanted=(1,)),
        "b": PortNeed(wanted=(2,)),
        "localhost": PortNeed(wanted=(3, 4)),
    }


def test_chosen_addresses_are_the_hosts_and_say_that_they_may_change() -> None:
    hosts = (replace(A, address="10.0.0.5"), HostSpec(name="six", address="fd00::1"))
    made = planned(spec_of(role("worker", 3), hosts=hosts))
    addresses = ["10.0.0.5:20001", "[fd00::1]:20001", "10.0.0.5:20002"]
    assert [each.address for each in made.tasks] == addresses
    assert all(each.port_is_provisional for each in made.tasks)
    assert made.hosts == ("a", "six")


@pytest.mark.parametrize("one", ["10.0.2.15", "fd00::1"])
def test_hosts_at_the_same_address_are_refused_where_their_ports_are_the_same(one: str) -> None:
    machines = dict.fromkeys("ab", replace(FACTS, address=one))
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


OMP, INTRAOP, LEGACY = "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_USE_LEGACY_KERAS"
SEED = "PYTHONHASHSEED"
TEN = replace(FACTS, cores=10.5)
TWO = role("worker", 2)
EACH_TASK = (
    f"DISTRUN_TASK=worker:0 DISTRUN_STRATEGY={MWM} PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 "
    "TF_GRPC_REUSE_PORT=true TF_NUM_INTEROP_THREADS GRPC_FAIL_FAST"
)


def threads(*counts: int) -> list[str]:
    return [f"{OMP}={count} {INTRAOP}={count}" for count in counts]


def keras(version: int | None) -> ProgramSpec:
    return replace(SCRIPT, keras=version)


def inherited(**environ: str) -> HostFacts:
    return replace(FACTS, environ=environ)


VARIABLES: dict[str, tuple[Spec, HostFacts, list[str]]] = {
    # In a group, sets have one order, unless the user chooses.
    "a group": (spec_of(TWO, role("evaluator")), FACTS, [f"{SEED}=0", f"{SEED}=0", SEED]),
    "an inherited seed": (spec_of(TWO), inherited(**{SEED: "7"}), [SEED, SEED]),
    "a chosen seed": (spec_of(role("worker", 2, env={SEED: "random"})), FACTS,
                      [f"{SEED}=random"] * 2),
    # Cores are divided, unless a role or the shell says otherwise.
    "4 cores for 3": (spec_of(role("worker", 3)), FACTS, threads(1, 1, 1)),
    "10.5 cores for 3": (spec_of(role("worker", 3)), TEN, threads(3, 3, 3)),
    "cpus": (spec_of(role("chief", cpus=4), TWO), TEN, threads(4, 3, 3)),
    "inherited threads": (spec_of(TWO), inherited(**{OMP: "7"}), [f"{OMP} {INTRAOP}=2"] * 2),
    # What the spec sets wins: the role over the program over the host.
    "env": (
        spec_of(
            role("worker", env={"B": "role", OMP: "5", "TF_CONFIG": "{}"}),
            program=replace(SCRIPT, env={"A": "program", "B": "program", "no_proxy": "mine"}),
            hosts=(HostSpec(env={"A": "host", "C": "host", "PYTHONUNBUFFERED": ""}),),
        ),
        FACTS,
        [f"A=program B=role C=host PYTHONUNBUFFERED= {OMP}=5 no_proxy=mine TF_CONFIG={{}}"],
    ),
    "keras 3": (spec_of(TWO, program=keras(3)), FACTS, [f"{LEGACY}=0"] * 2),
    "keras in env": (spec_of(role("worker", env={LEGACY: "True"}), program=keras(2)), FACTS,
                     [f"{LEGACY}=True"]),
    "parameter_server fails fast": (
        spec_of(role("chief"), role("worker"), role("ps"), strategy=PS), FACTS,
        ["GRPC_FAIL_FAST=use_caller"] * 3),
    "each task": (spec_of(role("worker")), FACTS, [EACH_TASK]),
    # The cluster's hosts are added to no_proxy.
    **{
        f"{environ}": (
            spec_of(role("worker", addresses=("a:1", "a:2", "[::1]:3")), hosts=(A,)),
            inherited(**environ), [f"no_proxy={expected}"] * 3)
        for environ, expected in (
            ({}, "a,::1"), ({"no_proxy": "x, y,,a"}, "x,y,a,::1"), ({"NO_PROXY": "x"}, "x,a,::1"),
            ({"no_proxy": "x", "NO_PROXY": "y"}, "x,a,::1"))
    },
}  # fmt: skip
"""Of each task, variables with their values, and without one those that are not set."""


@pytest.mark.parametrize("case", VARIABLES)
def test_what_tasks_have_in_their_environment(case: str) -> None:
    spec, host, expected = VARIABLES[case]
    made = planned(spec, host)
    for each, words in zip(made.tasks, expected, strict=True):
        for name, is_set, value in (word.partition("=") for word in words.split()):
            assert each.env.get(name) == (value if is_set else None), (each.name, name)
        assert each.log == f"{each.name.replace(':', '-')}.log"
        assert each.unset == (() if each.tf_config else ("TF_CONFIG",))


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


def test_scripts_and_modules_run_by_the_hosts_python_before_the_programs_before_the_default() -> (
    None
):
    rest = ("/src/main.py", "--epochs", "3", "--role")
    assert argv_of(SCRIPT) == ("/usr/bin/python3", *rest)
    assert argv_of(replace(SCRIPT, python="py")) == ("py", *rest)
    assert argv_of(replace(SCRIPT, python="py"), python="/opt/py") == ("/opt/py", *rest)
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
        ({"workdir": "/"}, "/there/files/main.py", "/there/files"),
        # Who names a folder of the hosts has it.
        ({"workdir": "/data", "is_workdir_chosen": True}, "/there/files/main.py", "/data"),
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


# GPUs ---------------------------------------------------------------------------------------------


CLUSTER = spec_of(role("chief"), role("worker", 2), role("ps"), role("evaluator"), strategy=PS)
SHARED = spec_of(role("worker", 3), role("evaluator"))
ONE = role("worker")
NAMED = (HostSpec(gpus=(2, 3)),)
GPUS: dict[str, tuple[Spec, str, str]] = {
    "workers share them evenly and servers have none": (
        CLUSTER, "0 1 2 3 4 5 6",
        "chief:0=0,1 worker:0=2,3 worker:1=4,5 ps:0=-1 evaluator:0=-1"),
    "more tasks than GPUs": (
        SHARED, "0 1", "worker:0=0 worker:1=1 worker:2=0 evaluator:0=-1"),
    "what a role asks for it gets, and the others the rest": (
        spec_of(role("chief", gpus=2), TWO, role("evaluator", gpus=1)), "0 1 2 3 4",
        "chief:0=0,1 worker:0=3 worker:1=4 evaluator:0=2"),
    "none for two": (spec_of(role("worker", 2, gpus=0)), "0", "worker:0=-1 worker:1=-1"),
    "a host names them for one": (spec_of(ONE, hosts=NAMED), "0 1 2 3", "worker:0=2,3"),
    "CUDA's own names": (spec_of(TWO), "GPU-8932f937 MIG-GPU-1/1/0",
                         "worker:0=GPU-8932f937 worker:1=MIG-GPU-1/1/0"),
    "where nothing is said, one task alone keeps all": (spec_of(ONE), "0 1", "worker:0"),
    "without GPUs, those that never use one are told": (
        CLUSTER, "", "chief:0 worker:0 worker:1 ps:0=-1 evaluator:0=-1"),
}  # fmt: skip
"""The GPUs of the host, and what tasks see; without a value, nothing is set."""


def visible(spec: Spec, *gpus: str) -> dict[str, str | None]:
    made = planned(spec, replace(FACTS, gpus=gpus))
    return {each.name: each.env.get("CUDA_VISIBLE_DEVICES") for each in made.tasks}


@pytest.mark.parametrize("case", GPUS)
def test_which_gpus_a_task_sees(case: str) -> None:
    spec, gpus, expected = GPUS[case]
    seen = {name: value or None for name, _, value in (e.partition("=") for e in expected.split())}
    assert visible(spec, *gpus.split()) == seen
    with refused("ask for 4 GPUs, and it has 3"):
        visible(spec_of(role("worker", 2, gpus=2)), *"012")


def test_tasks_that_share_a_gpu_leave_each_other_memory() -> None:
    def growing(spec: Spec, *gpus: str, **environ: str) -> list[str]:
        made = planned(spec, replace(FACTS, gpus=gpus, environ=environ))
        wanted = ("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        return [each.name for each in made.tasks if wanted in each.env.items()]

    assert growing(SHARED, "0", "1") == ["worker:0", "worker:2"]
    assert growing(SHARED, "0", "1", TF_FORCE_GPU_ALLOW_GROWTH="false") == []
    own = replace(SCRIPT, env={"TF_FORCE_GPU_ALLOW_GROWTH": "false"})
    assert growing(replace(SHARED, program=own), "0", "1") == []
    assert growing(SHARED, "0", "1", "2") == []
    assert growing(spec_of(TWO, hosts=(A, B)), "0") == [], "another host's 0 is another GPU"


# Freed memory -------------------------------------------------------------------------------------


VARIABLE = "GLIBC_TUNABLES"
WORKERS, PAIR = (role("worker", 2),), ["worker:0", "worker:1"]


def keepers(*roles: Any, facts: Any = FACTS, strategy: str = MWM, **program: Any) -> list[str]:
    spec = spec_of(*roles, strategy=strategy, program=replace(SCRIPT, **program))
    return [each.name for each in planned(spec, facts).tasks if VARIABLE in each.env]


@pytest.mark.parametrize(
    ("roles", "strategy", "memory", "expected"),
    [
        (WORKERS, MWM, None, PAIR),
        (WORKERS, MWM, Memory.SYSTEM, []),
        ((role("worker"),), MWM, None, []),
        ((role("worker"),), "mirrored", Memory.KEEP, ["worker:0"]),
        ((role("chief"), role("worker"), role("ps"), role("evaluator")), PS, None,
         ["chief:0", "worker:0", "ps:0"]),
        ((role("worker", 2), role("data", in_tf_config=False)), MWM, None, PAIR),
    ],
)  # fmt: skip
def test_members_of_a_cluster_of_several_keep_memory(
    roles: Any, strategy: str, memory: Memory | None, expected: list[str]
) -> None:
    assert keepers(*roles, strategy=strategy, memory=memory) == expected


@pytest.mark.parametrize(
    ("libc", "threshold"),
    [
        ("glibc 2.36", 1 << 30),
        # an older one ignores a higher threshold, and maps each block from 128 KiB on
        ("glibc 2.34", 32 << 20),
        ("glibc 2.25", None),
        ("", None),
        ("musl 2.36", None),
    ],
)
def test_the_hosts_c_library_decides(libc: str, threshold: int | None) -> None:
    for cores, arenas in ((0.5, "2"), (7.5, "7")):  # no thread waits for another one's arena
        made = planned(spec_of(*WORKERS), replace(FACTS, libc=libc, cores=cores))
        value = made.tasks[0].env.get(VARIABLE)
        found = dict(each.split("=") for each in value.split(":")) if value else {}
        assert found.get("glibc.malloc.mmap_threshold") == (threshold and str(threshold))
        assert ("glibc.malloc.hugetlb" in found) == (threshold == 1 << 30), "new in 2.35"
        assert found.get("glibc.malloc.arena_max") == (threshold and arenas)


@pytest.mark.parametrize(
    "name", [VARIABLE, "LD_PRELOAD", "MALLOC_ARENA_MAX", "MALLOC_CONF", "MALLOC_TRIM_THRESHOLD_"]
)
def test_who_has_settings_for_malloc_keeps_them(name: str) -> None:
    theirs = {name: ""}
    assert keepers(*WORKERS, facts=replace(FACTS, environ=theirs)) == []
    assert keepers(*WORKERS, pass_env=(name,)) == []
    for spec in (
        spec_of(role("worker", 2, env=theirs)),
        spec_of(*WORKERS, hosts=(replace(A, env=theirs),)),
    ):
        assert [each.env.get(VARIABLE, "") for each in planned(spec, FACTS).tasks] == ["", ""]


# Spares -------------------------------------------------------------------------------------------


HOSTS = tuple(HostSpec(name=name) for name in "abc")
SPARE = HostSpec(name="s", spare=True)


def again(spec: Spec, lost: str, moving: str = "", before: tuple[Placed, ...] = ()) -> str | None:
    """Where the tasks are once hosts are lost, like `worker:0=a`; None: there is no room."""
    present = before or place(spec)
    rooms = {host: room for host, room in room_of_hosts(spec).items() if host not in lost}
    names = moving.split() or [placed.name for placed in present]
    placed = place_again(spec, present, names, rooms)
    return None if placed is None else " ".join(f"{p.name}={p.host.name}" for p in placed)


def test_a_host_with_slots_has_room_but_one_without_is_full() -> None:
    spec = spec_of(role("worker", 3), hosts=(replace(HOSTS[0], slots=2), *HOSTS[1:]))
    three = tuple(
        replace(placed, host=host) for placed, host in zip(place(spec), HOSTS, strict=True)
    )
    assert again(spec, "b", before=three) == "worker:0=a worker:1=a worker:2=c"
    assert again(replace(spec, hosts=HOSTS), "b") is None
    bound = spec_of(role("worker", addresses=("a:1", "b:1")), hosts=(*HOSTS[:2], SPARE))
    assert again(bound, "b") is None, "a task with an address of its own stays where it is"


def test_fewer_workers_are_numbered_without_gaps_and_the_chief_stays() -> None:
    one = RestartSpec(min_workers=1)
    spec = spec_of(role("chief"), role("worker", 2), hosts=HOSTS, restart=one)
    assert again(spec, "a") == "chief:0=c worker:0=b"
    assert again(spec, "b") == "chief:0=a worker:0=c"
    assert again(spec, "bc") is None


SPEC = """\
strategy: multi_worker_mirrored
cluster: {worker: 2}
program: {command: ["true"]}
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("hosts: [h1, h2, {name: h3, spare: true}]", ["h3"]),
        ('hosts: ["h[1-4]"]\nspares: 2', ["h3", "h4"]),
        ('hosts: [h1, {name: "g[1-3]", spares: 2}]', ["g2", "g3"]),
        ("hosts: [h1, h2]\nspares: 2", "job.yaml:5:1: all hosts are spares"),
        ("hosts: [{name: h1, spare: true}]", "job.yaml:4:1: the only host is a spare"),
        ('hosts: [{name: "h[1-2]", spares: 3}]', "job.yaml:4:34: 2 hosts cannot have 3 spares"),
        ("spares: 1", "job.yaml:4:1: spares are among the hosts"),
        ("restart: {min_workers: 3}", "job.yaml:4:24: restart.min_workers is 3, and cluster has 2"),
    ],
)
def test_which_hosts_are_spares(folder: Path, more: str, expected: Any) -> None:
    if isinstance(expected, str):
        assert expected in str(refusal(folder, SPEC + more))
    else:
        assert [host.name for host in load_text(folder, SPEC + more).spares] == expected

"""What will run where: placement, addresses, TF_CONFIG, GPUs, threads, variables, commands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.messages import hello
from harness.parts.plan import (
    HostFacts,
    Placed,
    Plan,
    PortNeed,
    place,
    place_again,
    plan,
    room_of_hosts,
)
from harness.parts.settings import HostSpec, RestartSpec, SlurmNode
from harness.parts.spec import Memory, Placement, ProgramKind, ProgramSpec, Spec, Sync
from harness.parts.supervisor import JobHosts
from harness.parts.top import STRATEGIES
from harness.parts.words import cause_advice
from harness.plans import FACTS, MWM, PS, SCRIPT, A, B, planned, refused, role, spec_of, task
from harness.specs import load_text, refusal
from harness.values import not_none


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


def hosts_of(made: Plan) -> list[str]:
    return [each.host for each in made.tasks]


@pytest.mark.parametrize(
    ("slots", "placement", "expected"),
    [
        ((None, None), Placement.SPREAD, "abab"), ((None, None), Placement.PACK, "aabb"),
        ((3, 1), Placement.SPREAD, "abaa"), ((3, 1), Placement.PACK, "aaab"),
    ],
)  # fmt: skip
def test_spread_goes_round_and_pack_fills_up(
    slots: tuple[int | None, ...], placement: Placement, expected: str
) -> None:
    hosts = (replace(A, slots=slots[0]), replace(B, slots=slots[1]))
    made = planned(spec_of(role("worker", 4), hosts=hosts, placement=placement))
    assert "".join(hosts_of(made)) == expected
    if slots[0]:
        with refused("5 tasks do not fit on the hosts' 4 slots"):
            plan.place(spec_of(role("worker", 5), hosts=hosts))


def test_a_host_with_a_role_has_the_tasks_of_that_role_alone() -> None:
    hosts = (replace(A, role="ps"), B, replace(B, name="c", role="evaluator"))
    roles = (role("chief"), role("worker", 2), role("ps", 2), role("evaluator"))
    assert "".join(hosts_of(planned(spec_of(*roles, strategy=PS, hosts=hosts)))) == "bbbaac"


def test_an_explicit_address_is_placed_on_its_host() -> None:
    hosts = (HostSpec(address="10.0.0.4"), replace(A, address="10.0.0.5"), replace(B, name="B"))
    addresses = ("10.0.0.5:1", "b:2", "10.0.0.4:3", "this-machine:4")
    spec = spec_of(role("worker", addresses=addresses), hosts=hosts)
    made = planned(spec, dict.fromkeys(("localhost", "a", "B"), FACTS))
    assert hosts_of(made) == ["a", "B", "localhost", "localhost"]
    assert tuple(each.address for each in made.tasks) == addresses
    assert not any(each.port_is_provisional for each in made.tasks)
    assert plan.ports_needed(spec, plan.place(spec)) == {
        "a": PortNeed(wanted=(1,)),
        "B": PortNeed(wanted=(2,)),
        "localhost": PortNeed(wanted=(3, 4)),
    }


def test_chosen_addresses_are_the_hosts_and_say_that_they_may_change() -> None:
    hosts = (replace(A, address="10.0.0.5"), HostSpec(name="six", address="fd00::1"))
    made = planned(spec_of(role("worker", 3), hosts=hosts))
    addresses = ["10.0.0.5:20001", "[fd00::1]:20001", "10.0.0.5:20002"]
    assert [each.address for each in made.tasks] == addresses
    assert all(each.port_is_provisional for each in made.tasks)
    assert made.hosts == ("a", "six")


def test_hosts_at_the_same_address_are_refused_where_their_ports_are_the_same() -> None:
    machines = dict.fromkeys("ab", replace(FACTS, address="fd00::1"))
    spec = spec_of(role("worker", 2), hosts=(A, B))
    with refused("worker:0 on a and worker:1 on b would both be at "):
        planned(spec, machines)
    made = plan.make(spec, plan.place(spec), machines, {"a": [20001], "b": [20002]})
    assert [each.host for each in made.tasks] == ["a", "b"]


@pytest.mark.parametrize("machine", ["LOCALHOST", "127.0.1.1", "[0:0::1]", "0.0.0.0"])
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


OMP, INTRAOP, LEGACY = "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_USE_LEGACY_KERAS"
SEED, CUDA, TUNABLES = "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES"
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
TEN = replace(FACTS, cores=10.5)
ONE, TWO = role("worker"), role("worker", 2)
CLUSTER = spec_of(role("chief"), TWO, role("ps"), role("evaluator"), strategy=PS)
SHARED = spec_of(role("worker", 3), role("evaluator"))
EACH_TASK = (
    f"DISTRUN_TASK=worker:0 DISTRUN_STRATEGY={MWM} PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 "
    "TF_GRPC_REUSE_PORT=true TF_NUM_INTEROP_THREADS GRPC_FAIL_FAST"
)
_REST = "glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=268435456"
KEPT = f"{TUNABLES}=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:{_REST}"
KEPT_BEFORE_2_35 = f"{TUNABLES}=glibc.malloc.mmap_threshold=33554432:{_REST}"


def threads(*counts: int) -> list[str]:
    return [f"{OMP}={count} {INTRAOP}={count}" for count in counts]


def by(**program: Any) -> Spec:
    """Two workers with a program that differs in this."""
    return spec_of(TWO, program=replace(SCRIPT, **program))


def inherited(**environ: str) -> HostFacts:
    return replace(FACTS, environ=environ)


def with_gpus(names: str, **environ: str) -> HostFacts:
    return replace(FACTS, gpus=tuple(names.split()), environ=environ)


def cuda(*devices: str) -> list[str]:
    return [f"{CUDA}={each}" for each in devices]


UNPROXIED = "no_proxy=mine no_grpc_proxy=mine,localhost"
VARIABLES: dict[str, tuple[Spec, HostFacts, list[str]]] = {
    # In a group, sets have one order, unless the user chooses.
    "a group": (spec_of(TWO, role("evaluator")), FACTS, [f"{SEED}=0", f"{SEED}=0", SEED]),
    "a chosen seed": (spec_of(role("worker", 2, env={SEED: "random"})), FACTS,
                      [f"{SEED}=random"] * 2),
    # Cores are divided, unless a role or the shell says otherwise.
    "4 cores for 3": (spec_of(role("worker", 3)), FACTS, threads(1, 1, 1)),
    "cpus": (spec_of(role("chief", cpus=4), TWO), TEN, threads(4, 3, 3)),
    "inherited threads": (spec_of(TWO), inherited(**{OMP: "7"}), [f"{OMP} {INTRAOP}=2"] * 2),
    # What the spec sets wins: the role over the program over the host.
    "env": (
        spec_of(role("worker", env={"B": "role", OMP: "5", "TF_CONFIG": "{}"}),
                program=replace(SCRIPT, env={"A": "program", "B": "program", "no_proxy": "mine"}),
                hosts=(HostSpec(env={"A": "host", "C": "host", "PYTHONUNBUFFERED": ""}),)),
        FACTS, [f"A=program B=role C=host PYTHONUNBUFFERED= {OMP}=5 TF_CONFIG={{}} {UNPROXIED}"]),
    "keras 3": (by(keras=3), FACTS, [f"{LEGACY}=0"] * 2),
    "keras in env": (by(keras=2, env={LEGACY: "True"}), FACTS, [f"{LEGACY}=True"] * 2),
    "parameter_server fails fast": (CLUSTER, FACTS, ["GRPC_FAIL_FAST=use_caller"] * 5),
    "each task": (spec_of(ONE), FACTS, [EACH_TASK]),
    # Workers share GPUs evenly, servers have none; roles and hosts may say otherwise.
    "8 GPUs": (CLUSTER, with_gpus("0 1 2 3 4 5 6 7"), cuda("0,1", "2,3", "4,5", "-1", "-1")),
    "2 GPUs for 3": (SHARED, with_gpus("0 1"), [
        f"{CUDA}=0 {GROWTH}=true", f"{CUDA}=1 {GROWTH}", f"{CUDA}=0 {GROWTH}=true", *cuda("-1")]),
    "growth is chosen": (SHARED, with_gpus("0 1", **{GROWTH: "false"}), [GROWTH] * 4),
    "GPUs for roles": (spec_of(role("chief", gpus=2), TWO, role("evaluator", gpus=1)),
                       with_gpus("0 1 2 3 4"), cuda("0,1", "3", "4", "2")),
    "no GPU": (spec_of(role("worker", gpus=0)), with_gpus("0"), cuda("-1")),
    "GPUs of a host": (spec_of(ONE, hosts=(HostSpec(gpus=(2, 3)),)), with_gpus("0 1 2 3"),
                       cuda("2,3")),
    "CUDA's own names": (spec_of(TWO), with_gpus("GPU-8932f937 MIG-GPU-1/1/0"),
                         cuda("GPU-8932f937", "MIG-GPU-1/1/0")),
    "one alone": (spec_of(ONE), with_gpus("0 1"), [f"{CUDA} {TUNABLES}"]),
    "alone in a pod": (spec_of(role("evaluator"), hosts=(replace(A, pod=True),)), with_gpus("0"),
                       [CUDA]),
    "without GPUs": (CLUSTER, FACTS, [CUDA, CUDA, CUDA, *cuda("-1", "-1")]),
    # Members of a cluster of several keep freed memory, unless there are settings for malloc.
    "memory": (CLUSTER, FACTS, [*[f"{TUNABLES}=*"] * 4, TUNABLES]),
    "memory: system": (by(memory=Memory.SYSTEM), FACTS, [TUNABLES] * 2),
    "memory: keep": (spec_of(ONE, strategy="mirrored", program=replace(SCRIPT, memory=Memory.KEEP)),
                     FACTS, [f"{TUNABLES}=*"]),
    "memory of 2.36": (spec_of(TWO), TEN, [f"{KEPT}:glibc.malloc.arena_max=10"] * 2),
    "memory of 2.34": (spec_of(TWO), replace(FACTS, libc="glibc 2.34"),
                       [f"{KEPT_BEFORE_2_35}:glibc.malloc.arena_max=4"] * 2),
    **{f"memory of {libc or 'nobody'}": (spec_of(TWO), replace(FACTS, libc=libc), [TUNABLES] * 2)
       for libc in ("glibc 2.25", "musl 2.36", "")},
    "malloc of a role": (spec_of(role("worker", 2, env={"LD_PRELOAD": ""})), FACTS, [TUNABLES] * 2),
    "malloc of a program": (by(pass_env=("MALLOC_CONF",)), FACTS, [TUNABLES] * 2),
    **{name: (spec_of(TWO), inherited(**{name: ""}), [TUNABLES] * 2)
       for name in ("LD_PRELOAD", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_")},
    # The cluster's hosts are added to no_proxy, and to no_grpc_proxy, which gRPC reads first.
    **{
        f"{environ}": (
            spec_of(role("worker", addresses=("a:1", "a:2", "[::1]:3")), hosts=(A,)),
            inherited(**environ), [f"no_proxy={expected} no_grpc_proxy={grpc or expected}"] * 3)
        for environ, expected, grpc in (
            ({}, "a,::1", ""), ({"no_proxy": "x, y,,a"}, "x,y,a,::1", ""),
            ({"NO_PROXY": "x"}, "x,a,::1", ""), ({"no_proxy": "x", "NO_PROXY": "y"}, "x,a,::1", ""),
            ({"no_grpc_proxy": "z", "no_proxy": "x"}, "x,a,::1", "z,a,::1"))
    },
}  # fmt: skip
"""Of each task, variables with their values, `*` for any; without one those that are not set."""


@pytest.mark.parametrize("case", VARIABLES)
def test_what_tasks_have_in_their_environment(case: str) -> None:
    spec, host, expected = VARIABLES[case]
    made = planned(spec, host)
    for each, words in zip(made.tasks, expected, strict=True):
        for name, is_set, value in (word.partition("=") for word in words.split()):
            found = each.env.get(name)
            assert found is not None if value == "*" else found == (value if is_set else None), name
        assert each.log == f"{each.name.replace(':', '-')}.log"
        assert each.unset == (() if each.tf_config else ("TF_CONFIG",))


def test_a_program_with_a_tf_config_of_its_own_gets_none() -> None:
    made = planned(spec_of(TWO, program=replace(SCRIPT, owns_tf_config=True)))
    for each, other in zip(made.tasks, planned(spec_of(TWO)).tasks, strict=True):
        assert (each.tf_config, each.unset, each.owns_tf_config) == (None, (), True)
        assert "TF_CONFIG" not in each.environment
        assert (each.address, each.env) == (other.address, other.env)


def test_asking_for_more_gpus_than_there_are_is_an_error() -> None:
    with refused("ask for 4 GPUs, and it has 3"):
        planned(spec_of(role("worker", 2, gpus=2)), with_gpus("0 1 2"))


def test_gpus_that_a_task_has_asked_for_are_no_others() -> None:
    spec, running = spec_of(role("chief", gpus=2), ONE), {"chief:0": "0,1"}
    facts, ports = {"localhost": with_gpus("0 1")}, {"localhost": [20001, 20002]}
    made = plan.make(spec, place(spec), facts, ports, running)
    assert [each.env[CUDA] for each in made.tasks] == ["0,1", "-1"]


NODE = HostSpec(name="n", slurm=SlurmNode(job="7", cores=2))
GPUS = [({}, "0,1 2,3"), ({CUDA: ""}, "None None"), ({CUDA: "3, 1,-1,0"}, "3 1")]


@pytest.mark.parametrize(
    ("host", "own", "devices"),
    [*((host, *each) for host in (A, HostSpec(), NODE) for each in GPUS),
     (NODE, {CUDA: "NoDevFiles"}, "None None")],
)  # fmt: skip
def test_gpus_are_chosen_by_the_environment_of_each_host_and_cores_by_slurm(
    host: HostSpec, own: dict[str, str], devices: str, tmp_path: Path, monkeypatch: Any
) -> None:
    here, there = ({CUDA: "2"}, own) if host.name != "localhost" else (own, {CUDA: "2"})
    monkeypatch.setattr("os.environ", here)
    hosts = JobHosts(spec_of(TWO, hosts=(host,)), lambda *_: None, tmp_path)
    hosts.add_hello(host.name, hello("a", gpus=range(4))._replace(environ=there, cores=8.0))
    made = hosts.make_plan(hosts.placement, {host.name: [20001, 20002]})
    assert " ".join(str(each.env.get(CUDA)) for each in made.tasks) == devices
    assert made.tasks[0].env[OMP] == ("1" if host is NODE else "4")


def argv_of(program: ProgramSpec, **host: Any) -> tuple[str, ...]:
    program = replace(program, args=("--epochs", "3"))
    spec = spec_of(role("worker", args=("--role",)), program=program, hosts=(HostSpec(**host),))
    return planned(spec).tasks[0].argv


def test_the_python_of_a_host_comes_before_that_of_the_program() -> None:
    rest = ("/src/main.py", "--epochs", "3", "--role")
    assert argv_of(SCRIPT) == ("/usr/bin/python3", *rest)
    assert argv_of(replace(SCRIPT, python="py")) == ("py", *rest)
    assert argv_of(replace(SCRIPT, python="py"), python="/opt/py") == ("/opt/py", *rest)
    module = replace(SCRIPT, kind=ProgramKind.MODULE, target="pkg.train")
    assert argv_of(module) == ("/usr/bin/python3", "-m", "pkg.train", "--epochs", "3", "--role")
    command = replace(SCRIPT, kind=ProgramKind.COMMAND, target="", argv=("sh", "-c", "x $y"))
    assert argv_of(command) == ("sh", "-c", "x $y", "--epochs", "3", "--role")


@pytest.mark.parametrize(
    ("program", "argv", "workdir"),
    [
        # Launched in the script's folder, below it, and elsewhere.
        ({}, "/there/files/main.py", "/there/files"),
        ({"workdir": "/src/sub"}, "/there/files/main.py", "/there/files/sub"),
        # Who names a folder of the hosts has it.
        ({"workdir": "/data", "is_workdir_chosen": True}, "/there/files/main.py", "/data"),
        ({"sync_base": ""}, "/src/main.py", "/src"),
    ],
)
def test_sent_paths_are_those_of_the_copy(program: dict[str, Any], argv: str, workdir: str) -> None:
    given = replace(SCRIPT, **{"sync_base": "/src", **program})
    facts = replace(FACTS, files="/there/files") if given.sync_base else FACTS
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


HOSTS = tuple(HostSpec(name=name) for name in "abc")
SPARE = HostSpec(name="s", spare=True)


def again(spec: Spec, lost: str, before: tuple[Placed, ...] = ()) -> str | None:
    """Where the tasks are once hosts are lost, like `worker:0=a`; None: there is no room."""
    present = before or place(spec)
    rooms = {host: room for host, room in room_of_hosts(spec).items() if host not in lost}
    placed = place_again(spec, present, [each.name for each in present], rooms)
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
    beside = spec_of(role("worker", 2), hosts=(HOSTS[0], replace(HOSTS[1], slots=2), SPARE))
    assert again(beside, "a") == "worker:0=s worker:1=b", "a spare is there for that"


@pytest.mark.parametrize(
    ("placement", "where"),
    [(Placement.PACK, "worker:0=c worker:1=c"), (Placement.SPREAD, "worker:0=c worker:1=d")],
)
def test_tasks_of_lost_hosts_are_placed_as_the_spec_says(placement: Placement, where: str) -> None:
    hosts = tuple(HostSpec(name=name, slots=2) for name in "abcd")
    assert again(spec_of(role("worker", 2), hosts=hosts, placement=placement), "ab") == where


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

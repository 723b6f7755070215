"""Which listeners and servers of tasks contradict the addresses that they were given.

A step is `1 listens 1000 6006`, or `1 serves localhost:1000`: a line of its log says that. Behind
` -> ` is the cause that is found: the task, its address, what its log says (`-`: nothing), the port
and who else is there; without it nothing is found. After `1 ends` comes its next attempt.
"""

import pytest

from harness.parts.protocol import Cause, Code
from harness.parts.settings import HostSpec
from harness.parts.supervisor import ClusterCheck
from harness.parts.top import replace
from harness.parts.words import cause_advice, cause_text
from harness.plans import PS, SCRIPT, planned, role, spec_of
from harness.values import not_none

HERE = ("localhost:1000", "localhost:1001")


def check_of(*addresses: str, setter: str, is_certain: bool, is_mine: bool) -> ClusterCheck:
    machines = dict.fromkeys(each.partition(":")[0] for each in addresses)
    hosts = tuple(HostSpec(name=each, local=each == "localhost") for each in machines)
    program = replace(SCRIPT, owns_tf_config=is_mine)
    made = planned(spec_of(role("worker", addresses=addresses), hosts=hosts, program=program))
    return ClusterCheck(made.tasks, lambda: (setter, is_certain))


def words(cause: Cause | None) -> str:
    if cause is None:
        return ""
    assert cause.code is Code.SERVED_ELSEWHERE
    return " ".join([cause.task, cause.name, cause.text or "-", str(cause.port), *cause.tasks])


def play(check: ClusterCheck, *steps: str) -> None:
    for step in steps:
        what, _, expected = step.partition(" -> ")
        index, verb, *seen = what.split()
        if verb == "ends":
            check.forget(f"worker:{index}")
            continue
        if verb == "listens":
            found = check.record(f"worker:{index}", list(map(int, seen)))
        else:
            found = check.record_served(f"worker:{index}", set(seen))
        assert words(found) == expected, step


SERVED = "0 serves localhost:12345"
BOTH = ("0 listens 12345", "1 listens 12345")
OF_ITS_OWN = ("0 listens 6006", "0 listens 1000 6006", "1 listens 6006")
CASES: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "the port of another task": (
        HERE, "", ("1 listens 1000 -> worker:1 localhost:1001 - 1000 worker:0",)),
    # TensorBoard, a debugger, a tf.data service: also if two tasks share their port. The program
    # may set its TF_CONFIG: if "TF_CONFIG" not in os.environ: ...
    "further listeners before": (HERE, "uncertain", OF_ITS_OWN),
    "two servers at a port that nobody was given": (HERE, "", (
        SERVED, "0 listens 12345", "1 serves localhost:12345",
        "1 listens 12345 -> worker:1 localhost:1001 localhost:12345 12345 worker:0")),
    **{
        f"{machine} is the same machine": (HERE, "", tuple(
            f"{index} {what}" for index in (0, 1)
            for what in (f"listens 100{index}", f"serves {machine}:100{index}")))
        for machine in ("[::1]", "myself")
    },
    "on hosts with the same ports the log tells": (("a:2222", "b:2222"), "", (
        "0 listens 2222", "1 listens 2222",
        "1 serves a:2222 -> worker:1 b:2222 a:2222 2222 worker:0")),
    "a port of another host may be chance": (
        ("a:1000", "b:1001"), "", ("1 listens 1000", "1 listens 1000 1001")),
    "or is certain": (("a:1000", "b:1001"), "certain",
                      ("1 listens 1000 -> worker:1 b:1001 - 1000 worker:0",)),
    "a TF_CONFIG of its own may choose any port": (HERE, "certain mine", (
        "0 listens 1001", "0 serves localhost:1001", "1 listens 7000", "1 serves localhost:7000")),
    "of its own, each on its host": (("a:1000", "b:1001"), "mine", tuple(
        f"{index} {what}" for index in (0, 1) for what in ("listens 7", "serves localhost:7"))),
    "of its own, on one host": (HERE, "mine", (
        "0 listens 7", "0 serves x:7", "1 listens 7",
        "1 serves x:7 -> worker:1 localhost:1001 x:7 7 worker:0")),
    "another attempt starts anew": (
        HERE, "", (SERVED, BOTH[0], "0 ends", "1 serves localhost:12345", BOTH[1])),
}  # fmt: skip
"""The addresses, what is known of the program, and the steps."""


@pytest.mark.parametrize("case", CASES)
def test_what_contradicts_the_cluster_is_told(case: str) -> None:
    addresses, about, steps = CASES[case]
    setter = "train.py:6" if about else ""
    is_certain = "certain" in about.split()
    is_mine = "mine" in about
    check = check_of(*addresses, setter=setter, is_certain=is_certain, is_mine=is_mine)
    play(check, *steps)
    assert not is_mine or check.suspect is None


def test_one_server_at_a_place_of_its_own_is_a_suspect() -> None:
    check = check_of(*HERE, setter="", is_certain=False, is_mine=False)
    play(check, "0 listens 12345", SERVED)
    assert words(check.suspect) == "worker:0 localhost:1000 localhost:12345 12345"
    check.forget("worker:0")
    assert check.suspect is None


def test_a_worker_or_ps_at_the_chiefs_port_runs_the_chiefs_code() -> None:
    tasks = planned(spec_of(role("chief"), role("worker"), role("ps"), strategy=PS)).tasks
    check = ClusterCheck(tasks, lambda: ("task.py:9", False))
    cause = not_none(check.record("ps:0", [int(str(tasks[0].address)[-5:])]))
    assert cause_text(cause).endswith("with a port that chief:0 has: it runs the code of the chief")
    assert "only the chief may create ParameterServerStrategy" in (cause_advice(cause) or "")
    assert "\n" not in (cause_advice(cause._replace(expected="")) or "")

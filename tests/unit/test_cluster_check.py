"""Which listeners and servers of tasks contradict the addresses that they were given."""

from __future__ import annotations

import pytest

from distrun.agent.protocol import Cause, Code
from distrun.plan import TaskPlan
from distrun.strategies import Role
from distrun.supervisor.cluster_check import ClusterCheck

SETTER = "train.py:6"


def task(index: int, address: str, host: str = "a", *, mine: bool = False) -> TaskPlan:
    return TaskPlan(
        name=f"worker:{index}",
        role=Role.WORKER,
        index=index,
        host=host,
        address=address,
        port_is_provisional=False,
        argv=("true",),
        workdir="/",
        env={},
        log=f"worker-{index}.log",
        owns_tf_config=mine,
    )


class Job:
    """Two tasks, or others."""

    def __init__(self, *tasks: TaskPlan, setter: str = "") -> None:
        self.setter, self.is_certain = setter, bool(setter)
        plans = tasks or (task(0, "localhost:1000"), task(1, "localhost:1001"))
        self.check = ClusterCheck(plans, lambda: (self.setter, self.is_certain))

    def listen(self, index: int, *ports: int) -> Cause | None:
        return self.check.record(f"worker:{index}", list(ports))

    def serve(self, index: int, *addresses: str) -> Cause | None:
        """Have the log of a task say that it has started servers."""
        return self.check.record_served(f"worker:{index}", {*addresses})


@pytest.fixture
def job() -> Job:
    return Job()


def found(cause: Cause | None) -> tuple[str, str, int, tuple[str, ...]] | None:
    if cause is None:
        return None
    assert cause.code is Code.SERVED_ELSEWHERE
    return cause.task, cause.text, cause.port, cause.tasks


def test_the_port_of_another_task_is_a_mismatch(job: Job) -> None:
    cause = job.listen(1, 1000)
    assert found(cause) == ("worker:1", "", 1000, ("worker:0",))
    assert cause is not None
    assert (cause.name, cause.path) == ("localhost:1001", "")


@pytest.mark.parametrize("own_first", [True, False])
def test_further_listeners_are_a_tasks_own_affair(job: Job, own_first: bool) -> None:
    """TensorBoard, a debugger, a tf.data service: also if two tasks share their port."""
    job.setter, job.is_certain = SETTER, False  # if "TF_CONFIG" not in os.environ: ...
    if own_first:
        assert job.listen(0, 1000, 6006) is None
        assert job.listen(1, 1001, 6006) is None
    assert job.listen(0, 6006) is None
    assert job.listen(0, 1000, 6006) is None
    assert job.listen(1, 6006) is None


def test_two_servers_at_one_port_that_nobody_was_given_are_a_mismatch(job: Job) -> None:
    assert job.serve(0, "localhost:12345") is None
    assert job.listen(0, 12345) is None
    assert job.serve(1, "localhost:12345") is None
    assert found(job.listen(1, 12345)) == ("worker:1", "localhost:12345", 12345, ("worker:0",))


def test_without_a_line_in_the_log_the_program_tells_whether_they_are_servers() -> None:
    for setter, expected in (("", None), (SETTER, ("worker:1", "", 12345, ("worker:0",)))):
        job = Job(setter=setter)
        assert job.listen(0, 12345) is None
        assert found(job.listen(1, 12345)) == expected


def test_the_line_may_come_after_the_listener(job: Job) -> None:
    job.listen(0, 12345)
    job.listen(1, 12345)
    expected = ("worker:0", "localhost:12345", 12345, ("worker:1",))
    assert found(job.serve(0, "localhost:12345")) == expected


def test_one_server_at_a_place_of_its_own_is_a_suspect(job: Job) -> None:
    assert job.listen(0, 12345) is None
    assert job.serve(0, "localhost:12345") is None
    assert found(job.check.suspect) == ("worker:0", "localhost:12345", 12345, ())
    job.check.forget("worker:0")
    assert job.check.suspect is None


@pytest.mark.parametrize("machine", ["127.0.0.1", "[::1]", "myself"])
def test_another_name_of_the_same_machine_is_right(job: Job, machine: str) -> None:
    for index, port in enumerate((1000, 1001)):
        assert job.listen(index, port) is None
        assert job.serve(index, f"{machine}:{port}") is None


def on_two_hosts(*ports: int, setter: str = "") -> Job:
    tasks = (task(0, f"a:{ports[0]}"), task(1, f"b:{ports[1]}", "b"))
    return Job(*tasks, setter=setter)


def test_on_hosts_with_the_same_ports_the_log_tells() -> None:
    job = on_two_hosts(2222, 2222)
    assert job.listen(0, 2222) is None
    assert job.listen(1, 2222) is None
    assert found(job.serve(1, "a:2222")) == ("worker:1", "a:2222", 2222, ("worker:0",))


def test_a_port_of_another_host_may_be_chance() -> None:
    job = on_two_hosts(1000, 1001)
    assert job.listen(1, 1000) is None
    assert job.listen(1, 1000, 1001) is None
    sure = on_two_hosts(1000, 1001, setter=SETTER)
    assert found(sure.listen(1, 1000)) == ("worker:1", "", 1000, ("worker:0",))


def test_a_tf_config_of_its_own_may_choose_any_port() -> None:
    tasks = (task(0, "localhost:1000", mine=True), task(1, "localhost:1001", mine=True))
    job = Job(*tasks, setter=SETTER)
    for index, port in enumerate((1001, 7000)):
        assert job.listen(index, port) is None
        assert job.serve(index, f"localhost:{port}") is None
    assert job.check.suspect is None


@pytest.mark.parametrize(("host", "is_mismatch"), [("a", True), ("b", False)])
def test_but_not_one_port_for_two_servers_of_a_host(host: str, is_mismatch: bool) -> None:
    job = Job(task(0, "x:1000", mine=True), task(1, "x:1001", host, mine=True))
    assert job.listen(0, 12345) is None
    assert job.serve(0, "localhost:12345") is None
    assert job.listen(1, 12345) is None
    expected = ("worker:1", "localhost:12345", 12345, ("worker:0",)) if is_mismatch else None
    assert found(job.serve(1, "localhost:12345")) == expected


def test_another_attempt_starts_anew(job: Job) -> None:
    for index in range(2):
        assert job.serve(index, "localhost:12345") is None
        assert job.listen(index, 12345) is None
        job.check.forget("worker:0")


def test_a_further_server_of_tensorflow_is_right(job: Job) -> None:
    assert job.serve(0, "localhost:1000", "localhost:4711") is None
    assert job.listen(0, 4711) is None
    assert job.listen(0, 1000, 4711) is None

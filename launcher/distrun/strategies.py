"""What each `tf.distribute` strategy means to the launcher: one table.

It says which roles a strategy allows, when a job has succeeded, and what must restart after a
task's failure. Nothing else in distrun asks which strategy a job has.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum

from distrun.frozen import Frozen

CUSTOM_ROLE_PATTERN = "[a-z][a-z0-9_]{0,31}"


class Role(str, Enum):
    """A task type: those of TensorFlow, in the order in which tasks are listed.

    A spec's custom roles have their own programs. Each becomes a member when it is first used, and
    is not among those that an iteration yields.
    """

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"

    @property
    def is_custom(self) -> bool:
        return self.name == self.value

    @classmethod
    def _missing_(cls, value: object) -> Role | None:
        if not isinstance(value, str) or not re.fullmatch(CUSTOM_ROLE_PATTERN, value):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        cls._value2member_map_[value] = member  # equal roles are the same object
        return member


class Workers(str, Enum):
    """What the workers of parameter servers do: run what the chief sends, or train themselves."""

    COORDINATED = "coordinated"
    INDEPENDENT = "independent"


class Success(str, Enum):
    """Which tasks must exit 0 for the job to succeed. `all`: all but servers, which never exit."""

    CHIEF_AND_WORKERS = "chief and workers"
    CHIEF = "chief"
    WORKER_0 = "worker0"
    ALL = "all"

    def waits_for(self, role: Role, index: int) -> bool:
        """Whether that task's exit 0 is needed."""
        if self is Success.WORKER_0:
            return role is Role.WORKER and index == 0
        if self is Success.ALL:
            return not role.is_custom
        return role is Role.CHIEF or (self is Success.CHIEF_AND_WORKERS and role is Role.WORKER)


class Scope(str, Enum):
    """What restarts after a task's failure: the whole group together, or the task alone."""

    GROUP = "group"
    TASK = "task"


class RoleRule(Frozen, kw_only=True):
    """The number of tasks that a role may have, and the effect of a failure of one of them."""

    least: int
    most: int | None
    restarts: Scope
    essential: bool = True
    """Whether its failure fails the job. A role that is not essential is not part of the group, and
    its restarts are counted separately."""
    gpus: bool = True
    serves: bool = False
    """Whether the task is a server that never exits by itself: an early exit 0 is a failure."""
    finishes: bool = False
    """Whether a task that has exited 0 never runs again, not even with its group."""

    @property
    def count_text(self) -> str:
        if self.least == self.most:
            return f"exactly {self.least}"
        if self.most is None:
            return f"{self.least} or more"
        return f"{self.least} {'or' if self.most - self.least == 1 else 'to'} {self.most}"


class Strategy(Frozen, kw_only=True):
    name: str
    roles: dict[Role, RoleRule]
    success: Success
    classes: tuple[str, ...]
    """The classes of tf.distribute that a program may create; none: the default strategy."""
    tf_config: bool = True
    """Whether tasks get TF_CONFIG; a strategy that runs in one process has no cluster."""
    env: tuple[tuple[str, str], ...] = ()
    independent: Strategy | None = None
    """The row if the workers train by themselves; None if the strategy has no such workers."""

    def with_workers(self, workers: Workers | None) -> Strategy:
        return (self.independent or self) if workers is Workers.INDEPENDENT else self

    @property
    def is_synchronous(self) -> bool:
        """Whether the workers take each step together: none can go on without the others."""
        return self.roles[Role.WORKER].restarts is Scope.GROUP

    def success_of(self, roles: Collection[Role]) -> Success:
        """Which tasks decide the success of a job with these roles."""
        has_chief = self.success is not Success.CHIEF or Role.CHIEF in roles
        return self.success if has_chief else Success.WORKER_0

    def waits_for(self, success: Success, role: Role, index: int) -> bool:
        is_server = success is Success.ALL and self.rule(role).serves
        return success.waits_for(role, index) and not is_server

    def rule(self, role: Role) -> RoleRule:
        """The rule of a role; every strategy takes custom roles."""
        return _CUSTOM if role.is_custom else self.roles[role]


USUAL = "multi_worker_mirrored"
"""The strategy that examples name first."""

_EVALUATOR = RoleRule(least=0, most=1, restarts=Scope.TASK, essential=False, gpus=False)
_CUSTOM = RoleRule(least=0, most=None, restarts=Scope.TASK, gpus=False, serves=True)


def _one_process(name: str, *classes: str) -> Strategy:
    return Strategy(
        name=name,
        classes=classes,
        roles={Role.WORKER: RoleRule(least=1, most=1, restarts=Scope.GROUP)},
        success=Success.CHIEF_AND_WORKERS,
        tf_config=False,
    )


def _parameter_server(
    chief: RoleRule, worker: RoleRule, independent: Strategy | None = None
) -> Strategy:
    ps = RoleRule(least=1, most=None, restarts=Scope.GROUP, gpus=False, serves=True)
    return Strategy(
        name="parameter_server",
        classes=("ParameterServerStrategy", "ParameterServerStrategyV2"),
        roles={Role.CHIEF: chief, Role.WORKER: worker, Role.PS: ps, Role.EVALUATOR: _EVALUATOR},
        success=Success.CHIEF,
        env=(("GRPC_FAIL_FAST", "use_caller"),),
        independent=independent,
    )


STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        _one_process("default"),
        _one_process("one_device", "OneDeviceStrategy"),
        _one_process("mirrored", "MirroredStrategy"),
        _one_process("central_storage", "CentralStorageStrategy"),
        _one_process("tpu", "TPUStrategy", "TPUStrategyV2"),
        Strategy(
            name="multi_worker_mirrored",
            classes=("MultiWorkerMirroredStrategy",),
            roles={
                Role.CHIEF: RoleRule(least=0, most=1, restarts=Scope.GROUP),
                Role.WORKER: RoleRule(least=1, most=None, restarts=Scope.GROUP),
                Role.EVALUATOR: _EVALUATOR,
            },
            success=Success.CHIEF_AND_WORKERS,
        ),
        _parameter_server(
            RoleRule(least=1, most=1, restarts=Scope.GROUP),
            RoleRule(least=1, most=None, restarts=Scope.TASK, serves=True),
            # TensorFlow 1's scripts and Estimators
            independent=_parameter_server(
                RoleRule(least=0, most=1, restarts=Scope.GROUP, finishes=True),
                RoleRule(least=1, most=None, restarts=Scope.TASK, finishes=True),
            ),
        ),
    )
}

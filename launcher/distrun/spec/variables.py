"""Checks the variables of a spec that have a meaning for distrun, and placeholders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.spec import placeholders
from distrun.spec.model import TORCHRUN
from distrun.spec.problems import Mark, quoted
from distrun.spec.schema import Located, Section
from distrun.spec.tensorflow_versions import LEGACY_KERAS, is_keras_2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from distrun.spec.context import LoadContext
    from distrun.spec.model import RoleSpec
    from distrun.spec.problems import Problems
    from distrun.strategies import Role, Strategy


def check_variables(document: Section, context: LoadContext, problems: Problems) -> None:
    """Add a problem for each TF_CONFIG that is not meant, and for what contradicts `keras`."""
    program = document.get("program")
    if not isinstance(program, Section):
        program = Section(document.mark)
    keras = program.get("keras")
    for where, env in _environments(document, program, context):
        config, legacy = env.get("TF_CONFIG"), env.get(LEGACY_KERAS)
        # If the value of tf_config is wrong, that is a problem already.
        if config is not None and not program.has("tf_config"):
            problems.add(
                config.mark,
                f"{where} sets TF_CONFIG, which distrun sets for each task: the tasks would not "
                "find each other",
                "remove it, or write 'tf_config: mine' under program if it is meant",
            )
        if program.get("env_style") == "torchrun":
            for name in TORCHRUN:
                if name in env:
                    problems.add(
                        env[name].mark,
                        f"{where} sets {name}, which env_style: torchrun sets for each task",
                        "remove one of them",
                    )
        if keras and legacy is not None and is_keras_2(legacy.value) != (keras == 2):
            problems.add(
                legacy.mark,
                f"{where} sets {LEGACY_KERAS} to {quoted(legacy.value)}, but program.keras is "
                f"{keras}",
                "remove one of them",
            )


def ports_in_texts(
    document: Section, roles: Iterable[RoleSpec], context: LoadContext
) -> frozenset[Role]:
    """The roles whose tasks are told their port by a placeholder, or listen on it by themselves."""
    program = document.get("program", Section(document.mark))
    every = program.get("env_style") == "torchrun" or program.get("binds_port")
    texts = list(_texts(document, context))
    return frozenset(
        role.role
        for role in roles
        if every
        or any(
            placeholders.PORT in placeholders.names(at.value)
            for at, owners in texts
            if owners.has(role.role)
        )
    )


def check_placeholders(
    document: Section,
    roles: Sequence[RoleSpec],
    strategy: Strategy,
    context: LoadContext,
    problems: Problems,
) -> None:
    """Add a problem for each `{address:ROLE:INDEX}` of a task that is not there."""
    counts = {role.role.value: role.count for role in roles if role.has_ports(strategy)}
    known = ", ".join(f"{name}:0 to {name}:{n - 1}" if n > 1 else f"{name}:0"
                      for name, n in counts.items())  # fmt: skip
    for at, _ in _texts(document, context):
        for name in placeholders.names(at.value):
            if not name.startswith(placeholders.ADDRESS):
                continue
            task = placeholders.split_task(name)
            if task is None or task[1] >= counts.get(task[0], 0):
                problems.add(
                    at.mark,
                    f"{quoted('{' + name + '}')} names no task that has an address",
                    f"these have one: {known or 'none'}",
                )


class _Owners(Frozen):
    """The roles whose tasks get a text: one role, or all those that run the spec's program."""

    role: str | None = None
    with_custom: bool = False

    def has(self, role: Role) -> bool:
        if self.role is not None:
            return role.value == self.role
        return self.with_custom or not role.is_custom


def _texts(document: Section, context: LoadContext) -> Iterator[tuple[Located[str], _Owners]]:
    """Yield every argument and variable in which placeholders are replaced."""
    program = document.get("program", Section(document.mark))
    yield from ((at, _Owners()) for at in _arguments(program))
    yield from ((Located(Mark("after --"), arg), _Owners()) for arg in context.extra_args)
    cluster = document.get("cluster", Section(document.mark))
    for name, section in cluster.values.items():
        if isinstance(section, Section):
            yield from ((at, _Owners(name)) for at in _arguments(section))
    for path, env in _environments(document, program, context):
        if path == "program.pass_env":
            continue
        role = path.split(".")[1] if path.startswith("cluster.") else None
        yield from ((at, _Owners(role, with_custom=True)) for at in env.values())


def _arguments(section: Section) -> Iterator[Located[str]]:
    yield from section.get("command", ())[1:]  # the first word is a path
    yield from section.get("args", ())


def _environments(
    document: Section, program: Section, context: LoadContext
) -> Iterator[tuple[str, Mapping[str, Located[str]]]]:
    """Yield every mapping of variables, and its key's path."""
    yield "program.env", program.get("env", {})
    passed = (at for at in program.get("pass_env", ()) if at.value in context.environ)
    yield (
        "program.pass_env",
        {at.value: Located(at.mark, context.environ[at.value]) for at in passed},
    )
    cluster = document.get("cluster")
    for name, role in cluster.values.items() if isinstance(cluster, Section) else ():
        if isinstance(role, Section):
            yield f"cluster.{name}.env", role.get("env", {})
    hosts = document.get("hosts")
    for index, host in enumerate(hosts if isinstance(hosts, list | tuple) else ()):
        if isinstance(host.value, Section):
            yield f"hosts[{index}].env", host.value.get("env", {})

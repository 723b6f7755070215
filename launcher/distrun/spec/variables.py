"""Checks the variables of a spec that have a meaning for distrun, and placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distrun.spec import placeholders
from distrun.spec.context import LoadContext
from distrun.spec.model import TORCHRUN, EnvStyle, RoleSpec
from distrun.spec.packages import LEGACY_KERAS, is_keras_2
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.restart_spec import NO_RESTARTS
from distrun.spec.schema import Section
from distrun.strategies import Role, Strategy


def check_variables(document: Section, context: LoadContext, problems: Problems) -> None:
    """Add a problem for each TF_CONFIG that is not meant, and for what contradicts `keras`."""
    program: Section = document.get("program", Section())
    keras = program.get("keras")
    for holder, name, where, value in _variables(document, context):
        # If the value of tf_config is wrong, that is a problem already.
        if name == "TF_CONFIG" and not program.has("tf_config"):
            problems.add(
                where,
                f"{holder} sets TF_CONFIG, which distrun sets for each task: the tasks would not "
                "find each other",
                "remove it, or set program.tf_config to `mine` if it is meant",
            )
        if name in TORCHRUN and program.get("env_style") is EnvStyle.TORCHRUN:
            message = f"{holder} sets {name}, which env_style: torchrun sets for each task"
            problems.add(where, message, "remove one of them")
        if name == LEGACY_KERAS and keras and is_keras_2(value) != (keras == 2):
            message = f"{holder} sets {name} to {quoted(value)}, but program.keras is {keras}"
            problems.add(where, message, "remove one of them")


def ports_in_texts(document: Section, context: LoadContext) -> Callable[[Role], bool]:
    """Which roles' tasks get their port by a placeholder, or listen on it by themselves."""
    program: Section = document.get("program", Section())
    every = program.get("env_style") is EnvStyle.TORCHRUN or program.get("binds_port")
    informed = [
        is_given
        for _, text, is_given in _texts(document, context)
        if placeholders.PORT in placeholders.names(text)
    ]
    return lambda role: bool(every) or any(is_given(role) for is_given in informed)


def check_placeholders(
    document: Section,
    roles: Sequence[RoleSpec],
    strategy: Strategy,
    context: LoadContext,
    problems: Problems,
) -> None:
    """Add a problem for each `{address:ROLE:INDEX}` of a task that is not there, or not always."""
    counts = {role.role.value: role.count for role in roles if role.has_ports(strategy)}
    fewest = document.get("restart", NO_RESTARTS).min_workers
    known = ", ".join(f"{name}:0 to {name}:{n - 1}" if n > 1 else f"{name}:0"
                      for name, n in counts.items())  # fmt: skip
    for where, text, _ in _texts(document, context):
        for name in placeholders.names(text):
            if not name.startswith(placeholders.ADDRESS):
                continue
            task = placeholders.split_task(name)
            if task is None or task[1] >= counts.get(task[0], 0):
                message = f"{quoted('{' + name + '}')} names no task that has an address"
                problems.add(where, message, f"these have one: {known or 'none'}")
            elif fewest is not None and task[0] == Role.WORKER.value and task[1] >= fewest:
                message = f"{quoted('{' + name + '}')} names a task that may be left out: "
                message += f"restart.min_workers is {fewest}"
                problems.add(where, message, "read DISTRUN_ADDRESSES in the program instead")


def _texts(
    document: Section, context: LoadContext
) -> Iterator[tuple[Mark | str, str, Callable[[Role], bool]]]:
    """Yield every argument and variable with placeholders, its place, and which roles get it."""
    sections = {"program": document.get("program", Section())}
    for name, role in document.get("cluster", Section()).items():
        sections[f"cluster.{name}"] = role
    for path, section in sections.items():
        for key in ("command", "args"):
            for index, text in enumerate(section.get(key, ())):
                if key == "args" or index:  # the first word is a path
                    yield f"{path}.{key}[{index}]", text, _is_role(path)
    yield from ((Mark("after --"), arg, _is_role("program")) for arg in context.extra_args)
    for holder, _, where, value in _variables(document, context):
        if holder != "program.pass_env":
            is_of_role = holder.startswith("cluster.")
            yield where, value, _is_role(holder) if is_of_role else lambda _: True


def _is_role(path: str) -> Callable[[Role], bool]:
    """The roles whose tasks get a text at a path below `program` or `cluster`."""
    name = path.split(".")[1:]
    return lambda role: role.value == name[0] if name else not role.is_custom


def _variables(document: Section, context: LoadContext) -> Iterator[tuple[str, str, str, str]]:
    """Yield every variable: the path of the key that has it, its name, its place, and its value."""
    program: Section = document.get("program", Section())
    environments = {"program.env": program.get("env", {})}
    for name, role in document.get("cluster", Section()).items():
        environments[f"cluster.{name}.env"] = role.get("env", {})
    hosts = document.get("hosts")
    for index, host in enumerate(hosts if isinstance(hosts, tuple) else ()):
        environments[f"hosts[{index}].env"] = host.get("env", {})
    for path, env in environments.items():
        yield from ((path, name, f"{path}.{name}", value) for name, value in env.items())
    path = "program.pass_env"
    for index, name in enumerate(program.get("pass_env", ())):
        if name in context.environ:
            yield path, name, f"{path}[{index}]", context.environ[name]

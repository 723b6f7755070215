"""Checks the environment variables of a spec that have a meaning for distrun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.keras_version import LEGACY_KERAS, is_keras_2
from distrun.spec.problems import quoted
from distrun.spec.schema import Located, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distrun.spec.context import LoadContext
    from distrun.spec.problems import Problems


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
        if keras and legacy is not None and is_keras_2(legacy.value) != (keras == 2):
            problems.add(
                legacy.mark,
                f"{where} sets {LEGACY_KERAS} to {quoted(legacy.value)}, but program.keras is "
                f"{keras}",
                "remove one of them",
            )


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

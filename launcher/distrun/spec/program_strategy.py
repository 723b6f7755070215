"""What the text of a program shows of its strategy and its cluster. `run` chooses by it."""

from __future__ import annotations

import ast
import posixpath
import re
from typing import TYPE_CHECKING

from distrun.spec.tensorflow_versions import INDEPENDENT_NAMES
from distrun.strategies import STRATEGIES

if TYPE_CHECKING:
    from distrun.lint.module import Use
    from distrun.lint.program import Program

STRATEGIES_BY_CLASS = {each: row.name for row in STRATEGIES.values() for each in row.classes}
OF_STRATEGY = re.compile(
    r"tensorflow\.(?:compat\.v[12]\.)?distribute\.(?:experimental\.)?"
    rf"({'|'.join(STRATEGIES_BY_CLASS)})(\(\))?"
)
_SETS = re.compile(r"os\.(environ(\[\]|\.(pop|update|__setitem__)\(\))|(put|unset)env\(\))")


def choose_strategy(program: Program, *, is_group: bool) -> tuple[str, Use, str] | None:
    """The strategy that fits a program, where that is seen, and why: `creates X`."""
    own = None if is_group else makes_cluster(program)
    if own is not None:
        return "default", own, "makes a cluster"
    found = created_strategy(program)
    return found and (STRATEGIES_BY_CLASS[found[1]], found[0], f"creates {found[1]}")


def created_strategy(program: Program) -> tuple[Use, str] | None:
    """Where the program creates its strategy, and its class; None if that is not plain."""
    found = [(use, OF_STRATEGY.match(use.name)) for use in program.uses]
    kinds = {STRATEGIES_BY_CLASS[match[1]] for _, match in found if match}
    running = set(program.running)
    created = [(use, match[1]) for use, match in found
               if match and match[2] and match[0] == use.name and use in running]  # fmt: skip
    given = {use.module.name_of(each) for use in program.uses for each in use.arguments.values()}
    looks_up = given & {"tensorflow.distribute", "tensorflow.distribute.experimental"}  # getattr()
    return created[0] if created and len(kinds) == 1 and not looks_up else None


def makes_cluster(program: Program) -> Use | None:
    """Where a program makes a cluster of its own, with all servers in its process."""
    by_task = ("TF_CONFIG", "TFConfigClusterResolver", "task_type", "job_name")
    uses = program.uses if program.words.isdisjoint(by_task) else ()
    made = (use for use in uses if use.name.endswith(".SimpleClusterResolver()"))
    return next((use for use in made if "task_type" not in use.arguments), None)


def independent_use(program: Program) -> Use | None:
    """Return the first use of what only workers need that train by themselves; None: there is none.

    A program whose chief directs workers has none.
    """
    uses = () if "ClusterCoordinator" in program.words else program.uses
    directed = r"tensorflow\.distribute\.(experimental\.)?ParameterServerStrategy(V2)?\b"
    if any(re.match(directed, use.name) for use in uses):
        return None
    return next((use for use in uses if INDEPENDENT_NAMES.fullmatch(use.name)), None)


def sets_tf_config(use: Use) -> bool:
    """Whether a use sets or removes TF_CONFIG, and not to what is made of TF_CONFIG."""
    if use.name == "os.environ.clear()":
        return "update" not in use.module.words
    is_set = _SETS.fullmatch(use.name) is not None
    return is_set and ast.unparse(use.node).count("TF_CONFIG") == 1


def tf_config_line(program: Program) -> tuple[str, bool]:
    """Where the program sets TF_CONFIG, as `train.py:6` (or ''), and whether every run does so."""
    sets = next(filter(sets_tf_config, program.certain), None)
    items = (use for use in program.uses if use.name.endswith("[]"))
    use = sets or next((use for use in items if "TF_CONFIG" in ast.unparse(use.node)), None)
    place = "" if use is None else f"{posixpath.basename(use.mark.file)}:{use.mark.line}"
    return place, sets is not None

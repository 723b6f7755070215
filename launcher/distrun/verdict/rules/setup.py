"""Mistakes in how a cluster is set up, and in what is installed."""

from __future__ import annotations

from distrun.verdict.model import Kind
from distrun.verdict.rules.rule import Rule

CLUSTER_ADVICE = (
    "every task must see the same cluster and its own task entry: leave TF_CONFIG to distrun, "
    "do not set it in the script, and compare the tasks in `distrun plan SPEC`"
)
_KERAS_ADVICE = (
    "set `env: {TF_USE_LEGACY_KERAS: 1}` under `program` and install tf_keras: Keras 3 has no fit "
    "for several workers and loses updates with parameter servers"
)

RULES = (
    Rule(
        kind=Kind.COLLECTIVES_LATE,
        cause="made its strategy after TensorFlow was in use",
        advice=(
            "make MultiWorkerMirroredStrategy at the top of the script, before any tensor, "
            "variable, dataset or model, and before anything that lists devices"
        ),
        any_of=(
            "Collective ops must be configured at program startup",
            "ensure that CollectiveOps are configured at program startup",
        ),
    ),
    Rule(
        kind=Kind.KERAS3,
        cause="used Keras 3 with a strategy that needs Keras 2",
        advice=_KERAS_ADVICE,
        any_of=(
            "with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>)",
            "'PerReplica' object has no attribute",
            "'ShardedVariable' object has no attribute 'handle'",
            "'ShardedVariable' has no attribute 'handle'",
            "`Model.fit` is not supported with `ParameterServerStrategy`",
        ),
    ),
    Rule(
        kind=Kind.KERAS3,
        cause="used Keras 3 with a strategy that needs Keras 2",
        advice=_KERAS_ADVICE,
        any_of=("you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset",),
        all_of=("/keras/src/",),  # that of tf_keras is another
    ),
    Rule(
        kind=Kind.CLUSTER_MISMATCH,
        cause="has a TF_CONFIG that does not fit that of the others",
        advice=CLUSTER_ADVICE,
        any_of=(
            "Unexpected task registered with task_name",
            "Unexpected task request with task_name",
            "with a different incarnation. It has likely restarted",
            "When `cluster_spec` is given, you must also specify `task_type` and `task_id`",
            "was not defined in job",
            "was not defined in cluster",
        ),
    ),
    Rule(
        kind=Kind.CLUSTER_MISMATCH,
        cause="has a TF_CONFIG that TensorFlow does not take",
        advice=CLUSTER_ADVICE,
        any_of=("multi_worker_util.py", "tfconfig_cluster_resolver.py"),
        all_of=("Traceback",),
    ),
    Rule(
        kind=Kind.SCRIPT_NOT_FOUND,
        cause="has no program to run",
        advice="check `program.module`: it must be importable where the tasks run",
        any_of=("Error while finding module specification for ",),  # python -m package.module
    ),
    Rule(
        kind=Kind.IMPORT_ERROR,
        cause="could not import a module",
        advice=(
            "install it for the Python that runs the tasks (`distrun plan` shows which), or set "
            "`program.python`; modules of your own must lie in the script's folder or PYTHONPATH"
        ),
        any_of=("ModuleNotFoundError: ", "ImportError: "),
    ),
    Rule(
        kind=Kind.SCRIPT_NOT_FOUND,
        cause="has no program to run",
        advice="check `program` in the spec: a script's path is relative to the spec's file",
        any_of=("can't open file '", "can't find '__main__' module", ": not found\n"),
        none_of=("Traceback (most recent call last)",),
    ),
    Rule(
        kind=Kind.SCRIPT_NOT_FOUND,
        cause="has no program to run",
        advice="check `program.module`: it must be importable where the tasks run",
        any_of=(": No module named ",),
        none_of=("Traceback (most recent call last)",),
    ),
    Rule(
        kind=Kind.ARGUMENTS,
        cause="did not take its arguments",
        advice="check `program.args`, the roles' own `args`, and what stands behind `--`",
        any_of=(
            ": error: unrecognized arguments",
            ": error: argument ",
            ": error: the following arguments are required",
            "(see --help)",
            "--help' for help",  # click
            "Flags parsing error",  # absl
        ),
    ),
)

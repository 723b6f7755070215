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
_ARGUMENTS_ADVICE = "check `program.args`, the roles' own `args`, and what stands behind `--`"

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
        frames=("/keras/src/",),  # that of tf_keras is another
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
        frames=(
            "/distribute/multi_worker_util.py",
            "/cluster_resolver/tfconfig_cluster_resolver.py",
        ),
    ),
    Rule(
        kind=Kind.SCRIPT_NOT_FOUND,
        cause="has no program to run",
        advice="check `program.module`: it must be importable where the tasks run",
        forms=(
            r"\S+: Error while finding module specification for .*",  # python -m package.module
            r"\S*python[\d.]*t?: No module named .*",
            r"\S+: No module named \S+$",
        ),
    ),
    Rule(
        kind=Kind.IMPORT_ERROR,
        cause="could not import a module",
        advice=(
            "install it for the Python that runs the tasks (`distrun plan` shows which), or set "
            "`program.python`; modules of your own must lie in the script's folder or PYTHONPATH"
        ),
        types=("ModuleNotFoundError", "ImportError"),
    ),
    Rule(
        kind=Kind.IMPORT_ERROR,
        cause="could not load a library",
        advice=(
            "install the library where the tasks run, or name its folder in LD_LIBRARY_PATH under "
            "`env` of `program`"
        ),
        any_of=(": error while loading shared libraries: ",),
        forms=(r"\S+: error while loading shared libraries: .*",),
    ),
    Rule(
        kind=Kind.PERMISSION,
        cause="was refused permission",
        advice="check the owner and mode of what the line names, for the user who runs the tasks",
        forms=(r".*: can't open file '.*': \[Errno (?:13|1)\] .*",),
    ),
    Rule(
        kind=Kind.SCRIPT_NOT_FOUND,
        cause="has no program to run",
        advice="check `program` in the spec: a script's path is relative to the spec's file",
        forms=(
            r"\S+: can't open file '.*",
            r"\S+: can't find '__main__' module.*",
        ),
    ),
    Rule(
        kind=Kind.ARGUMENTS,
        cause="did not take its arguments",
        advice=_ARGUMENTS_ADVICE,
        forms=(
            r".*: error: unrecognized arguments.*",
            r".*: error: argument .*",
            r".*: error: the following arguments are required.*",
            r".*\(see --help\)$",
            r".*--help' for help\.?$",  # click
            r".*Flags parsing error.*",  # absl
        ),
    ),
    Rule(
        kind=Kind.ARGUMENTS,
        cause="did not take its arguments",
        advice=_ARGUMENTS_ADVICE,
        forms=(r"[\w./-]+(?: [\w./-]+)*: error: .*",),  # argparse, whatever it says
        all_of=("usage: ",),
        codes=(2,),
    ),
)

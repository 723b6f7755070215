"""What versions of TensorFlow and Keras have and lack, and what their names are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from distrun.frozen import Frozen
from distrun.tables import read_rows

SETS_KERAS_2 = re.compile(rb"environ.*TF_USE_LEGACY_KERAS['\"]\]?\s*[=,]\s*['\"](?:1|[Tt]rue)['\"]")
"""A line of a program."""


class Removed(Frozen):
    """What Keras 3 refuses, and what to write instead."""

    instead: str
    keywords: tuple[str, ...] = ()
    """Refused only as a call with one of these arguments."""
    is_in_keras_2: bool = True
    """Whether `tf_keras` has it."""


def _removed() -> Iterator[tuple[str, Removed]]:
    for line in read_rows(__spec__, "removed_by_keras_3.txt"):
        names, _, instead = line.partition(" | ")
        name, *keywords = names.removeprefix("-").split()
        yield name, Removed(instead, tuple(keywords), is_in_keras_2=line[0] != "-")


KERAS_2 = dict(_removed())
"""What fails with Keras 3 by its name in `keras`; the file says how they are written."""
KERAS_2_WITHOUT_TENSORFLOW = {"losses.Reduction": Removed("write the text, e.g. reduction='none'")}
"""What only `tf.keras` still has: it fails where it is imported from `keras`."""


def removed_by_keras_3(name: str, *, is_alone: bool) -> tuple[str, Removed | None]:
    """Return the entry of the table for a dotted name, or for what the name begins with."""
    table = KERAS_2 | KERAS_2_WITHOUT_TENSORFLOW if is_alone else KERAS_2
    for key in (*accumulate(name.removesuffix("()").split("."), "{}.{}".format), name):
        general = re.sub(r"^(metrics|optimizers|optimizers\.legacy)\.[A-Z]\w*", r"\1.*", key)
        if key in table or general in table:
            return key, table.get(key) or table[general]
    return "", None


def shown_key(key: str, prefix: str) -> str:
    """Return an entry's name for messages: `tf.keras.X` (`prefix`: `tf.`), or `X() of a model`."""
    owner, is_method, method = key.partition("().")
    if is_method:
        return f"{method}() of {'a model' if owner == 'Model' else owner}"
    return f"{prefix}keras.{key.removesuffix('()')}"


FILE_ENDINGS: dict[str, tuple[str, ...]] = {
    "Model().save": (".keras", ".h5"),
    "Model().save_weights": (".weights.h5",),
    "Model().load_weights": (".weights.h5", ".keras", ".h5"),
    "models.load_model": (".keras", ".h5", ".hdf5"),
    "models.save_model": (".keras", ".h5"),
    "callbacks.ModelCheckpoint": (".keras", ".h5"),
}
"""The ends of the file names that Keras 3 takes; Keras 2 takes others, too."""
STARTING_CALLS = re.compile(
    r"(tensorflow\.(Variable|abs|add|argmax|cast|concat|constant|convert_to_tensor|device|exp|eye"
    r"|fill|gather|identity|linspace|matmul|meshgrid|one_hot|ones|ones_like|pad|print|range|rank"
    r"|reduce_\w+|reshape|reverse|shape|size|slice|split|square|stack|tile|timestamp|transpose"
    r"|where|zeros|zeros_like|data\.(Dataset\.\w+|\w+Dataset)|(experimental\.)?config\."
    r"(experimental\.)?list_logical_devices|distribute\.(Mirrored|OneDevice)Strategy"
    r"|io\.(decode_\w+|read_file)|keras\.(metrics|optimizers)\.[A-Z]\w*"
    r"|random\.(normal|shuffle|stateless_\w+|truncated_normal|uniform|Generator\.\w+)"
    r"|(bitwise|image|linalg|math|nn|signal|strings)\.[a-z]\w*|summary\.create_file_writer)"
    r"|(tensorflow\.)?keras\.(layers\.(Dense|Conv[123]D|LSTM|GRU|Embedding|BatchNormalization)\(\)"
    r"|applications\.(\w+\.)?[A-Z]\w*))"
    r"\(\)"
)
"""Calls that start TensorFlow's runtime, as measured in 2.21: then no strategy with collectives
can be made. A layer that is called creates its weights."""
INDEPENDENT_NAMES = re.compile(
    r"(tensorflow(\.compat\.v1)?\.(train\.(MonitoredTrainingSession|Supervisor|"
    r"SyncReplicasOptimizer|(Chief|Worker)SessionCreator|replica_device_setter)|"
    r"estimator\.train_and_evaluate)"
    r"|tensorflow\.compat\.v1\.distribute\.experimental\.ParameterServerStrategy"
    r"|tensorflow_estimator\.(python\.)?estimator\.train_and_evaluate)(\(\))?"
)
"""What only workers use that train by themselves: between-graph replication, Estimators."""
OTHER_RESOLVERS = re.compile(
    r"tensorflow\.distribute\.cluster_resolver\.((Slurm|Kubernetes|GCE|SageMaker|Simple)ClusterResolver)\(\)"
)
"""What does not read TF_CONFIG."""

"""Calls that start TensorFlow's runtime, after which collectives cannot be configured."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

_TOP_NAMES = """
Variable abs add add_n argmax argmin argsort broadcast_to cast clip_by_norm clip_by_value complex
concat constant convert_to_tensor cos device divide einsum equal exp expand_dims eye fill floor
gather gather_nd greater identity less linspace map_fn matmul maximum meshgrid minimum multiply
negative no_op norm not_equal one_hot ones ones_like pad pow print range rank reduce_all
reduce_any reduce_max reduce_mean reduce_min reduce_prod reduce_sum repeat reshape reverse round
shape sigmoid sign sin size slice sort split sqrt square squeeze stack stop_gradient subtract tanh
tensordot tile timestamp transpose truediv unique unstack where zeros zeros_like
"""
_TOP = frozenset(_TOP_NAMES.split())
_MATCHING = (
    "bitwise.[a-z]*",
    "data.Dataset.*",
    "data.FixedLengthRecordDataset",
    "data.TFRecordDataset",
    "data.TextLineDataset",
    "config.list_logical_devices",
    "config.experimental.list_logical_devices",
    "distribute.MirroredStrategy",
    "distribute.OneDeviceStrategy",
    "image.[a-z]*",
    "io.decode_*",
    "io.read_file",
    "keras.metrics.[A-Z]*",
    "keras.optimizers.[A-Z]*",
    "linalg.[a-z]*",
    "lookup.StaticHashTable",
    "math.[a-z]*",
    "nn.[a-z]*",
    "random.Generator.*",
    "random.normal",
    "random.shuffle",
    "random.stateless_*",
    "random.truncated_normal",
    "random.uniform",
    "signal.[a-z]*",
    "strings.[a-z]*",
    "summary.create_file_writer",
)
_LAYER = re.compile(
    r"(tensorflow\.)?keras\.layers\.(Dense|Conv[123]D|LSTM|GRU|Embedding|BatchNormalization)\(\)"
)
"""A layer that is called creates its weights."""


def is_operation(name: str) -> bool:
    """Whether a call of this dotted name initializes the runtime, as measured in TensorFlow 2.21.

    A strategy with collectives that is made afterwards fails: "Collective ops must be configured
    at program startup".
    """
    if _LAYER.fullmatch(name):
        return True
    top, _, rest = name.partition(".")
    if top != "tensorflow" or "()" in rest:
        return False
    return rest in _TOP or any(fnmatchcase(rest, pattern) for pattern in _MATCHING)

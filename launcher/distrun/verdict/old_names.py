"""Names of TensorFlow 1, and of Keras 2 in `tf_keras`, that TensorFlow 2 and Keras 3 lack."""

from __future__ import annotations

import re

_MISSING = (
    re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'"),
    re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'"),
    re.compile(r"No module named '(?P<module>[\w.]+)\.(?P<name>\w+)'"),
)
_VERSION = re.compile(r"\.(?:_api|compat)\.v\d\b")
_KERAS = re.compile(r"^(?:keras|tensorflow)\.(?:.*\.)?_tf_keras\.keras\b|^keras\b")
"""The module that `tf.keras` is, in several versions."""


def missing_name(line: str) -> str:
    """Return the dotted name that an error says a module lacks; empty if it says none."""
    match = next(filter(None, (pattern.search(line) for pattern in _MISSING)), None)
    if match is None:
        return ""
    module = _KERAS.sub("tensorflow.keras", _VERSION.sub("", match["module"]))
    return f"{module}.{match['name']}"


# The loader has it in memory if the package has been replaced since the job began.
_FILE = f"{__file__.rpartition('/')[0]}/tensorflow_1.txt"
_TABLE = __spec__.loader.get_data(_FILE).decode()  # type: ignore[union-attr]
_ROWS = [line.split() for line in _TABLE.splitlines() if not line.startswith("#")]
IN_COMPAT_V1 = frozenset(
    f"tensorflow.{name}" if module == "-" else f"tensorflow.{module}.{name}"
    for module, *names in _ROWS
    for name in names
)
TENSORFLOW_1 = IN_COMPAT_V1 | {
    f"tensorflow.{name}" for name in ("contrib", "estimator", "examples")
}
"""Names that TensorFlow 2 lacks. What is not in tf.compat.v1 were modules of their own."""
SUCCESSORS = {
    "experimental_run_v2": "strategy.run",
    "experimental_make_numpy_dataset": "tf.data.Dataset.from_tensor_slices",
    "experimental_distribute_datasets_from_function": "distribute_datasets_from_function",
    "CollectiveCommunication": "tf.distribute.experimental.CommunicationImplementation",
    "CollectiveHints": "tf.distribute.experimental.CommunicationOptions",
    "experimental_list_devices": "tf.config.list_logical_devices",
    "np_utils": "keras.utils, as in keras.utils.to_categorical",
    "export_saved_model": "tf.saved_model.save",
    "load_from_saved_model": "tf.saved_model.load",
    "generic_utils": "keras.utils",
    "CuDNNLSTM": "keras.layers.LSTM, which uses cuDNN where it can",
    "CuDNNGRU": "keras.layers.GRU, which uses cuDNN where it can",
    "multi_gpu_model": "tf.distribute.MirroredStrategy",
    "ImageDataGenerator": "tensorflow.keras.preprocessing.image, which still has it",
}
"""Names that TensorFlow 2 once had, and what stands in their place."""
_LAYER_MODULES = (
    "advanced_activations|convolutional|core|embeddings|merge|noise|normalization|pooling|recurrent"
    "|wrappers"
)
OLD_MODULES = (
    r"No module named '[\w.]*\bkeras\.(?:wrappers\.scikit_learn|engine|utils\.(?:np|generic)_utils"
    rf"|layers\.(?:{_LAYER_MODULES}))\b"
)
SUCCESSORS_IN_KERAS = {
    "predict_classes": "np.argmax(model.predict(x), axis=-1)",
    "predict_proba": "model.predict",
    "get_updates": "that of tf.keras.optimizers.legacy, which needs `program.keras: 2`",
    "get_weights": "[each.numpy() for each in optimizer.variables]",
    "set_weights": "assign() of each of optimizer.variables",
    "experimental": "tf.keras.mixed_precision.Policy and set_global_policy",
    "engine": "keras.layers and keras.models",
    "scikit_learn": "the package scikeras (scikeras.wrappers)",
    **dict.fromkeys(_LAYER_MODULES.split("|"), "keras.layers, which has all layers"),
}
"""What Keras once had: methods of models and optimizers, and modules."""
_LOSSES = (
    "kl_divergence log_cosh mean_absolute_error mean_absolute_percentage_error mean_squared_error "
    "mean_squared_logarithmic_error"
)
KERAS_2 = frozenset(
    f"tensorflow.keras.{module}{name}"
    for module, names in {
        "": "estimator experimental dtensor",
        "applications.": "regnet resnet_rs",
        "backend.": (
            "experimental function in_test_phase in_train_phase learning_phase "
            "learning_phase_scope local_conv1d local_conv2d manual_variable_initialization "
            "normalize_batch_in_training placeholder print_tensor random_binomial reset_uids "
            "set_learning_phase"
        ),
        "callbacks.": "BaseLogger experimental",
        "constraints.": "RadialConstraint radial_constraint",
        "layers.": (
            "AbstractRNNCell DenseFeatures LocallyConnected1D LocallyConnected2D experimental"
        ),
        "losses.": _LOSSES,
        "metrics.": f"MeanRelativeError MeanTensor experimental {_LOSSES}",
        "models.": "experimental model_from_config",
        "optimizers.": "experimental",
        "utils.": (
            "GeneratorEnqueuer OrderedEnqueuer SequenceEnqueuer SidecarEvaluator experimental "
            "warmstart_embedding_matrix"
        ),
    }.items()
    for name in names.split()
)
"""The names in `tf_keras` 2.21 less those in Keras 3.15: what `tf_keras` still runs."""

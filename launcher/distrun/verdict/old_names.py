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


def _names(of: dict[str, str]) -> re.Pattern[str]:
    """A pattern of the names in modules of `tensorflow`; `*` in a name is any letters."""
    dotted = (f"{module}.{name}" for module, names in of.items() for name in names.split())
    each = (re.escape(name.removeprefix(".")).replace(r"\*", r"\w*") for name in dotted)
    return re.compile(rf"tensorflow\.(?:{'|'.join(each)})(?!\w)")


TENSORFLOW_1 = _names({
    "": """*Accumulator* *Queue* *Reader* *Session* *VERSION* AUTO_REUSE ConfigProto Dimension Event
        Fixed* GPUOptions Graph* MetaGraphDef NoGradient NodeDef NotDifferentiable OpError
        OptimizerOptions Print Run* Sparse* Summary* TensorInfo Var* *_initializer *_partitioner
        *_variables *scatter_* *segment_* *fft* accumulate_n add_* angle app arg_* assert_* assign*
        batch_* bincount ceil check_numerics cholesky* clip_by_average_norm colocate_with
        confusion_matrix conj container contrib control_flow* convert_to_tensor_or_* count_*
        create_* cross cumprod decode_* delete_* depth_to_space dequantize deserialize_* diag*
        digamma dimension_* disable_* distributions div* enable_* encode_* erf* estimator examples
        expm1 extract_image_patches fake_quant_* flags floor* get_* gfile global_* igamma* imag
        initialize_* invert_permutation is_* layers lbeta lgamma lin_space log* make_template manip
        matching_files matrix_* mixed_precision mod multinomial op_scope parse_* placeholder*
        polygamma py_func python_io qr quantize* random_* read_file real reciprocal reduce_join
        regex_replace reset_default_graph resource_* rint rsqrt self_adjoint_* serialize_*
        set_random_seed setdiff1d space_to_depth sparse_* spectral squared_difference string_*
        substr svd to_* trace truncated_normal variable_* verify_* where_v2 wrap_function write_file
        zeta""",
    "data": "get_output_* make_*_iterator",
    "debugging": "is_*",
    "feature_column": "input_layer linear_model",
    "graph_util": "convert_* extract_*",
    "image": "extract_image_patches resize_* transpose_image",
    "initializers": "*variables tables_initializer uniform_unit_scaling",
    "io": "*Queue* TFRecordCompressionType tf_record_iterator",
    "losses": "*_difference *_distance *_entropy *_error *_loss *_losses",
    "metrics": """accuracy auc average_* false_* mean* percentage_below precision* recall* root_*
        sensitivity_* sparse_* specificity_* true_*""",
    "nn": """*_backprop_* *_candidate_sampler *_native *_rnn *_v2 fused_batch_norm quantized_*
        relu_layer rnn_cell xw_plus_b""",
    "random": "get_seed multinomial set_random_seed",
    "saved_model": """*_utils *uilder *constants *_signature_def build_* loader main_op* simple_save
        utils""",
    "sets": "set_*",
    "sparse": "matmul merge placeholder",
    "summary": "Event FileWriter* Summary* initialize merge* tensor_summary",
    "train": """*Hook *Optimizer* *Queue* *Reader *Session* *batch* *checkpoint* *constant* *_decay*
        *_producer *global_step* *meta_graph *queue_runner* NanLoss* Saver* Scaffold Server
        Supervisor basic_train_loop init_from_checkpoint limit_epochs match_* replica_device_setter
        summary_iterator warm_start write_graph""",
})  # fmt: skip
"""Names of TensorFlow 1, and families of them, that `tensorflow` lacks.

Source: what tf.compat.v1 of TensorFlow 2.21 has, and contrib, estimator and examples.
"""
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
KERAS_2 = _names({
    "keras": "dtensor estimator experimental",
    "keras.applications": "regnet resnet_rs",
    "keras.backend": """*learning_phase* experimental function in_*_phase local_conv*
        manual_variable_initialization normalize_batch_in_training placeholder print_tensor
        random_binomial reset_uids""",
    "keras.callbacks": "BaseLogger experimental",
    "keras.constraints": "RadialConstraint radial_constraint",
    "keras.layers": "AbstractRNNCell DenseFeatures LocallyConnected* experimental",
    "keras.losses": _LOSSES,
    "keras.metrics": f"MeanRelativeError MeanTensor experimental {_LOSSES}",
    "keras.models": "experimental model_from_config",
    "keras.optimizers": "experimental",
    "keras.utils": "*Enqueuer SidecarEvaluator experimental warmstart_embedding_matrix",
})  # fmt: skip
"""The names in `tf_keras` 2.21 less those in Keras 3.15: what `tf_keras` still runs."""

"""What TensorFlow and Keras wrap: the message that matters is found in any chain of wrappers."""

from __future__ import annotations

import pytest

from distrun.verdict.tracebacks import unwrap

IN_CODE = """\
{outer}: in user code:

    File "/u/train.py", line 12, in step  *
        return replica(batch)
    File "/u/train.py", line 7, in replica  **
        raise ValueError("no: such")

    {inner}

"""
GRAPH = """\
tensorflow.python.framework.errors_impl.{type}: Graph execution error:

Detected at node {node} defined at (most recent call last):
  File "/u/train.py", line 3, in <module>

  File "/opt/site-packages/keras/src/trainer.py", line 399, in fit

{message}
\t [[{{{{node {node}}}}}]] [Op:__inference_12]
"""
OLD_GRAPH = """\
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'loss/Sub' defined at (most recent call last):
    File "/u/train.py", line 3, in <module>
      model.fit(x, y)
Node: 'loss/Sub'
2 root error(s) found.
  (0) INVALID_ARGUMENT:  required broadcastable shapes
\t [[{{node loss/Sub}}]]
  (1) CANCELLED:  Function was cancelled before it was started
"""
KERAS = """\
ValueError: Exception encountered when calling Net.call().

{message}

Arguments received by Net.call():
  \u2022 inputs=tf.Tensor(shape=(4, 2), dtype=float32)
"""
TF_KERAS = """\
ValueError: in user code:

    File "/opt/site-packages/tf_keras/src/engine/training.py", line 1398, in train_function  *
        return step_function(self, iterator)

    ValueError: Exception encountered when calling layer 'head' (type Head).

    in user code:

        File "/u/train.py", line 30, in call  *
            check(features)

        RuntimeError: 7 features are needed: not 16


    Call arguments received by layer 'head' (type Head):
      \u2022 features=tf.Tensor(shape=(None, 16), dtype=float32)
"""
MAPPED = (
    "tensorflow.python.framework.errors_impl.InvalidArgumentError: {{function_node "
    "__wrapped__IteratorGetNext_device_/job:localhost/replica:0/task:0/device:CPU:0}} Error in "
    "user-defined function passed to MapDataset:7 transformation with iterator: Iterator::Root::"
    "Map: Field 1 in record is not a valid float: two\n\t [[{{node DecodeCSV}}]]\n"
)
INFERRED = """\
RuntimeError: Exception encountered when calling Net.call().

Could not automatically infer the output shape / dtype of 'net'. Error encountered:

in user code:

    File "/u/net.py", line 9, in call  *
        x + y

    TypeError: unsupported operand type(s) for +: 'int' and 'str'
"""
BUILT = """\
RuntimeError: Unable to automatically build the model. Please build it yourself before calling fit.
Exception encountered:
'{message}'
"""
MESSAGES = {
    "user code": (
        IN_CODE.format(outer="ValueError", inner="ValueError: no: such"), "ValueError: no: such"
    ),
    "another type in user code": (
        IN_CODE.format(outer="RuntimeError", inner="own.Staging: no GPU"), "Staging: no GPU"
    ),
    "a graph": (
        GRAPH.format(type="InvalidArgumentError", node="x/Sub", message="Received a label of 11"),
        "InvalidArgumentError: Received a label of 11",
    ),
    "two nodes of a graph": (
        GRAPH.format(
            type="InternalError",
            node="A",
            message='Detected at node B defined at (most recent call last):\n  File "/u/t.py", '
            "line 3, in f\nKeyError: 'x'",
        ),
        "KeyError: 'x'",
    ),
    "several errors of a graph": (OLD_GRAPH, "InvalidArgumentError: required broadcastable shapes"),
    "Keras": (KERAS.format(message="Input 0 has rank 1"), "ValueError: Input 0 has rank 1"),
    "a KeyError of Keras": (
        r"KeyError: 'Exception encountered when calling N.call().\n\n\x1b[1mscales\x1b[0m\n\nAr'",
        "KeyError: 'scales'",
    ),
    "a model that Keras builds": (
        BUILT.format(message="Exception encountered when calling N.call().\n\nno bias\n"),
        "RuntimeError: no bias",
    ),
    "user code in a layer in user code": (TF_KERAS, "RuntimeError: 7 features are needed: not 16"),
    "a dataset": (MAPPED, "InvalidArgumentError: Field 1 in record is not a valid float: two"),
    "a shape that is inferred": (
        INFERRED, "TypeError: unsupported operand type(s) for +: 'int' and 'str'"
    ),
    "a wrapper of nothing": ("ValueError: in user code:\n", "ValueError: in user code:"),
    "a bare type": ("bdb.BdbQuit\nbye\n", "BdbQuit"),
}  # fmt: skip


@pytest.mark.parametrize("what", MESSAGES)
def test_the_message_that_matters_is_found(what: str) -> None:
    log, message = MESSAGES[what]
    lines = log.split("\n")
    found = unwrap(lines, 0, len(lines))
    assert str(found) == message
    assert not any(line.startswith("Arguments") for line in lines[found.index : found.stop])

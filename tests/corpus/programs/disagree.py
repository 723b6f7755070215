"""Workers whose collectives do not agree: DISAGREE is `worker:1 shape`, who differs and how."""

import json
import os
import time

WHO, HOW = os.environ["DISAGREE"].split()
config = json.loads(os.environ["TF_CONFIG"])
ME = "{type}:{index}".format(**config["task"])
DIFFERS = ME == WHO

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=tf.distribute.experimental.CommunicationOptions(
        timeout_seconds=5 if HOW == "waits" else None
    )
)
context = tf.distribute.get_replica_context
SUM = tf.distribute.ReduceOp.SUM


def replica(value):
    value = tf.identity(value)  # now it has a device
    if HOW.startswith("gather"):
        return context().all_gather(value, axis=0)
    parts = [value]
    if HOW in ("skips", "order", "skips_alike"):
        parts = [value, tf.reshape(value, [2, -1]) if HOW == "skips_alike" else value[:3]]
        if DIFFERS:
            parts = parts[::-1] if HOW == "order" else parts[1:]
    return tf.add_n([tf.reduce_sum(context().all_reduce(SUM, part)) for part in parts])


@tf.function
def ordinary(value):
    return strategy.run(replica, args=(value,))


@tf.function
def unlike(value):
    return strategy.run(lambda value: context().all_gather(value * 2, axis=0), args=(value,))


def low_level(value, size):
    return tf.raw_ops.CollectiveReduceV2(
        input=value,
        group_size=size,
        group_key=77,
        instance_key=5,
        ordering_token=[],
        merge_op="Add",
        final_op="Id",
    )


for step in range(4):
    value = tf.ones([6])
    if DIFFERS and step == 2 and HOW == "shape":
        value = tf.ones([4])
    if DIFFERS and step == 2 and HOW == "waits":
        print("waiting for the evaluation", flush=True)
        time.sleep(100)
    if DIFFERS and HOW == "type":
        value = tf.cast(value, tf.float64)
    if HOW in ("gather_type", "gather_rank") and DIFFERS:
        value = tf.cast(value, tf.int32) if HOW == "gather_type" else value[:, tf.newaxis]
    if HOW == "group_type" and DIFFERS:
        value = tf.cast(value, tf.int32)
    if HOW in ("group_size", "group_type"):
        result = low_level(value, 3 if DIFFERS and HOW == "group_size" else 2)
    elif HOW == "other_call" and DIFFERS and step == 1:
        result = unlike(value)
    else:
        result = ordinary(value)
    print("step", step, strategy.experimental_local_results(result)[0].numpy(), flush=True)
print("done", flush=True)

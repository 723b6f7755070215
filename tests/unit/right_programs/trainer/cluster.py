"""What a task does in the cluster."""

import os

import tensorflow as tf

os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")


def is_server(resolver):
    return resolver.task_type in ("worker", "ps")


def serve(resolver):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()

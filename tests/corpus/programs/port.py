"""A server on a port that something else listens on."""

import socket

import faults
import tensorflow as tf

if faults.ME != faults.WHO:
    import time

    time.sleep(120)
if faults.WHAT == "plain":
    first = socket.create_server(("localhost", 0))
    socket.create_server(first.getsockname())
with socket.create_server(("", 0), reuse_port=False) as taken:
    address = f"localhost:{taken.getsockname()[1]}"
    tf.distribute.Server({"worker": [address]}, job_name="worker", task_index=0)

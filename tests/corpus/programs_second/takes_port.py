"""Serves at its own port what is taken already: a stale server of the last run."""

import http.server
import os
import socket
import socketserver
import sys
import time

if os.environ["DISTRUN_TASK"] != os.environ["WHO"]:
    time.sleep(30)
stale = socket.socket()
stale.bind(("127.0.0.1", 0))
stale.listen()
port = stale.getsockname()[1]
if sys.argv[1:] == ["http"]:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), http.server.BaseHTTPRequestHandler)
elif sys.argv[1:] == ["tensorflow"]:
    os.environ.pop("TF_GRPC_REUSE_PORT", None)
    import tensorflow as tf

    tf.distribute.Server({"worker": [f"localhost:{port}"]}, job_name="worker", task_index=0)
else:
    socketserver.TCPServer(("127.0.0.1", port), socketserver.BaseRequestHandler)

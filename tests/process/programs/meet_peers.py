"""A task that serves its job's id on its port and checks that each peer's is the same."""

import json
import os
import socket
import sys
import threading
import time

DEADLINE = time.monotonic() + 60
config = json.loads(os.environ["TF_CONFIG"])
addresses = config["cluster"]["worker"]
own = addresses[config["task"]["index"]]
mine = os.environ["DISTRUN_JOB_ID"].encode()

# As TensorFlow's server does: share the port that distrun holds.
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(("", int(own.rpartition(":")[2])))
server.listen()


def ask(address):
    host, _, port = address.rpartition(":")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=60) as peer:
                return peer.recv(100)
        except ConnectionRefusedError:
            if time.monotonic() > DEADLINE:
                sys.exit(f"nobody at {address}")
            time.sleep(0.02)


def serve() -> None:
    for _ in addresses:
        peer, _ = server.accept()
        with peer:
            peer.sendall(mine)


serving = threading.Thread(target=serve)
serving.start()
for address in addresses:
    answer = ask(address)
    if answer != mine:
        print(f"{address} is a stranger: {answer!r}")
        os._exit(9)
print("met", " ".join(f"worker:{index}" for index in range(len(addresses))))
serving.join()

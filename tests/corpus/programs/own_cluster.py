"""The mistake of a TF_CONFIG that the script writes itself."""

import json
import os

config = json.loads(os.environ["TF_CONFIG"])
me = f"{config['task']['type']}:{config['task']['index']}"
workers = config["cluster"]["worker"]
mistake = os.environ["MISTAKE"]
if mistake == "same_index":
    config["task"]["index"] = 0
elif mistake == "fewer" and me == "worker:1":
    config["cluster"]["worker"] = workers[:1]
    config["task"]["index"] = 0
elif mistake == "more" and me == "worker:1":
    config["cluster"]["worker"] = [workers[0], "localhost:1", workers[1]]
    config["task"]["index"] = 2
elif mistake == "everyone_more":
    config["cluster"]["worker"] = [*workers, "localhost:1"]
elif mistake == "swapped" and me == "worker:1":
    config["cluster"]["worker"] = [workers[1], workers[0]]
elif mistake == "beyond" and me == "worker:1":
    config["task"]["index"] = 5
elif mistake == "role" and me == "worker:1":
    config["task"]["type"] = "wroker"
elif mistake == "no_task" and me == "worker:1":
    del config["task"]
elif mistake == "json" and me == "worker:1":
    os.environ["TF_CONFIG"] = str(config)
if mistake != "json" or me != "worker:1":
    os.environ["TF_CONFIG"] = json.dumps(config)
import allreduce  # noqa: E402, F401

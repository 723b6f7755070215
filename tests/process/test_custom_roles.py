"""Roles with programs of their own: how they start, are found, fail, restart and end."""

import re

import yaml

from harness.command import Distrun
from harness.parts.settings import ROOTS

DISPATCHER = """
import socket, sys
server = socket.socket()  # no option that would let it share a port
server.bind(("", int(sys.argv[sys.argv.index("--port") + 1])))
server.listen()
print("serves", flush=True)
while True:
    server.accept()[0].sendall(b"a batch")
"""
DATA_WORKER = """
import socket, sys
def option(name):
    host, _, port = sys.argv[sys.argv.index(name) + 1].rpartition(":")
    return host, int(port)
batch = socket.create_connection(option("--dispatcher")).recv(99)
with socket.create_server(option("--address")) as server:
    while True:
        server.accept()[0].sendall(batch)
"""
TRAINER = """
import json, os, socket
for address in json.loads(os.environ["DISTRUN_ADDRESSES"])["data_worker"]:
    host, _, port = address.rpartition(":")
    print(socket.create_connection((host, int(port))).recv(99).decode(), "by", address)
print(sorted(json.loads(os.environ["TF_CONFIG"])["cluster"]))
"""
SERVE = "exec sleep 600"


def states(distrun: Distrun) -> dict[str, str]:
    return {task["task"]: task["state"] for task in distrun.status()["tasks"]}


def shell(script: str, **keys: object) -> dict[str, object]:
    return {"command": ["sh", "-c", script], **keys}


def test_the_roles_of_the_page_start_in_order_and_find_each_other(distrun: Distrun) -> None:
    page = (ROOTS[1] / "docs/spec.md").read_text()
    mark = "<!-- run by: tests/process/test_custom_roles.py -->\n```yaml\n"
    cluster = yaml.safe_load(page.partition(mark)[2].partition("```")[0])["cluster"]
    for name, text in (("dispatcher", DISPATCHER), ("data_worker", DATA_WORKER)):
        (distrun.cwd / f"{name}.py").write_text(text)
    (distrun.cwd / "train.py").write_text(TRAINER)
    spec = distrun.write_spec("", cluster=cluster, program={"script": "train.py"})

    done = distrun("launch", spec)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("| ")[2] for line in done.stdout.splitlines()]
    assert len([line for line in lines if re.fullmatch(r"a batch by localhost:\d+", line)]) == 4
    assert lines.count("['worker']") == 2
    told = distrun.asked("events")
    order = [
        told.index(f"  {words}")
        for words in (
            "dispatcher:0 started", "dispatcher:0 is ready", "data_worker:1 started",
            "data_worker:1 is ready", "worker:1 started",
        )
    ]  # fmt: skip
    assert order == sorted(order)
    assert states(distrun) == {
        **dict.fromkeys(("worker:0", "worker:1"), "succeeded"),
        **dict.fromkeys(("dispatcher:0", "data_worker:0", "data_worker:1"), "stopped"),
    }


def test_a_line_counts_after_much_output_but_not_of_another_attempt(distrun: Distrun) -> None:
    """The proxy is ready, then fails together with the workers' first attempt."""
    proxy = (
        "[ $DISTRUN_ATTEMPT = 0 ] && echo ready && until [ -e end ]; do sleep 0.02; done && exit 3"
        "; [ $DISTRUN_ATTEMPT = 1 ] && sleep 1 && touch late && echo ready; exec sleep 600"
    )
    much = "head -c 400000 /dev/zero | tr '\\0' x; echo; echo hub listening"
    done = distrun.launch(
        "[ $DISTRUN_ATTEMPT = 0 ] && touch end && exec sleep 600; [ -e late ] || exit 9",
        cluster={
            "worker": {"count": 2, "after": ["proxy"]},
            "proxy": shell(proxy, ready={"line": "^ready$"}, in_tf_config=True, after=["hub"]),
            "hub": shell(f"{much}; {SERVE}", ready={"line": r"\S+ listening"}),
        },
        restart={"max": 1, "backoff": "10ms"},
        timeouts={"start": "25s"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "restarted after proxy:0 exited 3" in distrun.asked("logs", "--raw", "-t", "worker:0")


def test_roles_that_are_not_ready_in_time(distrun: Distrun) -> None:
    """A regular expression that takes forever delays no timeout."""
    done = distrun.launch(
        "true",
        cluster={
            "worker": {"count": 2, "after": ["relay", "proxy", "cache"]},
            "relay": shell(SERVE),
            "proxy": shell(f"echo {'a' * 56}b; {SERVE}", ready={"line": "^(a+)+$"}),
            "cache": shell(f"echo something; {SERVE}", ready="line"),
        },
        timeouts={"start": "6s"},
    )
    assert done.returncode == 75
    address = next(t["address"] for t in distrun.status()["tasks"] if t["task"] == "relay:0")
    found = distrun.status()["outcome"]["cause_code"]["within"]
    assert [(each["code"], each["task"]) for each in found] == [
        *(("task_not_ready", "proxy:0"), ("task_not_ready", "relay:0")),
        ("line_search_behind", "proxy:0"),
    ]
    assert (found[1]["name"], states(distrun)["worker:0"]) == (address, "stopped")

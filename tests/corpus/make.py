"""Makes the corpus: runs real tasks into failures and stores their records, logs and labels.

python tests/corpus/make.py rules [PATTERN]     # or a new part, with programs of its own

`programs` has what new cases are made of: a FAULT that strikes a task at a step. Most programs of
recorded cases have served: they are in the history.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TAIL = 64 * 1024
KEPT = 20 * 1024


def main() -> None:
    part, pattern = sys.argv[1], (sys.argv[2:] or [""])[0]
    cases = yaml.safe_load((HERE / f"{part}.yaml").read_text())
    if pattern == "--relabel":
        relabel(part, cases)
        return
    for case in cases:
        path = HERE / part / f"{case['name']}.json"
        if re.search(pattern, case["name"]) and (pattern or not path.exists()):
            began = time.monotonic()
            stored = run(case)
            ended = stored["events"][-1]["outcome"]
            if ended["result"] != "failed":
                print(f"{case['name']}: {ended['cause']}: no failure to learn from", flush=True)
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(stored, indent=1) + "\n")
            print(
                f"{case['name']}: {time.monotonic() - began:.0f} s, {ended.get('cause')}",
                flush=True,
            )


def relabel(part: str, cases: list[dict[str, Any]]) -> None:
    """Write the list's labels into what is stored."""
    for case in cases:
        path = HERE / part / f"{case['name']}.json"
        if path.exists():
            kept = json.loads(path.read_text())
            kept["label"] = {"task": case["task"], "kind": case["kind"]}
            path.write_text(json.dumps(kept, indent=1) + "\n")


def run(case: dict[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="corpus-"))
    try:
        work = folder / "job"
        shutil.copytree(HERE / case.get("programs", "programs"), work)
        spec = {"name": "job", "timeouts": {"run": "240s"}, **case["spec"]}
        (work / "job.yaml").write_text(yaml.safe_dump(spec))
        environ = {
            **os.environ,
            "DISTRUN_HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "launcher"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **case.get("environ", {}),
        }
        distrun = [sys.executable, "-m", "distrun", "launch", "job.yaml"]
        subprocess.run(
            ["nice", "-n", "5", *case.get("through", []), *distrun],
            cwd=work,
            env=environ,
            check=False,
            timeout=400,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        (job,) = (folder / "home" / "jobs").iterdir()
        return neutral(stored(case, job), folder)
    finally:
        shutil.rmtree(folder)


def stored(case: dict[str, Any], job: Path) -> dict[str, Any]:
    events = [json.loads(line) for line in (job / "events.jsonl").read_text().splitlines()]
    logs = {
        path.stem.replace("-", ":"): trimmed(path.read_bytes()[-TAIL:].decode("utf-8", "replace"))
        for path in sorted((job / "logs").glob("*.log"))
    }
    # What was found when it was made is no fact of the case.
    for event in events:
        if "outcome" in event:
            event["outcome"].pop("verdict", None)
    label = {"task": case["task"], "kind": case["kind"]}
    return {
        "label": label,
        "events": [e for e in events if e["event"] != "VerdictReached"],
        "logs": logs,
    }


def trimmed(text: str) -> str:
    """The end of a log, and some of what came before."""
    return text if len(text) <= KEPT else text[: KEPT // 4] + "\n[…]\n" + text[-KEPT * 3 // 4 :]


def neutral(stored: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Without the paths and names of the machine on which it was made."""
    import socket

    text = json.dumps(stored)
    for path, name in (
        (str(folder / "job"), "/home/user/job"),
        (str(folder / "home"), "/home/user/.local/state/distrun"),
        (str(folder), "/home/user"),
        (sys.prefix, "/opt/venv"),
        (installed_prefix(), "/opt/venv"),
        (sys.base_prefix, "/usr"),
        (str(ROOT), "/opt/distrun"),
    ):
        text = text.replace(path, name)
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", text)
    neutral: dict[str, Any] = json.loads(text)
    return neutral


def installed_prefix() -> str:
    """The environment that TensorFlow is installed in; a virtual one may borrow it."""
    found = importlib.util.find_spec("tensorflow")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parents[4])


if __name__ == "__main__":
    main()

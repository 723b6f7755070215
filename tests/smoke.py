"""Uses the installed command once, from a YAML file to nothing left, on this machine's ports.

Standard library only, so that it runs wherever distrun is installed:

    python tests/smoke.py
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.waiting import SOON, wait_until

SPEC = """\
name: {name}
strategy: multi_worker_mirrored
cluster:
  worker: 2
program:
  script: mnist
  args: [--dataset, synthetic, --batch-size, 16]
"""
WORKERS = ("worker:0", "worker:1")


class Smoke:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        beside = Path(sys.executable).with_name("distrun")
        self.command = [str(beside)] if beside.exists() else [sys.executable, "-m", "distrun"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DISTRUN_")}
        kept.pop("TF_CONFIG", None)
        self.environment = {**kept, "DISTRUN_HOME": str(self.home), "NO_COLOR": "1"}

    def spec(self, name: str) -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(SPEC.format(name=name))
        return str(path)

    @contextmanager
    def started(self, output: Path, *args: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run `distrun ARGS` in the background, its stdout and stderr in a file."""
        with open(output, "wb") as file:
            process = subprocess.Popen(
                [*self.command, *args],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait(SOON)

    def run(self, *args: str, code: int = 0) -> str:
        """Run `distrun ARGS`, expect this exit code, and return its stdout."""
        done = subprocess.run(
            [*self.command, *args], env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=SOON, check=False,
        )  # fmt: skip
        said = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert done.returncode == code, f"distrun {' '.join(args)}: {done.returncode}\n{said}"
        return done.stdout

    def processes(self) -> list[str]:
        """List what still runs: tasks by their job, supervisors and agents by their home."""
        jobs = os.listdir(self.home / "jobs") if (self.home / "jobs").is_dir() else []
        wanted = {f"DISTRUN_JOB_ID={job}".encode() for job in jobs}
        wanted.add(f"DISTRUN_HOME={self.home}".encode())
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = Path("/proc", pid, "environ").read_bytes().split(b"\0")
                command = Path("/proc", pid, "cmdline").read_bytes()
            except OSError:  # ended just now, or another user's
                continue
            if int(pid) != os.getpid() and not wanted.isdisjoint(environ):
                found.append(f"{pid} {command.decode(errors='replace')!r}")
        return found

    def expect_nothing_left(self) -> None:
        wait_until(lambda: not self.processes(), what="every process has ended")


def train_and_follow(smoke: Smoke) -> None:
    outputs = [smoke.folder / name for name in ("launch.txt", "logs.txt")]
    args = ("--", "--epochs", "2", "--steps-per-epoch", "5")
    with smoke.started(outputs[0], "launch", smoke.spec("first"), *args) as launch:
        wait_until(
            lambda: launch.poll() is not None or '"first"' in smoke.run("ps", "-a", "--json"),
            what="the job is among those of `distrun ps`",
        )
        with smoke.started(outputs[1], "logs", "-f", "first") as logs:
            wait_until(lambda: launch.poll() is not None, 300.0, "the job has ended")
            wait_until(lambda: logs.poll() is not None, what="`logs -f` ends with the job")
    for process, output in zip((launch, logs), outputs, strict=True):
        text = output.read_text(errors="replace")
        assert process.returncode == 0, f"{output.name}: {process.returncode}\n{text[-3000:]}"
        for worker in WORKERS:
            lines = [each for each in text.splitlines() if each.startswith(worker)]
            shown = sum("loss" in line for line in lines)
            assert shown >= 2, f"{output.name}: {shown} epochs of {worker}\n{text[-3000:]}"
    smoke.run("wait", "first")
    smoke.expect_nothing_left()


def detach_and_kill(smoke: Smoke) -> None:
    (job,) = smoke.run("launch", smoke.spec("second"), "--detach", "--", "--epochs", "1000").split()
    assert job in smoke.run("ps"), "`distrun ps` does not show the detached job"
    listed = json.loads(smoke.run("ps", "--json"))
    assert (listed["version"], len(listed["jobs"])) == (2, 1), f"ps --json: {listed}"
    status = json.loads(smoke.run("status", job, "--json"))
    assert [each["task"] for each in status["job"]["tasks"]] == list(WORKERS), f"status: {status}"
    assert len(smoke.processes()) >= len(WORKERS), "the detached job has no processes"
    smoke.run("kill", job)
    smoke.run("wait", job, code=137)
    smoke.expect_nothing_left()


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dr-") as name:
        smoke = Smoke(Path(name))
        try:
            for step in (train_and_follow, detach_and_kill):
                print(f"smoke: {step.__name__.replace('_', ' ')}", flush=True)
                step(smoke)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            print(f"smoke: NOT as it must be: {error}", file=sys.stderr)
            if smoke.processes():
                subprocess.run(
                    [*smoke.command, "kill", "--all"], env=smoke.environment, check=False
                )
            return 1
    print(f"smoke: all as it must be, after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
